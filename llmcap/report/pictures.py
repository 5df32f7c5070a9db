"""The figures of a scenario, by kind: what each needs, what it shows in words, and which of them suit a sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.figure import Figure

from llmcap.analyses.context_axis import along_context
from llmcap.analyses.device_memory import device_memory
from llmcap.analyses.result import Estimate
from llmcap.analyses.sweeps.survey import COST, Survey, break_even_grid, operator_frame
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.report.document import Picture
from llmcap.report.figures import bars, context, loads, maps, operators, sweeps
from llmcap.report.figures.estimate import footer
from llmcap.report.figures.series import LOADS, cases_of, label_for, numeric_axis, shown_of, telling, varying
from llmcap.report.figures.style import axis_label, label_of, new_figure, put_footer, short_count, tier_name
from llmcap.report.words import question, seconds
from llmcap.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

MOST_BARS: Final = 12
Draw = Callable[["Material"], Picture | None]


@dataclass(frozen=True)
class Material:
    """What the figures of a scenario are drawn from; each part is made when a figure first needs it."""

    survey: Survey

    @cached_property
    def frame(self) -> pd.DataFrame:
        return self.survey.frame

    @property
    def example(self) -> Estimate:
        """The case looked at more closely."""
        return self.survey.example

    @cached_property
    def example_along(self) -> pd.DataFrame:
        return along_context(self.example)

    @cached_property
    def subject(self) -> str:
        """The example in words."""
        given = self.example.setting
        return f"{given.model.name} on {given.machine.server.name}, {question(self.example)}"

    def footer(self, assumptions: str | None = None) -> str:
        """Assumptions behind figures of the whole sweep, or of its rows under one assumption set."""
        settings = [s for s in self.survey.settings if assumptions in (None, s.assumptions.id)]
        sets = ", ".join(dict.fromkeys(s.assumptions.id for s in settings))
        names = ", ".join(dict.fromkeys(said.name for said in self.survey.statements(settings)))
        fixed = self.example.inputs
        same = [
            f"{label_of(n)} {fixed[n]:,}" if isinstance(fixed[n], int) else f"{label_of(n)} {fixed[n]}"
            for n in ("model", "hardware", "users", "output_tokens", "kv_dtype", "tp", "engine")
            if n in self.frame.columns and self.frame[n].nunique() == 1
        ]
        version = self.example.provenance["version"]
        return f"{'; '.join(same)}.\nAssumptions '{sets}': {names}. llmcap {version}"


def picture(kind: str, material: Material) -> Picture | None:
    """Draw one kind of figure, to be called inside `styled`; None where the sweep has nothing for it.

    Raises
    ------
    OptionError
        No such kind.
    """
    if kind == "hits":
        hint = "llmcap replay TRACE --format json -o hits.json, then llmcap report hits.json"
        raise OptionError("--plot", "hits against capacity need a trace, which a scenario has not", hint)
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"choose one of {', '.join(KINDS)}"
        raise OptionError("--plot", f"no figure is called '{printable(kind, 40)}'", hint)
    return KINDS[kind](material)


def pictures(material: Material) -> list[Picture]:
    """Every kind that suits the sweep."""
    return [found for draw in KINDS.values() if (found := draw(material)) is not None]


# -- kinds -------------------------------------------------------------------------------------------------------------


def _prefill(material: Material) -> Picture:
    x = numeric_axis(material.frame)
    if x is None:
        return _bars(material)
    figure, axes = new_figure()
    found = sweeps.first_token_time(axes, material.frame, x)
    put_footer(figure, material.footer())
    caption = f"Time to first token of the last user against {axis_label(x)}{shown_of(found)}."
    return Picture("prefill", caption, f"Line chart. {_range(material.frame, 'ttft_s', x)}", figure)


def _bars(material: Material) -> Picture:
    cases = cases_of(material.frame)
    names = telling(cases, varying(cases), "ttft_s") or ["model"]
    cases = cases.drop_duplicates(names).head(MOST_BARS)
    labels = [label_for(names, tuple(row)) for row in cases[names].itertuples(index=False)]
    figure, axes = new_figure()
    bars.time_bars(axes, cases.assign(label=labels))
    put_footer(figure, material.footer(), 0.6 + 0.36 * len(cases))
    said = "; ".join(f"{label}: {seconds(_none(value))}" for label, value in zip(labels, cases["ttft_s"], strict=True))
    return Picture("prefill", "Time to first token of the last user, case by case.", f"Bar chart. {said}.", figure)


def _cache(material: Material) -> Picture | None:
    x = numeric_axis(material.frame, ("context_tokens", "users", "sessions", "output_tokens"))
    if x is None:
        return _cache_of_example(material)
    figure, axes = new_figure()
    found = sweeps.cache_size(axes, material.frame, x)
    put_footer(figure, material.footer())
    held = ", ".join(
        f"{tier_name(n) if n != 'hbm' else 'HBM has room for'} {format_bytes(b)}"
        for n, b in sweeps.capacities(material.frame)
    )
    said = f"Line chart. {_range(material.frame, 'kv_bytes_total', x)}" + (f" Capacities: {held}." if held else "")
    caption = f"KV cache of all users against {axis_label(x)}, with the tiers' capacities{shown_of(found)}."
    return Picture("cache", caption, said, figure)


def _cache_of_example(material: Material) -> Picture:
    figure, axes = new_figure()
    frame = material.example_along
    context.cache_against_capacity(axes, frame, material.example.inputs["context_tokens"])
    put_footer(figure, footer(material.example))
    size = format_bytes(material.example.results["kv_bytes_total"])
    said = f"Line chart along the context; at the case asked for the cache takes {size}."
    return Picture("cache", f"KV cache against context: {material.subject}.", said, figure)


def _reload(material: Material) -> Picture:
    figure, axes = new_figure()
    example, frame = material.example, material.example_along
    context.prefill_against_reload(axes, frame, example.inputs["context_tokens"])
    put_footer(figure, footer(example))
    said = []
    for tier, rows in frame.groupby("tier", sort=False, observed=True):
        at, _ = context.crossing(*(rows[n].to_numpy(float) for n in ("context_tokens", "recompute_s", "ttft_reload_s")))
        known = frame.attrs["break_even_tokens"].get(tier)
        said.append(
            f"from {tier_name(tier)} reload wins from {known or at:,.0f} tokens on" if np.isfinite(at)
            else f"the line of {tier_name(tier)} does not cross that of computing"
        )  # fmt: skip
    alternative = f"Line chart of times along the context: {'; '.join(said)}. {_tier_times(example)}"
    return Picture(
        "reload", f"Computing the prompt against reloading its cache: {material.subject}.", alternative, figure
    )


def _tier_times(example: Estimate) -> str:
    if not example.fits:
        return "The case does not fit device memory."
    times = ", ".join(f"{tier_name(t['tier'])} {seconds(t['ttft_reload_s'])}" for t in example.tiers[1:])
    return f"At the marked context: computing {seconds(example.tiers[0]['recompute_s'])}, reloading {times}."


def _tiers(material: Material) -> Picture | None:
    """Reloads along the sweep's own axis, where it has something to say that the example does not."""
    frame = material.frame[material.frame["tier"] != "hbm"]
    x = "drives" if "drives" in frame.columns and frame["drives"].nunique() > 2 else numeric_axis(frame)
    if x is None or not frame["ttft_reload_s"].notna().any():
        return None
    figure, axes = new_figure()
    found = sweeps.reload_time(axes, frame, x)
    put_footer(figure, material.footer())
    caption = f"Time to first token with a reload against {axis_label(x)}, tier by tier{shown_of(found)}."
    return Picture("tiers", caption, f"Line chart. {_range(frame, 'ttft_reload_s', x, cases=False)}", figure)


def _break_even(material: Material) -> Picture | None:
    frame, about = material.frame, "the sweep"
    names = varying(frame, ("users", "context_tokens", "sessions"))
    whole = {"tier", "winner"} <= set(frame.columns) and not names
    if not (whole and frame["context_tokens"].nunique() >= 5 and frame["users"].nunique() >= 4):
        frame, about = break_even_grid(material.example), material.subject
    figure, axes = new_figure()
    answers = maps.break_even_map(axes, frame)
    put_footer(figure, footer(material.example))
    _, _, codes, named = maps.answers_of(frame, "context_tokens", "users")
    shares = "; ".join(f"{name} in {_share(float(np.mean(codes == i)))} of the cells" for i, name in enumerate(named))
    caption = f"What is fastest, by context and users: {about}."
    return Picture("break-even", caption, f"Map of {len(answers)} areas: {shares}.", figure)


def _roofline(material: Material) -> Picture | None:
    example = material.example
    if not example.fits:
        return None
    rows = operator_frame(example)
    device = example.setting.machine.device
    s = example.setting
    dtypes = dict.fromkeys((s.activation_dtype, s.attention_dtype))
    peaks = {d: s.machine.peak(d) for d in dtypes if s.machine.has_peak(d)}
    figure, axes = new_figure()
    named = operators.roofline(axes, rows, peaks, device.memory.bandwidth, example.inputs["devices"])
    put_footer(figure, footer(example))
    said = f"Scatter chart under roofs; longest operators: {', '.join(named)}."
    return Picture("roofline", f"Operators under the roofs of one {device.name}: {material.subject}.", said, figure)


def _pareto(material: Material) -> Picture | None:
    # Assumption sets are views of one machine, not machines to choose between.
    used = material.example.inputs["assumptions"]
    frame = material.frame[material.frame["assumptions"] == used]
    cases = cases_of(frame).dropna(subset=["ttft_s", "output_tok_per_s"])
    if len(cases.drop_duplicates(["ttft_s", "output_tok_per_s"])) < 4 or cases["ttft_s"].nunique() < 3:
        return None
    figure, axes = new_figure()
    front = loads.pareto(axes, frame)
    put_footer(figure, material.footer(used))
    ends = [
        f"{format_seconds(float(row['ttft_s']))} with {row['output_tok_per_s']:,.4g} tokens/s"
        for _, row in front.iloc[[0, -1]].iterrows()
    ]
    said = f"Scatter chart of {len(cases)} cases; {len(front)} are on the front, from {ends[0]} to {ends[1]}."
    return Picture(
        "pareto", "Time to first token against output rate; nothing beats the cases on the line.", said, figure
    )


def _interactivity(material: Material) -> Picture | None:
    from llmcap.report.figures import serving

    load = numeric_axis(material.frame, LOADS)
    if serving.USER not in material.frame.columns or load is None:
        return None
    figure, axes = new_figure()
    found = serving.interactivity(axes, material.frame, load)
    put_footer(figure, material.footer())
    said = f"Line chart. {_range(material.frame, serving.DEVICE, load)} {_range(material.frame, serving.USER, load)}"
    caption = f"Tokens a second of a device against those of a user, along {axis_label(load)}{shown_of(found)}."
    return Picture("interactivity", caption, said, figure)


def _load(material: Material) -> Picture | None:
    from llmcap.report.figures import serving

    load = numeric_axis(material.frame, LOADS)
    if "serving_ttft_s" not in material.frame.columns or load is None:
        return None
    figure, axes = new_figure()
    found = serving.first_token_served(axes, material.frame, load)
    put_footer(figure, material.footer())
    said = f"Line chart. {_range(material.frame, 'serving_ttft_s', load)}"
    return Picture("load", f"Mean time to first token against {axis_label(load)}{shown_of(found)}.", said, figure)


def _memory(material: Material) -> Picture:
    import pandas as pd

    found: list[tuple[Estimate, str, list[dict[str, Any]]]] = []
    for choice, example in material.survey.examples:
        parts = device_memory(example)
        if parts not in [known for _, _, known in found]:  # many settings differ in what memory does not see
            found.append((example, str(choice.get("override", "")), parts))
    inputs = pd.DataFrame([example.inputs for example, _, _ in found])
    names = varying(inputs, ("users", "cached_tokens", "output_tokens")) or ["model", "hardware"]
    rows: list[dict[str, Any]] = []
    for n, (_, override, parts) in enumerate(found):
        label = label_for(names, tuple(inputs.iloc[n][name] for name in names))
        label = f"{override}: {label}" if override and len(found) > 1 else label
        label = label if label not in {row["label"] for row in rows} else f"{label} ({n + 1})"
        rows += [{"label": label, **part} for part in parts]
    figure, axes = new_figure()
    bars.memory_stack(axes, pd.DataFrame(rows))
    put_footer(figure, material.footer(), 0.5 + 0.45 * len(found))
    said = ", ".join(f"{row['part']} {format_bytes(row['bytes'])}" for row in found[0][2])
    where = "the longest context that fits" if found[0][0].fits else "a context that does not fit"
    caption = f"What fills one device, at {where}: {question(found[0][0])}."
    return Picture("memory", caption, f"Stacked bars. {rows[0]['label']}: {said}.", figure)


def _cost(material: Material) -> Picture | None:
    x = numeric_axis(material.frame, ("users", "context_tokens", "sessions"))
    if COST not in material.frame.columns or x is None:
        return None
    figure, axes = new_figure()
    found = sweeps.cost_per_million(axes, material.frame, x)
    prices = material.survey.prices
    listed = f"; prices: {prices.name}, {prices.as_of}" if prices is not None else ""
    put_footer(figure, material.footer() + listed)
    caption = f"Price of a million output tokens against {axis_label(x)}{shown_of(found)}."
    return Picture("cost", caption, f"Line chart. {_range(material.frame, COST, x)}", figure)


#: Name of a figure -> what draws it, in the order of a report.
KINDS: Final[dict[str, Draw]] = {
    "interactivity": _interactivity,
    "load": _load,
    "prefill": _prefill,
    "cache": _cache,
    "reload": _reload,
    "tiers": _tiers,
    "break-even": _break_even,
    "roofline": _roofline,
    "pareto": _pareto,
    "memory": _memory,
    "cost": _cost,
}


# -- words -------------------------------------------------------------------------------------------------------------


def _range(frame: pd.DataFrame, column: str, x: str, *, cases: bool = True) -> str:
    from llmcap.report.document import quantity

    rows = (cases_of(frame) if cases else frame).dropna(subset=[column]).sort_values(column, kind="stable")
    if not len(rows):
        return "No case fits device memory."
    ends = [
        f"{quantity(column, float(r[column]))} at {short_count(float(r[x]))}" for _, r in rows.iloc[[0, -1]].iterrows()
    ]
    what = label_of(column)
    return f"{what[:1].upper()}{what[1:]} runs from {ends[0]} to {ends[1]}, by {axis_label(x)}."


def _share(part: float) -> str:
    return "under 1 %" if 0.0 < part < 0.01 else f"{part:.0%}".replace("%", " %")


def _none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def close(figure: Figure) -> None:
    """Let go of a figure's memory."""
    figure.clear()
