"""Settings that every test shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the machine's speed is not what these tests are about. Derandomised: a red run can be repeated.
settings.register_profile(
    "llmcap",
    deadline=None,
    derandomize="LLMCAP_FUZZ_EXAMPLES" not in os.environ,
    max_examples=int(os.environ.get("LLMCAP_FUZZ_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("llmcap")


@pytest.fixture(autouse=True)
def _only_shipped_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer has in $LLMCAP_PATH must not change a result."""
    monkeypatch.delenv("LLMCAP_PATH", raising=False)
