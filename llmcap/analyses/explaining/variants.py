"""What a comparison sets side by side: machines, models or settings, told apart and resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmcap.analyses.estimate import answer, check_case, check_steps
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import AXES, canonical, count, known_options, option_name, options_from
from llmcap.analyses.result import Estimate
from llmcap.analyses.setting import resolve
from llmcap.errors import LlmcapError, OptionError, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.specs.registry import as_path, exists, find, is_folder, list_ids, load

FEWEST: Final = 2
MOST: Final = 6


@dataclass(frozen=True, slots=True)
class Variant:
    """One side of a comparison."""

    name: str
    given: dict[str, Any]
    """Options that set it apart from the others."""
    evaluator: Evaluator
    case: dict[str, int]
    estimate: Estimate


def variants_of(items: Sequence[str], shared: Mapping[str, Any]) -> list[Variant]:
    """Resolve what is compared.

    Parameters
    ----------
    items : sequence of str
        Two to six: ids or files of servers or models, or settings such as "kv_dtype=bf16,tp=4".
    shared : mapping
        Options of all of them.

    Raises
    ------
    OptionError
        Too few, too many, twice the same, or one that is nothing known.
    DocumentError
        A file that cannot be used.
    """
    if not FEWEST <= len(items) <= MOST:
        raise OptionError("", f"{len(items)} to compare", f"give {FEWEST} to {MOST}: ids, files, or option=value")
    names = [item.strip() for item in items]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError("", f"'{printable(twice, 60)}' is given twice", "compare different things")
    return [_variant(name, setting_of(name), shared) for name in names]


def setting_of(item: str) -> dict[str, Any]:
    """The options that an item stands for.

    Raises
    ------
    OptionError
        It is empty, or neither an option, a file nor a known id.

    Examples
    --------
    >>> setting_of("kv-dtype=bf16, tp=4"), setting_of("dgx-h200")
    ({'kv_dtype': 'bf16', 'tp': '4'}, {'hardware': 'dgx-h200'})
    """
    if not item:
        raise OptionError("", "an empty item to compare", "give an id, a file, or option=value")
    if "=" in item and not exists(as_path(item)):
        return _pairs(item)
    is_file = "/" in item or item.lower().endswith((".yaml", ".yml", ".json"))
    if is_file and exists(as_path(item)):
        return {_kind_of_file(item): item}
    if is_file:
        find("model", item)  # a Hugging Face id, or the error that there is no such file
        return {"model": item}
    for option, kind in (("hardware", "server"), ("model", "model")):
        try:
            find(kind, item)
        except OptionError:
            continue
        return {option: item}
    hint = (
        did_you_mean(item, [*list_ids("server"), *list_ids("model")])
        or "see 'llmcap hardware list' and 'llmcap models list'"
    )
    raise OptionError("", f"'{printable(item, 60)}' is neither a server nor a model nor option=value", hint)


def _kind_of_file(item: str) -> str:
    if is_folder(item) or as_path(item).suffix.lower() == ".json":
        return "model"
    try:
        load("server", item)
    except LlmcapError as error:
        try:
            load("model", item)
        except LlmcapError:
            # Neither: the file says itself what it wants to be.
            raise error from None
        return "model"
    return "hardware"


def _pairs(item: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for piece in item.split(","):
        name, equals, value = piece.partition("=")
        plain = canonical(name)
        if not equals or not value.strip():
            raise OptionError(
                "", f"'{printable(piece, 60)}' is no option=value", "write for example kv-dtype=bf16,tp=4"
            )
        if plain not in known_options():
            hint = did_you_mean(plain, known_options()) or f"known: {', '.join(known_options())}"
            raise OptionError(option_name(plain), "no such option", hint)
        if plain in found:
            raise OptionError(option_name(plain), f"given twice in '{printable(item, 60)}'", "keep one")
        found[plain] = value.strip()
    return found


def _variant(name: str, given: dict[str, Any], shared: Mapping[str, Any]) -> Variant:
    options = {**shared, **given}
    numbers = {axis: options.pop(axis, default) for axis, default in AXES.items()}
    kept = options.pop("sessions", None)
    try:
        case = check_case(numbers["users"], numbers["context"], numbers["cached_tokens"], numbers["output_tokens"])
        sessions = case["users"] if kept is None else count("sessions", kept, minimum=case["users"])
        setting = resolve(options_from(options))
        check_steps(setting, case["context"])
    except OptionError as error:
        option, message, hint = error.args
        raise OptionError(option, f"{message} (for '{printable(name, 60)}')", hint) from None
    evaluator = Evaluator.of(setting)
    return Variant(name, given, evaluator, case, answer(setting, case, sessions, evaluator.evaluate(*case.values())))
