"""Prefill and decode on devices of their own: the prompts' caches move from one pool to the other in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.options import Options
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.analyses.setting import Setting, resolve
from llmcap.engine import queueing, serving
from llmcap.engine.queueing import Moments
from llmcap.errors import OptionError
from llmcap.records import dataclass

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SplitModel:
    """Two pools of replicas on one kind of server; arrays of cases in, arrays out."""

    prefill: ServingModel
    decode: ServingModel
    link: float
    """Cache bytes that one replica sends, or takes in. [B/s]"""

    @classmethod
    def of(cls, setting: Setting) -> SplitModel:
        """The pools that a setting's options ask for.

        Raises
        ------
        OptionError
            A pool without devices, or whose devices the degrees of parallelism do not divide; servers without
            network cards between them.
        """
        options, devices = setting.options, setting.parallelism.devices
        first = options.prefill_devices
        assert first is not None
        if first >= devices:
            raise OptionError(
                "--prefill-devices", f"{first} of {devices} devices leave none to decode",
                "raise --devices, or lower it",
            )  # fmt: skip
        if options.dp is not None:
            raise OptionError("--dp", "follows from the devices of each pool", "leave it out with --prefill-devices")
        own = replace(options, tp=options.prefill_tp or options.tp, ep=options.prefill_ep or options.ep)
        prefill = ServingModel.of(_pool(own, first, "prefill"))
        drafting = replace(
            _pool(options, devices - first, "decode"),
            options=replace(
                options.together(), devices=devices - first, arrivals=options.arrivals,
                draft_tokens=options.draft_tokens, acceptance=options.acceptance,
            ),
        )  # fmt: skip
        decode = ServingModel.of(drafting)
        # All in one server: the scale-up fabric; else the network cards. The narrower replica bounds a transfer.
        fabric = setting.machine.fabric(devices)
        share = setting.engine.reloads.peer.link_share or 1.0
        width = min(m.setting.parallelism.devices // m.setting.parallelism.dp for m in (prefill, decode))
        return cls(prefill, decode, share * fabric.bandwidth * width)

    def fits(self, context: Array, output: Array) -> NDArray[np.bool_]:
        """Whether a prompt fits each prefill replica, and a whole sequence each decode replica."""
        return self.prefill.fits(context, np.zeros_like(output)) & self.decode.fits(context, output)

    def service(self, new: Array, cached: Array) -> Array:
        """Time that one prompt takes of a prefill replica that is never idle. [s]

        Nothing else hides the host's share of a step here, and prompts fill the steps.
        """
        setting = self.prefill.setting
        host = self.prefill.steps.overhead("prefill").serial * setting.assumptions.scales.prefill
        return np.asarray(
            self.prefill.prefill_shared(new, cached) + host * new / setting.chunk_tokens / setting.parallelism.pp
        )

    def moved(self, context: Array) -> Array:
        """Bytes of one prompt's cache that the decode replica takes in, copies for its ranks included. [B]"""
        memory = self.decode.memory
        return np.asarray(memory.reserved_per_user(context))

    def slots(self, context: Array, output: Array) -> Array:
        """Sequences that one decode replica runs at most: its pool alone decides."""
        return np.maximum(self.decode.held(context, output) / self.decode.setting.parallelism.dp, 1.0)

    def rates(self, context: Array, cached: Array, output: Array) -> tuple[Array, Array, Array]:
        """Requests a second that the prefill pool, the decode pool and the links can sustain."""
        first, second = (m.setting.parallelism.dp for m in (self.prefill, self.decode))
        slots = self.slots(context, output)
        step = self.decode.decode(slots, context, output)
        return (
            first / self.service(context - cached, cached),
            np.asarray(second * slots / (np.maximum(output, 1.0) * step)),
            min(first, second) * self.link / np.maximum(self.moved(context), 1e-300),
        )

    def at_rate(
        self, rate: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike, *, seen: ArrayLike = 1.0
    ) -> dict[str, Array | Moments]:
        """What a mean request sees at a rate of Poisson arrivals.

        Parameters
        ----------
        rate : array_like
            Over all replicas. [1/s]
        context, cached, output : array_like
            Tokens of each request.
        seen : array_like
            Share of the load that a request meets on arrival: (c - 1) / c in a closed loop of c clients.

        Returns
        -------
        dict
            tpot_s, ttft_s, transfer_s [s], queue (Moments of the waiting in ttft_s), running (prefilled, moved or
            decoded), waiting; NaN at and above saturation.

        Notes
        -----
        M/D/m on the prefill replicas, which take prompts from one queue, and on the slots of the decode replicas; M/D/1
        on the links; the three waits are taken as independent. The cache moves once the prompt is done, and the first
        token follows with the decode steps in progress.
        """
        x, n, k, o, part = (
            np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(rate, context, cached, output, seen)
        )
        replicas = float(self.decode.setting.parallelism.dp)
        b = serving.running_at(x / replicas, lambda b: self._stay(b, n, o, part), self.slots(n, o))
        return self._times(x, b, n, k, o, part)

    def closed_loop(
        self, clients: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike
    ) -> dict[str, Array | Moments]:
        """The same for c clients that each send one request after another, and `requests_per_s`."""
        c, n, k, o = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(clients, context, cached, output))
        replicas = float(self.decode.setting.parallelism.dp)
        part = (c - 1.0) / c  # of the load, a client meets that of the others
        slots = self.slots(n, o)

        def rate(b: Array) -> Array:
            return np.asarray(replicas * b / self._stay(b, n, o, part))

        def present(b: Array) -> Array:
            x = rate(b)
            found = self._times(x, b, n, k, o, part)
            cycle = found["ttft_s"] + np.maximum(o - 1.0, 0.0) * found["tpot_s"]
            return np.asarray(np.nan_to_num(x * cycle, nan=np.inf))

        b = serving.running_of_clients(c, present, slots)
        x = rate(b)
        found = self._times(x, b, n, k, o, part)
        # Near saturation a queue follows from who is left, and hardly from a rate: Little's law, the other way round.
        calm = found["ttft_s"] - found["queue"].mean
        running = np.minimum(x * (calm + np.maximum(o - 1.0, 0.0) * found["tpot_s"]), c)
        queue = (c - running) / np.maximum(x, 1e-300)
        return found | {
            "ttft_s": calm + queue, "queue": Moments(queue, found["queue"].variance), "running": running,
            "waiting": c - running, "requests_per_s": x,
        }  # fmt: skip

    def _stay(self, b: Array, context: Array, output: Array, part: Array) -> Array:
        """Time on a decode replica that runs b sequences: the steps in progress, then one step a token. [s]"""
        step = self.decode.decode(np.maximum(b, 1.0), context, output)
        # A single token is the prefill's; the decode pool is then taken to hold it for a step.
        return (np.maximum(output - 1.0, 1.0) + self.decode.engine.running_steps * np.minimum(b * part, 1.0)) * step

    def _times(self, x: Array, b: Array, n: Array, k: Array, o: Array, part: Array) -> dict[str, Any]:
        """The answer for x requests a second, b sequences on each decode replica."""
        first, second = (float(m.setting.parallelism.dp) for m in (self.prefill, self.decode))
        prefill, decode, links = self.rates(n, k, o)
        tpot = self.decode.decode(np.maximum(b, 1.0), n, o)
        moved, after = self.moved(n), np.maximum(o - 1.0, 0.0)
        transfer = self.prefill.setting.engine.reloads.peer.fixed + moved / self.link
        queue = queueing.slot_delay(self.service(n - k, k), first, x * part / prefill)
        queue = queue + queueing.delay(x * part, moved / self.link, servers=min(first, second))
        queue = queue + queueing.slot_delay(self._stay(b, n, o, part), self.slots(n, o), x * part / decode)
        own = self.prefill.prefill_alone(n - k, k) + self.prefill.engine.dispatch
        calm = own + transfer + self.decode.engine.running_steps * np.minimum(b * part, 1.0) * tpot
        gap = np.where(x < np.minimum(np.minimum(prefill, decode), links), 0.0, np.nan)
        return {
            "tpot_s": tpot + gap, "ttft_s": calm + queue.mean + gap, "transfer_s": transfer + gap,
            "queue": Moments(queue.mean + gap, queue.variance), "running": x * (calm + after * tpot) + gap,
            "waiting": x * queue.mean + gap,
        }  # fmt: skip


def _pool(options: Options, devices: int, which: str) -> Setting:
    """The setting of one pool: its devices with the degrees asked for."""
    try:
        return resolve(replace(options.together(), devices=devices, ep=options.ep))
    except OptionError as error:
        own = {"--tp": "--prefill-tp", "--ep": "--prefill-ep"} if which == "prefill" else {}
        option = own.get(error.option, error.option)
        raise OptionError(
            option, f"{error.args[1]} (the {devices} {which} device{'s' * (devices > 1)})",
            error.hint.replace(error.option, option),
        ) from None  # fmt: skip
