"""JSON Schemas of documents, for editors to complete and check them, with the docstrings of the fields.

pydantic could take the docstrings while it builds the classes, but that parses every module's source on each
start of the command, for text that only this function needs.
"""

from __future__ import annotations

import ast
import inspect
import sys
from typing import Any, get_args

from pydantic import BaseModel

from llmcap.specs.base import Document


def schema_of(document_type: type[Document]) -> dict[str, Any]:
    """JSON Schema (2020-12) of the documents of one type."""
    schema = document_type.model_json_schema()
    types = {model.__name__: model for model in _models_within(document_type, set())}
    for name, definition in {document_type.__name__: schema, **schema.get("$defs", {})}.items():
        if name in types:
            _describe(types[name], definition)
    schema["properties"]["schema"] = {"const": document_type.schema_name}
    schema["required"] = ["schema", *schema.get("required", [])]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _models_within(annotation: Any, found: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """The models that a value of this type may hold, at any depth, added to `found`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in found:
            found.add(annotation)
            for field in annotation.model_fields.values():
                _models_within(field.annotation, found)
    else:
        for argument in get_args(annotation):
            _models_within(argument, found)
    return found


def _describe(model: type[BaseModel], definition: dict[str, Any]) -> None:
    for owner in reversed(model.__mro__):
        if owner is BaseModel or not issubclass(owner, BaseModel):
            continue
        for name, text in _attribute_docstrings(owner).items():
            field = model.model_fields.get(name)
            key = (field.alias or name) if field else name
            if key in definition.get("properties", {}):
                entry = definition["properties"][key]
                units = entry.get("description", "")
                entry["description"] = f"{text} ({units})" if units and units != text else text


def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The texts that stand directly below the fields in the class's source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[model.__module__]))
    except (OSError, KeyError, SyntaxError):  # made at run time, or shipped without source
        return {}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or node.name != model.__name__:
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[field.target.id] = inspect.cleandoc(str(text.value.value))
    return found
