"""A setting under the load that its options ask for, as columns: times with bands, rates, and where it saturates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.case_arrays import largest
from llmcap.analyses.options import Options
from llmcap.analyses.serving.bands import Bands, bands
from llmcap.analyses.serving.disaggregation import SplitModel
from llmcap.analyses.serving.steady_state import LoadKind, ServingModel
from llmcap.analyses.setting import Setting
from llmcap.engine import queueing, serving
from llmcap.engine.cost import Cost
from llmcap.engine.queueing import Moments
from llmcap.errors import OptionError
from llmcap.records import dataclass

Array = NDArray[np.float64]

#: Values of `limit` and of `saturation_limit`, by index.
LIMITS: Final = ("compute", "memory", "network", "overhead", "capacity", "saturated")
CEILINGS: Final = ("cache pool", "max sequences", "work", "prefill devices", "decode devices", "transfer")
WORDS: Final = {"limit": LIMITS, "saturation_limit": CEILINGS}
_CAPACITY, _SATURATED = 4, 5
_PIECE: Final = 4_000
"""Cases whose running sequences are solved for at a time: each is tried on a grid, and the grids take memory."""
_MORE: Final = 1.1
"""What twice the sequences must bring for the pool, and not the work itself, to be what holds the rate down."""

_WAYS: Final[dict[str | None, LoadKind]] = {None: "spread", "varied": "spread", "equal": "fixed"}

#: Columns in the order of the answer; those of words hold indices into LIMITS and CEILINGS.
COLUMNS: Final = (
    "fits", "limit", "ttft_s", "ttft_low_s", "ttft_high_s", "ttft_p95_s", "ttft_p99_s", "queue_s", "transfer_s",
    "tpot_s", "tpot_low_s", "tpot_high_s", "e2el_s", "e2el_low_s", "e2el_high_s", "requests_per_s",
    "output_tok_per_s", "output_low_tok_per_s", "output_high_tok_per_s", "output_tok_per_s_per_user",
    "output_tok_per_s_per_device", "running", "waiting", "held", "utilisation", "saturation_requests_per_s",
    "saturation_tok_per_s", "saturation_low_tok_per_s", "saturation_high_tok_per_s", "saturation_limit",
    "prefill_tp", "prefill_dp", "prefill_utilisation", "decode_tp", "decode_dp", "decode_utilisation",
    "transfer_utilisation", "tokens_per_step",
)  # fmt: skip
PREFIX: Final = "serving_"
"""Of the columns' names in rows."""


def under_load(setting: Setting, options: Options) -> Setting:
    """The setting with the options of a load.

    Raises
    ------
    OptionError
        Assumptions or an engine that have no steady state.
    """
    if not setting.calibrated:
        raise OptionError(
            "--arrivals", f"under '{setting.assumptions.id}' no steady state is defined",
            "use --assumptions calibrated",
        )  # fmt: skip
    return replace(setting, options=options)


@dataclass(frozen=True, slots=True)
class LoadModel:
    """A setting's answer under its load."""

    setting: Setting
    model: ServingModel
    """All devices alike; the decode pool where prefill has devices of its own."""
    split: SplitModel | None

    @classmethod
    def of(cls, setting: Setting) -> LoadModel:
        """The models that a setting under load needs.

        Raises
        ------
        OptionError
        """
        if setting.options.prefill_devices is None:
            return cls(setting, ServingModel.of(setting), None)
        split = SplitModel.of(setting)
        return cls(setting, split.decode, split)

    @property
    def rate(self) -> float | None:
        """Of Poisson arrivals; None in a closed loop. [1/s]"""
        arrivals = self.setting.options.arrivals
        return arrivals if isinstance(arrivals, float) else None

    def check(self, users: ArrayLike) -> None:
        """Refuse users beside a rate, from which they follow.

        Raises
        ------
        OptionError
        """
        if self.rate is not None and np.any(np.asarray(users) != 1.0):
            raise OptionError(
                "--users", "follow from the rate of --arrivals", "leave them out, or ask --arrivals closed"
            )

    def rows(self, users: Array, context: Array, cached: Array, output: Array) -> list[dict[str, Any]]:
        """One dict per case, named as the columns of a sweep."""
        columns = self.columns(users, context, cached, output)
        flat = {name: np.broadcast_to(value, users.shape).reshape(-1) for name, value in columns.items()}
        return [{PREFIX + name: plain(name, values[i]) for name, values in flat.items()} for i in range(users.size)]

    def columns(
        self, users: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike,
        rate: ArrayLike | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The columns of `COLUMNS` that apply, without the prefix of rows.

        Parameters
        ----------
        users : array_like
            Clients of a closed loop; 1 with a rate.
        context, cached, output : array_like
            Tokens of each request.
        rate : array_like, optional
            Of Poisson arrivals, instead of the one that the options ask for. [1/s]

        Raises
        ------
        OptionError
            Users beside a rate.
        """
        x = (0.0 if self.rate is None else self.rate) if rate is None else rate
        every = [np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(users, context, cached, output, x)]
        self.check(every[0])
        size = every[0].size
        if size <= _PIECE or (self.rate is None and self.split is None):
            return self._columns(*every)
        flat = [v.reshape(-1) for v in every]
        pieces = [self._columns(*(v[i : i + _PIECE] for v in flat)) for i in range(0, size, _PIECE)]
        # A column that some pieces have, all have: which ones there are follows from the options alone.
        return {
            name: np.concatenate([np.broadcast_to(piece[name], len(flat[0][at : at + _PIECE])) for at, piece in
                                  zip(range(0, size, _PIECE), pieces, strict=True)]).reshape(every[0].shape)
            for name in pieces[0]
        }  # fmt: skip

    def _columns(self, c: Array, n: Array, k: Array, o: Array, x: Array) -> dict[str, Any]:
        fits = self.model.fits(n, o) if self.split is None else self.split.fits(n, o)
        ceiling, why = self._ceiling(n, k, o)
        answer = self._closed(c, n, k, o) if self.rate is None else self._poisson(x, n, k, o)
        offered = answer["requests_per_s"]
        keeps_up = fits & (np.ones(fits.shape, bool) if self.rate is None else np.asarray(offered < ceiling))
        gap = np.where(keeps_up, 0.0, np.nan)
        found: dict[str, Any] = {name: value + gap for name, value in answer.items()}
        if float(np.min(o)) <= 1.0:
            one = np.where(o > 1.0, 0.0, np.nan)
            found |= {name: found[name] + one for name in ("tpot_s", "tpot_low_s", "tpot_high_s")}
        after = np.maximum(o - 1.0, 0.0)
        for end in ("", "_low", "_high"):
            found[f"e2el{end}_s"] = found[f"ttft{end}_s"] + np.where(o > 1.0, after * found[f"tpot{end}_s"], 0.0)
        sure = np.where(fits, 0.0, np.nan)
        low, high = self.bands_at_rates(n, k, o).throughput
        closed = self.rate is None
        tokens = found["requests_per_s"] * o
        found |= {
            "fits": fits,
            "limit": self._limit(found, keeps_up, fits, n, k, o),
            "output_tok_per_s": tokens,
            "output_low_tok_per_s": tokens * (low if closed else 1.0),
            "output_high_tok_per_s": tokens * (high if closed else 1.0),
            "output_tok_per_s_per_user": 1.0 / found["tpot_s"],
            "output_tok_per_s_per_device": tokens / self.setting.parallelism.devices,
            "held": self.model.held(n, o) + sure,
            "utilisation": np.minimum(offered / ceiling, 1.0) + gap if closed else offered / ceiling + sure,
            "saturation_requests_per_s": ceiling + sure,
            "saturation_tok_per_s": ceiling * o + sure,
            "saturation_low_tok_per_s": ceiling * o * low + sure,
            "saturation_high_tok_per_s": ceiling * o * high + sure,
            "saturation_limit": np.where(fits, why, -1),
        }
        if self.split is not None:
            rates = self.split.rates(n, k, o)
            for name, most in zip(("prefill", "decode", "transfer"), rates, strict=True):
                found[f"{name}_utilisation"] = offered / most + sure
            for name, pool in (("prefill", self.split.prefill), ("decode", self.split.decode)):
                for degree in ("tp", "dp"):
                    found[f"{name}_{degree}"] = np.full(c.shape, getattr(pool.setting.parallelism, degree))
        if self.model.draft is not None:
            found["tokens_per_step"] = np.full(c.shape, self.model.draft.tokens_per_step)
        return {name: found[name] for name in COLUMNS if name in found}

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _closed(self, c: Array, n: Array, k: Array, o: Array) -> dict[str, Array]:
        if self.split is None:
            answer = self.model.closed_loop(c, n, k, o, _WAYS[self.setting.options.lengths])
            found = {name: answer[name] for name in ("ttft_s", "queue_s", "tpot_s", "running", "waiting")}
            found["requests_per_s"] = answer["output_tok_per_s"] / o
        else:
            found = _plain(self.split.closed_loop(c, n, k, o))
        band = self._bands(n, k, o, np.maximum(found["running"] / self.model.setting.parallelism.dp, 1.0))
        return found | {
            f"{name}_{end}_s": found[f"{name}_s"] * factor
            for name, ends in (("tpot", band.tpot), ("ttft", band.ttft))
            for end, factor in zip(("low", "high"), ends, strict=True)
        }

    def bands_at_rates(self, context: Array, cached: Array, output: Array) -> Bands:
        """Factors on the times of Poisson arrivals: those of full slots, whatever the rate."""
        return self._bands(context, cached, output, self.model.slots(context, cached, output))

    def _bands(self, n: Array, k: Array, o: Array, each: Array) -> Bands:
        return bands(self.model, n, k, o, each, None if self.split is None else self.split.prefill)

    def _poisson(self, offered: Array, n: Array, k: Array, o: Array) -> dict[str, Array]:
        """Best answer and its band: with all times f-fold, a rate x is met as f x is with the times as they are."""
        band = self.bands_at_rates(n, k, o)
        factors = np.stack([np.broadcast_to(f, n.shape) for f in (1.0, *band.tpot)])
        first = (1.0, *band.ttft)
        x = offered * factors
        every = self.model.poisson(x, n, k, o) if self.split is None else self.split.at_rate(x, n, k, o)
        whole = every["queue"]
        assert isinstance(whole, Moments)
        queue = Moments(whole.mean[0], whole.variance[0])
        found = {name: value[0] for name, value in every.items() if not isinstance(value, Moments)}
        calm = found["ttft_s"] - queue.mean
        found |= {f"ttft_{name}_s": calm + queueing.quantile(queue, q) for name, q in (("p95", 0.95), ("p99", 0.99))}
        tpot, ttft = every["tpot_s"], every["ttft_s"]
        assert not isinstance(tpot, Moments) and not isinstance(ttft, Moments)
        for i, end in ((1, "low"), (2, "high")):
            found[f"tpot_{end}_s"] = factors[i] * tpot[i]
            found[f"ttft_{end}_s"] = first[i] * ttft[i]
        return found | {"queue_s": queue.mean, "requests_per_s": offered}

    def _ceiling(self, n: Array, k: Array, o: Array) -> tuple[Array, NDArray[np.intp]]:
        """Requests a second at saturation, and the index of what holds them down."""
        if self.split is not None:
            rates = np.stack(np.broadcast_arrays(*self.split.rates(n, k, o)))
            return rates.min(axis=0), CEILINGS.index("prefill devices") + rates.argmin(axis=0)
        model = self.model
        slots = model.slots(n, k, o)
        shared = model.prefill_shared(n - k, k)
        now, twice = (serving.throughput(b, model.decode(b, n, o), shared, o) for b in (slots, 2.0 * slots))
        full = slots >= model.engine.most_sequences
        fed = slots < np.maximum(model.held(n, o) / self.setting.parallelism.dp, 1.0)
        why = np.where(full, CEILINGS.index("max sequences"), CEILINGS.index("cache pool"))
        return model.capacity(n, k, o), np.where(fed | (twice < _MORE * now), CEILINGS.index("work"), why)

    def _limit(
        self,
        found: dict[str, Array],
        keeps_up: NDArray[np.bool_],
        fits: NDArray[np.bool_],
        n: Array,
        k: Array,
        o: Array,
    ) -> NDArray[np.int8]:
        """Index of what most of the devices' time goes into."""
        dp = self.model.setting.parallelism.dp
        each = np.maximum(np.nan_to_num(found["running"], nan=1.0) / dp, 1.0)
        decode = self.model.decode_cost(each, n, o) * (o / each)
        source = self.model if self.split is None else self.split.prefill
        prefill = source.prefill_shared_cost(n - k, k)
        work = decode + prefill
        if self.split is not None:
            first, second, _ = self.split.rates(n, k, o)
            work = Cost(
                *(np.where(first < second, a, b) for a, b in zip(prefill.fields(), decode.fields(), strict=True))
            )
        limit = largest(work.compute, work.memory, work.network, work.overhead)
        return np.where(keeps_up, limit, np.where(fits, np.int8(_SATURATED), np.int8(_CAPACITY))).astype(np.int8)


def _plain(answer: dict[str, Array | Moments]) -> dict[str, Array]:
    """Without the moments, whose mean is queue_s."""
    found = {name: value for name, value in answer.items() if not isinstance(value, Moments)}
    queue = answer["queue"]
    assert isinstance(queue, Moments)
    return found | {"queue_s": queue.mean}


def applicable(options: Options) -> tuple[str, ...]:
    """The columns that a load has."""
    without: set[str] = set()
    if not isinstance(options.arrivals, float):
        without |= {"ttft_p95_s", "ttft_p99_s"}
    if options.draft_tokens is None:
        without |= {"tokens_per_step"}
    if options.prefill_devices is None:
        without |= {name for name in COLUMNS if name.startswith(("prefill_", "decode_", "transfer_"))}
    return tuple(name for name in COLUMNS if name not in without)


def plain(name: str, value: Any) -> Any:
    """A value as JSON holds it: words for indices, no NaN."""
    if name in WORDS:
        return WORDS[name][int(value)] if value >= 0 else None
    if name == "fits":
        return bool(value)
    if name.endswith(("_tp", "_dp")):
        return int(value)
    return float(value) if np.isfinite(value) else None
