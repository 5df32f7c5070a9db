"""Parts of servers as documents: which ship, and what each of them says."""

from __future__ import annotations

from typing import Any, Final

from llmcap.specs.base import dump_document
from llmcap.specs.registry import list_ids, load

#: What a server names, and what describes it further.
PART_KINDS: Final = ("device", "calibration", "drive", "expander", "nic", "store", "transfers")


def part_rows() -> list[dict[str, Any]]:
    """One row per part that ships (and those of $LLMCAP_PATH): kind, id, name."""
    return [
        {"kind": kind, "id": name, "name": getattr(load(kind, name).document, "name", None) or name}
        for kind in PART_KINDS
        for name in list_ids(kind)
    ]


def part_sheets(name: str) -> list[dict[str, Any]]:
    """The documents with an id, in any case: kind, id and the text of the document; empty where no part has it."""
    return [
        {"kind": kind, "id": identity, "text": dump_document(load(kind, identity).document)}
        for kind in PART_KINDS
        for identity in list_ids(kind)
        if identity.lower() == name.strip().lower()
    ]
