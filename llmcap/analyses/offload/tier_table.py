"""`tiers`: reload against recompute on every tier, for a grid of contexts, users and cached prefixes."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.estimate import check_steps
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.offload.shared_prefix import SharedPrefix
from llmcap.analyses.offload.tier_columns import (
    batch_columns,
    break_even_users,
    narrowest_hop,
    placement_columns,
    traffic_columns,
)
from llmcap.analyses.offload.tier_question import Extras, Grid, check, extras_of, grid_of
from llmcap.analyses.offload.tier_words import notes_of
from llmcap.analyses.options import AXES, options_from
from llmcap.analyses.result import plain, winner
from llmcap.analyses.setting import Setting, resolve
from llmcap.display import Displayed
from llmcap.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TierTable(Displayed):
    """Rows of the question, one per case and tier: contexts outermost, then cached prefixes, users, tiers."""

    setting: Setting
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, schema llmcap.tiers/1."""
        return {"schema": "llmcap.tiers/1", "rows": self.rows, "notes": self.notes}

    def to_frame(self) -> pd.DataFrame:
        """One row per case and tier."""
        import pandas as pd

        return pd.DataFrame(self.rows)


def tiers(**question: Any) -> pd.DataFrame:
    """Reload against recompute as a table; takes what `tier_table` takes."""
    return tier_table(**question).to_frame()


def tier_table(
    *,
    users: object = 1,
    context: object = "1M",
    cached_tokens: object = None,
    hit: object = None,
    output_tokens: object = AXES["output_tokens"],
    sessions: object = None,
    shared_tokens: object = None,
    arrivals: object = None,
    discipline: str | None = None,
    returns: str | None = None,
    write_policy: str | None = None,
    used_once: object = None,
    prices: str | None = None,
    **options: Any,
) -> TierTable:
    """Reload against recompute on every tier, for every combination of the lists given.

    Parameters
    ----------
    users, context, cached_tokens : int, str or sequence
        Lists, as text with commas ("1k,32k,1M") or as sequences. cached_tokens 0 stands for the whole context.
    hit : float, str or sequence, optional
        Cached share of each context, instead of cached_tokens; 1 is the whole context.
    output_tokens : int or str
    sessions : int or str, optional
        Caches kept in all; adds where they live and what a returning one waits.
    shared_tokens : int or str, optional
        First tokens that all users have in common.
    arrivals : float or str, optional
        Requests a second, Poisson; adds waiting, wear, and with prices savings a day.
    discipline : "sharing" or "fcfs", optional
        How a tier serves several reloads.
    returns : str, optional
        "uniform", "zipf" or "zipf:0.8": which sessions come back.
    write_policy : "through", "second-touch" or "back", optional
    used_once : float, optional
        Share of the state never asked for again, for second-touch.
    prices : str, optional
        Id or path of a price list.
    **options
        Any field of `llmcap.analyses.options.Options`.

    Returns
    -------
    TierTable

    Raises
    ------
    OptionError
        A value or combination that cannot be.
    DocumentError
        A file that cannot be used.

    Examples
    --------
    >>> rows = tier_table(context="1k,1M", users=[1, 8]).rows
    >>> len(rows), rows[0]["tier"], rows[-1]["winner"]
    (12, 'hbm', 'reload')
    """
    setting = resolve(options_from(options))
    grid = grid_of(users, context, cached_tokens, hit, output_tokens)
    check_steps(setting, int(grid.context.max()))
    extras = extras_of(
        sessions=sessions, shared_tokens=shared_tokens, arrivals=arrivals, discipline=discipline, returns=returns,
        write_policy=write_policy, used_once=used_once, prices=prices,
    )  # fmt: skip
    check(grid, extras, 1 + len(setting.machine.tiers))
    rows = _rows(Evaluator.of(setting), grid, extras)
    return TierTable(setting, rows, notes_of(setting, rows, extras))


def _rows(evaluator: Evaluator, grid: Grid, extras: Extras) -> list[dict[str, Any]]:
    tables, common, fits, held = _tables(evaluator, grid, extras)
    pool = evaluator.memory.pool * evaluator.setting.machine.devices
    shape = grid.users.shape
    columns = {name: {n: np.broadcast_to(v, shape) for n, v in table.items()} for name, table in tables.items()}
    shared = {name: np.broadcast_to(v, shape) for name, v in common.items()}
    found = []
    for i in range(grid.users.size):
        case = {name: _plain(name, v[i]) for name, v in shared.items()}
        fit = bool(fits[i])
        for name, table in columns.items():
            row = case | {"tier": name}
            for column in _COLUMNS:
                if column == "winner":
                    row["winner"] = winner(table["wins"][i], fit)
                elif column in table:
                    row[column] = _plain(column, table[column][i]) if fit or column in _ALWAYS else None
            if name != "hbm":
                row["no_gain_because"] = _no_gain(row, float(extras.sessions or grid.users[i]), float(held[i]), pool)
            found.append(row)
    return found


def _tables(
    evaluator: Evaluator, grid: Grid, extras: Extras
) -> tuple[dict[str, dict[str, Any]], dict[str, Any], NDArray[np.bool_], Array]:
    """Columns by tier, columns of the case, whether the users fit device memory, and how many would."""
    u, c, k, o = grid.users, grid.context, grid.cached, grid.output
    shared = SharedPrefix(evaluator, float(extras.shared_tokens)) if extras.shared_tokens else None
    columns = evaluator.evaluate(u, c, k, o, with_break_even_tokens=shared is None)
    held, fits = columns.results["max_users_hbm"], np.asarray(columns.results["fits"])
    if shared is not None:
        held = shared.users_in_memory(c + o)
        fits = np.asarray(u <= held)
    held = np.broadcast_to(held, u.shape)
    rates = {rate.name: rate for rate in evaluator.tiers.rates}
    places = {tier.name: tier for tier in evaluator.setting.machine.tiers}
    tables: dict[str, dict[str, Any]] = {}
    for name, values in columns.tiers.items():
        table: dict[str, Any] = dict(values)
        if shared is not None:
            table |= shared.columns(rates.get(name), u, c, grid.prefix)
            table["users_held"] = held if name == "hbm" else shared.users_held(rates[name], c + o)
        if name != "hbm":
            table["narrowest_hop"] = narrowest_hop(evaluator, places[name], rates[name], u)
            table |= batch_columns(rates[name], u, table["reload_s"], extras)
            table |= traffic_columns(evaluator, places[name], rates[name], grid, table, extras)
            if shared is None:
                table["break_even_users"] = break_even_users(evaluator, rates[name], c, grid.prefix, held)
        tables[name] = table
    common: dict[str, Any] = {"context_tokens": c, "cached_tokens": k, "users": u}
    if extras.shared_tokens:
        common["shared_tokens"] = np.float64(extras.shared_tokens)
    if extras.sessions is not None:
        common |= placement_columns(tables, float(extras.sessions), extras.returns)
    return tables, common, np.broadcast_to(fits, u.shape), held


#: Columns in the order of a row; those that do not apply are absent.
_COLUMNS = (
    "recompute_s", "reload_s", "reload_mean_s", "reload_p95_s", "ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s",
    "winner", "speedup",
    "break_even_bytes_per_s", "break_even_tokens", "break_even_users", "users_held", "capacity_bytes",
    "read_bytes_per_s", "effective_read_bytes_per_s", "narrowest_hop", "store_s", "store_share_of_prefill",
    "sessions_placed", "returns_share",
    "tier_utilisation", "device_utilisation_reload", "device_utilisation_recompute", "ttft_reload_mean_s",
    "ttft_reload_p95_s", "ttft_recompute_mean_s", "ttft_recompute_p95_s", "sustained_reload_per_s",
    "sustained_recompute_per_s", "written_bytes_per_s", "drive_writes_per_day", "drive_life_years", "write_utilisation",
    "recompute_device_s", "reload_device_s", "recompute_j", "reload_j", "recompute_usd", "reload_usd",
    "freed_device_h_per_day", "saved_j_per_day", "saved_usd_per_day", "tier_usd_per_day",
)  # fmt: skip
#: Whole numbers.
_COUNTS = {"shared_tokens", "break_even_users", "sessions_placed", "sessions_dropped"}
#: Known whether or not the users fit device memory.
_ALWAYS = {"users_held", "capacity_bytes", "read_bytes_per_s", "narrowest_hop", "sessions_placed", "returns_share"}


def _plain(name: str, value: Any) -> Any:
    found = plain(name, value)
    return int(found) if name in _COUNTS and found is not None else found


def _no_gain(row: dict[str, Any], kept: float, held: float, pool: float) -> str | None:
    """Why a tier gains nothing in this case, in words; None where it gains."""
    if row["winner"] is None:
        return None
    reasons = []
    if row["winner"] == "recompute":
        reasons.append("slower than recompute")
    if kept <= held:
        reasons.append("fits HBM")
    if row["capacity_bytes"] < pool:
        reasons.append("smaller than the HBM pool")
    return "; ".join(reasons) or None
