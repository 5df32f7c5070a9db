"""Writes and life of drives: the published figures of a public trace, and hand-worked values."""

from __future__ import annotations

import numpy as np
import pytest

from llmcap.analyses.offload.tier_table import tier_table
from llmcap.analyses.offload.wear import DAY, USED_ONCE, bytes_written, drive_wear
from llmcap.specs.hardware import Drive
from llmcap.specs.registry import load_as

# The public Mooncake conversation trace (FAST 2025): 182,790 distinct blocks of 512 tokens in 3,537 s, 75.8 % of them
# asked for once.
NEW_TOKENS_PER_S = 182_790 * 512 / 3_537


def drive() -> Drive:
    return load_as(Drive, "drive", "micron-9550-pro-7.68tb").document


@pytest.mark.parametrize(
    ("layers", "policy", "published"),
    [(48, "through", 3.7), (48, "second-touch", 0.9), (12, "through", 0.91), (12, "second-touch", 0.22)],
)
def test_drive_writes_of_the_public_trace(layers: int, policy: str, published: float) -> None:
    """Maverick in fp8 on 8 x 7.68 TB. 48 layers kept whole, or the 12 global ones that grow: 2 x 8 x 128 B each."""
    produced = NEW_TOKENS_PER_S * layers * 2 * 8 * 128
    found = drive_wear(bytes_written(produced, policy), drive(), 8)  # type: ignore[arg-type]
    assert float(found.writes_per_day) == pytest.approx(published, rel=0.02)


def average_request(kv_policy: str) -> float:
    """Drive writes a day of the same trace as 12,031 equal requests of 12,035 tokens, 37.4 % of them found again."""
    table = tier_table(
        context=12_035, hit="0.374", output_tokens=1, arrivals=12_031 / 3_537, kv_policy=kv_policy,
        drive="micron-9550-pro-7.68tb",
    )  # fmt: skip
    row = next(row for row in table.rows if row["tier"] == "nvme")
    return float(row["drive_writes_per_day"])


def test_the_same_load_through_the_question() -> None:
    """Within 5 % where every layer grows: the last block of a request is not full, which the blocks do not show."""
    assert average_request("all-full") == pytest.approx(3.7, rel=0.05)


def test_local_layers_are_written_too_until_their_chunk_is_full() -> None:
    """The published 0.91 counts the 12 global layers alone. From 4,501 to 12,035 tokens the 36 chunked layers grow by
    8,192 - 4,501 of 7,534 tokens: (12 + 36 x 0.49) / 12 = 2.47 times as much."""
    grown = (12 + 36 * (8192 - 4501) / 7534) / 12
    assert average_request("hybrid") == pytest.approx(0.91 * grown, rel=0.05)


def test_life_by_hand() -> None:
    """61.44 TB written a day on 8 x 7.68 TB is 1 DWPD, what the drives are rated for over 5 years."""
    one = drive_wear(61.44e12 / DAY, drive(), 8)
    assert float(one.writes_per_day) == pytest.approx(1.0)
    assert one.years is not None
    assert float(one.years) == pytest.approx(5.0)
    assert float(one.share_of_bandwidth) == pytest.approx(61.44e12 / DAY / 80e9)


def test_no_writes_last_for_ever_and_no_rating_has_no_life() -> None:
    years = drive_wear(np.array([0.0, 1e9]), drive(), 8).years
    assert years is not None
    assert np.isinf(years).tolist() == [True, False]
    assert drive_wear(1e9, drive().model_copy(update={"dwpd": None}), 8).years is None


def test_policies_by_hand() -> None:
    assert float(bytes_written(100.0, "through")) == 100.0
    assert float(bytes_written(100.0, "second-touch", used_once=0.75)) == pytest.approx(25.0)
    assert float(bytes_written(100.0, "back", displaced=0.4)) == pytest.approx(40.0)
    assert float(bytes_written(100.0, "second-touch")) == pytest.approx(100.0 * (1 - USED_ONCE))
