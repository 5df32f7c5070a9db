"""One question asked along the context: the rows behind a figure of prefill, reload and cache size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.result import Estimate

if TYPE_CHECKING:
    import pandas as pd

#: Shortest context of the axis, and contexts along it. [tokens], [1]
SHORTEST, POINTS = 100, 181


def along_context(answer: Estimate, points: int = POINTS) -> pd.DataFrame:
    """The estimate's question from short contexts to the longest that its model takes, or its own if that is longer.

    Parameters
    ----------
    answer : Estimate
        Its users, output and options hold along the axis; the tokens that follow its cached prefix, if it has one, are
        held fixed, and the prefix varies.
    points : int
        Contexts, evenly spaced on a logarithmic axis.

    Returns
    -------
    DataFrame
        One row per context and tier beyond device memory: `context_tokens` [tokens], `tier`, `recompute_s`,
        `recompute_low_s`, `recompute_high_s`, `ttft_reload_s` [s], `kv_bytes_total`, `capacity_bytes` [B]. Times are
        NaN where the users do not fit. `attrs["hbm_pool_bytes"]` is what device memory has for caches,
        `attrs["break_even_tokens"]` the answer's own break-even by tier, where it asks the same.

    Notes
    -----
    One evaluation of arrays, as in a sweep.
    """
    import pandas as pd

    inputs = answer.inputs
    users, output, cached = inputs["users"], inputs["output_tokens"], inputs["cached_tokens"]
    new = inputs["context_tokens"] - cached if cached else 0
    longest = max(answer.setting.model.max_context, inputs["context_tokens"])
    contexts = np.unique(np.round(np.geomspace(max(SHORTEST, new + 1), max(longest, new + 2), points)))
    evaluator = Evaluator.of(answer.setting)
    whole = evaluator.evaluate(users, contexts, 0, output, with_tiers=not cached, with_break_even_tokens=False)
    prefixed = (
        evaluator.evaluate(users, contexts, contexts - new, output, with_break_even_tokens=False) if cached else whole
    )

    def column(value: Any) -> np.ndarray[Any, Any]:
        return np.broadcast_to(np.asarray(value, dtype=np.float64), contexts.shape)

    shared = {
        "context_tokens": contexts,
        "recompute_s": column(whole.results["prefill_s"]),
        "recompute_low_s": column(whole.results["ttft_low_s"]),
        "recompute_high_s": column(whole.results["ttft_high_s"]),
        "kv_bytes_total": column(whole.results["kv_bytes_total"]),
    }
    frames = [
        pd.DataFrame(
            shared
            | {
                "tier": name,
                "ttft_reload_s": column(tier["ttft_reload_s"]),
                "capacity_bytes": column(tier["capacity_bytes"]),
            }
        )
        for name, tier in prefixed.tiers.items()
        if name != "hbm"
    ]
    frame = pd.concat(frames, ignore_index=True)
    free, reserved = column(whole.results["hbm_free_bytes"]), column(whole.results["kv_bytes_total_reserved"])
    frame.attrs["hbm_pool_bytes"] = float((free + reserved)[0])
    # The whole prompt reloaded is the question that the answer's own break-even is of; with a fixed rest it is another.
    frame.attrs["break_even_tokens"] = {} if cached else {t["tier"]: t["break_even_tokens"] for t in answer.tiers}
    return frame
