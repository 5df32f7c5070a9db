"""What the launch scripts of a public benchmark set and the columns of its rows leave out.

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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_POLLED: Final = ("DeepSeek-R1", "Qwen3.5-397B-A17B")
_POLLED_ON: Final = ("dgx-b200", "dgx-b300")


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
        return 20.0 if short and int(row.get("tp") or 1) < 8 else 0.0
    return 0.0


def _receive_interval(row: Mapping[str, str]) -> float:
    model, machine, fp8 = row.get("model", "").split("/")[-1], row.get("hardware"), row.get("weight_dtype") == "fp8"
    if model not in _POLLED or machine not in _POLLED_ON:
        return 1.0
    few = float(row.get("concurrency") or 1.0) < 16.0
    if fp8 and model == "DeepSeek-R1" and row.get("tp") == "4":
        return 10.0
    if fp8 and machine == "dgx-b300" and model != "DeepSeek-R1" and row.get("engine_version", "").startswith("0.5.10"):
        return 10.0
    return 10.0 if few else 30.0
