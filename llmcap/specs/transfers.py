"""Measured behaviour of links under block transfers, apart from their nominal bandwidth."""

from typing import ClassVar

from llmcap.specs.base import Document, Fraction, Part, Seconds, Source
from llmcap.specs.registry import register


class LinkBehaviour(Part):
    per_transfer: Seconds
    """Time a block costs before its bytes flow."""
    efficiency: Fraction
    """Share of the nominal bandwidth that large blocks reach."""


@register("transfers")
class Transfers(Document):
    """One behaviour per kind of hop."""

    schema_name: ClassVar[str] = "llmcap.transfers/1"

    id: str
    name: str
    device_link: LinkBehaviour
    host_memory: LinkBehaviour
    drive: LinkBehaviour
    network: LinkBehaviour
    sources: tuple[Source, ...]
