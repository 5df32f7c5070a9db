"""docs/accuracy.md, written from the predictions of the shipped measurements and from the held-out errors.

`python -m llmcap.report.accuracy_page docs/accuracy.md` writes the page and its scatter plot beside it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from llmcap.report.measured_page import shown, worst_rows
from llmcap.report.tables import markdown_text

_TWICE: Final = "listed twice"
_NO_REASON: Final = ("lengths nominal", "tp/dp/ep/devices restored", "model relabelled")
"""Beginnings of notes that do not say why a row is left out."""
_RARE: Final = 5
"""Fewer rows of a reason stand under others."""

_INTRODUCTION: Final = """\
# How wrong is it?

<!-- Written by `python -m llmcap.report.accuracy_page docs/accuracy.md` from the shipped measurements; do not edit. -->

Every time llmcap gives is an estimate. This page holds its predictions against {rows:,} public measurements that ship
with it ([sources](../measurements/end_to_end/SOURCES.md)); {predicted:,} of them say enough of what was measured to be
predicted. An error is |predicted / measured - 1|; the median and the 90 % quantile over rows are given, the bias is the
median of predicted / measured - 1, and "in band" is the share of measured values between the low and high that are
printed beside each prediction, which are meant to hold 80 %.

A prediction sees the model, machine, engine, layout, dtypes, lengths and load of a row, and what the source's published
scripts set for such a row. It never sees the value or the notes.

## Rows that no fit has seen

The engine profiles have a few dozen scalars, fitted to part of these rows. Here each row is predicted by scalars fitted
without it, and without everything that shares its configuration (model, machine, engine, layout, dtype), model or
machine. "One row known" scales a configuration by one of its own rows. Configurations are split in five by a hash; two
other splits tell what a figure owes to the split. "In band" counts rows within bands that were set, like the scalars,
without what is held out with them.
"""

_BANDS: Final = """\
## Bands of an estimate

An estimate of users who arrive together brackets its times by the bands of the kernels, which are measured kernel by
kernel, and a band on the engine's overheads. The latter is what measured rows need beyond the former: rows of which at
least 70 % is the phase itself and not waiting or other requests' work, predicted by scalars fitted without them. Low
and high are factors on the overheads, 1 where the kernels' bands suffice; "inside" is the share of rows within bands
that were set without the rows held out with them, meant to be 80 %. Profiles with few rows keep assumed factors (0.4
and 2.5 of prefill, 0.5 and 1.7 of decode). Beyond 16,384 tokens attention has a wider band, whose upper end was set by
the same few long runs that it is then seen to hold (`assumptions/calibrated.yaml`).
"""

_KERNELS: Final = """\
## Kernels

The forms of single operators, each engine, device and dtype with a fit of its own on 70 % of the configurations; errors
on the rest, as medians over those fits. The shipped calibrations pool the engines, and profiles put factors on them.
The last column predicts each device from parameters fitted on the other devices: what a borrowed calibration is worth.
"""

_EXCLUDED: Final = """\
Quality C was given when the rows were collected. Some are left out for their value, beside those of their neighbours or
beside a rough estimate of their prefill; none for what llmcap predicts:
"""

_AFTER: Final = """\
## All shipped rows, by the shipped profiles

Among these rows are those that the profiles were fitted to; the table above is the one to judge by.
"""

_FAILURES: Final = """\
## Known failures, and what would fix them

- **TTFT under load** is the weakest figure. Launch options decide what a request waits for before its own prefill: a
  scheduler that looks for requests every 30 steps, or holds prompts back for 20, doubles it. Where the scripts of a run
  are published their options count (`llmcap/analyses/accuracy/published_setups.py`); elsewhere they are taken at their
  defaults, and an engine document of one's own adds such steps to `running_steps`. Within one configuration the errors
  are alike: one measured row (`llmcap calibrate --measured`) takes much of them away.
- **Rows that look like speculative decoding** (DeepSeek-R1 and Qwen3.5 under SGLang 0.5.9 on B200 and B300, few
  clients): TPOT two thirds of another run under the same labels. The label says nothing; llmcap predicts none.
- **Releases**: profiles by release (TensorRT-LLM 1.0 and 1.2, SGLang 0.5.9 and 0.5.10, vLLM 0.17 and 0.18), each fitted
  on top of the common one, gained little on rows held out (TPOT 9.1 instead of 9.7 %, TTFT 17.7 instead of 17.4 %).
- **Qwen3-235B on two H200 under vLLM 0.12, gpt-oss on H100 under TensorRT-LLM 1.3.0rc1**: about 50 ms per token
  whatever the load. Steps were probably not captured as graphs; llmcap assumes that they are.
- **SGLang's prompts of small models and single users** come out too slow: its prefill costs 0.11 s a step on top of the
  kernels by rows of four clients and more, nearly all of large models with experts, and one scalar stands for all. Half
  of the rows of Llama-3.1-8B on H200 have their TTFT predicted at 1.9 times the measured one or more.
- **DeepSeek-R1 on four B300 under SGLang 0.5.10**: TPOT grows in proportion to the clients, as if nothing were batched.
- **Lengths that are all equal** keep clients in step; how long they then wait differs between engines by ten.
- **Attention data parallelism**: prefill of one replica holds up all that share its experts. One factor stands for it.
- **Experts at saturation on TensorRT-LLM** take about twice the time of balanced routing; the factor is fitted, not
  derived. Qwen3-30B in NVFP4 on one B200 or GB200 is off by the most (predicted 1.2 to 1.4 of the measured rate).
- **Engines of 2023 and 2024, collections of mixed machines** (LLM-Inference-Bench, dstack) are reported, not fitted.
"""


def accuracy_page(
    summary: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    held_out: Mapping[str, Any],
    kernels: Sequence[Mapping[str, Any]],
    figure: str,
) -> str:
    """The page as Markdown.

    Parameters
    ----------
    summary, table
        As `llmcap.analyses.accuracy.measured.validate_files` returns them.
    held_out
        As `llmcap.analyses.accuracy.held_out.load_held_out` returns it.
    kernels
        As `llmcap.analyses.accuracy.kernel_errors.summary` returns it.
    figure
        Name of the scatter plot beside the page.
    """
    parts = [_INTRODUCTION.format(rows=summary["rows"], predicted=summary["predicted"])]
    lines = [
        {"held out": e["held_out"], "engine": e["engine"], "metric": e["metric"], **_held(e)}
        for e in held_out["errors"]
    ]
    parts.append(markdown_text(lines))
    parts.append(_BANDS)
    parts.append(markdown_text([_band(e) for e in held_out["estimate_bands"]]))
    parts.append(_KERNELS)
    parts.append(markdown_text([_kernel(e) for e in kernels]))
    parts.append(_AFTER)
    parts.append(markdown_text([{"metric": m, **shown(e)} for m, e in summary["metrics"].items()]))
    parts.append(f"![Predicted against measured]({figure})\n")
    for by in dict.fromkeys(g["by"] for g in summary["groups"]):
        rows = [{"metric": g["metric"], by: g["group"] or "-", **shown(g)} for g in summary["groups"] if g["by"] == by]
        parts.append(f"### By {by}\n\n{markdown_text(rows)}")
    parts.append(f"### Furthest off\n\n{markdown_text(worst_rows(table, 12))}")
    parts.append(_FAILURES)
    skipped = [{"rows": s["rows"], "reason": s["reason"]} for s in summary["skipped"]]
    parts.append(f"## Left out\n\n{markdown_text(skipped)}")
    parts.append(f"{_EXCLUDED}\n{markdown_text(excluded(table))}")
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def excluded(table: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Rows of quality C by the reason that their notes end with; rare reasons together."""
    count: Counter[str] = Counter()
    for row in table:
        if row.get("quality") == "C":
            clauses = [c.strip() for c in row["notes"].split(";") if not c.strip().startswith(_NO_REASON)]
            count[next((c for c in clauses if _TWICE in c), clauses[-1])] += 1
    common = {reason: n for reason, n in count.most_common() if n >= _RARE}
    rest = sum(count.values()) - sum(common.values())
    rows = [{"rows": f"{n}", "reason": reason} for reason, n in common.items()]
    return [*rows, {"rows": f"{rest}", "reason": "others, each in its notes"}] if rest else rows


def _kernel(errors: Mapping[str, Any]) -> dict[str, str]:
    left_out = errors["device_left_out_median_ape"]
    return {
        "operator": errors["operator"].replace("_", " "),
        "fits": f"{errors['fits']}",
        "rows held out": f"{errors['rows_held_out']:,}",
        "median": f"{errors['median_ape']:.1%}",
        "90 %": f"{errors['p90_ape']:.1%}",
        "worst fit's median": f"{errors['worst_median_ape']:.1%}",
        "device left out, engines pooled": "-" if left_out is None else f"{left_out:.1%}",
    }


def _band(line: Mapping[str, Any]) -> dict[str, str]:
    return {
        "engine": line["engine"],
        "phase": line["phase"],
        "rows": f"{line['rows']:,}",
        "low": f"{line['low']:g}",
        "high": f"{line['high']:g}",
        "inside": f"{line['inside']:.0%}",
    }


def _held(errors: Mapping[str, Any]) -> dict[str, str]:
    return {
        "rows": f"{errors['rows']:,}",
        "median": f"{errors['median_ape']:.1%}",
        "90 %": f"{errors['p90_ape']:.1%}",
        "bias": f"{errors['median_bias']:+.1%}",
        "in band": f"{errors['coverage']:.0%}" if "coverage" in errors else "-",
    }


def scatter(table: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Predicted over measured values of TTFT and TPOT, one panel each, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    for axes, metric in zip(figure.subplots(1, 2), ("ttft_s", "tpot_s"), strict=True):
        engines: dict[str, tuple[list[float], list[float]]] = {}
        for row in table:
            if row["metric"] == metric and row.get("ape") is not None:
                x, y = engines.setdefault(str(row["engine"]).split(" ")[0].lower(), ([], []))
                x.append(float(row["value"]))
                y.append(float(row["predicted"]))
        for name, (x, y) in sorted(engines.items(), key=lambda item: -len(item[1][0])):
            axes.plot(x, y, ".", markersize=3, alpha=0.5, label=name)
        ends = [v for x, y in engines.values() for v in (*x, *y)]
        low, high = min(ends), max(ends)
        axes.plot([low, high], [low, high], color="0.3", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=f"measured {metric} [s]", ylabel=f"predicted {metric} [s]")
        axes.legend(frameon=False, markerscale=3, fontsize=8)
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None, dpi=110)


def main(target: Path) -> None:
    """Write the page and its figure."""
    from llmcap.analyses.accuracy.held_out import load_held_out
    from llmcap.analyses.accuracy.kernel_errors import load_kernel_errors
    from llmcap.analyses.accuracy.kernel_errors import summary as kernel_summary
    from llmcap.analyses.accuracy.measured import shipped_files, validate_files

    summary, table = validate_files(shipped_files())
    figure = target.with_suffix(".png")
    scatter(table, figure)
    page = accuracy_page(summary, table, load_held_out(), kernel_summary(load_kernel_errors()), figure.name)
    target.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
