"""The figure of one estimate: its question along the context."""

from __future__ import annotations

import textwrap
from pathlib import Path

from matplotlib.figure import Figure

from llmcap.analyses.context_axis import along_context
from llmcap.analyses.result import Estimate
from llmcap.report.figures import style
from llmcap.report.figures.context import cache_against_capacity, prefill_against_reload


def plot_estimate(answer: Estimate, path: Path | str) -> None:
    """Write a figure of an estimate's question along the context.

    Parameters
    ----------
    answer : Estimate
    path : Path or str
        File to write; its suffix picks the format: .png, .svg or .pdf. It appears whole or not at all.

    Raises
    ------
    OptionError
        Another suffix, or a file that cannot be written.
    """
    form = style.format_of(path)
    frame = along_context(answer)
    with style.styled():
        figure = Figure(figsize=(11.0, 5.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
        prefill_against_reload(left, frame, mark=answer.inputs["context_tokens"])
        cache_against_capacity(right, frame, mark=answer.inputs["context_tokens"])
        figure.suptitle(heading(answer), x=0.01, ha="left", fontsize=12.5, fontweight="bold")
        figure.supxlabel(footer(answer), x=0.01, ha="left", fontsize=7.5, color=style.MUTED)
        style.save(figure, path, form)


def heading(answer: Estimate) -> str:
    """What the figure is about."""
    setting, users = answer.setting, answer.inputs["users"]
    who = "1 user" if users == 1 else f"{users:,} users together"
    return textwrap.fill(f"{setting.model.name} on {setting.machine.server.name}, {who}", 88)


def footer(answer: Estimate) -> str:
    """The assumptions behind the figure, in two lines."""
    i = answer.inputs
    layout = ", ".join(f"{name.upper()} {i[name]}" for name in ("tp", "pp", "dp", "ep", "cp") if i[name] > 1)
    new = i["context_tokens"] - i["cached_tokens"]
    prefix = (
        f"the last {new:,} tokens of each context are new, the rest is reloaded" if i["cached_tokens"]
        else "the whole context is reloaded"
    )  # fmt: skip
    numbers = (
        f"{i['weight_dtype']} weights, {i['kv_dtype']} KV cache ({i['kv_policy']}), {i['devices']} devices"
        f"{', ' + layout if layout else ''}, {i['output_tokens']:,} output tokens, "
        f"prefill steps of {i['chunk_tokens']:,} tokens"
    )
    names = ", ".join(a["name"] for a in answer.assumptions)
    return f"{numbers}; {prefix}.\nAssumptions '{i['assumptions']}': {names}. llmcap {answer.provenance['version']}"
