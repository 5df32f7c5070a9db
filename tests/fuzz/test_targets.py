"""A short search over every reader: sound inputs, their words in any order, and bytes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

_spec = importlib.util.spec_from_file_location("llmcap_fuzz_targets", Path(__file__).with_name("targets.py"))
assert _spec is not None and _spec.loader is not None
targets = importlib.util.module_from_spec(_spec)
sys.modules["llmcap_fuzz_targets"] = targets
_spec.loader.exec_module(targets)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_sound_inputs_are_accepted(name: str) -> None:
    """A search from seeds that are all refused would look at nothing but the first check."""
    assert (
        all(targets.answers(seed) for seed in targets.SEEDS[name])
        if name == "answers"
        else any(targets.TARGETS[name](seed) for seed in targets.SEEDS[name])
    )


@pytest.mark.parametrize("name", targets.TARGETS)
def test_anything_is_accepted_or_clearly_refused(name: str) -> None:
    target = targets.TARGETS[name]
    words = st.sampled_from(targets.WORDS[name]).map(str.encode)
    seeds = st.sampled_from(targets.SEEDS[name])

    def spliced(parts: tuple[bytes, list[bytes], int]) -> bytes:
        seed, inserted, place = parts
        at = place % (len(seed) + 1)
        return seed[:at] + b"".join(inserted) + seed[at:]

    inputs = (
        st.tuples(seeds, st.lists(words | st.binary(max_size=4), max_size=4), st.integers(0, 4000)).map(spliced)
        | st.lists(words, max_size=20).map(b"".join)
        | st.binary(max_size=200)
    )

    @given(inputs)
    @settings(
        max_examples={"argv": 25, "measured": 25, "answers": 12, "options": 12}.get(name, settings.default.max_examples)
    )
    def search(data: bytes) -> None:
        target(data)

    search()
