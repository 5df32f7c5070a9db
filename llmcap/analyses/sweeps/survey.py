"""A scenario surveyed for a reader: its rows at a readable number of cases, cases worth a closer look, and sources."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from llmcap.analyses.costs import CostModel
from llmcap.analyses.estimate import answer
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.explaining.derivation import Derivation
from llmcap.analyses.result import Estimate
from llmcap.analyses.setting import Setting
from llmcap.analyses.sweeps.grid import SESSIONS, Choice, Grid, Part
from llmcap.analyses.sweeps.sweep import WINNERS, Rows, Sweep
from llmcap.analyses.sweeps.thinning import thinned
from llmcap.errors import DocumentError, Problem
from llmcap.specs.assumptions import Statement
from llmcap.specs.base import Document
from llmcap.specs.prices import PriceList
from llmcap.specs.registry import Used
from llmcap.specs.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

MOST_CASES: Final = 4_000
"""Cases behind the figures."""
LISTED_CASES: Final = 120
"""Cases in the tables."""
MOST_EXAMPLES: Final = 8
SLOW: Final = ("ttft_overlap_s", "ttft_hybrid_s", "break_even_tokens")
"""Columns that no figure needs and that take most of the time."""
COST: Final = "usd_per_million_output_tokens"


@dataclass(frozen=True)
class Survey:
    """A scenario's answers at some of its cases. Frames hold one row per case and tier, named as in a sweep."""

    scenario: Scenario
    prices: PriceList | None = None
    most_cases: int = MOST_CASES
    listed_cases: int = LISTED_CASES

    @cached_property
    def grid(self) -> Grid:
        """The whole scenario."""
        return Grid(self.scenario)

    @cached_property
    def sample(self) -> Grid:
        """The cases behind the figures."""
        return Grid(thinned(self._all_columns, self.most_cases))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Rows behind the figures and sentences."""
        return self._frame(self.sample, leave_out=SLOW)

    @cached_property
    def listed(self) -> pd.DataFrame:
        """Rows of the tables: fewer, and among those of the figures where the axes allow it."""
        return self._frame(Grid(thinned(self._all_columns, self.listed_cases, per_axis=12)))

    @property
    def _all_columns(self) -> Scenario:
        # The figures need columns that the scenario's file may leave out.
        return self.scenario.model_copy(update={"columns": (), "tiers": ()})

    @cached_property
    def _parts(self) -> list[Part]:
        """One part of the sample for each setting, calibrated ones first."""
        found: dict[int, Part] = {}
        for index in range(self.sample.chunks):
            for part in self.sample.parts(self.sample.box(index)):
                found.setdefault(id(part.setting), part)
        if not found:
            raise DocumentError(
                [Problem(self.scenario.id, None, "where", "leaves no case at all", "relax a condition")]
            )
        return sorted(found.values(), key=lambda part: not part.setting.calibrated)

    @cached_property
    def examples(self) -> list[tuple[Choice, Estimate]]:
        """One case of each setting, evenly spread over the settings: the longest context, fewest users, that fits."""
        step = max(len(self._parts) / MOST_EXAMPLES, 1.0)
        places = sorted({int(i * step) for i in range(min(MOST_EXAMPLES, len(self._parts)))})
        return [(self._parts[i].choice, example_of(self._parts[i])) for i in places]

    @cached_property
    def example(self) -> Estimate:
        """The case looked at more closely: of the first setting in which any fits."""
        for part in self._parts:
            found = example_of(part)
            if found.fits:
                return found
        return self.examples[0][1]

    @cached_property
    def settings(self) -> list[Setting]:
        """Settings of the sample, in order."""
        return [setting for setting, _ in self.sample.settings]

    def statements(self, settings: Sequence[Setting] | None = None) -> list[Statement]:
        """What is assumed, each once; of some settings when not of all."""
        chosen = self.settings if settings is None else settings
        found = {(s.name, s.text): s for setting in chosen for s in setting.statements}
        loads = [setting for setting in chosen if setting.options.arrivals != "together"]
        if loads:
            from llmcap.analyses.serving.answer import statements

            found |= {(s.name, s.text): s for setting in loads for s in statements(setting)}
        return list(found.values())

    def documents(self) -> list[Used]:
        """Every document used."""
        found = dict.fromkeys(d for setting in self.settings for d in setting.documents)
        return list(found)

    def sources(self) -> list[dict[str, str]]:
        """Where the numbers of models and machines come from."""
        documents = {(type(d), d.id): d for setting in self.settings for d in documents_of(setting)}
        if self.prices is not None:
            documents[type(self.prices), self.prices.id] = self.prices
        return [row for document in documents.values() for row in source_rows(document)]

    # -- rows --------------------------------------------------------------------------------------------------------

    def _frame(self, grid: Grid, leave_out: Collection[str] = ()) -> pd.DataFrame:
        import pandas as pd

        sweep = Sweep(grid)
        if leave_out:
            kept = tuple(c.name for c in sweep.columns if c.name not in leave_out)
            sweep = Sweep(Grid(grid.scenario.model_copy(update={"columns": kept})))
        frame = pd.concat([_table(sweep, rows) for rows in sweep.all_rows()], ignore_index=True)
        if bool((frame["cached_tokens"] > 0).any()):
            frame = frame.assign(new_tokens=frame["context_tokens"] - frame["cached_tokens"])
        if self.prices is not None:
            frame = _with_cost(frame, self.settings, self.prices)
        return frame


def example_of(part: Part) -> Estimate:
    """The estimate of one case of a part: the longest context that fits, with the fewest users."""
    names = ("users", "context_tokens", "cached_tokens", "output_tokens")
    evaluator = Evaluator.of(part.setting)
    columns = evaluator.evaluate(*(part.numbers[n] for n in names), with_tiers=False)
    shape = np.broadcast_shapes(*(a.shape for a in part.numbers.values()))
    flat = {n: np.broadcast_to(a, shape).reshape(-1) for n, a in part.numbers.items()}
    keep = np.ones(shape, bool) if part.keep is None else part.keep
    fits = keep & np.broadcast_to(np.asarray(columns.results["fits"], bool), shape)
    possible = np.flatnonzero((fits if fits.any() else keep).reshape(-1))
    order = np.lexsort((-flat["cached_tokens"][possible], flat["users"][possible], -flat["context_tokens"][possible]))
    at = int(possible[order[0]])
    case = {name.removesuffix("_tokens") if name == "context_tokens" else name: int(flat[name][at]) for name in names}
    sessions = int(flat[SESSIONS][at]) if SESSIONS in flat else case["users"]
    one = evaluator.evaluate(case["users"], case["context"], case["cached_tokens"], case["output_tokens"])
    return answer(part.setting, case, sessions, one)


def documents_of(setting: Setting) -> Iterator[Document]:
    """The documents behind a setting that state sources."""
    machine = setting.machine
    yield from (setting.model, machine.server, machine.device, setting.engine, setting.calibration)
    yield from (tier.drive for tier in machine.tiers if tier.drive is not None)


def source_rows(document: Document) -> list[dict[str, str]]:
    """Sources of a document as rows."""
    return [
        {
            "document": document.id,
            "covers": ", ".join(s.covers),
            "kind": s.kind,
            "source": s.ref,
            "date": s.date,
            "note": s.note,
        }
        for s in document.sources
    ]


def break_even_grid(estimate: Estimate, contexts: int = 48, users: int = 36, most_users: int = 1000) -> pd.DataFrame:
    """Winners of an estimate's setting over context and users.

    Parameters
    ----------
    estimate : Estimate
        The tokens that follow its cached prefix, if it has one, are held fixed.
    contexts, users : int
        Points of the axes.
    most_users : int
        End of the axis of users.

    Returns
    -------
    DataFrame
        `context_tokens`, `users`, `tier`, `winner` (None where the users do not fit).
    """
    import pandas as pd

    given = estimate.inputs
    new = given["context_tokens"] - given["cached_tokens"] if given["cached_tokens"] else 0
    longest = max(estimate.setting.model.max_context, given["context_tokens"])
    c = np.unique(np.round(np.geomspace(max(100, new + 1), max(longest, new + 2), contexts)))
    u = np.unique(np.round(np.geomspace(1, max(most_users, given["users"]), users)))
    columns = Evaluator.of(estimate.setting).evaluate(
        u[:, None], c[None, :], c[None, :] - new if new else 0, given["output_tokens"], with_break_even_tokens=False
    )
    shape = (u.size, c.size)
    fits = np.broadcast_to(np.asarray(columns.results["fits"], bool), shape).reshape(-1)
    frames = []
    for tier, values in columns.tiers.items():
        if tier != "hbm":
            wins = np.broadcast_to(np.asarray(values["wins"], bool), shape).reshape(-1)
            words = np.array([*WINNERS, None], dtype=object)[np.where(fits, wins.astype(np.intp), 2)]
            whole = np.broadcast_to(c, shape).reshape(-1), np.broadcast_to(u[:, None], shape).reshape(-1)
            frames.append(pd.DataFrame({"context_tokens": whole[0], "users": whole[1], "tier": tier, "winner": words}))
    return pd.concat(frames, ignore_index=True)


def operator_frame(estimate: Estimate) -> pd.DataFrame:
    """Operators of an estimate that fits: `phase`, `operator`, `flop`, `bytes` of all devices, `time_s` and more."""
    import pandas as pd

    i = estimate.inputs
    evaluator = Evaluator.of(estimate.setting)
    found = Derivation(evaluator, i["users"], i["context_tokens"], i["cached_tokens"], i["output_tokens"])
    return pd.DataFrame([*found.prefill().rows, *(found.decode().rows if i["output_tokens"] > 1 else ())])


def _table(sweep: Sweep, rows: Rows) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {}
    for column in sweep.columns:
        values = rows.arrays[column.name]
        if column.kind == "word":
            words = np.array([*column.words, None], dtype=object)
            values = words[values]
        columns[column.name] = values
    return pd.DataFrame(columns)


def _with_cost(frame: pd.DataFrame, settings: list[Setting], prices: PriceList) -> pd.DataFrame:
    """Price of a million output tokens, for devices that the list has a price for."""
    import pandas as pd

    rates = {s.machine.server.id: CostModel(s.machine, prices).device_second for s in settings}
    rate = pd.to_numeric(frame["hardware"].map(rates), errors="coerce")
    if rate.isna().all():
        return frame
    return frame.assign(**{COST: rate * frame["devices"] / frame["output_tok_per_s"] * 1e6})
