"""What the rows of a sweep say, in three sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from llmcap.report.claims_page import tally
from llmcap.report.figures.series import cases_of, label_for, telling, varying
from llmcap.report.figures.style import tier_name
from llmcap.report.tables import Row
from llmcap.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    import pandas as pd


CALIBRATED: Final = "calibrated"


def findings(frame: pd.DataFrame, claims: Sequence[Row] = ()) -> list[str]:
    """Three sentences: how long a first token takes, where reloading wins, and what limits.

    Parameters
    ----------
    frame : DataFrame
        Rows of a sweep, one per case and tier.
    claims : sequence of mappings
        Judged claims that the sweep goes with, as `llmcap.analyses.claims.suite.judge_suite` returns them.
    """
    sets = list(frame["assumptions"].unique()) if "assumptions" in frame.columns else []
    under = ""
    if len(sets) > 1:
        # The sets answer one question differently; the sentences give one of the answers.
        chosen = CALIBRATED if CALIBRATED in sets else sets[0]
        frame, under = frame[frame["assumptions"] == chosen], f"Under the assumptions '{chosen}': "
    cases = cases_of(frame)
    names = varying(cases)
    if "serving_tpot_s" in cases.columns and cases["serving_tpot_s"].notna().any():
        said = [s for s in (*_served(cases, names), _reloads(frame)) if s]
    else:
        said = [s for s in (_times(cases, names), _reloads(frame), _limits(cases, names)) if s]
    if under and said:
        said[0] = under + said[0][:1].lower() + said[0][1:]
    if claims:
        said[-1:] = [said[-1].removesuffix(".") + f"; {tally(claims)}."] if said else [f"{tally(claims)}."]
    return said


def _served(cases: pd.DataFrame, names: list[str]) -> list[str]:
    """What a steady state gives at its ends: the fastest tokens, and the most of them."""
    known = cases.dropna(subset=["serving_tpot_s", "serving_ttft_s"])
    rate = known["serving_output_tok_per_s_per_device"].to_numpy(float)
    fastest, most = known.iloc[int(known["serving_tpot_s"].to_numpy(float).argmin())], known.iloc[int(rate.argmax())]
    short = len(cases) - len(known)
    past = f" {short:,} of the {len(cases):,} cases are past saturation or do not fit." if short else ""

    def told(row: Any) -> str:
        first, each = (format_seconds(row[f"serving_{name}_s"]) for name in ("ttft", "tpot"))
        per_device = f"{format_rate(row['serving_output_tok_per_s_per_device'], 'tokens/s')} a device"
        return f"a first one after {first}, then {each} each, {per_device}"

    if not names:
        return [f"In steady state {told(most)}.{past}".replace("a first one", "the first token comes", 1)]
    if fastest.name == most.name:
        both = "In steady state tokens come fastest, and a device gives most of them, for"
        return [f"{both} {_case(most, names)}: {told(most)}.{past}"]
    return [
        f"In steady state tokens come fastest for {_case(fastest, names)}: {told(fastest)}. A device gives most for "
        f"{_case(most, names)}: {told(most)}.{past}"
    ]


def _times(cases: pd.DataFrame, names: list[str]) -> str:
    if "ttft_s" not in cases.columns:
        return f"The table holds {len(cases):,} cases."
    known = cases.dropna(subset=["ttft_s"]).sort_values("ttft_s", kind="stable")
    short = len(cases) - len(known)
    if not len(known):
        return f"None of the {len(cases):,} cases fits device memory."
    fit = f"; {short:,} of the {len(cases):,} cases do not fit device memory" if short else ""
    if len(known) == 1 or not names:
        return f"The last user's first token comes after {_seconds(known.iloc[0])}{fit}."
    names = telling(known, names, "ttft_s")
    first, last = known.iloc[0], known.iloc[-1]
    return (
        f"The last user's first token comes after {_seconds(first)} at best, for {_case(first, names)}, and after "
        f"{_seconds(last)} at worst, for {_case(last, names)}{fit}."
    )


def _seconds(row: Any) -> str:
    low, high = row.get("ttft_low_s"), row.get("ttft_high_s")
    band = f" (band {format_seconds(low)} to {format_seconds(high)})" if low == low and low is not None else ""
    return f"{format_seconds(row['ttft_s'])}{band}"


def _case(row: Any, names: list[str]) -> str:
    return label_for(names, tuple(row[n] for n in names))


def _reloads(frame: pd.DataFrame) -> str:
    if not {"tier", "winner"} <= set(frame.columns):
        return ""
    known = frame[frame["winner"].notna() & (frame["tier"] != "hbm")]
    parts = []
    for tier, rows in known.groupby("tier", sort=False, observed=True):
        wins = rows[rows["winner"] == "reload"]
        part = f"from {tier_name(tier)} in {_part(len(wins), len(rows))}"
        if len(wins) and "speedup" in rows.columns and wins["speedup"].notna().any():
            best = wins.iloc[int(wins["speedup"].fillna(0.0).to_numpy(float).argmax())]
            at = f" at {format_count(int(best['context_tokens']))} tokens" if "context_tokens" in rows.columns else ""
            factor = f"{best['speedup']:,.0f}" if best["speedup"] >= 100 else f"{best['speedup']:.3g}"
            part += f" (at best {factor} times as fast,{at})".replace(",)", ")")
        parts.append(part)
    if not parts:
        return ""
    return f"Reloading a cache is faster than computing it again {_joined(parts)} of the cases that fit."


def _part(some: int, whole: int) -> str:
    if some in (0, whole):
        return "all" if some else "none"
    if some / whole >= 0.995:
        return "over 99 %"
    return f"{max(some / whole, 0.01):.0%}".replace("%", " %")


def _limits(cases: pd.DataFrame, names: list[str]) -> str:
    if not {"kv_bytes_total", "limit"} <= set(cases.columns):
        return ""
    largest = cases.iloc[int(cases["kv_bytes_total"].to_numpy(float).argmax())]
    names = telling(cases, names, "kv_bytes_total")
    at = f" ({_case(largest, names)})" if names else ""
    size = f"The caches of all users take up to {format_bytes(float(largest['kv_bytes_total']))}{at}"
    counts = cases.loc[cases["limit"] != "capacity", "limit"].value_counts()
    if not len(counts):
        return f"{size}."
    shares = [f"{name} in {_part(int(n), int(counts.sum()))}" for name, n in counts.items()]
    return f"{size}; the longest part of a request is bound by {_joined(shares[:3])} of the cases that fit."


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
