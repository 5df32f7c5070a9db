"""What every document must pass: it loads, its numbers have sources, its totals and references hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmcap.analyses.setting import model_and_digest
from llmcap.arch.parameters import parameters_total
from llmcap.arch.structure import structure_of
from llmcap.errors import DocumentError, LlmcapError, OptionError, Problem, did_you_mean, printable
from llmcap.specs.base import dangling, uncovered
from llmcap.specs.hardware import Device, Server
from llmcap.specs.loader import read_yaml
from llmcap.specs.model import Model
from llmcap.specs.registry import KINDS, document_type_of, find, is_folder, list_ids, load, load_as

HARDWARE_KINDS = ("server", "device", "drive", "nic", "store", "expander", "calibration", "transfers")
MODEL_KINDS = ("model",)


def check_documents(kinds: tuple[str, ...], names: list[str]) -> int:
    """Load and check documents, and return how many.

    Parameters
    ----------
    kinds : tuple of str
        Kinds of `llmcap.specs.registry.KINDS` to look through.
    names : list of str
        Ids or paths; every shipped document when empty.

    Raises
    ------
    DocumentError
        With the problems of all documents at once.
    """
    checked, problems = 0, []
    wanted = [(kind, name) for kind in kinds for name in list_ids(kind)]
    if names:
        wanted = [(_kind_of(kinds, name), name) for name in names]
    for kind, name in wanted:
        checked += 1
        problems += _problems(kind, name)
    if problems:
        raise DocumentError(problems)
    return checked


def _kind_of(kinds: tuple[str, ...], name: str) -> str:
    """Which of the kinds a name is: an id by where it is found, a path by the schema it states."""
    if len(kinds) == 1:
        return kinds[0]
    if not name.lower().endswith((".yaml", ".yml")):
        for kind in kinds:
            if name.strip().lower() in list_ids(kind):
                return kind
        known = [identity for kind in kinds for identity in list_ids(kind)]
        hint = did_you_mean(name, known) or "give an id or the path of a YAML file"
        raise OptionError("", f"no document is called '{printable(name, 60)}'", hint)
    content, _, _ = read_yaml(find(kinds[0], name))
    schema = content.get("schema") if isinstance(content, dict) else None
    return next((kind for kind in kinds if document_type_of(kind).schema_name == schema), kinds[0])


def _problems(kind: str, name: str) -> list[Problem]:
    try:
        if kind == "model" and (name.lower().endswith(".json") or is_folder(name)):
            document: Any = model_and_digest(name)[0]
            file, called = name, document.id
        else:
            loaded = load(kind, name)
            document, file = loaded.document, str(loaded.path)
            called = loaded.path.stem
    except DocumentError as error:
        return list(error.problems)

    def problem(path: str, message: str, hint: str) -> Problem:
        return Problem(file, None, path, message, hint)

    found = [problem(leaf, "has no source", "name one under sources, with covers") for leaf in uncovered(document)]
    found += [
        problem("sources", f"covers '{entry}', which is no field", "correct or drop it") for entry in dangling(document)
    ]
    if not document.sources and kind in ("model", "server", "device", "drive", "nic", "store", "expander"):
        found.append(problem("sources", "there are none", "say where the numbers come from"))
    if document.id != called:
        shown = printable(called, 80)
        found.append(problem("id", f"is '{document.id}', the file is called '{shown}'", "give both one name"))
    if isinstance(document, Model):
        found += [problem(*facts) for facts in _model_problems(document)]
    elif kind in ("server", "device"):
        found += [problem(*facts) for facts in _reference_problems(document)]
    return found


def _model_problems(model: Model) -> Iterator[tuple[str, str, str]]:
    try:
        structure = structure_of(model)
    except (LlmcapError, ValueError, ArithmeticError) as error:
        yield "layers", f"cannot be translated: {printable(error, 200)}", "compare with a shipped model of the family"
        return
    published = model.published
    if published is None or published.parameters_total is None:
        return
    total, stated = parameters_total(structure), published.parameters_total
    if published.count == "exact":
        near = abs(total / stated - 1.0) <= 0.005
    else:
        near = abs(total / stated - 1.0) <= 0.03 or abs(total - stated) <= _last_digit(stated) / 2
    if not near:
        yield "published.parameters_total", f"states {stated:,}, the layers hold {total:,}", "check the shapes"


def _last_digit(stated: int) -> float:
    """Weight of the last digit that a rounded count gives; billions are the unit of a name such as 120B."""
    zeros = len(str(stated)) - len(str(stated).rstrip("0"))
    return 10.0 ** min(zeros, 9)


def _reference_problems(document: Any) -> Iterator[tuple[str, str, str]]:
    """Documents that a server or device names and that do not exist."""
    named = [("calibration", "calibration", getattr(document, "calibration", None))]
    named.append(("device", "device", getattr(document, "device", None)))
    named.append(("store", "store", getattr(document, "store", None)))
    for field, kind in (("nvme", "drive"), ("nics", "nic"), ("storage_nics", "nic"), ("cxl", "expander")):
        named.append((f"{field}.{kind}", kind, getattr(getattr(document, field, None), kind, None)))
    for field, kind, name in named:
        if name is None:
            continue
        try:
            find(kind, name)
        except LlmcapError as error:
            yield field, error.message.removeprefix(f"{KINDS[kind].option}: "), error.hint
    if isinstance(document, Server) and document.unified_memory is not None:
        yield from _memory_problems(document, document.unified_memory.kept)


def _memory_problems(server: Server, kept: float) -> Iterator[tuple[str, str, str]]:
    """One memory for processor and device has one size and one bandwidth."""
    try:
        memory = load_as(Device, "device", server.device).document.memory
    except LlmcapError:
        return  # told already
    if kept >= memory.capacity:
        yield "unified_memory.kept", "leaves nothing of the device's memory", "give the part that the system keeps"
    if server.host.dram.bandwidth > memory.bandwidth:
        yield "host.dram.bandwidth", "is more than that of the device's memory, which is the same", "use the device's"
