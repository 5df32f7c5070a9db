"""Ring attention: what context-parallel ranks send each other in prefill, and what of it their attention hides."""

from __future__ import annotations

import numpy as np

from llmcap.engine.collectives import CollectiveParams, Fabric
from llmcap.engine.cost import Cost, Value, banded
from llmcap.records import dataclass


@dataclass(frozen=True, slots=True)
class RingMessages:
    """Bytes of one rank. [B]"""

    keys: Value
    """Keys and values of its share of the tokens in sight: a hop when they travel."""
    queries: Value
    """Queries of its share of the new tokens: a hop when they travel instead."""
    results: Value
    """Partial outputs of the other ranks' queries, sent back at the end when queries travelled."""


def ring(
    messages: RingMessages, attention: Value, ranks: int, launches: Value, *, fabric: Fabric,
    params: CollectiveParams | None,
) -> Cost:  # fmt: skip
    """Messages of ring attention over `ranks` context-parallel ranks.

    Parameters
    ----------
    messages : RingMessages
    attention : float or ndarray
        Time of one rank's attention, all hops together, without launches. [s]
    ranks : int
    launches : float or ndarray
        Rings; each pays the latency of its hops, whatever it hides. [1]
    fabric : Fabric
        The slowest link of the ring sets its pace.
    params : CollectiveParams or None
        None: all bytes at the full link rate; the caller lets phases overlap as a whole.

    Returns
    -------
    Cost
        [s]; zero for one rank. Linear in messages and attention together, and in launches.

    Notes
    -----
    A rank attends to its own part while the next one arrives: n - 1 hops, each next to 1/n of the attention. With
    r = beta B and t = attention / n, what remains visible is the less of

        pass-KV   (n - 1) max(0, keys/r - t)
        pass-Q    (n - 1) max(0, queries/r - t) + (n - 1)/n results/r

    and (n - 1) alpha. A. Yang et al., Context Parallelism for Scalable Million-Token Inference, MLSys 2025
    (arXiv:2411.01783), sections 3.4 to 3.5 and appendix C. Over many steps the sums are compared, not step by step:
    with full attention both grow with the tokens in sight, so all steps of a prompt hide their hops, or none does.

    Examples
    --------
    Their table 5, Llama 3.1 405B, 4 ranks, 3,200 new of 128,000 tokens: 16.4 MB of keys and values a hop took 627 us,
    a quarter of the attention 414 us. pass-KV shows 3 x 213 = 639 us; pass-Q hides its hops (3.3 MB, 166 us) and shows
    the exchange of 4 x 3.3 MB of results, of which 3/4 travel: 383 us (424 measured), which is less.

    >>> link, free = Fabric(26.1e9), CollectiveParams(0.0, 0.0, 1.0, 1.0, 1.0)
    >>> cost = ring(RingMessages(16.384e6, 3.277e6, 13.312e6), 4 * 414e-6, 4, 1.0, fabric=link, params=free)
    >>> round(float(cost.network) * 1e6)
    383
    """
    if ranks <= 1:
        return Cost()
    hops = ranks - 1.0
    back = hops / ranks * messages.results
    if params is None:
        return Cost(network=np.minimum(hops * messages.keys, hops * messages.queries + back) / fabric.bandwidth)
    rate = params.beta * fabric.bandwidth
    meanwhile = attention / ranks
    keys = hops * np.maximum(messages.keys / rate - meanwhile, 0.0)
    queries = hops * np.maximum(messages.queries / rate - meanwhile, 0.0) + back / rate
    return banded(params.low, params.high, network=np.minimum(keys, queries), overhead=launches * (hops * params.alpha))
