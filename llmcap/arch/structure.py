"""A model document translated into layer parts with their counts, and how parallelism divides them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llmcap.arch import attention, feedforward, recurrent
from llmcap.arch.parts import LayerPart
from llmcap.records import dataclass
from llmcap.specs.model import Model

_MIXERS: dict[str, Callable[[str, Any, int], LayerPart]] = {
    "attention": attention.attention_part,
    "mla": attention.mla_part,
    "compressed": attention.compressed_part,
    "gated_delta": recurrent.gated_delta_part,
    "kda": recurrent.kimi_delta_part,
    "lightning": recurrent.lightning_part,
    "mamba2": recurrent.mamba2_part,
    "mamba1": recurrent.mamba1_part,
    "short_conv": recurrent.short_conv_part,
    "linear": recurrent.linear_part,
}
_FFNS: dict[str, Callable[[str, Any, int], LayerPart]] = {
    "dense": feedforward.dense_part,
    "moe": feedforward.moe_part,
    "linear": feedforward.linear_part,
}


@dataclass(frozen=True, slots=True)
class Structure:
    """What the formulas need of a model: parts with counts, widths, and the vocabulary at both ends."""

    mixers: tuple[tuple[LayerPart, int], ...]
    ffns: tuple[tuple[LayerPart, int], ...]
    layers: int
    hidden: int
    vocab: int
    tied: bool
    parallel_blocks: bool
    norm_elements: int
    """Norm weights of all layers and the final norm."""
    position_parameters: int
    other_parameters: int
    query_heads: int
    recurrent_dtype: str
    int4_group: int

    @property
    def parts(self) -> tuple[tuple[LayerPart, int], ...]:
        """Mixers, then feed-forward blocks, each with the number of layers that hold it."""
        return self.mixers + self.ffns


def structure_of(model: Model) -> Structure:
    """Translate a model document.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Structure
    """
    hidden = model.hidden_size
    mixer_counts, ffn_counts = model.mixer_counts(), model.ffn_counts()
    mixers = tuple((_MIXERS[m.kind](n, m, hidden), mixer_counts[n]) for n, m in model.mixers.items())
    ffns = tuple((_FFNS[f.kind](n, f, hidden), ffn_counts[n]) for n, f in model.ffns.items())
    if model.norm_elements_per_layer is None:
        blocks = sum(mixer_counts.values()) + (0 if model.parallel_blocks else sum(ffn_counts.values()))
        norms = blocks * hidden
    else:
        norms = model.norm_elements_per_layer * model.layer_count
    return Structure(
        mixers=mixers,
        ffns=ffns,
        layers=model.layer_count,
        hidden=hidden,
        vocab=model.vocab_size,
        tied=model.tie_embeddings,
        parallel_blocks=model.parallel_blocks,
        norm_elements=norms + hidden,
        position_parameters=model.position_embeddings * hidden,
        other_parameters=model.other_parameters,
        query_heads=model.query_heads,
        recurrent_dtype=model.recurrent_dtype,
        int4_group=model.int4_group,
    )


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Degrees of parallelism: tensor, pipeline, data, context and expert; experts reuse the tp x dp devices."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1

    @property
    def devices(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def expert_group(self) -> int:
        """Devices over which one copy of the experts is spread: lcm(tp, ep).

        ep experts groups times tp / gcd(ep, tp) slices of each expert; it divides tp x dp whenever ep does.

        >>> Parallelism(tp=8, ep=2).expert_group, Parallelism(tp=8, dp=2, ep=16).expert_group
        (8, 16)
        """
        return math.lcm(self.tp, self.ep)

    @property
    def expert_slices(self) -> int:
        """Ways in which each expert's inner width is divided."""
        return self.tp // math.gcd(self.tp, self.ep)

    @property
    def expert_pool(self) -> int:
        """Data-parallel ranks whose tokens meet in one expert group."""
        return self.expert_group // self.tp
