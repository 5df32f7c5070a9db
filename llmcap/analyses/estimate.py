"""`estimate`: one question, one answer, in words where words are due."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from llmcap import __version__
from llmcap.analyses.evaluate import Columns, Evaluator
from llmcap.analyses.options import count, options_from
from llmcap.analyses.result import PHASES, RESULT_COLUMNS, TIER_COLUMNS, Estimate, plain, setting_inputs, winner
from llmcap.analyses.setting import Setting, resolve
from llmcap.errors import OptionError
from llmcap.specs.hardware import Server
from llmcap.specs.model import Model
from llmcap.specs.registry import load_as
from llmcap.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from llmcap.specs.prices import PriceList

#: Whole numbers up to here are exact in the arrays.
_MOST_TOKENS = 2**53
_MOST_STEPS = 1_000_000


def estimate(
    *,
    users: int | str = 1,
    context: int | str = "1M",
    cached_tokens: int | str = 0,
    output_tokens: int | str = 1000,
    sessions: int | str | None = None,
    prices: str | None = None,
    price_gpu_hour: float | str | None = None,
    price_kwh: float | str | None = None,
    **options: Any,
) -> Estimate:
    """Time to first token, KV cache, memory and tiers of one case.

    Parameters
    ----------
    users : int or str
        Active users, all arriving together, or the clients of a closed loop. Counts take text such as "1M", "128Ki",
        "250k".
    context : int or str
        Prompt of each user. [tokens]
    cached_tokens : int or str
        First tokens of the context that are cached already. [tokens]
    output_tokens : int or str
        [tokens]
    sessions : int or str, optional
        Caches kept in all, of which `users` are active; users when left out.
    prices, price_gpu_hour, price_kwh : optional
        Id or path of a price list, or the price of one device-hour and of one kWh: adds power, energy and cost. [USD]
    **options
        Any field of `llmcap.analyses.options.Options`: model, hardware, tp, weight_dtype, assumptions ... With
        arrivals="closed" or a rate such as "2/s" the answer has `serving`, the steady state.

    Returns
    -------
    Estimate

    Raises
    ------
    OptionError
        A value or combination that cannot be; exit status 2 of the command.
    DocumentError
        A file that cannot be used; exit status 3.

    Examples
    --------
    >>> import llmcap
    >>> answer = llmcap.estimate(model="llama-4-maverick", hardware="dgx-b200", context="1M")
    >>> answer.results["kv_bytes_total"]
    25204555776
    """
    case = check_case(users, context, cached_tokens, output_tokens)
    kept = case["users"] if sessions is None else count("sessions", sessions, minimum=case["users"])
    asked = options_from(options, under_load=True)
    setting = resolve(asked.together())
    check_steps(setting, case["context"])
    columns = Evaluator.of(setting).evaluate(
        case["users"], case["context"], case["cached_tokens"], case["output_tokens"]
    )
    if asked.arrivals == "together":
        found = answer(setting, case, kept, columns)
    else:
        from llmcap.analyses.serving.answer import with_load
        from llmcap.analyses.serving.load import under_load

        found = with_load(answer(under_load(setting, asked), case, kept, columns))
    if prices is None and price_gpu_hour is None and price_kwh is None:
        return found
    from llmcap.analyses.economics import price_list

    listed = price_list(prices, price_gpu_hour, price_kwh, device=setting.machine.device.id)
    return found if listed is None else replace(found, costs=costs_of(found, listed))


def costs_of(found: Estimate, prices: PriceList) -> dict[str, Any]:
    """Power and money of an answer."""
    from llmcap.analyses.economics import economics

    inputs, results = found.inputs, found.results
    if found.serving:  # one request's share of the steady state
        rate = found.serving["requests_per_s"]
        inputs = inputs | {"users": 1}
        results = {"output_tok_per_s": found.serving["output_tok_per_s"], "e2el_s": 1.0 / rate if rate else None}
    return economics(found.setting, inputs, results, prices)


def check_case(users: object, context: object, cached: object, output: object) -> dict[str, int]:
    """The numbers of one case, checked alone and against each other.

    Raises
    ------
    OptionError
    """
    case = {
        "users": count("users", users),
        "context": count("context", context),
        "cached_tokens": count("cached_tokens", cached, minimum=0),
        "output_tokens": count("output_tokens", output),
    }
    if case["cached_tokens"] >= case["context"]:
        raise OptionError(
            "--cached-tokens",
            f"the cached prefix ({case['cached_tokens']:,}) must be shorter than the context ({case['context']:,})",
            "at least one token is computed; raise --context or lower --cached-tokens",
        )
    tokens = case["users"] * (case["context"] + case["output_tokens"])
    if tokens > _MOST_TOKENS:
        raise OptionError(
            "--users",
            f"{case['users']:,} users of {case['context'] + case['output_tokens']:,} tokens are {tokens:.1e} tokens",
            f"at most {_MOST_TOKENS:.0e} can be asked for; lower --users or --context",
        )
    return case


def check_steps(setting: Setting, context: int) -> None:
    """Refuse a context of more prefill steps than can be added up in time.

    Raises
    ------
    OptionError
    """
    steps = -(-context // setting.chunk_tokens)
    if steps > _MOST_STEPS:
        raise OptionError(
            "--chunk-tokens",
            f"{context:,} tokens in steps of {setting.chunk_tokens:,} are {steps:,} prefill steps",
            f"at most {_MOST_STEPS:,} are added up; raise --chunk-tokens or shorten --context",
        )


def answer(setting: Setting, case: dict[str, int], sessions: int, columns: Columns) -> Estimate:
    """Columns of one case as an Estimate."""

    def scalar(value: Any) -> Any:
        return np.asarray(value).reshape(-1)[0]

    shared = setting_inputs(setting)
    inputs = {
        **{n: shared[n] for n in ("model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp")},
        "users": case["users"],
        "sessions": sessions,
        "context_tokens": case["context"],
        "cached_tokens": case["cached_tokens"],
        "output_tokens": case["output_tokens"],
        **{n: v for n, v in shared.items() if n not in ("model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp")},
    }
    results = {n: plain(n, scalar(columns.results[n])) for n in RESULT_COLUMNS}
    fits = bool(results["fits"])
    tiers = []
    for name, values in columns.tiers.items():
        row: dict[str, Any] = {"tier": name}
        for column in TIER_COLUMNS[1:]:
            if column == "winner":
                row[column] = winner(scalar(values["wins"]), fits)
            elif column in values:
                row[column] = plain(column, scalar(values[column]))
        tiers.append(row)
    return Estimate(
        inputs=inputs,
        results=results,
        phases=[{"name": n, "time_s": plain("time_s", scalar(columns.phases[n]))} for n in PHASES],
        tiers=tiers,
        assumptions=[
            {"name": s.name, "text": s.text, "source": s.source, "bias": s.bias}
            | ({"inferred": True} if s.inferred else {})
            for s in setting.statements
        ],
        warnings=warnings_of(setting, inputs, results, tiers),
        provenance={
            "version": __version__,
            "specs": [document.row() for document in setting.documents],
        },
        setting=setting,
    )


def warnings_of(
    setting: Setting, inputs: dict[str, Any], results: dict[str, Any], tiers: list[dict[str, Any]]
) -> list[str]:
    """What a careful colleague would say beside the numbers."""
    said: list[str] = []
    tokens = inputs["context_tokens"] + inputs["output_tokens"]
    limit = setting.model.max_context
    if inputs["context_tokens"] > limit:
        said.append(
            f"past the model's context limit: {format_count(inputs['context_tokens'])} tokens asked, "
            f"{setting.model.name} is made for {limit:,}; the figures extrapolate"
        )
    elif tokens > limit:
        said.append(
            f"context and output together ({tokens:,} tokens) pass the model's limit of {limit:,}; the end of the "
            "output would not be generated"
        )
    if not results["fits"]:
        said.append(capacity_message(setting, inputs, results))
        return said
    kept, one = inputs["sessions"], inputs["sessions"] == 1
    if kept <= results["max_users_hbm"]:
        said.append(
            f"fits HBM: {'the cache stays' if one else f'all {kept:,} caches stay'} in device memory (room for "
            f"{results['max_users_hbm']:,}), so offload gains nothing unless more sessions are kept"
        )
    reusable = inputs["cached_tokens"] or inputs["context_tokens"]
    for tier in tiers[1:]:
        name = tier["tier"]
        if tier["users_held"] < inputs["sessions"]:
            said.append(
                f"{name} holds {tier['users_held']:,} of the {inputs['sessions']:,} sessions "
                f"({format_bytes(tier['capacity_bytes'])})"
            )
        if tier["capacity_bytes"] < tiers[0]["capacity_bytes"]:
            said.append(f"{name} is smaller than device memory: as a cache tier it adds little")
        if tier["winner"] == "recompute":
            slower = tier["ttft_reload_s"] - tier["recompute_s"]
            said.append(
                f"reloading {reusable:,} token{'s' * (reusable > 1)} from {name} loses to computing "
                f"{'them' if reusable > 1 else 'it'} again by {format_seconds(slower)}"
            )
    return said


def short_of(inputs: dict[str, Any], results: dict[str, Any]) -> str:
    """How much is short: of all devices, or of one where replicas hold different numbers of users."""
    short = -results["hbm_free_bytes"]
    if inputs["dp"] == 1:
        return format_bytes(short)
    return f"{format_bytes(short / inputs['devices'])} per device of the fullest replica"


def capacity_message(setting: Setting, inputs: dict[str, Any], results: dict[str, Any]) -> str:
    """What is short, by how much, and what would make it fit."""
    device = setting.machine.device
    share = f"{setting.engine.memory_share:.0%}"
    has = f"{inputs['devices']} x {device.name} ({format_bytes(device.memory.capacity)} each, {share} usable)"
    reserved = format_bytes(results["kv_bytes_total_reserved"])
    users = f"{inputs['users']:,} user{'s' * (inputs['users'] > 1)}"
    return (
        f"does not fit: weights {format_bytes(results['weight_bytes_per_device'])} per device and caches of {users} "
        f"({reserved} reserved) are short by {short_of(inputs, results)} on {has}; what would fit: "
        f"{'; '.join(capacity_cures(setting, inputs, results))}"
    )


def capacity_cures(setting: Setting, inputs: dict[str, Any], results: dict[str, Any]) -> list[str]:
    """What would make a case fit that does not."""
    usable = setting.machine.device.memory.capacity * setting.engine.memory_share - setting.engine.memory_fixed
    cures: list[str] = []
    if (most := results["max_users_hbm"]) >= 1:
        cures.append(f"at most {most:,} user{'s' * (most > 1)} of this length fit{'s' * (most == 1)} (--users)")
        if inputs["sessions"] > most:
            cures.append(f"fewer --users with --sessions {inputs['sessions']} if not all are active at once")
    elif results["weight_bytes_per_device"] > usable:
        need = int(np.ceil(results["weight_bytes"] / usable))
        cures.append(f"the weights alone need about {need} such devices (--devices, --tp)")
    else:
        cures.append("a shorter --context")
        if inputs["dp"] > 1:
            cures.append("fewer and larger replicas (--dp)")
    if inputs["kv_policy"] == "all-full":
        cures.append("--kv-policy hybrid")
    if inputs["kv_dtype"] in ("bf16", "fp16", "fp32"):
        cures.append("--kv-dtype fp8")
    if inputs["weight_dtype"] in ("bf16", "fp16", "fp32"):
        cures.append("--weight-dtype fp8")
    return cures


def load_model(name: str) -> Model:
    """A model document by id, Hugging Face id, or path (YAML, config.json or its folder)."""
    from llmcap.analyses.setting import model_and_digest

    return model_and_digest(name)[0]


def load_hardware(name: str) -> Server:
    """A server document by id or path."""
    return load_as(Server, "server", name).document
