"""`plan`: inverse questions. How many users, requests, devices, drives, how much DRAM, how fast a tier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from llmcap import __version__
from llmcap.analyses.economics import price_list
from llmcap.analyses.estimate import check_case
from llmcap.analyses.options import LOAD_OPTIONS, Options, count, option_name, options_from
from llmcap.analyses.planning.asked import Asked
from llmcap.analyses.planning.objectives import Load, Objectives
from llmcap.analyses.planning.plan_answers import ANSWERS, Answer
from llmcap.analyses.planning.plan_load import LOAD_ANSWERS
from llmcap.analyses.planning.sensitivity import LOAD_KNOBS, MACHINE_KNOBS, Knob, tornado
from llmcap.analyses.result import setting_inputs
from llmcap.analyses.serving.answer import statements
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.units import QuantityError, parse_quantity

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
_EVERY: Final = ANSWERS | LOAD_ANSWERS
QUESTIONS: Final = tuple(_EVERY)
_NEEDS: Final = {"bandwidth-for": ("ttft",), "clients-max": ("ttft",)}
#: Arrivals of the questions about a steady state; those at random have a rate of their own in every case tried.
_ARRIVALS: Final = {"rate-max": "1/s", "clients-max": "closed"}


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to an inverse question."""

    question: str
    inputs: Row
    objectives: Row
    found: Answer
    sensitivity: list[Row] = field(default_factory=list)
    assumptions: list[Row] = field(default_factory=list)
    provenance: Row = field(default_factory=dict)

    @property
    def feasible(self) -> bool:
        """Whether there is an answer that keeps all objectives."""
        return self.found.feasible

    @property
    def answer(self) -> Row:
        """The answer itself: users, requests_per_s, clients, devices, dram_bytes, drives, nominal_bytes_per_s, or
        hardware and devices."""
        return self.found.answer

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, schema llmcap.plan/1."""
        found = self.found
        told: dict[str, Any] = {
            "schema": "llmcap.plan/1",
            "question": self.question,
            "inputs": self.inputs,
            "objectives": self.objectives,
            "feasible": found.feasible,
            "answer": found.answer,
            "binding": found.binding,
            "text": found.text,
        }
        optional = {
            "low": found.low, "high": found.high, "slack": found.slack, "forbidden": found.forbidden,
            "relax": found.relax, "next": found.next, "candidates": found.candidates, "excluded": found.excluded,
            "sensitivity": self.sensitivity, "results": found.results, "costs": found.costs, "notes": found.notes,
        }  # fmt: skip
        told |= {name: value for name, value in optional.items() if value not in (None, [], {})}
        return _plain(told | {"assumptions": self.assumptions, "provenance": self.provenance})  # type: ignore[no-any-return]

    def rows(self) -> list[Row]:
        """One flat row: inputs, objectives and the answer; for `cheapest` one per machine, cheapest first."""
        asked = {"question": self.question, **self.inputs, **self.objectives, "feasible": self.feasible}
        if self.question == "cheapest" and self.found.candidates:
            return [_plain(asked | row) for row in self.found.candidates]
        return [_plain(asked | self.answer)]

    def to_frame(self) -> pd.DataFrame:
        """The same as a table."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def plan(
    question: str,
    *,
    ttft: float | str | None = None,
    tpot: float | str | None = None,
    ttft_p95: float | str | None = None,
    tier: str | None = None,
    users: int | str | None = None,
    context: int | str = "1M",
    cached_tokens: int | str = 0,
    output_tokens: int | str = 1000,
    sessions: int | str | None = None,
    prices: str | None = None,
    price_gpu_hour: float | str | None = None,
    price_kwh: float | str | None = None,
    sensitivity: bool = True,
    **options: Any,
) -> Plan:
    """Solve for what keeps the objectives.

    Parameters
    ----------
    question : str
        `users-max`, `rate-max`, `clients-max`, `devices-min`, `dram-min`, `drives-min`, `bandwidth-for`, or `cheapest`.
    ttft, tpot : float or str, optional
        Objectives: the last user's first token, and the time between tokens; means of a steady state for rate-max and
        clients-max. "2 s", "50 ms". [s]
    ttft_p95 : float or str, optional
        Objective of rate-max: the first token of 95 % of requests. [s]
    tier : str, optional
        Tier from which prefixes are reloaded; the tier meant by bandwidth-for.
    users, context, cached_tokens, output_tokens, sessions, **options
        As for `estimate`; users-max asks for the users, rate-max and clients-max for the load.
    prices, price_gpu_hour, price_kwh : optional
        A price list, or the price of one device-hour and of one kWh; `cheapest` needs prices.
    sensitivity : bool
        Whether to try what moves the answer.

    Returns
    -------
    Plan

    Raises
    ------
    OptionError
        A question without what it needs, or a value that cannot be.
    DocumentError
        A file that cannot be used.

    Examples
    --------
    >>> answer = plan("users-max", ttft="2 s", tpot="50 ms", context="32k", sensitivity=False).answer
    >>> answer["users"] > 0
    True
    """
    if question not in _EVERY:
        hint = f"{did_you_mean(question, QUESTIONS)} choose one of {', '.join(QUESTIONS)}".strip()
        raise OptionError("", f"there is no question '{printable(question, 40)}'", hint)
    if question == "users-max" and users is not None:
        raise OptionError("--users", "is what --users-max looks for", "leave it out")
    steady = question in _ARRIVALS
    if steady:
        _check_steady(question, users=users, sessions=sessions, tier=tier)
    case = check_case(1 if users is None else users, context, cached_tokens, output_tokens)
    kept = case["users"] if sessions is None else count("sessions", sessions, minimum=case["users"])
    load = Load(case["users"], case["context"], case["cached_tokens"], case["output_tokens"], kept)
    objectives = Objectives(_seconds("ttft", ttft), _seconds("tpot", tpot), _seconds("ttft_p95", ttft_p95), tier)
    _check(question, objectives, case["output_tokens"])
    chosen = _options(question, options)
    setting = resolve(chosen.together())
    _check_tier(question, objectives.tier, [t.name for t in setting.machine.tiers])
    device = None if question == "cheapest" else setting.machine.device.id
    asked = Asked(chosen, load, objectives, price_list(prices, price_gpu_hour, price_kwh, device=device))
    answers = _EVERY[question]
    found = answers.answer(asked)
    rows = _tornado(asked, answers.value, found.value, question) if sensitivity and found.feasible else []
    shared = setting_inputs(replace(setting, options=chosen))
    shared.pop("arrivals_per_s", None)
    if question in ("devices-min", "cheapest"):
        shared = {n: v for n, v in shared.items() if n not in ("devices", "tp", "pp", "dp", "ep", "cp")}
    if question == "cheapest":
        shared.pop("hardware")
    asked_load = {"users": load.users, "sessions": load.sessions, "context_tokens": load.context,
                  "cached_tokens": load.cached, "output_tokens": load.output}  # fmt: skip
    if question == "users-max" or steady:
        asked_load = {n: v for n, v in asked_load.items() if n not in ("users", "sessions")}
    promised = {"ttft_s": objectives.ttft, "ttft_p95_s": objectives.ttft_p95, "tpot_s": objectives.tpot,
                "tier": objectives.tier}  # fmt: skip
    return Plan(
        question=question,
        inputs=shared | asked_load,
        objectives={name: value for name, value in promised.items() if value is not None},
        found=found,
        sensitivity=rows,
        assumptions=[
            {"name": s.name, "text": s.text, "source": s.source, "bias": s.bias}
            for s in (*setting.statements, *(statements(replace(setting, options=chosen)) if steady else ()))
        ],
        provenance={
            "version": __version__,
            "specs": [document.row() for document in setting.documents],
        },
    )


def _seconds(name: str, value: float | str | None) -> float | None:
    if value is None:
        return None
    try:
        return parse_quantity(value if isinstance(value, str) else f"{value!r} s", "seconds", allow_zero=False)
    except QuantityError as error:
        raise OptionError(option_name(name), error.message, error.hint) from None


def _check(question: str, objectives: Objectives, output: int) -> None:
    for name in _NEEDS.get(question, ()):
        if getattr(objectives, name) is None:
            raise OptionError(f"--{name}", f"is missing: --{question} looks for what meets it", f"give --{name} '2 s'")
    times = (objectives.ttft, objectives.ttft_p95, objectives.tpot if output > 1 else None)
    if question == "rate-max" and times == (None, None, None):
        raise OptionError(
            "--ttft", "is missing, and so is any other objective: without one the answer is saturation",
            "give --ttft, --ttft-p95 or, with several output tokens, --tpot; `llmcap estimate --arrivals 1/s` has the "
            "saturation",
        )  # fmt: skip
    if objectives.ttft_p95 is not None and question != "rate-max":
        raise OptionError(
            "--ttft-p95", "is of requests that arrive at random", "ask for --rate-max, or give --ttft instead"
        )
    if question == "bandwidth-for" and objectives.tier is None:
        raise OptionError("--bandwidth-for", "needs a tier", "write for example --bandwidth-for nvme")


def _check_steady(question: str, **given: object) -> None:
    """Refuse what a steady state has no use for."""
    hints = {
        "users": "leave them out: the load is what is looked for",
        "sessions": "leave them out: every request brings its own prompt",
        "tier": "leave it out; --cached-tokens are taken to be in device memory",
    }
    for name, value in given.items():
        if value is not None:
            option = "--from-tier" if name == "tier" else f"--{name}"
            raise OptionError(option, f"does not go with --{question}", hints[name])


def _options(question: str, given: Row) -> Options:
    """The options of a case, with the arrivals that the question is about."""
    if question not in _ARRIVALS:
        for name in LOAD_OPTIONS:
            if given.get(name) is not None:
                raise OptionError(
                    option_name(name), "is about requests that come and go", "ask for --rate-max or --clients-max"
                )
        return options_from(given)
    if given.get("arrivals") is not None:
        raise OptionError("--arrivals", f"follow from --{question}", "leave them out")
    chosen = options_from(given | {"arrivals": _ARRIVALS[question]}, under_load=True)
    setting = resolve(chosen.together())
    if not setting.calibrated:
        raise OptionError(
            "--assumptions", f"under '{setting.assumptions.id}' no steady state is defined",
            "use --assumptions calibrated",
        )  # fmt: skip
    return chosen


def _check_tier(question: str, tier: str | None, known: list[str]) -> None:
    if tier is not None and tier not in known:
        hint = f"{did_you_mean(tier, known)} choose one of {', '.join(known)}, or add one with --tier".strip()
        option = "--bandwidth-for" if question == "bandwidth-for" else "--from-tier"
        raise OptionError(option, f"there is no tier '{printable(tier, 40)}'", hint)


def _tornado(asked: Asked, value: Callable[[Asked], float | None], base: float | None, question: str) -> list[Row]:
    names = [*MACHINE_KNOBS, *LOAD_KNOBS]
    if question == "users-max":
        names.remove("users")
    if question in ("dram-min", "drives-min", "bandwidth-for"):
        names = ["tensor peak", "link bandwidth", "tier bandwidth", *LOAD_KNOBS]
    if question == "cheapest":
        names = [*LOAD_KNOBS]
    if question in _ARRIVALS:
        # Pools of their own are made from the options, which no knob of the machine turns.
        machine = MACHINE_KNOBS if asked.options.prefill_devices is None else {}
        idle = ("users", "link bandwidth", "tier bandwidth")
        names = [name for name in (*machine, *LOAD_KNOBS) if name not in idle]
    names += [name for name in ("ttft", "ttft_p95", "tpot") if getattr(asked.objectives, name) is not None]
    return tornado(lambda knob: value(asked.with_knob(Knob(knob.name, knob.factor))), base, names)


def _plain(value: Any) -> Any:
    """Plain data with null for what is no finite number."""
    if isinstance(value, dict):
        return {name: _plain(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
