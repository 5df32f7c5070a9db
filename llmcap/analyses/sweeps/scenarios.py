"""A scenario with the changes that a command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from llmcap.analyses.options import canonical, known_options
from llmcap.analyses.sweeps.grid import NUMERIC
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.specs.scenario import Scenario, is_range


def adjusted(scenario: Scenario, sets: Sequence[str], override: str | None) -> Scenario:
    """The scenario with a named override laid over its base, then each `NAME=VALUES` applied.

    One value becomes part of the base; several, or a range, an axis in the place of the one it replaces, or the last.

    Raises
    ------
    OptionError
    """
    base = {canonical(k): v for k, v in scenario.base.items()}
    axes: dict[str, Any] = {canonical(k): v for k, v in scenario.axes.items()}
    if override is not None:
        if override not in scenario.overrides:
            others = f"choose one of {', '.join(scenario.overrides)}" if scenario.overrides else "it has none at all"
            hint = did_you_mean(override, scenario.overrides) or others
            raise OptionError("--override", f"the scenario has no override '{printable(override, 40)}'", hint)
        for name, value in scenario.overrides[override].items():
            base[canonical(name)] = value
            axes.pop(canonical(name), None)
    for text in sets:
        name, equals, values = text.partition("=")
        plain = canonical(name)
        known = (*known_options(), *NUMERIC, "override")
        if not equals or not values.strip():
            raise OptionError(
                "--set", f"'{printable(text, 60)}' is not NAME=VALUES", "write for example users=1,10,100"
            )
        if plain not in known:
            raise OptionError(
                "--set",
                f"no such option '{printable(name, 40)}'",
                did_you_mean(plain, known) or f"choose one of {', '.join(dict.fromkeys(known))}",
            )
        listed = tuple(v.strip() for v in values.split(",") if v.strip())
        if len(listed) == 1 and is_range(listed[0]):
            axes[plain] = listed[0]
            base.pop(plain, None)
        elif len(listed) == 1 and plain != "override":
            base[plain] = listed[0]
            axes.pop(plain, None)
        else:
            axes[plain] = listed
            base.pop(plain, None)
    if not axes:
        axes = {"model": (base.pop("model", "llama-4-maverick"),)}
    changed = scenario.model_dump(mode="python", by_alias=True) | {"base": base, "axes": axes}
    try:
        return Scenario.model_validate(changed)
    except ValidationError as error:
        message = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise OptionError("--set", printable(message, 200)) from None
