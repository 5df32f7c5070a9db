"""The figure of a replayed trace: its hits against the capacity of a cache, with the tiers of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from llmcap.errors import OptionError
from llmcap.report.figures import loads, style

if TYPE_CHECKING:
    from llmcap.analyses.replays.replay import Replay

Rows = Sequence[Mapping[str, Any]]


def hits_figure(inputs: Mapping[str, Any], curve: Rows, tiers: Rows, ideal: float | None) -> Figure:
    """Hit ratio against capacity, to be called inside `styled`.

    Parameters
    ----------
    inputs : mapping
        `trace`, `model`, `kv_dtype`, `block_tokens`.
    curve, tiers : sequence of mapping
        Rows of a replay; tiers may be none.
    ideal : float, optional
        Hit ratio when nothing is ever evicted.
    """
    import pandas as pd

    figure, axes = style.new_figure()
    loads.hit_ratio(axes, pd.DataFrame(list(curve)), pd.DataFrame(list(tiers)) if tiers else None, ideal)
    told = f"{inputs['trace']}, {inputs['model']} in {inputs['kv_dtype']}, blocks of {inputs['block_tokens']:,} tokens."
    style.put_footer(figure, told)
    return figure


def plot_replay(answer: Replay, path: Path | str) -> None:
    """Write the figure of a replay; the suffix picks the format: .png, .svg or .pdf. It appears whole or not at all.

    Raises
    ------
    OptionError
        Another suffix, a file that cannot be written, or a trace whose prompts share nothing that is known.
    """
    form = style.format_of(path)
    if not answer.curve:
        raise OptionError(
            "--plot", "the trace has lengths only, and so no hits to draw", "give a trace with hashes of its blocks"
        )
    with style.styled():
        figure = hits_figure(answer.inputs, answer.curve, answer.tiers, answer.summary["ideal_hit_ratio"])
        style.save(figure, path, form)
