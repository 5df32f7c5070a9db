"""A model document in the making: widths, named parts, and layers that are folded into repeated blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llmcap.specs.huggingface.config import CONTEXT, HIDDEN, Config

Part = dict[str, Any]
LONGEST_BLOCK = 24


@dataclass
class Draft:
    """What a family's reader fills in."""

    hidden: int
    vocab: int
    context: int
    tied: bool = False
    parallel: bool = False
    positions: int = 0
    norm_elements_per_layer: int | None = None
    other_parameters: int = 0
    recurrent_dtype: str | None = None
    weight_dtypes: dict[str, str] = field(default_factory=dict)
    apart: dict[str, int] = field(default_factory=dict)
    mixers: dict[str, Part] = field(default_factory=dict)
    ffns: dict[str, Part] = field(default_factory=dict)
    layers: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)

    def mixer(self, name: str, part: Part) -> str:
        """Name under which `part` is kept: `name`, or `name-2` ... when that name holds another part."""
        return _keep(self.mixers, name, part)

    def ffn(self, name: str, part: Part) -> str:
        """The same for feed-forward blocks."""
        return _keep(self.ffns, name, part)

    def layer(self, mixer: str | tuple[str, ...] = (), ffn: str | tuple[str, ...] = ()) -> None:
        """Append a layer."""
        self.layers.append(((mixer,) if isinstance(mixer, str) else mixer, (ffn,) if isinstance(ffn, str) else ffn))


def start(c: Config, *, tied: bool = False, vocab: int | None = None, context: int | None = None) -> Draft:
    """Read the widths that every model has."""
    # The spellings of the context mean different things (trained, extended); the first present is the limit.
    given = next((name for name in CONTEXT if c.has(name)), CONTEXT[0])
    c.skip(*CONTEXT)
    return Draft(
        hidden=c.count(*HIDDEN, most=1_000_000),
        vocab=c.count("vocab_size", default=vocab, most=10_000_000),
        context=c.count(given, default=context, most=10**12),
        tied=c.tied(tied),
    )


def _keep(parts: dict[str, Part], name: str, part: Part) -> str:
    number = 1
    while True:
        key = name if number == 1 else f"{name}-{number}"
        if key not in parts:
            parts[key] = part
        if parts[key] == part:
            return key
        number += 1


def fold(layers: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> list[dict[str, Any]]:
    """Layers as blocks with their repeat counts, greedily, the block that covers most layers first.

    >>> a, b = (("a",), ()), (("b",), ())
    >>> [(g["repeat"], len(g["block"])) for g in fold([a, a, b, a, b, a, b, a])]
    [(2, 1), (3, 2)]
    """
    groups: list[dict[str, Any]] = []
    position = 0
    while position < len(layers):
        best_length, best_repeats = 1, 1
        for length in range(1, min(LONGEST_BLOCK, len(layers) - position) + 1):
            block = layers[position : position + length]
            repeats = 1
            while layers[position + repeats * length : position + (repeats + 1) * length] == block:
                repeats += 1
            if (repeats > 1 or length == 1) and repeats * length > best_length * best_repeats:
                best_length, best_repeats = length, repeats
        block = layers[position : position + best_length]
        groups.append({"repeat": best_repeats, "block": [_layer(m, f) for m, f in block]})
        position += best_length * best_repeats
    return groups


def _layer(mixers: tuple[str, ...], ffns: tuple[str, ...]) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    for key, names in (("mixer", mixers), ("ffn", ffns)):
        if names:
            layer[key] = names[0] if len(names) == 1 else list(names)
    return layer
