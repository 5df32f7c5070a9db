"""The report of a scenario: its question answered with figures, tables, claims that go with it, and sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from llmcap import __version__
from llmcap.analyses.claims.suite import judge_suite
from llmcap.analyses.sweeps.survey import COST, Survey
from llmcap.report.document import Assumption, Report, Table, table_of
from llmcap.report.figures.series import cases_of, varying
from llmcap.report.figures.style import styled
from llmcap.report.findings import findings
from llmcap.report.pictures import Material, pictures
from llmcap.report.tables import Row
from llmcap.specs.registry import list_ids

if TYPE_CHECKING:
    import pandas as pd

_RESULTS: Final = (
    "serving_ttft_s", "serving_tpot_s", "serving_e2el_s", "serving_output_tok_per_s_per_user",
    "serving_output_tok_per_s_per_device", "serving_running", "serving_waiting", "serving_utilisation",
    "serving_saturation_requests_per_s", "serving_limit", "ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "e2el_s",
    "output_tok_per_s", "kv_bytes_total", "hbm_free_bytes", "max_users_hbm", "fits", "limit", "mfu", "mbu", COST,
)  # fmt: skip
_TIERS: Final = (
    "capacity_bytes", "users_held", "effective_read_bytes_per_s", "reload_s", "ttft_reload_s", "ttft_hybrid_s",
    "recompute_s", "speedup", "winner", "break_even_bytes_per_s", "break_even_tokens",
)  # fmt: skip
_ALWAYS: Final = ("model", "hardware", "users", "context_tokens")
CLAIM_LABELS: Final = {"as_published": "as published", "why": "why they differ"}
CLAIM_COLUMNS: Final = ("id", "statement", "published", "as_published", "calibrated", "verdict", "why")


def scenario_report(survey: Survey, command: str) -> Report:
    """Everything a report of the scenario holds, figures drawn."""
    scenario = survey.scenario
    claims = judge_suite(scenario.id) if scenario.id in list_ids("claims") else []
    with styled():
        drawn = pictures(Material(survey))
    tables = case_tables(survey.listed, _shown_note(survey))
    if claims:
        tables.insert(0, claims_table(claims))
    return Report(
        title=scenario.name or scenario.id,
        question=scenario.question,
        answer=findings(survey.frame, claims),
        pictures=drawn,
        tables=tables,
        command=command,
        notes=[*_notes(survey), *([scenario.notes] if scenario.notes else [])],
        assumptions=[Assumption(s.name, s.text, s.source, s.bias, s.inferred) for s in survey.statements()],
        sources=survey.sources(),
        documents=survey.documents(),
        version=__version__,
    )


def case_tables(frame: pd.DataFrame, note: str = "") -> list[Table]:
    """Rows of a sweep as two tables: one line per case, and one line per case and tier."""
    cases = cases_of(frame)
    names = varying(cases)
    fixed = [name for name in _ALWAYS if name in frame.columns and name not in names]
    inputs = [*names, *(name for name in fixed if name in ("users", "context_tokens"))] or fixed
    same = ", ".join(f"{name.replace('_', ' ')} {cases[name].iloc[0]}" for name in fixed)
    tables = []
    if any(name in frame.columns for name in _RESULTS):
        caption = "Cases" + (f" ({same})" if same else "")
        tables.append(table_of("cases", caption, _rows(cases), [*inputs, *_RESULTS], note))
    if "tier" in frame.columns:
        caption = "Cases and tiers: reloading against computing again"
        tables.append(table_of("tier-rows", caption, _rows(frame), [*inputs, "tier", *_TIERS], note))
    return tables or [table_of("rows", "Rows", _rows(frame), list(frame.columns), note)]


def claims_table(rows: Sequence[Row]) -> Table:
    """Published claims with their verdicts."""
    capitalised = [{**row, "why": f"{row['why'][:1].upper()}{row['why'][1:]}."} for row in rows]
    return table_of("claims", "Published claims held against the model", capitalised, CLAIM_COLUMNS,
                    labels=CLAIM_LABELS)  # fmt: skip


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _notes(survey: Survey) -> list[str]:
    whole, drawn = survey.grid.points, survey.sample.points
    if drawn >= whole:
        return []
    return [
        f"The scenario has {whole:,} cases. Figures and sentences rest on {drawn:,} of them, evenly spread over its "
        f"axes, ends included; 'llmcap sweep {survey.scenario.id} -o FILE' writes all of them."
    ]


def _shown_note(survey: Survey) -> str:
    whole, listed = survey.grid.points, len(cases_of(survey.listed))
    return f"{listed:,} of the {whole:,} cases, evenly spread over the axes." if listed < whole else ""
