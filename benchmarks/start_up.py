"""What a cold command costs, as ratios measured in one run.

    python benchmarks/start_up.py            half a minute
    python benchmarks/start_up.py --quick    some seconds, fewer runs

The yardstick is a Python that imports the four libraries that an estimate cannot do without, and nothing else. All
figures are processor time, user and system, of whole processes that take turns; byte code is there before they start.
The calibration is timed inside a process that has read other documents already: its types, validators and YAML.
"""

from __future__ import annotations

import argparse
import compileall
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import llmcap

YARDSTICK = "import numpy, pydantic, yaml, typer"
COMMANDS = {
    "llmcap estimate": "estimate",
    "llmcap estimate --format json": "estimate --format json",
    "llmcap estimate --users 10": "estimate --users 10 --context 250k",
    "llmcap models list": "models list",
    "llmcap --help": "--help",
}
CALIBRATION = """
import time
from llmcap.specs.registry import load
load("model", "llama-4-maverick"), load("device", "b200")
start = time.process_time()
load("calibration", "b200")
print(time.process_time() - start)
"""


def spent(arguments: list[str]) -> float:
    """Processor time of one process. [s]"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    runs = 5 if parser.parse_args().quick else 20
    compileall.compile_dir(Path(llmcap.__file__).parent, quiet=1)
    asked = {"four imports": ["-c", YARDSTICK]}
    asked |= {name: ["-m", "llmcap", *words.split()] for name, words in COMMANDS.items()}
    seen: dict[str, list[float]] = {name: [] for name in asked}
    for run in range(runs + 1):
        for name, arguments in asked.items():
            seconds = spent(arguments)
            if run:  # the first round fills the caches of files
                seen[name].append(seconds)
    yardstick = seen["four imports"]
    print(f"{'':32}{'least':>10}{'median':>10}{'ratio of least':>18}{'of medians':>14}")
    for name, values in seen.items():
        least, middle = min(values), statistics.median(values)
        ratios = f"{least / min(yardstick):18.2f}{middle / statistics.median(yardstick):14.2f}"
        print(f"{name:32}{least * 1e3:7.0f} ms{middle * 1e3:7.0f} ms{ratios}")
    loads = [
        float(subprocess.run([sys.executable, "-c", CALIBRATION], capture_output=True, text=True, check=True).stdout)
        for _ in range(runs)
    ]
    print(f"{'reading the calibration':32}{min(loads) * 1e3:7.1f} ms{statistics.median(loads) * 1e3:7.1f} ms")


if __name__ == "__main__":
    main()
