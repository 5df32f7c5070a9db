"""The lists and extras of the `tiers` question, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.offload.placement import Returns, parse_returns
from llmcap.analyses.offload.wear import USED_ONCE, WritePolicy
from llmcap.analyses.options import count, option_name
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.specs.prices import PriceList
from llmcap.specs.registry import load_as
from llmcap.units import QuantityError, parse_quantity

Array = NDArray[np.float64]
T = TypeVar("T")
Discipline = Literal["sharing", "fcfs"]
_DISCIPLINES: tuple[Discipline, ...] = ("sharing", "fcfs")
_POLICIES: dict[str, WritePolicy] = {"through": "through", "second-touch": "second-touch", "back": "back"}

#: Rows of one table at most; larger grids are a sweep's business.
MAX_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Extras:
    """What is asked beside times: traffic, placement, wear and money."""

    sessions: int | None = None
    returns: Returns = field(default_factory=Returns)
    shared_tokens: int = 0
    arrivals: float | None = None
    """Requests a second. [1/s]"""
    discipline: Discipline = "sharing"
    write_policy: WritePolicy = "through"
    used_once: float = USED_ONCE
    prices: PriceList | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination of the lists along one axis: contexts outermost, then cached prefixes, then users."""

    users: Array
    context: Array
    cached: Array
    """As `estimate` takes it: 0 makes the whole context reusable. [tokens]"""
    reused: Array
    """First tokens that were stored before, and need not be stored again. [tokens]"""
    output: float

    @property
    def prefix(self) -> Array:
        """Reusable tokens of each context."""
        return np.where(self.cached > 0.0, self.cached, self.context)


def grid_of(users: object, context: object, cached: object, hit: object, output: object) -> Grid:
    """All combinations of the lists.

    Raises
    ------
    OptionError
    """
    u = np.array([count("users", v) for v in listed("users", users)], dtype=np.float64)
    c = np.array([count("context", v) for v in listed("context", context)], dtype=np.float64)
    if hit is not None and cached is not None:
        raise OptionError("--hit", "given together with --cached-tokens", "give one of the two")
    if hit is not None:
        shares = np.array([_fraction("hit", v) for v in listed("hit", hit)])
        if not np.all(shares > 0.0):
            raise OptionError("--hit", "must be more than 0: nothing cached is nothing to reload", "write 0.9")
        # The tolerance keeps 0.29 x 100 from becoming 28.
        reused = np.maximum(np.floor(c[:, None] * shares[None, :] + 1e-6), 1.0)
        k = np.where(reused >= c[:, None], 0.0, reused)
    else:
        tokens = [
            count("cached_tokens", v, minimum=0) for v in listed("cached_tokens", 0 if cached is None else cached)
        ]
        k = reused = np.broadcast_to(np.array(tokens, dtype=np.float64), (c.size, len(tokens)))
        if np.any(k >= c[:, None]):
            i, j = np.argwhere(k >= c[:, None])[0]
            raise OptionError(
                "--cached-tokens", f"the cached prefix ({k[i, j]:,.0f}) must be shorter than the context ({c[i]:,.0f})",
                "lower it, or use --hit 0.9, which goes with every context",
            )  # fmt: skip
    shape = (c.size, k.shape[1], u.size)

    def flat(a: Array) -> Array:
        return np.broadcast_to(a, shape).reshape(-1)

    one = float(count("output_tokens", output))
    return Grid(flat(u[None, None, :]), flat(c[:, None, None]), flat(k[:, :, None]), flat(reused[:, :, None]), one)


def extras_of(
    *, sessions: object, shared_tokens: object, arrivals: object, discipline: str | None, returns: str | None,
    write_policy: str | None, used_once: object, prices: str | None,
) -> Extras:  # fmt: skip
    """The extras, with defaults for what is None.

    Raises
    ------
    OptionError
    DocumentError
        The price list.
    """
    return Extras(
        sessions=None if sessions is None else count("sessions", sessions),
        returns=parse_returns(returns or "uniform"),
        shared_tokens=0 if shared_tokens is None else count("shared_tokens", shared_tokens, minimum=0),
        arrivals=None if arrivals is None else _arrival_rate(arrivals),
        discipline=_one_of("discipline", discipline or "sharing", {d: d for d in _DISCIPLINES}),
        write_policy=_one_of("write_policy", write_policy or "through", _POLICIES),
        used_once=USED_ONCE if used_once is None else _fraction("used_once", used_once),
        prices=None if prices is None else load_as(PriceList, "prices", prices).document,
    )


def check(grid: Grid, extras: Extras, tiers: int) -> None:
    """Lists and extras against each other.

    Raises
    ------
    OptionError
    """
    shortest = float(grid.prefix.min())
    if extras.shared_tokens > shortest:
        raise OptionError(
            "--shared-tokens",
            f"{extras.shared_tokens:,} is more than the shortest reusable prefix ({shortest:,.0f})",
            "the shared tokens are the first of every prefix; lower them",
        )
    if extras.sessions is not None and extras.sessions < grid.users.max():
        raise OptionError(
            "--sessions", f"{extras.sessions:,} are fewer than the {grid.users.max():,.0f} users", "raise it"
        )
    if grid.users.size * tiers > MAX_ROWS:
        raise OptionError(
            "--context", f"the lists make {grid.users.size * tiers:,} rows, more than {MAX_ROWS:,}", "use llmcap sweep"
        )


def listed(name: str, value: object) -> Sequence[object]:
    """The items of a list: text with commas, a sequence, or one value.

    Raises
    ------
    OptionError
        An empty list or item.
    """
    items: Sequence[object]
    if isinstance(value, str):
        items = [piece.strip() for piece in value.split(",")]
    elif isinstance(value, list | tuple | np.ndarray):
        items = list(value)
    else:
        items = [value]
    if not items or any(item == "" for item in items):
        raise OptionError(option_name(name), f"'{printable(value)}' has an empty item", "write for example 1k,32k,1M")
    return items


def _fraction(name: str, value: object) -> float:
    try:
        return parse_quantity(str(value), "fraction")
    except QuantityError as error:
        raise OptionError(option_name(name), error.message, error.hint) from None


def _arrival_rate(value: object) -> float:
    text = str(value).strip()
    try:
        return parse_quantity(f"{text} /s" if text[-1:].isdigit() or text.endswith(".") else text, "per_s")
    except QuantityError as error:
        raise OptionError(
            "--arrivals",
            error.message.replace(f"'{text} /s'", f"'{text}'"),
            "write requests a second, for example 2.5 or 150/min",
        ) from None


def _one_of(name: str, value: str, choices: dict[str, T]) -> T:
    plain = value.strip().lower()
    if plain not in choices:
        raise OptionError(
            option_name(name), f"unknown value '{printable(value, 40)}'",
            f"{did_you_mean(plain, choices)} choose one of {', '.join(choices)}".strip(),
        )  # fmt: skip
    return choices[plain]
