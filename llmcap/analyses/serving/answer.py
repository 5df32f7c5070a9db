"""One question under load, in words where words are due."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from llmcap.analyses.result import Estimate
from llmcap.analyses.serving.load import LoadModel, plain
from llmcap.analyses.serving.speculation import has_own_layer
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.analyses.setting import Setting
from llmcap.specs.assumptions import Statement
from llmcap.units import format_bytes, format_rate

_NEAR = 0.9
"""Utilisation from which waits are uncertain."""
_PAST = 1.02
"""Throughput over saturation from which the two do not go together."""
_FULL = {
    "prefill devices": "the prefill devices take no more prompts",
    "decode devices": "the decode devices have no place for more",
    "transfer": "the links move no more caches",
}
"""Why clients wait, by what is full first of two pools."""


def with_load(found: Estimate) -> Estimate:
    """The answer with what its users see in steady state.

    Raises
    ------
    OptionError
    """
    setting, i = found.setting, found.inputs
    model = LoadModel.of(setting)
    columns = model.columns(i["users"], i["context_tokens"], i["cached_tokens"], i["output_tokens"])
    serving: dict[str, Any] = {name: plain(name, np.asarray(value).reshape(-1)[0]) for name, value in columns.items()}
    # All at once is another question: what does not fit then may be served one after another.
    together = found.warnings if found.fits else found.warnings[:-1]
    return replace(
        found,
        serving=serving,
        warnings=[*together, *load_warnings(model, found, serving), *_shortfall(model, found, serving)],
        assumptions=[
            *found.assumptions,
            *({"name": s.name, "text": s.text, "source": s.source, "bias": s.bias} for s in statements(setting)),
        ],
    )


def load_warnings(model: LoadModel, found: Estimate, serving: dict[str, Any]) -> list[str]:
    """What a careful colleague would say beside a steady state, where there is one."""
    i = found.inputs
    said: list[str] = []
    if not served(serving):
        return said
    if i["arrivals"] == "closed" and serving["waiting"] >= 1.0:
        said.append(
            f"{serving['running']:,.0f} of the {i['users']:,} clients run at a time, the others wait: "
            + _held_back(model, found, serving)
        )
    elif not found.fits and model.split is None and model.model.engine.admission == "mean":
        said.append(f"all {i['users']:,} at full length at once would not fit; they are admitted at their mean length")
    if serving["requests_per_s"] > _PAST * serving["saturation_requests_per_s"]:
        said.append(
            f"throughput is above saturation: the profile '{found.setting.engine.id}' knows saturation from a "
            "benchmark of its own that is slower than its closed loops; rates between the two may be sustained"
        )
    if i["arrivals"] == "poisson" and serving["utilisation"] >= _NEAR:
        said.append(
            f"at {serving['utilisation']:.0%} of saturation waits rest on small differences; read them as orders of "
            "magnitude"
        )
    if i["arrivals"] == "poisson" and serving["ttft_high_s"] is None:
        said.append("at the slow end of the band this rate is past saturation: the times have no upper end")
    elif i["arrivals"] == "poisson" and i["arrivals_per_s"] > (least := _least(found, serving)):
        said.append(
            f"the band of saturation begins at {format_rate(least, 'requests/s')}, below this rate: it may be more "
            "than the devices can serve"
        )
    return said


def _least(found: Estimate, serving: dict[str, Any]) -> float:
    """Lower end of the saturation's band. [requests/s]"""
    return float(serving["saturation_low_tok_per_s"]) / float(found.inputs["output_tokens"])


def _held_back(model: LoadModel, found: Estimate, serving: dict[str, Any]) -> str:
    """What keeps the other clients from running."""
    if model.split is not None:
        return _FULL[serving["saturation_limit"]]
    i = found.inputs
    lengths = (np.asarray(float(i[f"{name}_tokens"])) for name in ("context", "cached", "output"))
    if float(i["dp"] * model.model.slots(*lengths)) < 0.999 * serving["held"]:
        return "steps have no room for more prefill"
    most = i["dp"] * model.model.engine.most_sequences
    if serving["held"] >= most:
        return f"the engine runs at most {most:,}"
    return f"the cache pool holds {serving['held']:,.0f} requests of this length"


def served(serving: dict[str, Any]) -> bool:
    """Whether there is a steady state at all."""
    return bool(serving["fits"]) and serving["limit"] != "saturated"


def _shortfall(model: LoadModel, found: Estimate, serving: dict[str, Any]) -> list[str]:
    if served(serving):
        return []
    i = found.inputs
    if not serving["fits"]:
        return [_too_large(model, i["context_tokens"], i["output_tokens"])]
    asked = format_rate(i["arrivals_per_s"], "requests/s")
    most = serving["saturation_requests_per_s"]
    low, high = (serving[f"saturation_{end}_tok_per_s"] / i["output_tokens"] for end in ("low", "high"))
    cures = [f"at most {format_rate(most, 'requests/s')}", "more --devices"]
    if serving["saturation_limit"] in ("prefill devices", "decode devices"):
        cures.append(f"{'more' if serving['saturation_limit'] == 'prefill devices' else 'fewer'} --prefill-devices")
    elif serving["saturation_limit"] == "cache pool" and i["kv_dtype"] in ("bf16", "fp16", "fp32"):
        cures.append("--kv-dtype fp8")
    cures.append("shorter prompts or outputs")
    held_by = serving["saturation_limit"]
    return [
        f"saturated: {asked} are more than the {format_rate(most, 'requests/s')} "
        f"({format_rate(low, '').strip()} to {format_rate(high, '').strip()}) that {i['devices']:,} devices can serve, "
        f"held down by {'the work itself' if held_by == 'work' else held_by}; requests would queue without end; "
        f"what would help: {'; '.join(cures)}"
    ]


def _too_large(model: LoadModel, context: int, output: int) -> str:
    pools = [("", model.model, context + output)]
    if model.split is not None:
        pools = [("prefill ", model.split.prefill, context), ("decode ", model.split.decode, context + output)]
    for name, pool, tokens in pools:
        one = float(pool.reserved(float(tokens)))
        if one > pool.pool:
            return _short(name, pool, tokens, one)
    raise AssertionError("some pool is too small")


def _short(name: str, model: ServingModel, tokens: int, one: float) -> str:
    device = model.setting.machine.device
    left = "nothing" if model.pool <= 0.0 else format_bytes(model.pool)
    draft = " and a draft" if model.draft is not None else ""
    # What a pool of devices divides into is not seen from its options: three devices make replicas of one.
    width, larger = (
        (f" at tp{model.setting.parallelism.tp}", "--prefill-devices, --devices") if name else ("", "--devices, --tp")
    )
    return (
        f"does not fit: one request of {tokens:,} tokens reserves {format_bytes(one)} on each {name}device "
        f"({device.name}, {format_bytes(device.memory.capacity)}), and {left} is left beside "
        f"{format_bytes(model.memory.weights_per_device)} of weights{width}{draft}; what would fit: larger "
        f"replicas ({larger}), narrower --weight-dtype or --kv-dtype, a shorter --context"
    )


def statements(setting: Setting) -> list[Statement]:
    """What is assumed about the load."""
    options = setting.options
    profile = f"engine profile {setting.engine.id}, serving"
    found: list[Statement] = []
    if options.arrivals == "closed":
        way = (
            "their lengths vary around the means, so that they drift apart"
            if options.lengths != "equal"
            else "all lengths are equal, so that they stay in step"
        )
        found.append(
            Statement(
                name="closed loop",
                text=f"Each client sends its next request when the last is answered; {way}. The first burst counts "
                "as in a benchmark of about ten requests a client. Bands are those of measured closed loops.",
                source=profile,
                bias="TTFT pessimistic for long runs",
            )
        )
    else:
        found.append(
            Statement(
                name="Poisson arrivals",
                text="Requests of equal lengths arrive at random and are spread evenly over the replicas; waits are "
                "those of M/D/1 (prefill) and M/D/m (slots), running sequences are taken at their mean.",
                source="Pollaczek-Khinchine; Sakasegawa 1977; Little's law; bands of measured closed loops, propagated",
                bias="neutral to about 80 % of saturation, then pessimistic; bursts beyond Poisson are not in it",
            )
        )
    if options.prefill_devices is not None:
        found.append(
            Statement(
                name="disaggregation",
                text="A prompt's cache moves once it is prefilled, at the share of the links that the engine's peer "
                "path reaches; routing between pools costs nothing. No measured run has entered its bands.",
                source=f"engine profile {setting.engine.id}, reloads.peer",
                bias="transfer pessimistic where engines send layer by layer",
            )
        )
    if options.draft_tokens is not None:
        own = (
            "the model's own prediction layer" if has_own_layer(setting) else "one layer like the model's last (EAGLE)"
        )
        found.append(
            Statement(
                name="speculation",
                text=f"{options.draft_tokens} tokens are drafted in a row by {own}, each accepted with a chance of "
                f"{options.acceptance:g} if those before it were; prefill of the draft and rejected work beside the "
                "verifying step cost nothing.",
                source="acceptance as given; Leviathan et al. 2023, arXiv:2211.17192",
                bias="optimistic",
            )
        )
    return found
