"""From pydantic's errors to problems in plain words, with the line, the YAML path and what would be right."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from llmcap.errors import Problem, did_you_mean, printable
from llmcap.specs.loader import LineMap, path_text

_EXPECTED: Final = {
    "string_type": ("must be text", "put it in quotes"),
    "bool_type": ("must be true or false", "write true or false, without quotes"),
    "bool_parsing": ("must be true or false", "write true or false, without quotes"),
    "int_type": ("must be a whole number", "write it without quotes and without a unit"),
    "float_type": ("must be a number", "write it without quotes and without a unit"),
    "finite_number": ("must be a finite number", ""),
    "tuple_type": ("must be a list", "write [a, b], or one '- ' line for each item"),
    "list_type": ("must be a list", "write [a, b], or one '- ' line for each item"),
    "dict_type": ("must be a mapping", "write one 'key: value' line for each entry"),
    "model_type": ("must be a mapping", "write one 'key: value' line for each entry"),
    "model_attributes_type": ("must be a mapping", "write one 'key: value' line for each entry"),
}
_TAGS: Final = ("kind", "type")  # the keys that tell the members of a union apart


def problems_of(error: ValidationError, data: Any, model: type[BaseModel], file: str, lines: LineMap) -> list[Problem]:
    """Every problem that `error` reports: unknown keys first, the missing keys of one place as one."""
    missing: dict[tuple[str | int, ...], list[str]] = {}
    unknown: list[Problem] = []
    others: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = _yaml_path(detail["loc"], data)
        if detail["type"] == "missing":
            missing.setdefault(path[:-1], []).append(str(path[-1]))
            continue
        message, hint = _words(detail, path, data, model)
        problem = Problem(file, lines.line(path), path_text(path), message, hint)
        (unknown if detail["type"] == "extra_forbidden" else others).append(problem)
    for path, keys in missing.items():
        names = ", ".join(f"'{key}'" for key in keys)
        message = f"missing key{'s' if len(keys) > 1 else ''} {names}"
        others.append(Problem(file, lines.line(path), path_text(path), message))
    return [*unknown, *sorted(others, key=lambda problem: problem.line or 0)]


def _yaml_path(location: tuple[str | int, ...], data: Any) -> tuple[str | int, ...]:
    """`location` without the names of union members and validators, which pydantic puts between the keys."""
    path: list[str | int] = []
    node, tagged = data, False
    for position, step in enumerate(location):
        last = position == len(location) - 1
        if isinstance(node, dict):
            if not tagged and not last and step in (node.get(tag) for tag in _TAGS):
                tagged = True
                continue
            if step in node or last:
                path.append(step)
                node, tagged = node.get(step), False
        elif isinstance(node, list | tuple) and isinstance(step, int) and step < len(node):
            path.append(step)
            node, tagged = node[step], False
    return tuple(path)


def _words(detail: Any, path: tuple[str | int, ...], data: Any, model: type[BaseModel]) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    value = "an empty value" if detail["input"] is None else f"'{printable(detail['input'], 60)}'"
    if kind == "extra_forbidden":
        known = sorted(_keys_at(model, path[:-1], data))
        key = printable(path[-1], 60)
        hint = did_you_mean(str(path[-1]), known)
        return f"unknown key '{key}'", hint or (f"known here: {', '.join(known)}" if known else "")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        allowed = context.get("expected_tags") or ", ".join(_tags_at(model, path, data))
        key = str(context.get("discriminator", "kind")).strip("'")
        if kind == "union_tag_not_found":
            return f"missing key '{key}'", f"write {key}: with one of {allowed}" if allowed else ""
        tag = str(context.get("tag"))
        close = did_you_mean(tag, allowed.replace("'", "").split(", "))
        return f"unknown {key} '{printable(tag, 60)}'", close or f"one of {allowed}"
    if kind == "literal_error":
        allowed = str(context.get("expected", "")).replace(" or ", ", ")
        close = did_you_mean(str(detail["input"]), allowed.replace("'", "").split(", "))
        return f"{value} is not allowed", close or f"one of {allowed}"
    if isinstance(raised := context.get("error"), ValueError):
        message, hint = getattr(raised, "message", str(raised)), getattr(raised, "hint", "")
        return str(message), str(hint)
    if kind in _EXPECTED:
        message, hint = _EXPECTED[kind]
        return f"{value} {message}", hint
    return f"{value}: {detail['msg'][:1].lower()}{detail['msg'][1:]}", ""


def _models_in(annotation: Any, node: Any) -> Iterator[type[BaseModel]]:
    """The models that `annotation` allows, narrowed by the tag that `node` carries."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for tag in _TAGS:
            field = annotation.model_fields.get(tag)
            if field is None or get_origin(field.annotation) is not Literal or not isinstance(node, Mapping):
                continue
            if tag in node and node[tag] not in get_args(field.annotation):
                return
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _models_in(get_args(annotation)[0], node)
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _models_in(member, node)


def _members(annotation: Any) -> Iterator[Any]:
    """What the items or values of a container type may be."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _members(arguments[0])
    elif origin in (Union, types.UnionType):
        for member in arguments:
            yield from _members(member)
    elif origin in (tuple, list):
        yield from (argument for argument in arguments if argument is not Ellipsis)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield arguments[1]


def _annotations_at(model: type[BaseModel], path: tuple[str | int, ...], data: Any) -> list[Any]:
    allowed: list[Any] = [model]
    node = data
    for step in path:
        following: list[Any] = []
        for annotation in allowed:
            following.extend(_members(annotation))
            for candidate in _models_in(annotation, node):
                fields = candidate.model_fields.items()
                following.extend(field.annotation for name, field in fields if step in (name, field.alias))
        allowed = following
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            node = None
    return allowed


def _node_at(path: tuple[str | int, ...], data: Any) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _keys_at(model: type[BaseModel], path: tuple[str | int, ...], data: Any) -> set[str]:
    node = _node_at(path, data)
    return {
        field.alias or name
        for annotation in _annotations_at(model, path, data)
        for candidate in _models_in(annotation, node)
        for name, field in candidate.model_fields.items()
    }


def _tags_at(model: type[BaseModel], path: tuple[str | int, ...], data: Any) -> list[str]:
    return [
        str(value)
        for annotation in _annotations_at(model, path, data)
        for candidate in _models_in(annotation, None)
        for tag in _TAGS
        if tag in candidate.model_fields
        for value in get_args(candidate.model_fields[tag].annotation)
    ]
