"""Rows of a sweep as lines of a figure: what varies, and which rows belong together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from llmcap.records import dataclass
from llmcap.report.figures.style import shown_value

if TYPE_CHECKING:
    import pandas as pd

#: Columns that say what was asked, those first that name a case best.
INPUTS: Final = (
    "override", "model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp", "assumptions", "engine", "weight_dtype",
    "activation_dtype", "kv_dtype", "attention_dtype", "kv_policy", "drive", "drives", "dram", "nic", "nics", "store",
    "tier", "arrivals", "lengths", "prefill_devices", "prefill_tp", "prefill_ep", "draft_tokens", "acceptance",
    "arrivals_per_s", "sessions", "users", "new_tokens", "context_tokens", "cached_tokens", "output_tokens",
    "chunk_tokens",
)  # fmt: skip
#: Numbers that can be an axis, the most telling first. Arrivals move the steady state alone, which has figures of its
#: own along LOADS.
NUMBERS: Final = (
    "context_tokens", "users", "sessions", "cached_tokens", "output_tokens", "drives", "dram", "devices",
)  # fmt: skip
LOADS: Final = ("users", "arrivals_per_s")


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows split into the lines of a figure."""

    lines: list[tuple[str, pd.DataFrame]]
    """Label and rows, in order of the axis."""
    total: int
    """Lines that there would be without a limit."""
    held: str = ""
    """Inputs that vary in the rows and are held at one value here."""


def varying(frame: pd.DataFrame, leave_out: Iterable[str] = ()) -> list[str]:
    """Inputs that take several values and do not follow from those before them.

    >>> import pandas as pd
    >>> varying(pd.DataFrame({"model": ["a", "b"], "tp": [8, 4], "users": [1, 1]}))
    ['model']
    """
    omitted = set(leave_out)
    if "new_tokens" in frame.columns:
        # The context is the sum of two others: any two of the three tell a case.
        omitted.add("context_tokens")
    found: list[str] = []
    for name in INPUTS:
        if name not in frame.columns or name in omitted or frame[name].nunique(dropna=False) < 2:
            continue
        if not found or int(frame.groupby(found, dropna=False, observed=True)[name].nunique(dropna=False).max()) > 1:
            found.append(name)
    return found


def cases_of(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per case, whatever the number of its tiers."""
    if "tier" not in frame.columns:
        return frame
    names = [name for name in INPUTS if name in frame.columns and name != "tier"]
    return frame.drop_duplicates(names) if names else frame


def numeric_axis(frame: pd.DataFrame, names: Sequence[str] = NUMBERS) -> str | None:
    """The number that a figure of these rows has along its axis: the first with five values, else with most."""
    counts = {name: int(frame[name].nunique()) for name in names if name in frame.columns}
    if "new_tokens" in frame.columns:
        counts.pop("context_tokens", None)
    counts = {name: n for name, n in counts.items() if n > 1}
    if not counts:
        return None
    return next((name for name, n in counts.items() if n >= 5), max(counts, key=lambda name: counts[name]))


def lines_of(frame: pd.DataFrame, x: str, y: str, most: int = 6) -> Lines:
    """Split rows into at most `most` lines of `y` along `x`; what `y` does not depend on makes no lines.

    Where more vary, as many inputs as there is room for vary between the lines, the most telling first, and the others
    are held at one value: a line must differ from its neighbour in something that can be named.
    """
    names = telling(frame, varying(frame, [x, *_along(frame, x)]), y, x)
    total = len(frame.groupby(names, dropna=False, observed=True)) if names else 1
    kept: list[str] = []
    held: list[tuple[str, Any]] = []
    room = most
    for name in names:
        values = list(dict.fromkeys(frame[name]))
        if len(values) <= room:
            kept.append(name)
            room //= len(values)
        elif room >= 2:
            frame = frame[frame[name].isin([values[i] for i in spread(len(values), room)])]
            kept.append(name)
            room = 1
        else:
            held.append((name, _typical(frame, name, values, y, kept)))
            frame = frame[frame[name].isin([held[-1][1]])]
    order = [name for name in names if name in kept]
    groups = list(frame.groupby(order, sort=False, dropna=False, observed=True)) if order else [((), frame)]
    # A line without an answer would stand in the legend alone.
    groups = [(values, rows) for values, rows in groups if rows[y].notna().any()] or groups[:1]
    lines = [(label_for(order, values), rows.drop_duplicates(x).sort_values(x)) for values, rows in groups]
    return Lines(lines, total, label_for([n for n, _ in held], tuple(v for _, v in held)))


def _typical(frame: pd.DataFrame, name: str, values: list[Any], y: str, kept: list[str]) -> Any:
    """The value to hold an input at: the usual one, if as many lines have about as many answers as with any other."""
    usual = values[len(values) // 2] if name == "context_tokens" else values[0]
    usual = "calibrated" if "calibrated" in values else usual
    known = frame.dropna(subset=[y])
    answers = known.groupby(name, dropna=False, observed=True).size()
    lines = known.drop_duplicates([name, *kept]).groupby(name, dropna=False, observed=True).size()
    scores = {value: (int(lines.get(value, 0)), int(answers.get(value, 0))) for value in values}
    best = max(scores.values())
    good = scores[usual][0] == best[0] and 2 * scores[usual][1] >= best[1]
    return usual if good else max(values, key=lambda value: scores[value])


def telling(frame: pd.DataFrame, names: list[str], y: str, *along: str) -> list[str]:
    """Those of some inputs that `y` depends on, given the inputs `along`."""
    for name in list(reversed(names)):
        others = [n for n in names if n != name]
        if not (along or others):
            break
        values = frame.groupby([*along, *others], dropna=False, observed=True)[y]
        low, high, known = values.min(), values.max(), values.count()
        # Whether there is an answer at all is a difference, too.
        alike = (known == 0) | ((known == values.size()) & ~((high - low) > 1e-9 * high.abs()))
        if bool(alike.all()):
            names = others
    return names


def _along(frame: pd.DataFrame, x: str) -> list[str]:
    """Numbers that move with the axis, such as a prefix that grows with the context: no lines of their own."""
    names = [n for n in ("users", "context_tokens", "cached_tokens", "devices", "tp") if n != x and n in frame.columns]
    found = [n for n in names if int(frame.groupby(x, observed=True)[n].nunique().max()) == 1]
    return [*found, "users"] if x == "sessions" else found


def label_for(names: Sequence[str], values: Any) -> str:
    """Label of a line or bar: its values side by side."""
    several = values if isinstance(values, tuple) else (values,)
    # A missing value (no drives named, say) has nothing to show.
    shown = [shown_value(n, v) for n, v in zip(names, several, strict=True) if v is not None and v == v]
    return ", ".join(shown)


def spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` positions, evenly spaced, both ends among them.

    >>> spread(5, 3), spread(2, 6)
    ([0, 2, 4], [0, 1])
    """
    if count <= most:
        return list(range(count))
    if most < 2:
        return [0]
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def shown_of(found: Lines) -> str:
    """Which of the lines a figure shows, for its caption; nothing where it shows all.

    >>> import pandas as pd
    >>> shown_of(Lines([("a", pd.DataFrame())], 3, "1 user"))
    '; 1 of 3 lines, all with 1 user'
    """
    if found.total <= len(found.lines):
        return ""
    return f"; {len(found.lines)} of {found.total} lines{', all with ' + found.held if found.held else ''}"
