"""The report of an earlier answer: what its file holds, with the figures that its columns allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from llmcap.errors import DocumentError, Problem, printable
from llmcap.report.claims_page import tally
from llmcap.report.document import Assumption, Picture, Report, Table, table_of
from llmcap.report.figures import bars, context, loads, maps, serving, sweeps
from llmcap.report.figures.replay import hits_figure
from llmcap.report.figures.series import INPUTS, LOADS, Lines, cases_of, numeric_axis, shown_of, spread, varying
from llmcap.report.figures.style import axis_label, new_figure, put_footer, styled, tier_name
from llmcap.report.findings import findings
from llmcap.report.result_files import Result
from llmcap.report.scenario_report import case_tables, claims_table
from llmcap.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

LISTED_ROWS: Final = 400
"""Rows in a table of a page."""


def result_report(result: Result, command: str) -> Report:
    """Everything a report of a file of results holds, figures drawn.

    Raises
    ------
    DocumentError
        The file is not what its schema says.
    """
    with styled():
        try:
            parts = _parts(result)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if not result.schema:
                raise
            text = f"is not the {result.schema} that it says: {type(error).__name__} {printable(error, 100)}"
            hint = "name a file as an llmcap command has written it"
            shown = printable(str(result.path), 200)
            raise DocumentError([Problem(shown, None, "", text, hint)]) from error
    document = result.document
    specs = (document.get("provenance") or {}).get("specs") or result.meta.get("specs") or ()
    version = (document.get("provenance") or result.meta.get("versions") or {}).get(
        "version" if document else "llmcap", ""
    )
    return Report(
        title=parts.title or f"Report on {result.path.name}",
        question=parts.question,
        answer=parts.answer,
        pictures=parts.pictures,
        tables=parts.tables,
        command=command,
        notes=parts.notes,
        assumptions=[_assumption(a) for a in document.get("assumptions", ()) if isinstance(a, dict)],
        documents=[
            (str(s.get("id")), str(s.get("sha256")), str(s.get("kind", ""))) for s in specs if isinstance(s, dict)
        ],
        version=str(version),
    )


def _parts(result: Result) -> _Parts:
    kind = result.schema.split("/")[0]
    if kind == "llmcap.estimate":
        return _estimate(result.document)
    if kind == "llmcap.replay":
        return _replay(result.document)
    if kind == "llmcap.validate" and result.frame is not None and "verdict" in result.document["rows"][0]:
        rows = result.document["rows"]
        return _Parts("Which published claims stand?", [f"{tally(rows)}."], [], [claims_table(rows)])
    if result.frame is not None:
        return _rows(result, result.frame)
    return _Parts(f"What does {result.path.name} say?", ["The file holds no rows."], [], _plain(result))


class _Parts:
    """What the kinds of answers differ in."""

    def __init__(
        self, question: str, answer: list[str], pictures: Sequence[Picture | None], tables: list[Table],
        notes: Sequence[str] = (), title: str = "",
    ) -> None:  # fmt: skip
        self.question, self.answer, self.tables, self.title = question, answer, tables, title
        self.pictures = [picture for picture in pictures if picture is not None]
        self.notes = list(notes)


def _assumption(said: Mapping[str, Any]) -> Assumption:
    name, text, source, bias = (str(said.get(key, "")) for key in ("name", "text", "source", "bias"))
    return Assumption(name, text, source, bias, bool(said.get("inferred")))


# -- rows --------------------------------------------------------------------------------------------------------------


def _rows(result: Result, frame: pd.DataFrame) -> _Parts:
    scenario = result.meta.get("scenario") or {}
    name = result.path.name
    notes = []
    if len(frame) < result.total:
        notes.append(
            f"The file has {result.total:,} rows. Figures and sentences rest on {len(frame):,} of them, spread evenly."
        )
    listed, note = frame, ""
    if len(frame) > LISTED_ROWS:
        listed = frame.iloc[spread(len(frame), LISTED_ROWS)]
        note = f"{len(listed):,} of the {result.total:,} rows, spread evenly."
    known = any(column in frame.columns for column in INPUTS)
    tables = case_tables(listed, note) if known else [
        table_of("rows", "Rows", _records(listed), [str(c) for c in frame.columns], note)
    ]  # fmt: skip
    question = str(scenario.get("question") or f"What do the {result.total:,} rows of {name} say?")
    answer = findings(frame) if known else [f"The file holds {result.total:,} rows of {len(frame.columns)} columns."]
    title = str(scenario.get("name") or f"Report on {name}")
    return _Parts(question, answer, row_pictures(frame, name), tables, notes, title)


def row_pictures(frame: pd.DataFrame, name: str) -> list[Picture | None]:
    """The figures that the columns of some rows allow; `name` tells where the rows are from."""
    x = numeric_axis(frame)
    columns = set(frame.columns)
    foot = f"Rows of {name}."
    found: list[Picture | None] = _served(frame, foot)
    if x is not None:
        for column, draw in (("ttft_s", sweeps.first_token_time), ("kv_bytes_total", sweeps.cache_size)):
            if column in columns:
                figure, axes = new_figure()
                shown = draw(axes, frame, x)
                put_footer(figure, foot)
                what = axis_label(column).split(" [")[0]
                caption = f"{what[:1].upper()}{what[1:]} against {axis_label(x)}{shown_of(shown)}."
                found.append(Picture(column, caption, _drawn(shown), figure))
        if {"tier", "ttft_reload_s"} <= columns and frame["ttft_reload_s"].notna().any():
            figure, axes = new_figure()
            shown = sweeps.reload_time(axes, frame, x)
            put_footer(figure, foot)
            caption = f"Time to first token with a reload against {axis_label(x)}, tier by tier{shown_of(shown)}."
            found.append(Picture("tiers", caption, "Line chart, a line for each tier.", figure))
        found.append(_against_reload(frame, foot))
    found.append(_map(frame, foot))
    both = ["ttft_s", "output_tok_per_s"]
    if set(both) <= columns and len(cases_of(frame).drop_duplicates(both)) >= 4:
        figure, axes = new_figure()
        front = loads.pareto(axes, frame)
        put_footer(figure, foot)
        said = f"Scatter chart of {len(cases_of(frame))} cases; {len(front)} are on the front."
        found.append(Picture("pareto", "Time to first token against output rate.", said, figure))
    return found


def _served(frame: pd.DataFrame, foot: str) -> list[Picture | None]:
    """The steady state as the load grows."""
    load = numeric_axis(frame, LOADS)
    if load is None:
        return []
    found: list[Picture | None] = []
    if {serving.USER, serving.DEVICE} <= set(frame.columns):
        figure, axes = new_figure()
        shown = serving.interactivity(axes, frame, load)
        put_footer(figure, foot)
        caption = f"Tokens a second of a device against those of a user, along {axis_label(load)}{shown_of(shown)}."
        found.append(Picture("interactivity", caption, _drawn(shown), figure))
    if "serving_ttft_s" in frame.columns:
        figure, axes = new_figure()
        shown = serving.first_token_served(axes, frame, load)
        put_footer(figure, foot)
        caption = f"Mean time to first token against {axis_label(load)}{shown_of(shown)}."
        found.append(Picture("load", caption, _drawn(shown), figure))
    return found


def _drawn(shown: Lines) -> str:
    return f"Line chart with {len(shown.lines)} of {shown.total} lines."


def _against_reload(frame: pd.DataFrame, foot: str) -> Picture | None:
    if not {"context_tokens", "tier", "recompute_s", "ttft_reload_s"} <= set(frame.columns):
        return None
    names = varying(frame[frame["tier"] != "hbm"], ["context_tokens", "tier", "cached_tokens"])
    rows = frame[frame["tier"] != "hbm"]
    for name in names:  # one case of what else varies
        rows = rows[rows[name].isin([rows[name].iloc[0]])]
    if rows["context_tokens"].nunique() < 3 or not rows["recompute_s"].notna().any():
        return None
    low, high = ("ttft_low_s", "ttft_high_s") if {"ttft_low_s", "ttft_high_s"} <= set(rows.columns) else (None, None)
    whole = rows["cached_tokens"] == 0 if "cached_tokens" in rows.columns else rows["recompute_s"].notna()
    rows = rows.assign(
        recompute_low_s=rows[low].where(whole) if low else float("nan"),
        recompute_high_s=rows[high].where(whole) if high else float("nan"),
    ).sort_values("context_tokens")
    figure, axes = new_figure()
    context.prefill_against_reload(axes, rows)
    put_footer(figure, foot)
    tiers = ", ".join(tier_name(t) for t in rows["tier"].unique())
    said = f"Line chart: computing the prompt, and reloading its cache from {tiers}."
    return Picture("reload", "Computing the prompt against reloading its cache.", said, figure)


def _map(frame: pd.DataFrame, foot: str) -> Picture | None:
    if not {"context_tokens", "users", "tier", "winner"} <= set(frame.columns):
        return None
    if varying(frame, ("users", "context_tokens", "sessions", "tier")):
        return None
    if frame["users"].nunique() < 4 or frame["context_tokens"].nunique() < 4:
        return None
    figure, axes = new_figure()
    names = maps.break_even_map(axes, frame)
    put_footer(figure, foot)
    return Picture("break-even", "What is fastest, by context and users.", f"Map: {'; '.join(names)}.", figure)


# -- documents ---------------------------------------------------------------------------------------------------------


def _estimate(document: Mapping[str, Any]) -> _Parts:
    import pandas as pd

    i, r, tiers = document["inputs"], document["results"], document["tiers"]
    question = (
        f"How long do {i['users']:,} prompts of {i['context_tokens']:,} tokens wait for {i['model']} on "
        f"{i['hardware']}, and is reloading their KV cache faster?"
    )
    rows = pd.DataFrame([{**i, **r, **tier} for tier in tiers])
    answer = findings(rows)
    foot = f"{i['model']} on {i['hardware']}, assumptions '{i['assumptions']}'."
    pictures: list[Picture | None] = []
    if r["fits"]:
        phases = pd.DataFrame([{"label": p["name"], "time_s": p["time_s"]} for p in document["phases"]])
        figure, axes = new_figure()
        bars.time_bars(axes, phases, "time_s")
        put_footer(figure, foot, 1.8)
        said = ", ".join(f"{p['name']} {format_seconds(p['time_s'])}" for p in document["phases"])
        pictures.append(Picture("phases", "Time of each phase.", f"Bar chart: {said}.", figure))
        ways = [{"label": "computing again", "ttft_reload_s": tiers[0]["recompute_s"]}]
        ways += [{"label": tier_name(t["tier"]), "ttft_reload_s": t["ttft_reload_s"]} for t in tiers[1:]]
        figure, axes = new_figure()
        bars.time_bars(axes, pd.DataFrame(ways), "ttft_reload_s")
        put_footer(figure, foot, 0.8 + 0.4 * len(ways))
        said = ", ".join(f"{w['label']} {format_seconds(w['ttft_reload_s'])}" for w in ways)
        pictures.append(Picture("ways", "Time to first token, computing or reloading.", f"Bar chart: {said}.", figure))
    answer.append(f"The KV cache takes {format_bytes(r['kv_bytes_total'])}.")
    return _Parts(question, answer[:3], pictures, case_tables(rows), list(document.get("warnings", ())))


def _replay(document: Mapping[str, Any]) -> _Parts:
    i, curve, tiers = document["inputs"], document["curve"], document["tiers"]
    question = f"How many prompt tokens of {i['trace']} does a prefix cache find, and what does each tier make of it?"
    answer = [f"The trace has {document['requests']:,} requests with {document['input_tokens']:,} input tokens."]
    pictures: list[Picture | None] = []
    ideal = document.get("ideal_hit_ratio")
    if curve:
        figure = hits_figure(i, curve, tiers, ideal)
        ends = [f"{row['hit_ratio']:.1%} at {format_bytes(row['capacity_bytes'])}" for row in (curve[0], curve[-1])]
        said = f"Step chart: hits rise from {ends[0]} to {ends[1]}."
        pictures.append(Picture("hits", "Hit ratio of a prefix cache against its capacity.", said, figure))
    if ideal is not None:
        answer.append(f"With nothing ever evicted {ideal:.1%} of the input tokens are found in the cache.")
    told = [f"{tier_name(t['tier'])} {t['hit_ratio']:.1%}" for t in tiers if t.get("hit_ratio") is not None]
    if told:
        answer.append(f"Hits with the tiers up to each: {', '.join(told)}.")
    tables = [table_of("curve", "Hit ratio by capacity", curve, list(curve[0]))] if curve else []
    if tiers:
        tables.append(table_of("tier-rows", "Tiers, each with the faster ones before it", tiers, list(tiers[0])))
    ttft = [{"tiers up to": name, **values} for name, values in (document.get("ttft") or {}).items()]
    if ttft:
        tables.append(table_of("ttft", "Time to first token of each request alone", ttft, list(ttft[0])))
    return _Parts(question, answer, pictures, tables, list(document.get("warnings", ())))


def _plain(result: Result) -> list[Table]:
    rows = [{"name": k, "value": v} for k, v in result.document.items() if not isinstance(v, dict | list)]
    return [table_of("values", "Values", rows, ("name", "value"))]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
