"""`compare`: two to six machines, models or settings side by side, as ratios to the first, and why they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from llmcap.analyses.economics import economics, price_list
from llmcap.analyses.explaining.reasons import rates, reasons_of
from llmcap.analyses.explaining.variants import Variant, variants_of
from llmcap.glossary import GLOSSARY
from llmcap.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

#: Results set side by side, and whether more is better (True), worse (False), or neither.
METRICS: Final[dict[str, bool | None]] = {
    "ttft_s": False, "tpot_s": False, "e2el_s": False, "output_tok_per_s": True, "kv_bytes_per_token": False,
    "kv_bytes_per_user": False, "weight_bytes": False, "hbm_free_bytes": True, "max_users_hbm": True, "mfu": True,
    "mbu": True, "limit": None,
}  # fmt: skip
COSTS: Final[dict[str, str]] = {
    "power_w": "W", "energy_j_per_output_token": "J", "usd_per_hour": "USD/h",
    "usd_per_million_output_tokens": "USD", "usd_per_million_tokens": "USD",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """Results side by side."""

    variants: list[Variant]
    costs: list[Row]
    rows: list[Row]
    reasons: list[Row]

    @property
    def names(self) -> list[str]:
        """What is compared, in order; ratios are to the first."""
        return [v.name for v in self.variants]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, schema llmcap.compare/1."""
        sides = []
        for variant, costs in zip(self.variants, self.costs, strict=True):
            e = variant.estimate
            side = {"name": variant.name, "given": variant.given, "inputs": e.inputs, "results": e.results,
                    "tiers": e.tiers, "warnings": e.warnings, "rates": rates(variant)}  # fmt: skip
            sides.append(side | ({"costs": costs} if costs else {}))
        first = self.variants[0].estimate
        return {
            "schema": "llmcap.compare/1",
            "names": self.names,
            "rows": self.rows,
            "reasons": self.reasons,
            "variants": sides,
            "assumptions": first.assumptions,
            "provenance": [v.estimate.provenance for v in self.variants],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per metric, a column per side and a ratio per further side."""
        import pandas as pd

        return pd.DataFrame(self.flat_rows())

    def flat_rows(self) -> list[Row]:
        """One row per metric with a column per side and per ratio."""
        return [
            {"metric": row["metric"], "unit": row["unit"]}
            | dict(zip(self.names, row["values"], strict=True))
            | {f"ratio {n}": r for n, r in zip(self.names[1:], row["ratios"][1:], strict=True)}
            for row in self.rows
        ]


def compare(
    *items: str,
    prices: str | None = None,
    price_gpu_hour: float | str | None = None,
    price_kwh: float | str | None = None,
    **options: Any,
) -> Comparison:
    """Set machines, models or settings side by side.

    Parameters
    ----------
    *items : str
        Two to six: ids or files of servers or models, or settings such as "kv_dtype=bf16,tp=4".
    prices, price_gpu_hour, price_kwh : optional
        A price list, or prices for all sides.
    **options
        Options of all sides, as for `estimate`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> sides = compare("dgx-b200", "dgx-h200", context="128k")
    >>> [round(row["ratios"][1], 1) for row in sides.rows if row["metric"] == "kv_bytes_per_user"]
    [1.0]
    """
    variants = variants_of(items, options)
    costs = []
    for v in variants:
        device = v.evaluator.setting.machine.device.id
        listed = price_list(prices, price_gpu_hour, price_kwh, device=device)
        costs.append(economics(v.evaluator.setting, v.estimate.inputs, v.estimate.results, listed))
    return Comparison(variants, costs, _rows(variants, costs), reasons_of(variants))


def _rows(variants: Sequence[Variant], costs: Sequence[Row]) -> list[Row]:
    rows = []
    for name, more_is_better in METRICS.items():
        values = [v.estimate.results[name] for v in variants]
        rows.append(_row(name, GLOSSARY[name].unit, values, more_is_better))
    tiers = [{t["tier"]: t for t in v.estimate.tiers if t["tier"] != "hbm"} for v in variants]
    for name in dict.fromkeys(tier for own in tiers for tier in own):
        for column in ("ttft_reload_s", "users_held"):
            values = [own[name][column] if name in own else None for own in tiers]
            rows.append(_row(f"{name} {column}", GLOSSARY[column].unit, values, column == "users_held"))
    rows += [
        _row(name, unit, [c.get(name) for c in costs], False)
        for name, unit in COSTS.items()
        if any(name in c for c in costs)
    ]
    return rows


def _row(metric: str, unit: str, values: list[Any], more_is_better: bool | None) -> Row:
    first = values[0]
    numbers = [v if isinstance(v, int | float) and not isinstance(v, bool) else None for v in values]
    base = numbers[0]
    ratios = [None if v is None or not base or first is None else v / base for v in numbers]
    known = [v for v in numbers if v is not None]
    best = None
    if more_is_better is not None and len(known) > 1 and min(known) != max(known):
        best = numbers.index(max(known) if more_is_better else min(known))
    return {"metric": metric, "unit": unit, "values": values, "ratios": ratios, "best": best}
