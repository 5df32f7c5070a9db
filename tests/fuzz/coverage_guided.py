"""A search guided by coverage: `python tests/fuzz/coverage_guided.py TARGET [RUNS [SEED]]`, with atheris installed.

A run that finds something ends with the input in a file `crash-*`, `timeout-*` or `oom-*`; an input may take 2 s and
the process 500 MB, whole commands (answers, options) 60 s and 2,000 MB.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

try:
    import atheris
except ModuleNotFoundError:
    sys.exit("atheris is not installed; there are wheels for Linux: pip install atheris")

sys.path.insert(0, str(Path(__file__).parent))
# Only the package is watched: what numpy or PyYAML branch on says little about the reader in front of them.
with atheris.instrument_imports(include=["llmcap"]):
    import targets


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in targets.TARGETS:
        sys.exit(f"name a target: {', '.join(targets.TARGETS)}")
    runs, seed = [*sys.argv[2:4], *("100000", "1")[len(sys.argv[2:4]) :]]
    target = targets.TARGETS[name]
    corpus = Path(tempfile.mkdtemp(prefix=f"llmcap-corpus-{name}-"))
    for i, content in enumerate(targets.SEEDS[name]):
        (corpus / f"seed{i}").write_bytes(content)
        target(content)  # what loads on first use is loaded before the clock runs
    words = corpus.with_suffix(".dict")
    hexed = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in targets.WORDS[name])
    words.write_text("".join(f'"{word}"\n' for word in hexed), encoding="ascii")
    # Whole commands draw figures and write pages; the rest answers at once.
    seconds, megabytes = (60, 2000) if name in ("answers", "options") else (2, 500)
    atheris.Setup(
        [
            sys.argv[0], str(corpus), f"-runs={runs}", f"-seed={seed}", f"-dict={words}", f"-timeout={seconds}",
            f"-rss_limit_mb={megabytes}", "-max_len=4096", "-print_final_stats=1", "-verbosity=1",
            f"-len_control={0 if name == 'answers' else 100}",
        ],
        lambda data: int(target(data)) * 0,
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    main()
