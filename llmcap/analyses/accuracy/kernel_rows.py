"""Measured kernel rows, cleaned by stated rules and turned into the quantities the kernel forms need.

Reads a folder of CSV files with the columns of the AIConfigurator-core package data: `gemm_large_m.csv`,
`gemm_small_m.csv`, `prefill_attention.csv`, `decode_attention.csv`, `moe_llama4.csv`, `moe_all_models.csv`,
`collectives.csv`. A file that is absent contributes no rows. No row is dropped because a model predicts it
badly; the rules look at how it was measured:

1. The newest engine version of each (device, engine, dtype) with at least `MINIMUM_ROWS` rows; the fastest of
   several kernels for one case.
2. No kernel of a product whose fastest row takes over `HOST_BOUND_S`: the host's launch was timed (eager
   mode).
3. No all-reduce in eager mode: engines replay CUDA graphs where it matters.
4. No attention with a sliding window, and no second-choice kernel of an engine (SGLang with FlashInfer).
5. A 16-bit query over an FP8 cache counts as FP8 attention: the engines quantise the query and run FP8
   kernels, and such rows reach 85 % of the Hopper bf16 peak where bf16 ones end at 68 %.
6. No MoE row whose FLOP/s times latency misses the model's FLOP by over 2 %: an average of two kernels. No
   FP8 MoE of vLLM 0.24 on H200, marked faulty: a third of the rate of its own bf16 rows.
7. MoE with balanced routing only: power-law rows time the most loaded rank of a random draw.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.engine.kernels import query_tiles
from llmcap.errors import DocumentError, Problem, printable

if TYPE_CHECKING:
    import pandas as pd

HOST_BOUND_S: Final = 40e-6
MINIMUM_ROWS: Final = 50


@dataclass(frozen=True)
class DeviceRates:
    """Dense datasheet rates of a measured device, the denominators of its efficiencies."""

    device: str
    family: str
    peaks: Mapping[str, float]
    memory_bandwidth: float
    compute_units: int
    link_bandwidth: float


_HOPPER_PEAKS: Final = {"bf16": 989e12, "fp8": 1979e12}
MEASURED_DEVICES: Final[dict[str, DeviceRates]] = {
    "b200_sxm": DeviceRates("b200", "blackwell", {"bf16": 2250e12, "fp8": 4500e12, "nvfp4": 9000e12}, 8e12, 148, 900e9),
    "h200_sxm": DeviceRates("h200", "hopper", _HOPPER_PEAKS, 4.8e12, 132, 450e9),
    "h100_sxm": DeviceRates("h100", "hopper", _HOPPER_PEAKS, 3.35e12, 132, 450e9),
}
"""By the `system` column. NVIDIA datasheets (dense); compute units as CUDA reports them."""

MOE_SHAPES: Final[dict[str, tuple[int, int, int, int]]] = {
    "DeepSeek-V3/R1": (7168, 2048, 8, 256),
    "Kimi-K2": (7168, 2048, 8, 384),
    "Llama4-Maverick": (5120, 8192, 1, 128),
    "Llama4-Scout": (5120, 8192, 1, 16),
    "Mixtral-8x22B": (6144, 16384, 2, 8),
    "Mixtral-8x7B": (4096, 14336, 2, 8),
    "Qwen3-235B": (4096, 1536, 8, 128),
    "Qwen3-30B-A3B": (2048, 768, 8, 128),
    "gpt-oss-120b": (2880, 2880, 4, 128),
}
"""Hidden size, expert width, experts per token, experts: the models' config.json on Hugging Face."""

WEIGHT_BYTES: Final = {
    "bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625,
    "int4": 0.5625, "mxfp4": 0.53125, "mxfp4_fp8": 0.53125,
}  # fmt: skip
ACTIVATION_BYTES: Final = {**WEIGHT_BYTES, "int4": 2.0, "mxfp4": 2.0, "mxfp4_fp8": 1.0}
PEAK_OF: Final = {
    "bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4",
    "int4": "bf16", "mxfp4": "bf16", "mxfp4_fp8": "fp8",
}  # fmt: skip
"""Tensor peak a dtype runs at: weight-only formats multiply in the activation's dtype."""

_DTYPES: Final = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4_fp8",
}  # fmt: skip
_TOKEN_TILE: Final = 128


@dataclass(frozen=True)
class KernelRows:
    """Rows of one operator: labels, measured time and the quantities of its form, one array each."""

    labels: pd.DataFrame
    """Columns device, family, backend, dtype, case (the configuration as text, the same for every engine)."""
    time: NDArray[np.float64]
    values: dict[str, NDArray[np.float64]]
    sizes: tuple[str, ...]
    """Columns of `labels` whose smallest and largest value describe the range."""

    def take(self, mask: NDArray[np.bool_]) -> KernelRows:
        """Rows where `mask` holds."""
        values = {name: column[mask] for name, column in self.values.items()}
        return KernelRows(self.labels[mask], self.time[mask], values, self.sizes)

    def where(self, **labels: str) -> KernelRows:
        """Rows whose labels have these values."""
        mask = np.ones(self.time.size, dtype=bool)
        for name, value in labels.items():
            mask &= np.asarray(self.labels[name] == value, dtype=bool)
        return self.take(mask)

    def __len__(self) -> int:
        return int(self.time.size)


def read_kernel_rows(directory: Path, devices: Mapping[str, DeviceRates] = MEASURED_DEVICES) -> dict[str, KernelRows]:
    """Rows by operator: products, attention of prefill and decode, experts, four collectives.

    Raises
    ------
    DocumentError
        When the folder does not exist or a file lacks a column.
    """
    frames = {
        "gemm": _gemm(_read(directory, "gemm_large_m.csv", "gemm_small_m.csv"), devices),
        "prefill_attention": _prefill(_read(directory, "prefill_attention.csv"), devices),
        "decode_attention": _decode(_read(directory, "decode_attention.csv"), devices),
        "moe": _moe(_read(directory, "moe_llama4.csv", "moe_all_models.csv"), devices),
    }
    collectives = _read(directory, "collectives.csv")
    for operator, name in _COLLECTIVES.items():
        frames[operator] = _collective(collectives, name, devices)
    return {operator: rows for operator, rows in frames.items() if rows is not None and len(rows)}


#: (texts, numbers) that the files of an operator must have, by the first of them.
_COLUMNS: Final = {
    "gemm_large_m.csv": ("system backend ver kernel_source gemm_dtype", "m n k latency_ms"),
    "prefill_attention.csv": (
        "system backend ver kernel_source attn_dtype kv_cache_dtype",
        "batch_size isl num_heads num_key_value_heads head_dim window_size latency_ms",
    ),
    "decode_attention.csv": (
        "system backend ver kernel_source kv_cache_dtype",
        "batch_size kvlen num_heads num_key_value_heads latency_ms kv_mb",
    ),
    "moe_llama4.csv": (
        "system backend ver moe_dtype model distribution",
        "num_tokens moe_tp_size moe_ep_size latency_ms tflops",
    ),
    "collectives.csv": ("system src ver kernel_source op_name dt", "num_gpus bytes latency_ms"),
}


def _read(directory: Path, *names: str) -> Any:
    import pandas as pd

    if not directory.is_dir():
        hint = "give the folder that holds the kernel CSV files"
        raise DocumentError([Problem(str(directory), None, "", "is not a folder", hint)])
    texts, numbers = (listed.split() for listed in _COLUMNS[names[0]])
    files = [directory / f"{name}{end}" for name in names for end in ("", ".gz")]
    frames = [_table(file, texts, numbers) for file in files if file.is_file()]
    return pd.concat(frames, ignore_index=True) if frames else None


def _table(file: Path, texts: list[str], numbers: list[str]) -> Any:
    import pandas as pd

    try:
        frame = pd.read_csv(file)
    except (OSError, EOFError, zlib.error, ValueError) as error:  # pandas' own errors are ValueErrors
        raise DocumentError([Problem(str(file), None, "", f"is no CSV table: {printable(error, 100)}")]) from None
    missing = [name for name in (*texts, *numbers) if name not in frame.columns]
    if missing:
        text = f"lacks the columns {', '.join(missing)}"
        raise DocumentError([Problem(str(file), 1, "", text, "see the docs of calibrate")])
    for name in numbers:
        values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=float)
        wrong = ~(np.isfinite(values) & (values > 0.0 if name == "latency_ms" else values >= 0.0))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            shown = printable(frame[name].iloc[first], 40)
            raise DocumentError([Problem(str(file), first + 2, name, f"'{shown}' is no measured number")])
    return frame


def _known(frame: Any, devices: Mapping[str, DeviceRates]) -> Any:
    frame = frame[frame["system"].isin(devices)].copy()
    rates = [devices[system] for system in frame["system"]]
    frame["device"] = [r.device for r in rates]
    frame["family"] = [r.family for r in rates]
    frame["W"] = [r.memory_bandwidth for r in rates]
    frame["SM"] = [float(r.compute_units) for r in rates]
    frame["tiles"] = [query_tiles(r.peaks["bf16"], r.compute_units) for r in rates]
    frame["B"] = [r.link_bandwidth for r in rates]
    frame["t"] = frame["latency_ms"] * 1e-3
    return frame


def _with_peak(frame: Any, devices: Mapping[str, DeviceRates]) -> Any:
    peaks = [devices[s].peaks.get(PEAK_OF[d], np.nan) for s, d in zip(frame["system"], frame["dtype"], strict=True)]
    frame = frame.assign(P=peaks)
    return frame[np.isfinite(frame["P"])]


def _version(text: str) -> tuple[int, ...]:
    digits = "".join(c if c.isdigit() else " " for c in str(text))
    return tuple(int(part) for part in digits.split())


def _newest(frame: Any) -> Any:
    """Newest version with enough rows of each device, engine and dtype, else the newest."""
    keep = np.zeros(len(frame), dtype=bool)
    groups = frame.groupby(["device", "backend", "dtype"], sort=False).indices
    versions = frame["ver"].astype(str).to_numpy()
    for positions in groups.values():
        found, counts = np.unique(versions[positions], return_counts=True)
        enough = [v for v, n in zip(found, counts, strict=True) if n >= MINIMUM_ROWS] or list(found)
        newest = max(enough, key=_version)
        keep[positions[versions[positions] == newest]] = True
    return frame[keep]


def _rows(frame: Any, case: tuple[str, ...], values: tuple[str, ...], sizes: tuple[str, ...]) -> KernelRows:
    frame = frame.copy()
    frame["case"] = frame[list(case)].astype(str).agg(" ".join, axis=1)
    frame = frame.sort_values("t", kind="stable").drop_duplicates(["device", "backend", "dtype", "case"]).sort_index()
    labels = frame[[*dict.fromkeys(["device", "family", "backend", "dtype", "case", *sizes])]].reset_index(drop=True)
    columns = {name: frame[name].to_numpy(dtype=float) for name in values}
    return KernelRows(labels, frame["t"].to_numpy(dtype=float), columns, sizes)


def _gemm(frame: Any, devices: Mapping[str, DeviceRates]) -> KernelRows | None:
    if frame is None:
        return None
    frame = _known(frame, devices)
    frame["dtype"] = frame["gemm_dtype"].map(_DTYPES)
    floor = frame.groupby(["device", "backend", "kernel_source", "gemm_dtype"])["t"].transform("min")
    frame = _newest(frame[floor <= HOST_BOUND_S])
    # Scales per tensor, channel or block: the same instructions at about the same rate, so one set, "fp8".
    frame = _with_peak(
        frame.assign(case_dtype=frame["dtype"], dtype=frame["dtype"].replace("fp8_block", "fp8")), devices
    )
    width = frame["dtype"].map(WEIGHT_BYTES)
    m, n, k = (frame[c].astype(float) for c in "mnk")
    frame = frame.assign(
        F=2 * m * n * k,
        x=m * n / (frame["SM"] * _TOKEN_TILE**2),
        weights=n * k * width,
        moved=m * k * width + 2 * m * n,
    )
    return _rows(frame, ("m", "n", "k", "case_dtype"), ("F", "x", "weights", "moved", "P", "W"), ("m", "n", "k"))


def _prefill(frame: Any, devices: Mapping[str, DeviceRates]) -> KernelRows | None:
    if frame is None:
        return None
    frame = _known(frame[frame["window_size"] == 0], devices)
    second_choice = (frame["backend"] == "sglang") & (frame["kernel_source"] == "flashinfer")
    frame = frame[~second_choice]
    quantised = (frame["attn_dtype"] == "fp8") | (frame["kv_cache_dtype"] == "fp8")
    frame = _with_peak(_newest(frame.assign(dtype=np.where(quantised, "fp8", "bf16"))), devices)
    width = frame["dtype"].map(WEIGHT_BYTES)
    s, d, h = (frame[c].astype(float) for c in ("isl", "head_dim", "num_heads"))
    batch, kv_heads = frame["batch_size"].astype(float), frame["num_key_value_heads"].astype(float)
    frame = frame.assign(
        F=4 * batch * h * d * s * (s + 1) / 2,
        tail_work=batch * (s / _TOKEN_TILE) * frame["SM"] * frame["tiles"] * 4 * d * _TOKEN_TILE**2,
        moved=batch * s * d * (h * (width + 2) + 2 * kv_heads * width),
        attention=frame["attn_dtype"] + "/" + frame["kv_cache_dtype"],
    )
    case = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "attention")
    return _rows(frame, case, ("F", "tail_work", "moved", "P", "W"), ("isl", "num_heads", "num_key_value_heads"))


def _decode(frame: Any, devices: Mapping[str, DeviceRates]) -> KernelRows | None:
    if frame is None:
        return None
    frame = _known(frame[~((frame["backend"] == "sglang") & (frame["kernel_source"] == "flashinfer"))], devices)
    frame = _newest(frame.assign(dtype=frame["kv_cache_dtype"].map(_DTYPES)))
    frame = frame.assign(kv=frame["kv_mb"] * 1e6)
    case = ("batch_size", "kvlen", "num_heads", "num_key_value_heads")
    return _rows(frame, case, ("kv", "W"), ("batch_size", "kvlen", "num_key_value_heads"))


def _moe(frame: Any, devices: Mapping[str, DeviceRates]) -> KernelRows | None:
    if frame is None:
        return None
    frame = _known(frame[frame["model"].isin(MOE_SHAPES) & (frame["distribution"] == "balanced")], devices)
    frame["dtype"] = frame["moe_dtype"].map(_DTYPES)
    shapes = np.array([MOE_SHAPES[model] for model in frame["model"]], dtype=float).reshape(-1, 4)
    h, i, k, experts = shapes.T
    tp, ep, tokens = (frame[c].to_numpy(dtype=float) for c in ("moe_tp_size", "moe_ep_size", "num_tokens"))
    flop = 6 * tokens * k * h * i / (tp * ep)
    touched = experts / ep * (1 - (1 - k / experts) ** tokens)
    width, activation = (frame["dtype"].map(table).to_numpy(dtype=float) for table in (WEIGHT_BYTES, ACTIVATION_BYTES))
    moved = 4 * tokens * h + tokens * k / ep * (h * (2 * activation + 4) + i / tp * (4 + 2 * activation))
    frame = frame.assign(F=flop, r=tokens * k / ep / touched, weights=touched * 3 * h * i / tp * width, moved=moved)
    mixed_kernels = np.abs(frame["tflops"] * 1e12 * frame["t"] / frame["F"] - 1) > 0.02
    faulty = (frame["device"] == "h200") & (frame["backend"] == "vllm") & (frame["ver"] == "0.24.0")
    frame = _newest(_with_peak(frame[~mixed_kernels & ~(faulty & (frame["dtype"] == "fp8"))], devices))
    case = ("model", "num_tokens", "moe_tp_size", "moe_ep_size")
    return _rows(frame, case, ("F", "r", "weights", "moved", "P", "W"), ("num_tokens", "moe_tp_size", "moe_ep_size"))


_COLLECTIVES: Final = {
    "all_reduce": "all_reduce", "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter", "all_to_all": "alltoall",
}  # fmt: skip


def _collective(frame: Any, name: str, devices: Mapping[str, DeviceRates]) -> KernelRows | None:
    if frame is None:
        return None
    frame = frame[(frame["op_name"] == name) & ~frame["kernel_source"].str.contains("eager")]
    # Engines bring their own all-reduce; the other collectives are NCCL's.
    frame = frame[(frame["src"] != "nccl") if name == "all_reduce" else (frame["src"] == "nccl")]
    frame = _newest(_known(frame, devices).assign(backend=frame["src"], dtype="any"))
    frame = frame.assign(n=frame["num_gpus"].astype(float), S=frame["bytes"].astype(float))
    return _rows(frame, ("num_gpus", "bytes", "dt"), ("n", "S", "B"), ("num_gpus", "bytes"))
