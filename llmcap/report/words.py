"""An estimate in sentences and formatted cells, for the terminal page and for Markdown alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llmcap.analyses.estimate import capacity_cures, short_of
from llmcap.analyses.result import Estimate
from llmcap.units import format_bytes, format_count, format_rate, format_seconds, format_si

NONE: Final = "-"
RELOAD_LOSES: Final = "recompute"


def seconds(value: float | None) -> str:
    """A time, or a dash where there is none."""
    return NONE if value is None else format_seconds(value)


def question(answer: Estimate) -> str:
    """What was asked: load and layout in one line."""
    if answer.serving:
        from llmcap.report import serving_words

        return serving_words.question(answer)
    i = answer.inputs
    cached = f", {format_count(i['cached_tokens'])} of them cached" if i["cached_tokens"] else ""
    return (
        f"{plural(i['users'], 'user')} x {format_count(i['context_tokens'])} "
        f"token{'' if i['context_tokens'] == 1 else 's'} in{cached}, "
        f"{format_count(i['output_tokens'])} out"
    )


def layout(answer: Estimate) -> str:
    """Devices, parallelism and dtypes in one line."""
    i = answer.inputs
    # Two pools of devices have degrees of their own, which stand with their utilisation.
    apart = "prefill_devices" in i
    degrees = [
        f"{name}{i[name]}" for name in (("pp", "cp") if apart else ("tp", "pp", "dp", "ep", "cp")) if i[name] > 1
    ]
    widths = (
        f"weights {i['weight_dtype']}, activations {i['activation_dtype']}, KV {i['kv_dtype']}, "
        f"attention {i['attention_dtype']}"
    )
    same = {i["weight_dtype"], i["activation_dtype"], i["kv_dtype"], i["attention_dtype"]}
    shown = f"{i['weight_dtype']} throughout" if len(same) == 1 else widths
    policy = "" if i["kv_policy"] == "hybrid" else f", KV policy {i['kv_policy']}"
    what = " ".join([answer.setting.machine.device.name, *degrees])
    pools = f", {i['prefill_devices']} of them for prefill" if apart else ""
    return f"{i['devices']} x {what}{pools}, {shown}{policy}"


def costs(found: Mapping[str, Any]) -> str:
    """Power and money as a clause that begins with a verb; what is not known is left out."""
    parts = []
    if "power_w" in found:
        energy = found.get("energy_j_per_output_token")
        each = "" if energy is None else f" ({format_si(energy, 'J')} an output token)"
        parts.append(f"draws {format_si(found['power_w'], 'W')}{each}")
    if "usd_per_hour" in found:
        parts.append(f"costs {found['usd_per_hour']:,.2f} USD an hour")
    if "usd_per_million_output_tokens" in found:
        parts.append(f"{found['usd_per_million_output_tokens']:,.3g} USD a million output tokens")
        parts.append(f"{found['usd_per_million_tokens']:,.3g} USD a million of all tokens")
    dated = f", {found['prices_as_of']}" if "prices_as_of" in found else ""
    return f"{', '.join(parts) or 'has no price there'} (prices: {found['prices']}{dated})"


def headline(answer: Estimate) -> list[str]:
    """The answer in one to three sentences."""
    r, i = answer.results, answer.inputs
    money = [f"It {costs(answer.costs)}."] if answer.costs else []
    if answer.serving:
        from llmcap.report import serving_words

        return [*serving_words.headline(answer), *money]
    cache = f"KV cache {format_bytes(r['kv_bytes_total'])}"
    if i["users"] > 1:
        cache += f" ({format_bytes(r['kv_bytes_per_user'])} a user)"
    if not answer.fits:
        return [f"Does not fit: short by {short_of(answer.inputs, r)}. {cache}."]
    band = ""
    if r["ttft_low_s"] is not None and r["ttft_high_s"] is not None:
        band = f" ({format_seconds(r['ttft_low_s'])} to {format_seconds(r['ttft_high_s'])})"
    who = "First token" if i["users"] == 1 else f"Last of {i['users']:,} first tokens"
    mean = "" if i["users"] == 1 else f", mean {format_seconds(r['ttft_mean_s'])}"
    return [f"{who} after {format_seconds(r['ttft_s'])}{band}{mean}. {cache}.", *_verdict(answer), *money]


def notes(answer: Estimate) -> list[str]:
    """What to know beside the numbers; where it does not fit, the headline has said what is short."""
    if answer.answered:
        return answer.warnings
    if answer.serving:  # the headline has said what is short
        return [*answer.warnings[:-1], f"what would{answer.warnings[-1].partition('; what would')[2]}"]
    return [
        *answer.warnings[:-1],
        f"what would fit: {'; '.join(capacity_cures(answer.setting, answer.inputs, answer.results))}",
    ]


def _verdict(answer: Estimate) -> list[str]:
    offload = answer.tiers[1:]
    won = [t for t in offload if t["winner"] == "reload"]
    lost = [t for t in offload if t["winner"] == RELOAD_LOSES]
    found = []
    if won:
        times = ", ".join(f"{t['tier']} {seconds(t['ttft_reload_s'])} ({speedup(t)})" for t in won)
        found.append(f"Reload beats recompute ({seconds(won[0]['recompute_s'])}): {times}.")
    if lost:
        times = ", ".join(f"{t['tier']} {seconds(t['ttft_reload_s'])}" for t in lost)
        found.append(f"Recompute ({seconds(lost[0]['recompute_s'])}) beats reload from {times}.")
    return found


def speedup(tier: Mapping[str, Any]) -> str:
    """How many times sooner, such as '305x'."""
    value = tier["speedup"]
    if value is None:
        return NONE
    return _factor(value)


def winner(tier: Mapping[str, Any]) -> str:
    """The winner and by what factor: 'reload 305x', 'recompute 2x'."""
    value = tier["speedup"]
    if not value:
        return str(tier["winner"] or NONE)
    return f"{tier['winner']} {_factor(value if tier['winner'] == 'reload' else 1.0 / value)}"


def _factor(value: float) -> str:
    return f"{value:,.0f}x" if value >= 10 else f"{value:.2g}x"


def rate(tier: Mapping[str, Any]) -> str:
    """Effective read bandwidth."""
    return format_rate(tier["effective_read_bytes_per_s"], "B/s")


def break_even(tier: Mapping[str, Any]) -> str:
    """Context from which reloading wins, in tokens."""
    if tier["tier"] == "hbm" or tier["winner"] is None:
        return NONE
    tokens = tier["break_even_tokens"]
    return "never" if tokens is None else f"{tokens:,}"


def break_even_sentence(answer: Estimate) -> str:
    """The bandwidth above which reloading wins."""
    value = next((t["break_even_bytes_per_s"] for t in answer.tiers[1:]), None)
    if value is None:
        return ""
    said = f"Break-even: a tier must deliver {format_rate(value, 'B/s')} for reload to beat recompute"
    if any(t["winner"] == RELOAD_LOSES and t["effective_read_bytes_per_s"] > value for t in answer.tiers[1:]):
        return f"{said}, were there no latency and no fixed cost of the engine."
    return f"{said}."


def time_title(answer: Estimate) -> str:
    """Heading of the times of users who arrive together, beside those of a steady state."""
    if not answer.serving:
        return "Time"
    users = answer.inputs["users"]
    undivided = ", devices undivided" if "prefill_devices" in answer.inputs else ""
    return (
        f"Time of one request alone{undivided}" if users == 1 else f"Time if all {users:,} arrived at once{undivided}"
    )


def memory_filled(answer: Estimate) -> str:
    """With whose caches one device is shown, beside a steady state that has others."""
    if not answer.serving:
        return ""
    if not answer.fits:
        return " when full"
    return f" with {'one request' if answer.inputs['users'] == 1 else plural(answer.inputs['users'], 'request')}"


def room_sentence(answer: Estimate) -> str:
    """How many users device memory has room for, and why a steady state has room for another number."""
    i = answer.inputs
    users, devices = plural(answer.results["max_users_hbm"], "user"), plural(i["devices"], "device")
    said = f"Room for {users} of this length on {devices}"
    engine, held = answer.setting.engine, answer.serving.get("held") if answer.serving else None
    if held is None or engine.serving is None:
        return f"{said}."
    if "prefill_devices" in i:
        return f"{said}, undivided."
    most = engine.serving.most_sequences * i["dp"]
    if held >= most:
        return f"{said}, each with its whole output; in steady state the engine runs at most {most:,}."
    why = f"halfway through their output{', beside the draft' if i.get('draft_tokens') else ''}"
    if engine.serving.memory_share != engine.memory_share:
        why += f", with {engine.serving.memory_share:.0%} of memory in use instead of {engine.memory_share:.0%}"
    return f"{said}, each with its whole output; in steady state for {format_rate(held, '').strip()}: {why}."


def decode_facts(answer: Estimate) -> list[tuple[str, str]]:
    """(what, how much) of the decode and the whole run."""
    r = answer.results
    facts = []
    if r["tpot_s"] is not None:
        per_user = format_rate(1.0 / r["tpot_s"], "tokens/s")
        band = "" if r["tpot_low_s"] is None else f" ({seconds(r['tpot_low_s'])} to {seconds(r['tpot_high_s'])})"
        facts.append(("time per output token", f"{seconds(r['tpot_s'])}{band}, {per_user} a user"))
    facts.append(("output rate", f"{format_rate(r['output_tok_per_s'], 'tokens/s')} over the whole run"))
    used = [f"MFU {r['mfu']:.0%} in prefill"] if r["mfu"] is not None else []
    used += [f"MBU {r['mbu']:.0%} in decode"] if r["mbu"] is not None else []
    facts.append(("limit", f"{r['limit']}; {', '.join(used)}"))
    return facts


def plural(count: int, noun: str) -> str:
    """'1 user', '10 users'."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def assumption_lines(answer: Estimate) -> list[tuple[str, str]]:
    """(name, sentence with its bias) of each assumption."""
    return [(a["name"], f"{a['text']} Bias: {a['bias']}.") for a in answer.assumptions]


#: Kinds whose documents have the names of others (a calibration that of its device) or none that tells anything.
_TOLD: Final = ("calibration", "transfers")


def provenance_line(answer: Estimate) -> str:
    """Version and documents, each with the beginning of its digest."""
    documents = dict.fromkeys(
        f"{d['id']} {d['kind'] + ' ' if d['kind'] in _TOLD else ''}{d['sha256'][:7]}"
        for d in answer.provenance["specs"]
    )
    return f"llmcap {answer.provenance['version']}; {', '.join(documents)}"
