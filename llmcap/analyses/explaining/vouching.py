"""Who vouches for the numbers of a formula: documents, the fields in them, and their published or assumed origin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llmcap.analyses.setting import Setting
from llmcap.specs.base import Document, Source
from llmcap.specs.calibration import FitReport
from llmcap.specs.registry import load_as
from llmcap.specs.transfers import Transfers

Row = dict[str, Any]


def documents_of(setting: Setting) -> dict[str, Document]:
    """The documents of a setting by what they are."""
    transfers = load_as(Transfers, "transfers", "default").document
    found: dict[str, Document] = {
        "model": setting.model, "server": setting.machine.server, "device": setting.machine.device,
        "engine": setting.engine, "calibration": setting.calibration, "assumptions": setting.assumptions,
        "transfers": transfers,
    }  # fmt: skip
    drives = [tier.drive for tier in setting.machine.tiers if tier.drive is not None]
    return found | ({"drive": drives[0]} if drives else {})


def words(setting: Setting, places: Iterable[str]) -> str:
    """Places such as `calibration:gemm.fp8` as a reader needs them: document, field, rows and held-out error."""
    return "; ".join(_words(setting, place) for place in places)


def _words(setting: Setting, place: str) -> str:
    what, _, path = place.partition(":")
    document = documents_of(setting).get(what)
    if document is None:
        return place
    text = f"{what} {getattr(document, 'id', what)} {path}"
    if what == "calibration":
        fit = report(setting, path)
        if fit is not None and fit.rows and fit.median_ape is not None:
            held_out = f"median error {fit.median_ape:.1%} on {fit.rows_held_out:,} held out"
            return f"{text} ({fit.rows:,} measured rows, {held_out})"
    found = sources(document, path)
    return f"{text} ({', '.join(dict.fromkeys(s.kind for s in found))})" if found else text


def report(setting: Setting, path: str) -> FitReport | None:
    """The report of the fit at a path of the calibration document."""
    operator, _, dtype = path.removeprefix("collectives.").partition(".")
    for fit in setting.calibration.fits:
        if fit.operator == operator and (not dtype or fit.dtype == dtype):
            return fit
    return None


def sources(document: Document, path: str) -> list[Source]:
    """Sources that vouch for a field, those that name it most exactly first."""

    def depth(cover: str) -> int:
        return len(cover) if path == cover or path.startswith(cover + ".") else 0

    def near(source: Source) -> int:
        own = max((depth(c) for c in source.covers), default=0)
        within = any(c.startswith(path + ".") for c in source.covers)
        return own or int(within)

    listed: list[Source] = list(getattr(document, "sources", ()))
    return sorted((s for s in listed if near(s)), key=near, reverse=True)


def source_list(setting: Setting, places: Iterable[str]) -> list[Row]:
    """Each place with the sources of its document: kind, reference, date and note."""
    rows = []
    for place in dict.fromkeys(places):
        what, _, path = place.partition(":")
        document = documents_of(setting).get(what)
        if document is None:
            continue
        for source in sources(document, path):
            row = {
                "document": getattr(document, "id", what), "what": what, "field": path, "kind": source.kind,
                "ref": source.ref, "date": source.date, "note": source.note,
            }  # fmt: skip
            rows.append({name: value for name, value in row.items() if value})
    return rows
