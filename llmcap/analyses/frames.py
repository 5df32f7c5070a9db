"""The commands explain, compare and plan as calls that return tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def explain(**question: Any) -> pd.DataFrame:
    """The derivation of an estimate, one row per operator; takes what `explaining.explain.explain` takes.

    Returns
    -------
    DataFrame
        `attrs["answer"]` holds all of it as plain data: total, sources, assumptions.

    Examples
    --------
    >>> import llmcap
    >>> table = llmcap.explain(context="32k", term="prefill")
    >>> bool(abs(table["time_s"].sum() / table.attrs["answer"]["total_s"] - 1) < 1e-9)
    True
    """
    from llmcap.analyses.explaining.explain import explain as derive

    told = derive(**question)
    return _with_answer(told.to_frame(), told.to_dict())


def compare(*items: str, **question: Any) -> pd.DataFrame:
    """Machines, models or settings side by side, one row per figure; takes what `analyses.compare.compare` takes.

    Returns
    -------
    DataFrame
        A column per side, a ratio to the first per further side; `attrs["answer"]` holds the reasons as well.
    """
    from llmcap.analyses.explaining.compare import compare as beside

    sides = beside(*items, **question)
    return _with_answer(sides.to_frame(), sides.to_dict())


def plan(question: str, **given: Any) -> pd.DataFrame:
    """The answer to an inverse question as one row; takes what `llmcap.analyses.planning.plan.plan` takes.

    Returns
    -------
    DataFrame
        For `cheapest` one row per machine; `attrs["answer"]` holds what binds, the next steps and the sensitivity.
    """
    from llmcap.analyses.planning.plan import plan as solve

    found = solve(question, **given)
    return _with_answer(found.to_frame(), found.to_dict())


def _with_answer(frame: pd.DataFrame, answer: dict[str, Any]) -> pd.DataFrame:
    frame.attrs["answer"] = answer
    return frame
