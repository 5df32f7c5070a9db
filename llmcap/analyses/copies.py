"""Copies of a state below device memory: what the ranks of a group store in a tier, and how often they read it.

Every tensor-parallel rank holds a latent (MLA) and an index key whole, and KV heads that are fewer than the ranks stand
on several. A connector moves what each rank holds, unless it knows that a latent is the same everywhere; what it does
stands in the engine's document, tier by tier.
"""

from __future__ import annotations

from dataclasses import replace

from llmcap.analyses.paths import Tier
from llmcap.arch.parts import LayerPart
from llmcap.arch.state import copies_kept, state_terms
from llmcap.arch.structure import Parallelism, Structure
from llmcap.specs.assumptions import Assumptions, Deviations, Statement

#: Length at which the copies of states that grow and of those that do not are averaged for a rate. [tokens]
_LONG = 2.0**20


def state_structure(structure: Structure, deviations: Deviations) -> Structure:
    """The structure that a state is sized with: the model's own, or an assumption set's."""
    if deviations.kv_heads is None and not deviations.state_of_full_layers_only:
        return structure
    mixers = tuple(
        (_deviating(part, deviations.kv_heads, deviations.state_of_full_layers_only), n) for part, n in structure.mixers
    )
    return replace(structure, mixers=mixers)


def _deviating(part: LayerPart, kv_heads: int | None, full_only: bool) -> LayerPart:
    states = tuple(s for s in part.states if not (full_only and s.cap is not None))
    if kv_heads is not None:
        states = tuple(replace(s, elements=s.elements // s.units * kv_heads, units=kv_heads) for s in states)
    return replace(part, states=states)


def read_by_ranks(
    tiers: tuple[Tier, ...], structure: Structure, kv_dtype: str, p: Parallelism, assumptions: Assumptions
) -> tuple[Tier, ...]:
    """The tiers with the ranks that read each byte over the hops that all devices share; the ideal reads once."""
    if assumptions.ideal_transfers or p.tp == 1:
        return tiers
    own = state_structure(structure, assumptions.deviations)
    found = []
    for tier in tiers:
        once = tier.reload.latent_read == "once"
        readers = float(copies_kept(own, _LONG, kv_dtype, p.tp, latent_once=once))
        found.append(replace(tier, shared=tuple(replace(hop, readers=readers) for hop in tier.shared)))
    return tuple(found)


def note_copies(
    structure: Structure, p: Parallelism, tiers: tuple[Tier, ...], engine: str, *, ideal: bool
) -> Statement | None:
    """What tensor parallelism copies, and what the tiers make of it; None when nothing is copied."""
    terms = [term for term, _ in state_terms(structure) if not term.constant and term.units < p.tp]
    if not terms:
        return None
    heads = [term.units for term in terms if not term.latent]
    what = f"{max(heads)} KV head{'s' if max(heads) > 1 else ''}" if heads else "the latent"
    text = f"Tensor parallelism over {p.tp} devices copies {what}; the copies are reserved, not logical."
    if ideal:
        return Statement(
            name="KV copies", text=f"{text} Tiers keep one and read it once.", source="definition", bias="optimistic"
        )
    if heads:
        text += " Tiers keep and read what each rank holds."
    if any(term.latent for term in terms):
        each = [t.name for t in tiers if t.reload.latent_kept == "per rank"]
        once = [t.name for t in tiers if t.reload.latent_kept == "once"]
        said = [f"one copy in {', '.join(once)}"] if once else []
        said += [f"{p.tp} in {', '.join(each)}"] if each else []
        text += f" Of a latent {engine} keeps {' and '.join(said)}." if said else ""
    return Statement(
        name="KV copies", text=text, source="how engines shard caches; reloads of the engine's document",
        bias="neutral; other connectors and releases keep more or fewer",
    )  # fmt: skip
