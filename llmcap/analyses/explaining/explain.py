"""`explain`: the derivation of one estimate, operator by operator, with the numbers put into the formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from llmcap.analyses.estimate import answer, check_case, check_steps
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.explaining.derivation import Derivation, PhaseRows
from llmcap.analyses.explaining.moved_state import kv_rows, tier_hops, tier_rows
from llmcap.analyses.explaining.vouching import source_list, words
from llmcap.analyses.options import count, options_from
from llmcap.analyses.result import Estimate
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
#: Where a model's sizes stand in its document.
_SIZES: Final = ("model:mixers", "model:ffns", "model:layers", "model:hidden_size", "model:vocab_size")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Rows whose times add up to `total_s`, or for the KV cache whose bytes add up to `total_bytes`."""

    estimate: Estimate
    term: str
    rows: list[Row]
    hops: list[Row]
    """Of a tier's path; empty for other terms."""
    binding: dict[str, str]
    """Phase -> the resource that counts, where compute, memory and network overlap; empty where they do not."""
    sources: list[Row]

    @property
    def total_s(self) -> float | None:
        """Sum of the rows as the estimate has it. [s]"""
        r = self.estimate.results
        if self.term == "kv" or not self.estimate.fits:
            return None
        if self.term.startswith("tier:"):
            name = self.term.removeprefix("tier:")
            return float(next(t["ttft_reload_s"] for t in self.estimate.tiers if t["tier"] == name))
        after = 0.0 if r["tpot_s"] is None else r["tpot_s"] * (self.estimate.inputs["output_tokens"] - 1)
        return float({"all": r["e2el_s"], "prefill": r["ttft_s"], "decode": after}[self.term])

    @property
    def notes(self) -> list[str]:
        """What a reader must know to add up the rows."""
        said = [
            f"{phase}: compute, memory and network overlap, and the {resource} of all operators together takes longest;"
            f" a row's time is its share of that, what it asks of the others is hidden"
            for phase, resource in self.binding.items()
        ]
        if not self.binding and self.term != "kv" and self.rows:
            said.append("operators follow one another, so their times add up")
        if self.term == "decode" and self.estimate.fits and not self.rows:
            said.append("nothing is decoded: the one token of output comes with the prefill")
        return said

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, schema llmcap.explain/1."""
        found: dict[str, Any] = {
            "schema": "llmcap.explain/1",
            "inputs": self.estimate.inputs,
            "term": self.term,
            "rows": self.rows,
            "total_s": self.total_s,
        }
        if self.term == "kv":
            found["total_bytes"] = self.estimate.results["kv_bytes_total"]
        if self.hops:
            found["hops"] = self.hops
        if self.binding:
            found["binding"] = self.binding
        return found | {
            "notes": self.notes,
            "sources": self.sources,
            "assumptions": self.estimate.assumptions,
            "warnings": self.estimate.warnings,
            "provenance": self.estimate.provenance,
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per operator."""
        import pandas as pd

        return pd.DataFrame([{k: v for k, v in row.items() if k not in ("parameters",)} for row in self.rows])


def explain(
    *,
    term: str = "all",
    users: int | str = 1,
    context: int | str = "1M",
    cached_tokens: int | str = 0,
    output_tokens: int | str = 1000,
    sessions: int | str | None = None,
    **options: Any,
) -> Explanation:
    """Derive an estimate operator by operator.

    Parameters
    ----------
    term : str
        `all` (the end-to-end latency), `prefill`, `decode`, `kv`, or `tier:NAME` (time to first token with a reload).
    users, context, cached_tokens, output_tokens, sessions, **options
        As for `estimate`.

    Returns
    -------
    Explanation
        Each row has a formula that evaluates to its time (or bytes), and says who vouches for the numbers in it.

    Raises
    ------
    OptionError
        A value or combination that cannot be.
    DocumentError
        A file that cannot be used.

    Examples
    --------
    >>> told = explain(context="1M")
    >>> abs(sum(row["time_s"] for row in told.rows) / told.total_s - 1) < 1e-9
    True
    """
    case = check_case(users, context, cached_tokens, output_tokens)
    kept = case["users"] if sessions is None else count("sessions", sessions, minimum=case["users"])
    setting = resolve(options_from(options))
    check_steps(setting, case["context"])
    evaluator = Evaluator.of(setting)
    columns = evaluator.evaluate(*case.values())
    found = answer(setting, case, kept, columns)
    wanted = _term(term, [t["tier"] for t in found.tiers])
    derivation = Derivation(evaluator, case["users"], case["context"], case["cached_tokens"], case["output_tokens"])
    phases: list[PhaseRows] = []
    rows: list[Row] = []
    hops: list[Row] = []
    if wanted == "kv":
        rows = kv_rows(evaluator, case["users"], case["context"] + case["output_tokens"])
    elif found.fits:
        if wanted.startswith("tier:"):
            rows, hops = tier_rows(evaluator, wanted[5:], case), tier_hops(evaluator, wanted[5:])
        # What follows the reloaded prefix is computed on top of it; nothing does when the prefix is all there is.
        if wanted in ("all", "prefill") or (wanted.startswith("tier:") and case["cached_tokens"]):
            phases.append(derivation.prefill())
        if wanted in ("all", "decode") and case["output_tokens"] > 1:
            phases.append(derivation.decode())
    rows += [row for phase in phases for row in phase.rows]
    whole = sum(row.get("time_s") or 0.0 for row in rows)
    places = [*_SIZES, *(place for row in (*rows, *hops) for place in row["places"])]
    for row in (*rows, *hops):
        row["source"] = words(setting, row.pop("places"))
        if whole and "time_s" in row:
            row["share"] = row["time_s"] / whole
    return Explanation(
        estimate=found,
        term=wanted,
        rows=[_plain(row) for row in rows],
        hops=[_plain(row) for row in hops],
        binding={p.rows[0]["phase"]: p.binding for p in phases if p.binding is not None},
        sources=source_list(setting, places),
    )


def _term(term: str, tiers: list[str]) -> str:
    plain = term.strip().lower()
    known = ["all", "prefill", "decode", "kv", *(f"tier:{name}" for name in tiers)]
    if plain not in known:
        hint = f"{did_you_mean(plain, known)} choose one of {', '.join(known)}".strip()
        raise OptionError("--term", f"there is no term '{printable(term, 40)}'", hint)
    return plain


def _plain(row: Row) -> Row:
    """Numbers as JSON holds them."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}
