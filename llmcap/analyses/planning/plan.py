"""`plan`: inverse questions. How many users, devices, drives, how much DRAM, how fast a tier, which machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from llmcap import __version__
from llmcap.analyses.economics import price_list
from llmcap.analyses.estimate import check_case
from llmcap.analyses.options import count, option_name, options_from
from llmcap.analyses.planning.asked import Asked
from llmcap.analyses.planning.objectives import Load, Objectives
from llmcap.analyses.planning.plan_answers import ANSWERS, Answer
from llmcap.analyses.planning.sensitivity import LOAD_KNOBS, MACHINE_KNOBS, Knob, tornado
from llmcap.analyses.result import setting_inputs
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.units import QuantityError, parse_quantity

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
QUESTIONS: Final = tuple(ANSWERS)
_NEEDS: Final = {"bandwidth-for": ("ttft",)}


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
        """The answer itself: users, devices, dram_bytes, drives, nominal_bytes_per_s, or hardware and devices."""
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
        `users-max`, `devices-min`, `dram-min`, `drives-min`, `bandwidth-for`, or `cheapest`.
    ttft, tpot : float or str, optional
        Objectives: the last user's first token, and the time between tokens. "2 s", "50 ms". [s]
    tier : str, optional
        Tier from which prefixes are reloaded; the tier meant by bandwidth-for.
    users, context, cached_tokens, output_tokens, sessions, **options
        As for `estimate`; users-max asks for the users.
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
    if question not in ANSWERS:
        hint = f"{did_you_mean(question, QUESTIONS)} choose one of {', '.join(QUESTIONS)}".strip()
        raise OptionError("", f"there is no question '{printable(question, 40)}'", hint)
    if question == "users-max" and users is not None:
        raise OptionError("--users", "is what --users-max looks for", "leave it out")
    case = check_case(1 if users is None else users, context, cached_tokens, output_tokens)
    kept = case["users"] if sessions is None else count("sessions", sessions, minimum=case["users"])
    load = Load(case["users"], case["context"], case["cached_tokens"], case["output_tokens"], kept)
    objectives = Objectives(_seconds("ttft", ttft), _seconds("tpot", tpot), tier)
    _check(question, objectives)
    chosen = options_from(options)
    setting = resolve(chosen)
    _check_tier(question, objectives.tier, [t.name for t in setting.machine.tiers])
    device = None if question == "cheapest" else setting.machine.device.id
    asked = Asked(chosen, load, objectives, price_list(prices, price_gpu_hour, price_kwh, device=device))
    answers = ANSWERS[question]
    found = answers.answer(asked)
    rows = _tornado(asked, answers.value, found.value, question) if sensitivity and found.feasible else []
    shared = setting_inputs(setting)
    if question in ("devices-min", "cheapest"):
        shared = {n: v for n, v in shared.items() if n not in ("devices", "tp", "pp", "dp", "ep", "cp")}
    if question == "cheapest":
        shared.pop("hardware")
    asked_load = {"users": load.users, "sessions": load.sessions, "context_tokens": load.context,
                  "cached_tokens": load.cached, "output_tokens": load.output}  # fmt: skip
    if question == "users-max":
        asked_load = {n: v for n, v in asked_load.items() if n not in ("users", "sessions")}
    promised = {"ttft_s": objectives.ttft, "tpot_s": objectives.tpot, "tier": objectives.tier}
    return Plan(
        question=question,
        inputs=shared | asked_load,
        objectives={name: value for name, value in promised.items() if value is not None},
        found=found,
        sensitivity=rows,
        assumptions=[{"name": s.name, "text": s.text, "source": s.source, "bias": s.bias} for s in setting.statements],
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


def _check(question: str, objectives: Objectives) -> None:
    for name in _NEEDS.get(question, ()):
        if getattr(objectives, name) is None:
            raise OptionError(f"--{name}", f"is missing: --{question} looks for what meets it", f"give --{name} '2 s'")
    if question == "bandwidth-for" and objectives.tier is None:
        raise OptionError("--bandwidth-for", "needs a tier", "write for example --bandwidth-for nvme")


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
    names += [name for name in ("ttft", "tpot") if getattr(asked.objectives, name) is not None]
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
