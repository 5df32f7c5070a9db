"""Parameter counts and weight bytes, whole and per device."""

from __future__ import annotations

from llmcap.arch.dtypes import bytes_per_element
from llmcap.arch.parts import LayerPart
from llmcap.arch.structure import Parallelism, Structure
from llmcap.records import dataclass


@dataclass(frozen=True, slots=True)
class WeightDtypes:
    """Which dtype each class of weights is stored in."""

    default: str
    by_class: tuple[tuple[str, str], ...] = ()
    int4_group: int = 32

    def of(self, weight_class: str) -> str:
        return dict(self.by_class).get(weight_class, self.default)

    def bytes_of(self, weight_class: str) -> float:
        """[bytes] per element, scales included."""
        return bytes_per_element(self.of(weight_class), self.int4_group)


def parameters_by_class(structure: Structure) -> dict[str, int]:
    """Parameters of the text model per weight class; their sum is the total.

    Examples
    --------
    Llama 4 Maverick: embedding and lm_head 2 x 202,048 x 5,120, 48 attention blocks of 62,914,560, 24 dense blocks of
    3 x 5,120 x 16,384, 24 MoE blocks of 16,232,611,840, norms 496,640: 400,711,848,960 in all.
    """
    counts = {
        "embedding": structure.vocab * structure.hidden + structure.position_parameters + structure.other_parameters,
        "lm_head": 0 if structure.tied else structure.vocab * structure.hidden,
        "norm": structure.norm_elements,
    }
    for part, layers in structure.parts:
        for matrix in part.matrices:
            counts[matrix.weight_class] = counts.get(matrix.weight_class, 0) + layers * matrix.parameters
        counts["norm"] += layers * part.vectors
        if part.experts is not None:
            held = part.experts.experts * part.experts.parameters_per_expert + part.expert_vectors
            counts["expert"] = counts.get("expert", 0) + layers * held
    return counts


def parameters_total(structure: Structure) -> int:
    """All parameters of the text model."""
    return sum(parameters_by_class(structure).values())


def parameters_active(structure: Structure) -> int:
    """Parameters that one token meets: the total less the experts that it is not routed to. [parameters]"""
    idle = 0.0
    for part, layers in structure.ffns:
        if part.experts is not None:
            e = part.experts
            held = e.experts * e.parameters_per_expert + part.expert_vectors
            idle += layers * held * (1.0 - e.active_per_token / e.experts)
    return round(parameters_total(structure) - idle)


def weight_bytes(structure: Structure, dtypes: WeightDtypes) -> float:
    """Bytes of one copy of all weights. [bytes]"""
    return sum(n * dtypes.bytes_of(c) for c, n in parameters_by_class(structure).items())


def weight_bytes_per_device(structure: Structure, dtypes: WeightDtypes, p: Parallelism) -> float:
    """Weight bytes on the fullest device of a replica.

    Tensor parallelism divides matrices in whole heads and copies what does not divide (routers, latents, norms);
    embedding and lm_head divide by the vocabulary; experts spread over lcm(tp, ep) devices; pipeline stages hold
    layers / pp each, the first or last one an end of the vocabulary (both ends count when pp is 1).

    Returns
    -------
    float
        [bytes]
    """
    ends = structure.vocab * structure.hidden * dtypes.bytes_of("embedding") / p.tp
    ends += (structure.position_parameters + structure.other_parameters) * dtypes.bytes_of("embedding") / p.tp
    head = 0.0 if structure.tied else structure.vocab * structure.hidden * dtypes.bytes_of("lm_head") / p.tp
    body = structure.norm_elements * dtypes.bytes_of("norm")
    for part, layers in structure.parts:
        body += layers * part_bytes_per_device(part, dtypes, p)
    return body / p.pp + (ends + head if p.pp == 1 else max(ends, head))


def part_bytes_per_device(part: LayerPart, dtypes: WeightDtypes, p: Parallelism) -> float:
    """Weight bytes of one layer's part on one device of a replica, experts spread over their group. [bytes]"""
    total = part.vectors * dtypes.bytes_of("norm")
    for matrix in part.matrices:
        k, n = matrix.local(p.tp)
        total += k * n * dtypes.bytes_of(matrix.weight_class)
    if part.experts is not None:
        held = part.experts.experts * part.experts.parameters_per_expert + part.expert_vectors
        total += held * dtypes.bytes_of("expert") / p.expert_group
    return total
