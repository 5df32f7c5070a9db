"""Figures of tables: each draws a DataFrame on an axis, and reads as well in grey.

Nothing here needs a display, and no state is shared between figures.
"""

from __future__ import annotations

from llmcap.report.figures.context import (
    cache_against_capacity as cache_against_capacity,
)
from llmcap.report.figures.context import (
    crossing as crossing,
)
from llmcap.report.figures.context import (
    prefill_against_reload as prefill_against_reload,
)
from llmcap.report.figures.estimate import plot_estimate as plot_estimate
