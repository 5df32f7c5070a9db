"""What a source's published scripts and commands set and the columns of its rows leave out.

InferenceX (github.com/SemiAnalysisAI/InferenceX, Apache-2.0) publishes the script of each run under `benchmarks/`. Two
options of theirs let a prompt wait while the engine decodes, for the sake of fuller steps, and belong to the load as
much as the number of clients does:

- TensorRT-LLM, `batch_wait_timeout_iters: N`: prompts are held back for N steps unless they fill a step
  (`70b_fp8_h200_trt_slurm.sh`, `70b_fp4_b200_trt_slurm.sh`: 20 at 1,024 tokens in and out below 8 devices).
- SGLang, `--scheduler-recv-interval N`: the scheduler looks for new requests every N decode steps, half of which a
  request waits on average (`dsr1_fp8_b200.sh`, `dsr1_fp4_b200.sh`, `qwen3.5_bf16_b200.sh`, `qwen3.5_fp8_b200.sh`: 10
  below 16 clients and 30 from there on; `dsr1_fp8_h200.sh` and `qwen3.5_fp8_h200.sh` do not set it). The first scripts
  for B300 are those of B200 (`perf-changelog.yaml`), which is assumed of the runs before them too;
  `qwen3.5_fp8_b300.sh`, from SGLang 0.5.10 on, sets 10, as do the scripts of DeepSeek-R1 in fp8 on four devices.

The performance overview of TensorRT-LLM (github.com/NVIDIA/TensorRT-LLM, docs/source, `perf-overview.md` at the
revisions that the rows name) lists under "Reproducing Benchmarked Results" how many requests of each length are fed at
once, and runs models with experts under attention data parallelism (`enable_attention_dp: true`, `--ep`): its "TP8" of
1.0 is the "DEP8" of later editions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

_POLLED: Final = ("DeepSeek-R1", "Qwen3.5-397B-A17B")
_POLLED_ON: Final = ("dgx-b200", "dgx-b300")

#: Requests of a run by input and output length, in the TensorRT-LLM performance overviews 0.17 to 1.2.
_REQUESTS: Final = {
    ("128", "128"): 30_000, ("128", "2048"): 3000, ("128", "4096"): 1500, ("500", "2000"): 3000,
    ("1000", "1000"): 3000, ("1000", "2000"): 1500, ("2048", "128"): 3000, ("2048", "2048"): 1500,
    ("5000", "500"): 1500, ("20000", "2000"): 1000, ("1024", "1024"): 3000, ("8192", "1024"): 1500,
    ("1024", "8192"): 1500, ("32768", "1024"): 1000, ("1024", "32768"): 1000,
}  # fmt: skip
_OVERVIEW: Final = "perf-overview.md"
#: The edition that gives models with experts as TP.
_OVERVIEW_1_0: Final = "perf-overview.md @00f37686"
_WITH_EXPERTS: Final = ("Qwen3-235B", "Qwen3-30B", "Llama-4", "DeepSeek")


def wait_steps(row: Mapping[str, str]) -> float:
    """Decode steps that a prompt waits on average by the launch options of its run.

    Parameters
    ----------
    row : mapping
        Columns of a measured row.

    Returns
    -------
    float
        0 for sources that publish no scripts, and for options at their defaults.

    Examples
    --------
    >>> run = {"source": "silicon_sample.csv", "date": "2026-03-25", "model": "deepseek-ai/DeepSeek-R1", "tp": "8"}
    >>> wait_steps(run | {"engine": "sglang", "hardware": "dgx-b200", "concurrency": "64"})
    14.5
    """
    if "silicon_sample" not in row.get("source", "") or not row.get("date"):
        return 0.0
    engine = row.get("engine", "").lower()
    if "sglang" in engine:
        return (_receive_interval(row) - 1.0) / 2.0
    if "trtllm" in engine and "Llama-3.1-70B" in row.get("model", ""):
        short = row.get("isl") == row.get("osl") == "1024"
        return 20.0 if short and _number(row, "tp") < 8.0 else 0.0
    return 0.0


def requests_in_all(row: Mapping[str, str]) -> float:
    """Requests that a run at saturation is fed, all at once; `inf` where they are not known.

    Examples
    --------
    >>> requests_in_all({"source": "perf-overview.md @00f37686", "concurrency": "max", "isl": "128", "osl": "4096"})
    1500.0
    """
    if _OVERVIEW not in row.get("source", "") or row.get("concurrency", "").lower() != "max":
        return math.inf
    return float(_REQUESTS.get((row.get("isl", ""), row.get("osl", "")), math.inf))


def layout(row: Mapping[str, str]) -> dict[str, str]:
    """Columns of the layout that the source's commands set otherwise than the row says.

    Examples
    --------
    >>> layout({"source": "perf-overview.md @00f37686", "model": "Qwen/Qwen3-235B-A22B", "tp": "8", "ep": "1"})
    {'tp': '1', 'dp': '8', 'ep': '8'}
    """
    several = _number(row, "tp")
    if several == 1.0 or _OVERVIEW_1_0 not in row.get("source", ""):
        return {}
    if not any(name in row.get("model", "") for name in _WITH_EXPERTS):
        return {}
    return {"tp": "1", "dp": row["tp"], "ep": row["tp"]}


def _number(row: Mapping[str, str], column: str) -> float:
    """1 where there is none; whether a cell must be a number is for the reader of rows to say."""
    try:
        return float(row.get(column, ""))
    except ValueError:
        return 1.0


def _receive_interval(row: Mapping[str, str]) -> float:
    model, machine, fp8 = row.get("model", "").split("/")[-1], row.get("hardware"), row.get("weight_dtype") == "fp8"
    if model not in _POLLED or machine not in _POLLED_ON:
        return 1.0
    few = _number(row, "concurrency") < 16.0
    if fp8 and model == "DeepSeek-R1" and row.get("tp") == "4":
        return 10.0
    if fp8 and machine == "dgx-b300" and model != "DeepSeek-R1" and row.get("engine_version", "").startswith("0.5.10"):
        return 10.0
    return 10.0 if few else 30.0
