"""`validate --suite`: published claims beside what the model says, claim by claim.

Every figure comes from `estimate`, asked once under the assumption set that reproduces the publication and once under
the calibrated one.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING, Any

from llmcap.analyses.estimate import estimate
from llmcap.analyses.result import Estimate
from llmcap.records import dataclass
from llmcap.specs.claims import Case, Check, Claim, Claims
from llmcap.specs.registry import load_as
from llmcap.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    import pandas as pd

#: The set that a claim is judged by.
JUDGE = "calibrated"


@dataclass(frozen=True, slots=True)
class Runs:
    """The estimates of a suite, each asked once."""

    suite: Claims
    _done: dict[tuple[Case, str], Estimate] = field(default_factory=dict, repr=False)

    def of(self, case: Case, assumptions: str) -> Estimate:
        """The answer to a case; what it leaves open is the suite's or the command's default."""
        unlabelled = case.model_copy(update={"label": ""})
        if (unlabelled, assumptions) not in self._done:
            numbers = {
                name: value
                for name in ("users", "context", "output_tokens")
                if (value := getattr(case, name)) is not None
            }
            self._done[unlabelled, assumptions] = estimate(
                model=case.model or self.suite.model, hardware=case.hardware or self.suite.hardware, drive=case.drive,
                assumptions=assumptions, **numbers,
            )  # fmt: skip
        return self._done[unlabelled, assumptions]

    def published(self, case: Case) -> Estimate:
        """Under the set that reproduces the publication."""
        return self.of(case, self.suite.published_assumptions)

    def judged(self, case: Case) -> Estimate:
        """Under the calibrated set."""
        return self.of(case, JUDGE)


def tier(answer: Estimate, name: str) -> dict[str, Any]:
    """One tier of an estimate."""
    return next(row for row in answer.tiers if row["tier"] == name)


def figure(answer: Estimate, quantity: str) -> float:
    """A result, or a column of a tier such as `nvme.reload_s`; NaN where there is none."""
    where, _, column = quantity.rpartition(".")
    value = tier(answer, where)[column] if where else answer.results[column]
    return math.nan if value is None else float(value)


def band(answer: Estimate, quantity: str) -> tuple[float, float] | None:
    """Uncertainty of a figure, where the model gives one."""
    if quantity not in ("prefill_s", "ttft_s") or answer.results["ttft_low_s"] is None:
        return None
    return float(answer.results["ttft_low_s"]), float(answer.results["ttft_high_s"])


def shown(value: float, dimension: str) -> str:
    """A figure with its unit."""
    if dimension == "seconds":
        return format_seconds(value)
    return format_bytes(value) if dimension == "bytes" else format_rate(value, "B/s")


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure under one assumption set, and whether the claim's range holds it."""

    value: float
    low: float | None
    high: float | None
    holds: bool
    band_holds: bool | None
    """Whether the whole band lies in the range (True), none of it (False), or a part (None)."""
    text: str


def find(runs: Runs, check: Check, assumptions: str) -> Finding:
    """Ask for a check's figure and hold it against the range."""
    answer = runs.of(check.case, assumptions)
    value = figure(answer, check.quantity)
    least, most = check.bounds
    around = band(answer, check.quantity) if check.over is None else None
    if check.over is not None:
        one = format_seconds(value) if check.quantity.endswith("_s") else f"{value:.3g}"
        value = value / figure(runs.of(check.over, assumptions), check.quantity)
        text = f"{value:.2f} of it ({one})"
    else:
        text = shown(value, check.dimension)
    holds = least <= value < most
    if around is None:
        return Finding(value, None, None, holds, holds, _labelled(text, check.case))
    low, high = around
    inside = (least <= low < most, least <= high < most)
    touches = any(inside) or (low < least and high >= most)
    text += f" (band {format_seconds(low)} to {format_seconds(high)})"
    whole = True if all(inside) else (None if touches else False)
    return Finding(value, low, high, holds, whole, _labelled(text, check.case))


def _labelled(text: str, case: Case) -> str:
    return f"{text} {case.label}".strip()


def verdict(checks: tuple[Check, ...], published: list[Finding], judged: list[Finding]) -> str:
    """How a statement fares: the calibrated figures decide, its own assumptions only whether it can be reproduced."""
    if not all(f.holds for f in published):
        return "not reproducible"
    if all(f.holds for f in judged):
        return "stands" if all(f.band_holds for f in judged) else "stands, band straddles it"
    if any(f.holds for f in judged):
        return "stands in part"
    check, finding = next((c, f) for c, f in zip(checks, judged, strict=True) if not f.holds)
    larger_is_worse = not check.quantity.endswith(("capacity_bytes", "_bytes_per_s", "users_held"))
    published_larger = finding.value < check.bounds[0]
    word = "too pessimistic" if published_larger == larger_is_worse else "too optimistic"
    return word if finding.band_holds is False else f"{word}, but within the band"


def judge_suite(name: str = "million-token-context") -> list[dict[str, Any]]:
    """Judge the published claims of a suite.

    Parameters
    ----------
    name : str
        Id or path of a claims document.

    Returns
    -------
    list of dict
        One per claim: `id`, `statement`, `published`, `as_published`, `calibrated`, `verdict`, `why` as text, and
        `checks` with the figures behind them in base units.

    Raises
    ------
    OptionError
        No such suite.
    DocumentError
        A suite that cannot be read.
    """
    from llmcap.analyses.claims.claim_reasons import REASONS, STATEMENTS

    suite = load_as(Claims, "claims", name).document
    runs = Runs(suite)
    rows = []
    for claim in suite.claims:
        if claim.checks:
            row = _tested(runs, claim)
            row["why"] = REASONS[claim.topic](runs, claim)
        else:
            as_published, calibrated, word, why = STATEMENTS[claim.topic](runs, claim)
            row = {"as_published": as_published, "calibrated": calibrated, "verdict": word, "why": why, "checks": []}
        head = {"id": claim.id, "statement": claim.statement, "published": claim.published}
        rows.append(head | {key: row[key] for key in ("as_published", "calibrated", "verdict", "why", "checks")})
    return rows


def _tested(runs: Runs, claim: Claim) -> dict[str, Any]:
    published = [find(runs, check, runs.suite.published_assumptions) for check in claim.checks]
    judged = [find(runs, check, JUDGE) for check in claim.checks]
    return {
        "as_published": "; ".join(f.text for f in published),
        "calibrated": "; ".join(f.text for f in judged),
        "verdict": verdict(claim.checks, published, judged),
        "checks": [
            {
                "quantity": check.quantity,
                "case": check.case.label,
                "unit": {"seconds": "s", "bytes": "B", "bytes_per_s": "B/s"}.get(check.dimension, "1"),
                "at_least": _finite(check.bounds[0]),
                "below": _finite(check.bounds[1]),
                "as_published": _finite(p.value),
                "as_published_holds": p.holds,
                "calibrated": _finite(j.value),
                "calibrated_low": j.low,
                "calibrated_high": j.high,
                "calibrated_holds": j.holds,
            }
            for check, p, j in zip(claim.checks, published, judged, strict=True)
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def validate_suite(name: str = "million-token-context") -> pd.DataFrame:
    """Judge the claims of a suite: the texts of `judge_suite` as a DataFrame, one row per claim."""
    import pandas as pd

    return pd.DataFrame([{key: value for key, value in row.items() if key != "checks"} for row in judge_suite(name)])
