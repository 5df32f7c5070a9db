"""The steady state of an estimate in sentences and formatted cells, for the terminal page and for Markdown alike."""

from __future__ import annotations

from llmcap.analyses.result import Estimate
from llmcap.units import format_count, format_rate, format_seconds


def question(answer: Estimate) -> str:
    """Who asks, and for what."""
    i = answer.inputs
    cached = f", {format_count(i['cached_tokens'])} of them cached" if i["cached_tokens"] else ""
    if i["arrivals"] == "closed":
        who = f"{i['users']:,} client{'s' * (i['users'] != 1)}, each sending its next request when the last is answered"
    else:
        who = f"{format_rate(i['arrivals_per_s'], 'requests/s')} at random"
    return (
        f"{who}: {format_count(i['context_tokens'])} token{'s' * (i['context_tokens'] != 1)} in{cached}, "
        f"{format_count(i['output_tokens'])} out"
    )


def headline(answer: Estimate) -> list[str]:
    """The answer in one to two sentences; what would help stands in the notes."""
    s = answer.serving
    if not answer.answered:
        short = answer.warnings[-1].split("; what would")[0]
        return [f"{short[:1].upper()}{short[1:]}."]
    times = f"First token after {_time(answer, 'ttft')}"
    if s["tpot_s"] is not None:
        times += f", then {_time(answer, 'tpot')} per token"
    held = f"Saturates at {format_rate(s['saturation_requests_per_s'], 'requests/s')}" + (
        "." if answer.inputs["arrivals"] == "closed" else f"; {s['utilisation']:.0%} of that is asked for."
    )
    return [f"{times}.", f"{_tokens(answer, '')} from {format_rate(s['requests_per_s'], 'requests/s')}. {held}"]


def facts(answer: Estimate) -> list[tuple[str, str]]:
    """(what, how much) of the steady state."""
    s, i = answer.serving, answer.inputs
    found: list[tuple[str, str]] = []
    if answer.answered:
        found.append(("time to first token", _first_token(answer)))
        if s["tpot_s"] is not None:
            rate = format_rate(s["output_tok_per_s_per_user"], "tokens/s")
            found.append(("time per output token", f"{_time(answer, 'tpot')}, {rate} a user"))
        found += [
            ("end to end", _time(answer, "e2el")),
            (
                "throughput",
                f"{_tokens(answer, '')}, {format_rate(s['output_tok_per_s_per_device'], 'tokens/s')} a device, "
                f"{format_rate(s['requests_per_s'], 'requests/s')}",
            ),
            ("at a time", f"{_number(s['running'])} run, {_number(s['waiting'])} wait; room for {_number(s['held'])}"),
        ]
    if s["fits"]:
        beyond = format_rate(s["saturation_requests_per_s"], "requests/s")
        found.append(
            (
                "saturation",
                f"{beyond}, {_tokens(answer, 'saturation_')}; held down by {_ceiling(s['saturation_limit'])}",
            )
        )
        found.append(("utilisation", _utilisation(answer)))
    if "tokens_per_step" in s:
        found.append(
            (
                "speculation",
                f"{i['draft_tokens']} drafted, {i['acceptance']:.0%} accepted: "
                f"{s['tokens_per_step']:.3g} tokens a step",
            )
        )
    if answer.answered:
        found.append(("limit", s["limit"]))
    return found


def _time(answer: Estimate, name: str) -> str:
    """A time with its band: '417 ms (330 ms to 618 ms)'; an end past saturation is said to be open."""
    s = answer.serving
    low, high = s[f"{name}_low_s"], s[f"{name}_high_s"]
    band = (
        f"from {format_seconds(low)}, no upper end"
        if high is None
        else f"{format_seconds(low)} to {format_seconds(high)}"
    )
    return f"{format_seconds(s[f'{name}_s'])} ({band})"


def _first_token(answer: Estimate) -> str:
    s = answer.serving
    parts = [_time(answer, "ttft")]
    if s.get("ttft_p95_s") is not None:
        parts.append(f"p95 {format_seconds(s['ttft_p95_s'])}, p99 {format_seconds(s['ttft_p99_s'])}")
    if s["queue_s"]:
        parts.append(f"{format_seconds(s['queue_s'])} of it queueing")
    if "transfer_s" in s:
        parts.append(f"{format_seconds(s['transfer_s'])} moving the cache")
    return "; ".join(parts)


def _tokens(answer: Estimate, which: str) -> str:
    s = answer.serving
    name = "saturation" if which else "output"
    best = s[f"{name}_tok_per_s"]
    low, high = (s[f"{name}_{end}_tok_per_s"] for end in ("low", "high"))
    band = "" if low == high else f" ({format_rate(low, '').strip()} to {format_rate(high, '').strip()})"
    return f"{format_rate(best, 'tokens/s')}{band}"


def _number(value: float) -> str:
    if 0.0 < value < 0.001:
        return "under 0.001"
    return format_rate(value, "").strip()


def _ceiling(why: str) -> str:
    return {"work": "the work itself", "cache pool": "the cache pool", "transfer": "the links"}.get(why, why)


def _utilisation(answer: Estimate) -> str:
    s, i = answer.serving, answer.inputs
    parts = [f"{s['utilisation']:.0%} of saturation"]
    if "prefill_utilisation" in s:
        pools = (("prefill", i["prefill_devices"]), ("decode", i["devices"] - i["prefill_devices"]))
        busy = []
        for name, n in pools:
            layout = f"{s[f'{name}_dp']} x tp{s[f'{name}_tp']}"
            busy.append(f"{n} {name} device{'s' * (n != 1)} ({layout}) {s[f'{name}_utilisation']:.0%}")
        parts.append(f"{', '.join(busy)}, links {s['transfer_utilisation']:.1%}")
    return "; ".join(parts)
