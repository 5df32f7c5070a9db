"""Why a modelled figure differs from a published one: from the published assumptions to the calibrated set, step by
step, each step asked of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from llmcap.analyses.claims.suite import Runs, tier
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.result import Estimate
from llmcap.analyses.setting import Setting
from llmcap.specs.claims import Case, Claim
from llmcap.units import format_bytes, format_count, format_rate, format_seconds

Reason = Callable[[Runs, Claim], str]
Judgement = Callable[[Runs, Claim], tuple[str, str, str, str]]


def without(setting: Setting, **deviations: object) -> Setting:
    """The same setting with some of its deviations from the architecture taken back."""
    kept = setting.assumptions.deviations.model_copy(update=deviations)
    return replace(setting, assumptions=setting.assumptions.model_copy(update={"deviations": kept}))


def _columns(setting: Setting, like: Estimate) -> dict[str, float]:
    i = like.inputs
    found = Evaluator.of(setting).evaluate(
        i["users"], i["context_tokens"], i["cached_tokens"], i["output_tokens"], with_tiers=False
    )
    return {name: float(np.asarray(value)) for name, value in found.results.items()}


def _first(claim: Claim) -> Case:
    return claim.checks[0].case if claim.checks else claim.cases[0]


def _masked_layers(setting: Setting) -> tuple[int, int]:
    """Layers whose attention is cut to a window or chunk, and its width. [1], [tokens]"""
    found = [(n, w.window) for part, n in setting.structure.mixers for w in part.attention if w.window is not None]
    return sum(n for n, _ in found), max((w for _, w in found), default=0)


def _kv_heads(setting: Setting) -> int:
    return max(s.units for part, _ in setting.structure.mixers for s in part.states)


# -- prefill -----------------------------------------------------------------------------------------------------------


def _steps_of_prefill(runs: Runs, case: Case) -> str:
    published, judged = runs.published(case), runs.judged(case)
    causal = without(published.setting, causal=True)
    masked = without(causal, every_layer_full=False)
    layers, width = _masked_layers(published.setting)
    share = published.setting.assumptions.roofline.compute
    dtype = (published.setting.assumptions.roofline.peak_dtype or "own").upper()
    return (
        f"as published, all {published.setting.structure.layers} layers attend to everything at {share:.0%} of the "
        f"{dtype} peak: {format_seconds(published.results['prefill_s'])}; with the causal mask "
        f"{format_seconds(_columns(causal, published)['prefill_s'])}; with {layers} layers kept to their "
        f"{width:,}-token chunks {format_seconds(_columns(masked, published)['prefill_s'])}; at measured kernel rates "
        f"{format_seconds(judged.results['prefill_s'])}"
    )


def short_prefill(runs: Runs, claim: Claim) -> str:
    """Both sets agree; where either passes the claim's bound."""
    case = claim.checks[-1].case
    bound = claim.checks[-1].bounds[1]
    ends = []
    for answer in (runs.published(case), runs.judged(case)):
        lengths = np.unique(np.round(np.geomspace(1e3, answer.setting.model.max_context, 2000)))
        i = answer.inputs
        found = Evaluator.of(answer.setting).evaluate(i["users"], lengths, 0, i["output_tokens"], with_tiers=False)
        past = np.asarray(found.results["prefill_s"]) >= bound
        ends.append(f"{float(f'{lengths[np.argmax(past)]:.2g}'):,.0f}" if past.any() else "more than it takes")
    short = _first(claim)
    parts = [
        f"{format_seconds(answer.results['prefill_s'])} {what}"
        for answer, what in (
            (runs.published(short), "there"),
            (runs.judged(short), "with weights read, kernels launched and steps scheduled"),
        )
    ]
    return (
        f"{format_seconds(bound)} is passed at about {ends[1]} tokens ({ends[0]} as published); short prompts are "
        f"overhead, not arithmetic: {short.label or 'the shortest'} {parts[0]}, {parts[1]}"
    )


def prefill(runs: Runs, claim: Claim) -> str:
    """One long prompt."""
    return _steps_of_prefill(runs, _first(claim))


def many_users(runs: Runs, claim: Claim) -> str:
    """Several prompts, and how they bind the claim about a single one."""
    case = _first(claim)
    text = _steps_of_prefill(runs, case)
    single = next((c for c in runs.suite.claims if c.topic == "prefill"), None)
    if single is None:
        return text
    one, many = runs.published(_first(single)).inputs, runs.published(case).inputs
    least = many["users"] * (many["context_tokens"] / one["context_tokens"]) ** 2
    return (
        f"{text}; read as 'about 30 s' it would contradict {single.id}, since at a constant rate this is at least "
        f"{least:.3g} of that time"
    )


# -- caches ------------------------------------------------------------------------------------------------------------


def cache(runs: Runs, claim: Claim) -> str:
    """KV heads and layers that the published size leaves out."""
    case = _first(claim)
    published, judged = runs.published(case), runs.judged(case)
    heads = without(published.setting, kv_heads=None)
    layers, width = _masked_layers(published.setting)
    counted = published.setting.assumptions.deviations.kv_heads
    total = "kv_bytes_total"
    return (
        f"{format_bytes(published.results[total])} counts {counted} KV heads and drops {layers} of "
        f"{published.setting.structure.layers} layers; with the model's {_kv_heads(published.setting)} heads "
        f"{format_bytes(_columns(heads, published)[total])}; with up to {width:,} tokens in those layers "
        f"{format_bytes(judged.results[total])}"
    )


def _steps_of_reload(runs: Runs, case: Case, name: str, link: str) -> str:
    published, judged = runs.published(case), runs.judged(case)
    p, j = tier(published, name), tier(judged, name)
    moved = [a.setting for a in (published, judged)]
    sizes = [
        float(Evaluator.of(s).memory.moved_per_user(np.float64(a.inputs["context_tokens"]))) * a.inputs["users"]
        for s, a in zip(moved, (published, judged), strict=True)
    ]
    rate = p["effective_read_bytes_per_s"]
    fixed = next(r.fixed for r in Evaluator.of(judged.setting).tiers.rates if r.name == name)
    said = link.format(nominal=format_rate(j["read_bytes_per_s"], "B/s"))
    reached = format_rate(j["effective_read_bytes_per_s"], "B/s")
    return (
        f"{format_bytes(sizes[0])} at {format_rate(rate, 'B/s')} is {format_seconds(p['reload_s'])}; the true "
        f"{format_bytes(sizes[1])} would take {format_seconds(sizes[1] / rate)}; {said}, {reached} reached, and "
        f"{format_seconds(fixed)} of software make it {format_seconds(j['reload_s'])}"
    )


def dram(runs: Runs, claim: Claim) -> str:
    """Cache size and the direction of the links."""
    return _steps_of_reload(runs, _first(claim), "dram", "the links carry {nominal} towards the GPUs")


def nvme(runs: Runs, claim: Claim) -> str:
    """Cache size and what drives reach."""
    return _steps_of_reload(runs, _first(claim), "nvme", "the drives are rated at {nominal}")


def capacity(runs: Runs, claim: Claim) -> str:
    """A specification rather than a model, and what it holds."""
    held = [tier(runs.judged(c.case), "nvme")["users_held"] for c in claim.checks]
    published = [tier(runs.published(c.case), "nvme")["users_held"] for c in claim.checks]
    context = runs.judged(_first(claim)).inputs["context_tokens"]
    return (
        f"eight drives of either size, no modelling; but they hold {held[0]:,} to {held[-1]:,} caches of "
        f"{format_count(context)} tokens, not the {published[0]:,} to {published[-1]:,} of the published cache size"
    )


def next_drives(runs: Runs, claim: Claim) -> str:
    """The ratio holds; the times behind it are not the published ones."""
    check = claim.checks[0]
    new = [tier(a, "nvme") for a in (runs.published(check.case), runs.judged(check.case))]
    old = tier(runs.judged(check.over or check.case), "nvme")
    server = runs.judged(check.case).setting.machine.server
    caveat = " (a hypothetical server: the real host is Gen5)" if server.hypothetical else ""
    fixed = next(r.fixed for r in Evaluator.of(runs.judged(check.case).setting).tiers.rates if r.name == "nvme")
    rates = [format_rate(t["read_bytes_per_s"], "B/s") for t in (old, new[1])]
    return (
        f"{rates[0]} becomes {rates[1]}{caveat}; the true cache takes {format_seconds(new[1]['reload_s'])} "
        f"instead of {format_seconds(new[0]['reload_s'])}, and {format_seconds(fixed)} of software do not halve"
    )


# -- statements modelled as a whole ------------------------------------------------------------------------------------


def pool(runs: Runs, claim: Claim) -> tuple[str, str, str, str]:
    """Caches held per tier, and GPU time that a reload saves."""
    case = _first(claim)
    texts, saved, holds = [], [], True
    for answer in (runs.published(case), runs.judged(case)):
        hbm, *others = answer.tiers
        holds = holds and all(t["winner"] == "reload" and t["users_held"] > hbm["users_held"] for t in others)
        last = others[-1]
        gpu = (last["recompute_s"] - last["ttft_reload_s"]) * answer.inputs["devices"]
        saved.append((gpu, 1.0 - last["ttft_reload_s"] / last["recompute_s"]))
        held = " + ".join(f"{t['tier'].upper().replace('NVME', 'NVMe')} {t['users_held']:,}" for t in answer.tiers)
        texts.append(f"{held} caches; {gpu:,.0f} GPU-s saved per return")
    room = runs.judged(case).results["max_users_hbm"]
    why = (
        f"larger caches and faster prefill shrink the gain from {saved[0][0]:,.0f} to {saved[1][0]:,.0f} GPU-s per "
        f"return, still {saved[1][1]:.0%} of a recompute; the first {room} caches stay in HBM and gain nothing; total "
        "cost is not judged here, it needs prices"
    )
    return texts[0], texts[1], "stands in part" if holds else "not reproducible", why


def limits(runs: Runs, claim: Claim) -> tuple[str, str, str, str]:
    """Each model runs at the context that is claimed for it."""
    texts: list[list[str]] = [[], []]
    runs_all, tails = True, []
    for case in claim.cases:
        for text, answer in zip(texts, (runs.published(case), runs.judged(case)), strict=True):
            within = answer.inputs["context_tokens"] <= answer.setting.model.max_context
            runs_all = runs_all and answer.fits and within
            first = format_seconds(answer.results["ttft_s"]) if answer.fits else "does not fit"
            text.append(f"{case.label}: {first}")
        judged = runs.judged(case).results
        tails.append(
            f"{case.label} fits with {format_bytes(judged['kv_bytes_total'])} of KV, first token after "
            f"{format_seconds(judged['ttft_low_s'])} to {format_seconds(judged['ttft_high_s'])}"
            if judged["fits"] else f"{case.label} does not fit"
        )  # fmt: skip
    why = "; ".join(tails) + "; that a model takes such a prompt does not say how well it answers"
    return "; ".join(texts[0]), "; ".join(texts[1]), "stands" if runs_all else "stands in part", why


def phases(runs: Runs, claim: Claim) -> tuple[str, str, str, str]:
    """The four phases add up, and the first token waits for the first two."""
    case = _first(claim)
    texts, holds = [], True
    for answer in (runs.published(case), runs.judged(case)):
        times = {phase["name"]: phase["time_s"] for phase in answer.phases}
        before = times["embedding"] + times["prefill"]
        holds = holds and list(times) == ["embedding", "prefill", "decode", "post-processing"]
        holds = holds and bool(np.isclose(before, answer.results["ttft_s"], rtol=1e-9))
        holds = holds and bool(np.isclose(sum(times.values()), answer.results["e2el_s"], rtol=1e-9))
        texts.append(", ".join(f"{name} {format_seconds(t)}" for name, t in times.items()))
    results = runs.judged(case).results
    first, last = format_seconds(results["ttft_s"]), format_seconds(results["e2el_s"])
    why = (
        f"the first token comes after {first} of {last}, when embedding and prefill have ended; every further one "
        f"takes {format_seconds(results['tpot_s'])}, and post-processing here is the output head alone"
    )
    return texts[0], texts[1], "stands" if holds else "not reproducible", why


REASONS: dict[str, Reason] = {
    "short_prefill": short_prefill,
    "prefill": prefill,
    "many_users": many_users,
    "cache": cache,
    "dram": dram,
    "nvme": nvme,
    "capacity": capacity,
    "next_drives": next_drives,
}
STATEMENTS: dict[str, Judgement] = {"pool": pool, "limits": limits, "phases": phases}
