"""Feed-forward blocks: dense, mixture of experts, linear."""

from __future__ import annotations

from llmcap.arch.parts import ExpertWork, LayerPart, Matrix
from llmcap.specs.model import DenseFeedForward, LinearFeedForward, MixtureOfExperts


def _mlp(hidden: int, intermediate: int, gated: bool, weight_class: str, prefix: str = "") -> tuple[Matrix, ...]:
    return (
        Matrix(f"{prefix}up", hidden, ((intermediate * (2 if gated else 1), 0),), weight_class),
        Matrix(f"{prefix}down", intermediate, ((hidden, 0),), weight_class, "row"),
    )


def dense_part(name: str, f: DenseFeedForward, hidden: int) -> LayerPart:
    """Up (and gate) and down projections."""
    wide = 2 if f.gated else 1
    vectors = wide * f.intermediate + hidden if f.bias else 0
    return LayerPart(
        name, "dense", _mlp(hidden, f.intermediate, f.gated, "dense"), vectors, elementwise=(wide + 1) * f.intermediate
    )


def moe_part(name: str, f: MixtureOfExperts, hidden: int) -> LayerPart:
    """Router, routed experts (latent width when given) and the shared expert.

    The routed experts are kept apart from the plain matrices: how many of them a batch touches depends on the batch.
    """
    width = f.latent or hidden
    routes = f.experts + f.idle_experts
    matrices = [Matrix("router", hidden, ((routes, 1),), "router", "none")]
    if f.latent:
        matrices += [
            Matrix("latent_down", hidden, ((width, 1),), "dense", "none"),
            Matrix("latent_up", width, ((hidden, 1),), "dense", "none"),
        ]
    vectors = routes if f.router_bias else 0
    if f.shared_intermediate:
        matrices += _mlp(hidden, f.shared_intermediate, f.gated, "shared_expert", "shared_")
        vectors += hidden if f.shared_gate else 0
    experts = ExpertWork(f.experts, f.top_k, f.idle_experts, width, f.intermediate, f.gated)
    expert_vectors = f.experts * ((2 if f.gated else 1) * f.intermediate + width) if f.bias else 0
    if f.bias:
        vectors += routes
    elementwise = f.top_k * (2 * width + 3 * f.intermediate) + 3 * f.shared_intermediate
    return LayerPart(
        name, "moe", tuple(matrices), vectors, experts=experts, expert_vectors=expert_vectors, elementwise=elementwise
    )


def linear_part(name: str, f: LinearFeedForward, hidden: int) -> LayerPart:
    """A linear map in the block's place."""
    del f
    return LayerPart(name, "linear", (Matrix("linear", hidden, ((hidden, 0),), "dense"),), elementwise=2 * hidden)
