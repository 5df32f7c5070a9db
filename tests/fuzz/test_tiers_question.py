"""Whatever is typed into `llmcap tiers`: rows, or one clear error."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmcap.analyses.offload.tier_table import tier_table
from llmcap.analyses.tier_text import parse_tier
from llmcap.errors import DocumentError, LlmcapError, OptionError

WORDS = st.text(max_size=12) | st.sampled_from(
    ["1", "0", "-1", "1k", "1M", "1,8", ",", "1e9", "nan", "inf", "0.5", "50%", "1Ki", "10^9", " 2 ", "1_000", "٣"]
)
#: Plausible values, so that many questions get past the first check.
PLAUSIBLE = {
    "users": ["1", "8,2000", "1,1", "100000"],
    "context": ["1", "2,1M", "8192,8193", "1e6", "10M"],
    "cached_tokens": ["0", "1", "999"],
    "hit": ["1e-9", "0.5,1", "100%"],
    "output_tokens": ["1", "2", "100k"],
    "sessions": ["1", "1e6", "10^15", "1000000000000000"],
    "shared_tokens": ["0", "1", "8192"],
    "arrivals": ["1e-9", "3/s", "1e9"],
    "discipline": ["fcfs", "Sharing"],
    "returns": ["zipf", "zipf:5", "uniform"],
    "write_policy": ["back", "second-touch"],
    "used_once": ["0", "1"],
    "transfer_block": ["1 B", "1 TB"],
    "transfers_in_flight": ["1", "1e6"],
    "storage_path": ["bounce", "direct"],
    "drives": ["1", "1000000"],
    "dram": ["1 B", "1 PB"],
    "prices": ["neocloud-2026-04"],
    "model": ["llama-3.1-8b", "deepseek-v3"],
}
QUESTION = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in PLAUSIBLE.items()}
).flatmap(
    lambda known: st.dictionaries(st.sampled_from(sorted(PLAUSIBLE)), WORDS, max_size=1).map(lambda odd: known | odd)
)
PIECES = st.lists(
    st.sampled_from(["cxl", "hbm", "2 TB", "2TB", "1 GB/s", "-1 GB/s", "0 B", "latency=1us", "latency=", "through=peer",
                     "through=x", "write=1GB/s", "=", "", "nan TB", "1e400 B"]) | st.text(max_size=8),
    max_size=6,
)  # fmt: skip


@given(QUESTION)
def test_a_question_is_answered_or_refused(question: dict[str, Any]) -> None:
    try:
        table = tier_table(**question)
    except LlmcapError as error:
        assert isinstance(error, OptionError | DocumentError)
        assert str(error)
        assert str(error).isprintable()
        return
    for row in table.rows:
        assert all(value == value and abs(value) != float("inf") for value in row.values() if isinstance(value, float))


@given(PIECES)
def test_a_tier_is_read_or_refused(pieces: list[str]) -> None:
    try:
        tier, _ = parse_tier(":".join(pieces))
    except LlmcapError as error:
        assert str(error).startswith("--tier") or isinstance(error, DocumentError)
        return
    assert tier.capacity > 0
    assert tier.read > 0
    assert tier.latency >= 0
