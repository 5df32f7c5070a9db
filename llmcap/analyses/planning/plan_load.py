"""Most arrivals a second, and most clients of a closed loop, that a steady state serves within the objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.estimate import answer, check_steps, costs_of
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.planning import plan_users
from llmcap.analyses.planning.asked import Asked, more
from llmcap.analyses.planning.plan_answers import Answer, Question
from llmcap.analyses.planning.sensitivity import turned
from llmcap.analyses.planning.solve import last_rate, last_true
from llmcap.analyses.result import Estimate
from llmcap.analyses.serving.answer import load_warnings, with_load
from llmcap.analyses.serving.load import CEILINGS, PREFIX, LoadModel, under_load
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError
from llmcap.units import format_rate, format_seconds

Row = dict[str, Any]
Array = NDArray[np.float64]
Columns = dict[str, Any]

_LEAST: Final = 1e-6
"""Share of saturation at which a request is alone."""
_ALL: Final = 1.0 - 1e-9
_ROUNDING: Final = 1.0 + 1e-12
_WORDS: Final = {"ttft": "time to first token", "ttft_p95": "p95 of the time to first token",
                 "tpot": "time per output token", "saturation": "saturation"}  # fmt: skip
#: Of the steady state, in the answer's rows.
_SHOWN: Final = ("ttft_s", "ttft_p95_s", "ttft_p99_s", "tpot_s", "requests_per_s", "output_tok_per_s", "running",
                 "waiting", "utilisation", "saturation_requests_per_s", "saturation_limit")  # fmt: skip


def model_of(asked: Asked) -> LoadModel:
    """The load model of the question's machine, with the knob turned.

    Raises
    ------
    OptionError
        Options that do not go together, or without a steady state.
    """
    setting = resolve(asked.options.together())
    check_steps(setting, asked.load.context)
    return LoadModel.of(under_load(turned(setting, asked.knob), asked.options))


# -- searches ----------------------------------------------------------------------------------------------------------


def highest_rate(asked: Asked, model: LoadModel) -> tuple[float, float] | None:
    """Rate of Poisson arrivals up to which all objectives are kept, and the least that was seen to fail. [1/s]

    Returns
    -------
    tuple of float or None
        Saturation, twice, where no objective fails before; None where one request alone fails.

    Notes
    -----
    At an end of the band all times are f-fold: a rate x is met as f x is by the best guess. So the search is the same,
    with objectives f times as tight and rates f times as high, and ends at the same end of saturation's band.
    """
    n, k, o = (np.asarray(float(v)) for v in (asked.load.context, asked.load.cached, asked.load.output))
    now = model.columns(1, n, k, o, rate=0.0)
    if not bool(now["fits"]):
        return None
    ceiling, most, first, each = float(now["saturation_requests_per_s"]), np.inf, 1.0, 1.0
    if asked.band != "best":
        end = ("low", "high").index(asked.band)
        bands = model.bands_at_rates(n, k, o)
        first, each = float(bands.ttft[end]), float(bands.tpot[end])
        other = "high" if asked.band == "low" else "low"  # long times, few requests
        most = float(now[f"saturation_{other}_tok_per_s"]) / asked.load.output

    def holds(x: Array) -> NDArray[np.bool_]:
        return _kept(_ratios(asked, model.columns(1, n, k, o, rate=x), first=first, each=each), x)

    found = last_rate(holds, _LEAST * ceiling, _ALL * ceiling)
    return None if found is None else (min(found[0] / each, most), min(found[1] / each, most))


def most_clients(asked: Asked, model: LoadModel) -> int:
    """Clients of a closed loop up to which all objectives are kept; 0 when one alone fails."""
    load = asked.load

    def holds(clients: Array) -> NDArray[np.bool_]:
        columns = model.columns(clients, load.context, load.cached, load.output)
        fits: NDArray[np.bool_] = np.asarray(columns["fits"])
        return _kept(_ratios(asked, columns), clients) & fits

    return last_true(holds, 1, plan_users.MOST_USERS) or 0


def _ratios(asked: Asked, columns: Columns, *, first: float = 1.0, each: float = 1.0) -> dict[str, Array]:
    """Times over what the objectives allow; in a closed loop at the end of the band that is asked for."""
    objectives, end = asked.objectives, ""
    if asked.band != "best" and asked.options.arrivals == "closed":
        end = f"_{asked.band}"
    found = {}
    for name, factor in (("ttft", first), ("ttft_p95", first), ("tpot", each)):
        limit = getattr(objectives, name)
        if limit is not None and (name != "tpot" or asked.load.output > 1):
            ratio = factor * np.asarray(columns[f"{name}{end}_s"], dtype=np.float64) / limit
            found[name] = np.where(np.isnan(ratio), np.inf, ratio)
    return found


def _kept(ratios: dict[str, Array], like: Array) -> NDArray[np.bool_]:
    kept = np.ones(like.shape, dtype=np.bool_)
    for ratio in ratios.values():
        kept &= ratio <= _ROUNDING
    return kept


def rounded_down(x: float) -> float:
    """Four digits of a rate, none of them rounded up, so that it can be typed and still keeps what it keeps.

    >>> rounded_down(3.28479), rounded_down(12345.6), rounded_down(0.0012399)
    (3.284, 12340.0, 0.001239)
    """
    if x <= 0.0:
        return 0.0
    power = int(np.floor(np.log10(x))) - 3
    return float(f"{int(np.floor(x / 10.0**power))}e{power}")


# -- answers -----------------------------------------------------------------------------------------------------------


def rate_max(asked: Asked) -> Answer:
    """Most arrivals a second."""
    model = model_of(asked)
    found = highest_rate(asked, model)
    if found is None:
        return _nobody(asked, model, "No rate is slow enough")
    rate, load = rounded_down(found[0]), asked.load
    estimate, notes = _at(asked, 1, rate)
    above = model.columns(1, load.context, load.cached, load.output, rate=found[1])
    what, forbidden = _binding(asked, above, saturates=found[1] == found[0])
    ends = (highest_rate(asked.with_band(band), model) for band in ("high", "low"))
    low, high = (0.0 if end is None else rounded_down(end[0]) for end in ends)
    steps = _next(asked, "requests_per_s", rate, rate_of)
    span = f" ({_figure(low)} to {_figure(high)})" if low != high else ""
    better = ""
    if steps:
        better = f"; next: {steps[0]['change']}, {_figure(steps[0]['requests_per_s'])} ({steps[0]['gain']:+.0%})"
    text = f"{_figure(rate)} requests/s{span}, bound by {_WORDS[what]}; {_there(estimate)}{better}"
    return Answer(
        True, {"requests_per_s": rate} | _columns_of(estimate), rate, text, what, {"requests_per_s": low},
        {"requests_per_s": high}, _slack(asked, estimate), forbidden, next=steps, results=estimate.serving,
        costs={} if asked.prices is None else costs_of(estimate, asked.prices), notes=notes,
    )  # fmt: skip


def clients_max(asked: Asked) -> Answer:
    """Most clients of a closed loop."""
    model, load = model_of(asked), asked.load
    clients = most_clients(asked, model)
    if clients == 0:
        return _nobody(asked, model, "Not even one client")
    estimate, notes = _at(asked, clients, None)
    above = model.columns(clients + 1, load.context, load.cached, load.output)
    what, forbidden = _binding(asked, above, saturates=False)
    low, high = (most_clients(asked.with_band(band), model) for band in ("high", "low"))
    steps = _next(asked, "clients", clients, clients_of)
    span = f" ({low:,} to {high:,})" if low != high else ""
    better = f"; next: {steps[0]['change']}, {steps[0]['clients']:,.0f} ({steps[0]['gain']:+.0%})" if steps else ""
    text = f"{clients:,} client{'s' * (clients > 1)}{span}, bound by {_WORDS[what]}; {_there(estimate)}{better}"
    return Answer(
        True, {"clients": clients} | _columns_of(estimate), float(clients), text, what, {"clients": low},
        {"clients": high}, _slack(asked, estimate), forbidden, next=steps, results=estimate.serving,
        costs={} if asked.prices is None else costs_of(estimate, asked.prices), notes=notes,
    )  # fmt: skip


def rate_of(asked: Asked) -> float | None:
    """The answer of rate_max alone; None where there is none."""
    try:
        found = highest_rate(asked, model_of(asked))
    except OptionError:
        return None
    return None if found is None else rounded_down(found[0])


def clients_of(asked: Asked) -> float | None:
    """The answer of clients_max alone; None where there is none."""
    try:
        return float(most_clients(asked, model_of(asked))) or None
    except OptionError:
        return None


def _at(asked: Asked, clients: int, rate: float | None) -> tuple[Estimate, list[str]]:
    """What `estimate --arrivals` says at the answer, and its notes on the load."""
    options = asked.options if rate is None else replace(asked.options, arrivals=rate)
    setting = under_load(resolve(options.together()), options)
    case = {"users": clients, "context": asked.load.context, "cached_tokens": asked.load.cached,
            "output_tokens": asked.load.output}  # fmt: skip
    together = answer(setting, case, clients, Evaluator.of(setting).evaluate(*case.values()))
    found = with_load(together)
    return found, load_warnings(LoadModel.of(setting), together, found.serving)


def _nobody(asked: Asked, model: LoadModel, told: str) -> Answer:
    """The answer where not even one request alone is served in time, or none fits."""
    load = asked.load
    rate = None
    if asked.options.arrivals != "closed":
        now = model.columns(1, load.context, load.cached, load.output, rate=0.0)
        rate = _LEAST * float(now["saturation_requests_per_s"]) if bool(now["fits"]) else 1.0
    alone = model.columns(1, load.context, load.cached, load.output, rate=rate)
    nothing: Row = {"requests_per_s": 0.0} if rate is not None else {"clients": 0}
    value = next(iter(nothing))
    steps = _next(asked, value, 0.0, rate_of if rate is not None else clients_of)
    if not bool(alone["fits"]):
        estimate, _ = _at(asked, 1, rate)
        text = estimate.warnings[-1].removeprefix("does not fit: ")
        relax = [{"what": "capacity", "text": text}]
        return Answer(False, nothing, None, f"{told}: {text}", "capacity", relax=relax, next=steps)
    _, relax = _binding(asked, alone, saturates=False)
    missed = {row["what"] for row in relax}
    times = [f"{format_seconds(float(alone['ttft_s']))} to its first token"] if missed - {"tpot"} else []
    times += [f"{format_seconds(float(alone['tpot_s']))} per token"] if "tpot" in missed else []
    text = f"{told}: one request alone takes {' and '.join(times)}; {'; '.join(row['text'] for row in relax)}"
    return Answer(False, nothing, None, text, relax[0]["what"], relax=relax, next=steps)


def _binding(asked: Asked, columns: Columns, *, saturates: bool) -> tuple[str, list[Row]]:
    """What a load beyond the answer misses, and how far that would have to give way, worst first."""
    if saturates:
        why = CEILINGS[int(columns["saturation_limit"])]
        held = "the work itself" if why == "work" else why
        return "saturation", [{"what": "saturation", "text": f"saturation, held down by {held}"}]
    rows: list[Row] = []
    for name, ratio in _ratios(asked, columns).items():
        factor, limit = float(ratio), float(getattr(asked.objectives, name))
        if factor > _ROUNDING:
            flag = f"--{name.replace('_', '-')}"
            text = f"{flag} {format_seconds(limit * factor)} instead of {format_seconds(limit)}, {more(factor)}"
            rows.append({"what": name, "asked": limit, "needed": limit * factor, "factor": factor, "text": text})
    rows.sort(key=lambda row: float(row["factor"]), reverse=True)
    return (rows[0]["what"] if rows else "saturation"), rows


def _slack(asked: Asked, estimate: Estimate) -> Row:
    """How far each promise is kept at the answer, and how far saturation is."""
    s = estimate.serving
    found: Row = {}
    for name in ("ttft", "ttft_p95", "tpot"):
        limit, value = getattr(asked.objectives, name), s.get(f"{name}_s")
        if limit is not None and value is not None:
            found[name] = {"value": value, "limit": limit, "left": 1.0 - value / limit}
    return found | {"saturation": {"left": 1.0 - s["utilisation"]}}


def _there(estimate: Estimate) -> str:
    """The steady state at the answer."""
    s = estimate.serving
    first = f"first token after {format_seconds(s['ttft_s'])}"
    if s.get("ttft_p95_s") is not None:
        first += f" (p95 {format_seconds(s['ttft_p95_s'])})"
    each = "" if s["tpot_s"] is None else f", then {format_seconds(s['tpot_s'])} per token"
    rate = "" if "ttft_p95_s" in s else f", {format_rate(s['requests_per_s'], 'requests/s')}"
    most = format_rate(s["saturation_requests_per_s"], "requests/s")
    return (
        f"{first}{each}{rate}, {format_rate(s['output_tok_per_s'], 'tokens/s')}; {s['utilisation']:.0%} of "
        f"saturation at {most}"
    )


def _columns_of(estimate: Estimate) -> Row:
    return {PREFIX + name: estimate.serving[name] for name in _SHOWN if name in estimate.serving}


def _figure(rate: float) -> str:
    """All digits of a rate that was rounded down: what is shown can be asked for."""
    return f"{rate:,.10g}"


def _next(asked: Asked, what: str, now: float, value: Callable[[Asked], float | None]) -> list[Row]:
    """Changes of one option each that serve more, most first."""
    rows: list[Row] = []
    for change in _changes(asked):
        got = value(asked.with_options(**change))
        if got is not None and got > now:
            figure = int(got) if what == "clients" else got
            rows.append({"change": plan_users.typed(change), what: figure, "gain": (got - now) / now if now else None})
    return sorted(rows, key=lambda row: float(row[what]), reverse=True)[:5]


def _changes(asked: Asked) -> list[dict[str, Any]]:
    options = asked.options
    found = plan_users.changes(replace(asked, options=options.together()))
    if options.prefill_devices is None:
        return found
    # Two pools: each takes its own layout of the devices that it has.
    own = [{name: v for name, v in change.items() if name not in ("tp", "pp", "dp")} for change in found]
    one_more = [{"prefill_devices": options.prefill_devices + d} for d in (-1, 1) if options.prefill_devices + d > 0]
    return [change for i, change in enumerate(own) if change and change not in own[:i]] + one_more


LOAD_ANSWERS: Final = {"rate-max": Question(rate_max, rate_of), "clients-max": Question(clients_max, clients_of)}
