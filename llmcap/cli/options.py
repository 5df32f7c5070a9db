"""Options that several commands share. Values stay text here; llmcap.analyses.options reads them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.glossary import GLOSSARY

FORMATS: Final = ("table", "json", "csv", "md")
SHEET_FORMATS: Final = ("table", "json")
"""Of answers that are no table of rows."""

#: option -> (placeholder, panel of the help)
_CASE: Final[dict[str, tuple[str, str]]] = {
    **dict.fromkeys(("model", "hardware"), ("ID|FILE", "What runs where")),
    **dict.fromkeys(("users", "context", "output_tokens", "cached_tokens", "sessions"), ("N", "Load")),
    **dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), ("DTYPE", "Formats and policy")),
    "attention_dtype": ("DTYPE", "Formats and policy"),
    "kv_policy": ("hybrid|all-full", "Formats and policy"),
    "assumptions": ("ID|FILE", "Formats and policy"),
    "engine": ("ID|FILE", "Formats and policy"),
    "chunk_tokens": ("N", "Formats and policy"),
    **dict.fromkeys(("devices", "tp", "pp", "dp", "ep", "cp"), ("N", "Parallelism")),
    "drive": ("ID|FILE", "Parts of the server"),
    "drives": ("N", "Parts of the server"),
    "dram": ("SIZE", "Parts of the server"),
    "expander": ("ID|FILE", "Parts of the server"),
    "expanders": ("N", "Parts of the server"),
    "nic": ("ID|FILE", "Parts of the server"),
    "nics": ("N", "Parts of the server"),
    "store": ("ID|FILE", "Parts of the server"),
    "tiers": ("NAME:SIZE:RATE", "Parts of the server"),
    "storage_path": ("direct|bounce", "Parts of the server"),
    "transfer_block": ("SIZE", "Parts of the server"),
    "transfers_in_flight": ("N", "Parts of the server"),
}  # fmt: skip
CASE_OPTIONS: Final = tuple(_CASE)
#: Options of serving in steady state, of some commands only.
_LOAD: Final[dict[str, tuple[str, str]]] = {
    "arrivals": ("together|closed|RATE", "Serving"),
    "lengths": ("varied|equal", "Serving"),
    "draft_tokens": ("N", "Serving"),
    "acceptance": ("SHARE", "Serving"),
    **dict.fromkeys(("prefill_devices", "prefill_tp", "prefill_ep"), ("N", "Serving")),
}
LOAD_OPTIONS: Final = tuple(_LOAD)
_DEFAULTS: Final = {
    "model": "llama-4-maverick", "hardware": "dgx-b200", "users": "1", "context": "1M", "output_tokens": "1000",
    "cached_tokens": "0", "kv_policy": "hybrid", "assumptions": "calibrated", "engine": "vllm", "arrivals": "together",
}  # fmt: skip
#: Options that may be given several times, and the flag where it is not the name.
_REPEATED: Final = {"tiers"}
_FLAGS: Final = {"tiers": "--tier"}
_LISTS: Final = "; counts may be written 1M, 128Ki or 250k"


def option(panel: str, *names: str, metavar: str | None = None, help: str) -> Any:
    """An option on a panel of its command's help page."""
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel)


def help_of(name: str) -> str:
    """Help of an option, from the glossary, with its default."""
    text = GLOSSARY[name].text
    if name == "context":
        text += _LISTS
    default = f" (default: {_DEFAULTS[name]})" if name in _DEFAULTS else ""
    return f"{text[:1].upper()}{text[1:]}{default}."


def case_option(name: str, help_text: str | None = None) -> Any:
    """Annotated type of one option of a case."""
    metavar, panel = _CASE[name] if name in _CASE else _LOAD[name]
    flag = _FLAGS.get(name, "--" + name.replace("_", "-"))
    made = option(panel, flag, metavar=metavar, help=help_text or help_of(name))
    return Annotated[list[str] | None if name in _REPEATED else str | None, made]


Format = Annotated[
    str | None,
    option("Output", "--format", metavar="|".join(FORMATS), help=help_of("format")),
]
SheetFormat = Annotated[
    str | None,
    option(
        "Output",
        "--format",
        metavar="|".join(SHEET_FORMATS),
        help="Form of the answer: table for people, json for programs (default: table).",
    ),
]
OutputFile = Annotated[Path | None, option("Output", "--output", "-o", metavar="FILE", help=help_of("output"))]


Prices = Annotated[
    str | None,
    option(
        "Money",
        "--prices",
        metavar="ID|FILE",
        help="Price list, such as hyperscaler-2026-04: adds power, energy and cost.",
    ),
]
GpuHour = Annotated[
    str | None,
    option(
        "Money",
        "--price-gpu-hour",
        metavar="USD",
        help="One hour of one device; power on top with --price-kwh, else included.",
    ),
]
Kwh = Annotated[str | None, option("Money", "--price-kwh", metavar="USD", help="One kWh.")]
Override = Annotated[
    str | None,
    option("Scenario", "--override", metavar="NAME", help="Lay a named override of the scenario over its base."),
]
RowsEngine = Annotated[
    str | None,
    typer.Option("--engine", metavar="ID|FILE", help="With --measured: one engine profile for all rows."),
]


def with_case_options(
    *, leave_out: Iterable[str] = (), helps: dict[str, str] | None = None, under_load: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that adds the options of a case to a command.

    The command's first parameter receives those that were given, as keywords of `llmcap.estimate`: a dict of texts.

    Parameters
    ----------
    leave_out : iterable of str
        Options that make no sense for the command.
    helps : dict, optional
        Other help for some options ("comma list of counts").
    under_load : bool
        Whether the options of serving in steady state belong to the command.
    """
    left_out = set(leave_out)
    names = [name for name in (*CASE_OPTIONS, *(LOAD_OPTIONS if under_load else ())) if name not in left_out]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())[1:]
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=case_option(name, (helps or {}).get(name)),
            )
            for name in names
        ]

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            command(_given(given), **values)

        parameters = [
            *(p for p in own if _is_argument(p)),
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shared),
            *(p for p in own if not _is_argument(p)),
        ]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        del wrapper.__wrapped__
        return wrapper

    return decorate


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; an empty text is a slip (an unset shell variable), not the default."""
    for name, value in values.items():
        if isinstance(value, str) and not value.strip():
            raise OptionError(
                _FLAGS.get(name, "--" + name.replace("_", "-")), "is empty", "give a value or leave it out"
            )
    return {name: value for name, value in values.items() if value is not None and value != []}


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(type(m).__name__ == "ArgumentInfo" for m in getattr(parameter.annotation, "__metadata__", ()))


def chosen_format(value: str | None, default: str = "table", allowed: tuple[str, ...] = FORMATS) -> str:
    """The output format asked for.

    Raises
    ------
    OptionError
    """
    if value is None:
        return default
    plain = value.strip().lower()
    if plain not in allowed:
        hint = f"{did_you_mean(plain, allowed)} choose one of {', '.join(allowed)}".strip()
        raise OptionError("--format", f"'{printable(value, 40)}' is not a format of this command", hint)
    return plain


def only_with(flag: str, **others: object) -> None:
    """Refuse options that belong to one which was not given.

    Raises
    ------
    OptionError
        Naming the first of `others` that is not None.
    """
    for name, value in others.items():
        if value is not None:
            raise OptionError("--" + name.replace("_", "-"), f"goes with {flag}", "leave it out")
