"""How wrong the kernel forms are on rows no fit has seen: engine by engine, and with a device left out.

The documents in `hardware/calibration` pool the engines of a device, since an estimate must not hang on one engine's
kernels; what an engine's own kernels do differently is a factor of its profile. Here each engine has a fit of its
own, which tells whether the forms are right, and each device is predicted from the others, which tells what a
borrowed calibration is worth. The outcome is kept in `measurements/kernel_errors.json`;
`llmcap calibrate --kernels` writes it anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from llmcap.analyses.accuracy.calibrate import transfer_ratios
from llmcap.analyses.accuracy.kernel_fits import fit_operator
from llmcap.analyses.accuracy.kernel_rows import KernelRows
from llmcap.specs.registry import shipped_root

#: Fewer rows than this are no fit of their own.
FEWEST: Final = 30
#: Prompts at least this long, in tokens, count as long in the transfer of prefill attention.
LONG_PROMPT: Final = 4096.0


def by_engine(rows: Mapping[str, KernelRows]) -> list[dict[str, Any]]:
    """One fit per operator, device, engine and dtype, with its errors on held-out configurations.

    Parameters
    ----------
    rows : Mapping
        Kernel rows by operator, as `read_kernel_rows` returns them.

    Returns
    -------
    list of dict
        operator, device, engine, dtype, rows, rows_held_out, median_ape, p90_ape (fractions).
    """
    found = []
    for operator, dtype, pool in _by_dtype(rows):
        pairs = sorted(set(zip(pool.labels["device"], pool.labels["backend"], strict=True)))
        for device, engine in pairs:
            own = pool.where(device=device, backend=engine)
            if len(own) < FEWEST:
                continue
            fit = fit_operator(operator, dtype, own)
            found.append(
                {
                    "operator": operator, "device": device, "engine": engine, "dtype": dtype, "rows": fit.rows,
                    "rows_held_out": fit.rows_held_out, "median_ape": fit.median_ape, "p90_ape": fit.p90_ape,
                }
            )  # fmt: skip
    return found


def with_a_device_left_out(rows: Mapping[str, KernelRows]) -> list[dict[str, Any]]:
    """Errors on each device of parameters fitted on the others, engines pooled.

    Returns
    -------
    list of dict
        operator, sizes ("all", or "above 4k" for long prompts), dtype, device, rows, median_ape, p90_ape.
    """
    found = []
    for operator, dtype, pool in _by_dtype(rows):
        for device, ratio in transfer_ratios(operator, pool).items():
            here = pool.where(device=device)
            sizes = {"all": np.ones(len(here), dtype=bool)}
            if operator == "prefill_attention":
                sizes["above 4k"] = here.labels["isl"].to_numpy(dtype=float) >= LONG_PROMPT
            for name, chosen in sizes.items():
                ape = np.abs(1.0 / ratio[chosen] - 1.0)
                if ape.size >= FEWEST:
                    found.append(
                        {
                            "operator": operator, "sizes": name, "dtype": dtype, "device": device,
                            "rows": int(ape.size), "median_ape": round(float(np.median(ape)), 4),
                            "p90_ape": round(float(np.quantile(ape, 0.9)), 4),
                        }
                    )  # fmt: skip
    return found


def kernel_errors(rows: Mapping[str, KernelRows]) -> dict[str, Any]:
    """Both tables, as they are kept."""
    return {"by_engine": by_engine(rows), "device_left_out": with_a_device_left_out(rows)}


def load_kernel_errors() -> dict[str, Any]:
    """The shipped errors of the kernel forms."""
    file: Path = shipped_root() / "measurements" / "kernel_errors.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def summary(errors: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per operator: the median over the engines' own fits, and over the devices left out."""
    found = []
    for operator in dict.fromkeys(e["operator"] for e in errors["by_engine"]):
        own = [e for e in errors["by_engine"] if e["operator"] == operator]
        out = [e for e in errors["device_left_out"] if e["operator"] == operator and e["sizes"] == "all"]
        found.append(
            {
                "operator": operator,
                "fits": len(own),
                "rows_held_out": sum(e["rows_held_out"] for e in own),
                "median_ape": float(np.median([e["median_ape"] for e in own])),
                "p90_ape": float(np.median([e["p90_ape"] for e in own])),
                "worst_median_ape": max(e["median_ape"] for e in own),
                "device_left_out_median_ape": float(np.median([e["median_ape"] for e in out])) if out else None,
            }
        )
    return found


def _by_dtype(rows: Mapping[str, KernelRows]) -> Iterator[tuple[str, str, KernelRows]]:
    for operator, pool in rows.items():
        for dtype in sorted(set(pool.labels["dtype"])):
            yield operator, dtype, pool.where(dtype=dtype)
