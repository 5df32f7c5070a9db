"""How answers show themselves in a notebook: answers ask here, and whoever can draw registers here.

An answer (analyses) must not import what renders it (report): imports go downward only. So answers inherit `Displayed`,
which knows nothing but this table, and the top of the package enters the renderers, by name, without loading them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

#: (name of the answer's class, form) -> (module, function) that renders it.
_RENDERERS: Final[dict[tuple[str, str], tuple[str, str]]] = {}


def register(answer: str, form: str, module: str, function: str) -> None:
    """Name the function that renders a class of answers as "html" or "markdown"; its module loads on first use."""
    _RENDERERS[answer, form] = (module, function)


def rendered(answer: object, form: str) -> str | None:
    """The answer in a form, or None where nothing is registered: a notebook then shows its plain text."""
    place = _RENDERERS.get((type(answer).__name__, form))
    if place is None:
        return None
    return str(getattr(import_module(place[0]), place[1])(answer))


class Displayed:
    """Base of answers that notebooks show as tables and figures."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return rendered(self, "html")

    def _repr_markdown_(self) -> str | None:
        return rendered(self, "markdown")
