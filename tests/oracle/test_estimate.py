"""llmcap against its slow twin on random cases, and its documented approximations against the walk step by step."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import llmcap
from tests.oracle.estimate_oracle import Case, Oracle, summary
from tests.oracle.plain_documents import ROOT

OWN = Path(__file__).parent / "documents"
LATENT, WINDOWS = str(OWN / "latent-experts.yaml"), str(OWN / "windows.yaml")
#: Model, and whether it has experts.
MODELS = {
    "llama-3.1-8b": False,
    "llama-3.1-70b": False,
    "llama-3.1-405b": False,
    "llama-4-maverick": True,
    "llama-4-scout": True,
    LATENT: True,
    WINDOWS: False,
}
SERVERS = ("dgx-b200", "dgx-b200-gen6", "dgx-h200", "dgx-h100")
CASES = 240
ENGINES = sorted(path.stem for path in (ROOT / "engines").glob("*.yaml"))


def ask(case: Case, **more: Any) -> llmcap.Estimate:
    given = {k: v for k, v in vars(case).items() if v is not None}
    given["cached_tokens"], given["output_tokens"] = given.pop("cached"), given.pop("output")
    return llmcap.estimate(**given, **more)


def random_case(rng: random.Random) -> Case:
    """A case that llmcap takes: degrees that multiply to the devices, heads that divide, dtypes with a peak."""
    model = rng.choice(list(MODELS))
    hardware = rng.choice(SERVERS)
    devices = rng.choice((1, 2, 4, 8, 8, 8, 8, 16))
    heads = 40 if "llama-4" in model else 32
    degrees = {"tp": 1, "pp": 1, "dp": 1, "cp": 1}
    left = devices
    while left > 1:
        name = rng.choice(("tp", "tp", "tp", "pp", "dp", "cp"))
        if name == "tp" and heads % (degrees["tp"] * 2):
            continue
        degrees[name] *= 2
        left //= 2
    ep = 1
    if MODELS[model]:
        ep = rng.choice([d for d in (1, 2, 4, 8, 16) if (degrees["tp"] * degrees["dp"]) % d == 0])
    blackwell = "b200" in hardware
    wide = rng.random() < 0.5
    weights = rng.choice(("bf16", "fp8", *(["nvfp4"] if blackwell else []), "int4", "mxfp4"))
    context = math.ceil(10 ** rng.uniform(1, 5.3))
    assumptions = rng.choice(("calibrated", "calibrated", "calibrated", "ideal"))
    if "llama-4" in model and blackwell and rng.random() < 0.3:
        assumptions = "as-published"
    engine = ENGINES[rng.randrange(1000) % len(ENGINES)]  # one more document does not draw other cases
    return Case(
        model=model, hardware=hardware, devices=devices, **degrees, ep=ep,
        users=rng.choice((1, 1, 2, 3, 7, 16, 61)), context=context,
        cached=rng.choice((0, 0, context // 3, max(context - 17, 0))),
        output=rng.choice((1, 2, 5, 100, 1000)),
        weight_dtype=None if wide else weights,
        kv_dtype=rng.choice((None, None, "bf16", "fp8", *(["nvfp4"] if blackwell else []))),
        kv_policy=rng.choice(("hybrid", "hybrid", "all-full")), assumptions=assumptions,
        chunk_tokens=rng.choice((None, None, 2048, 4096, 777)), engine=engine,
    )  # fmt: skip


def random_cases(n: int, seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [random_case(rng) for _ in range(n)]


def differences(expected: dict[str, Any], got: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where the two answers differ by more than 1e-9."""
    wrong = {}
    for name, want in expected.items():
        have = got[name]
        if isinstance(want, bool | str) or want is None or have is None:
            same = want == have
        else:
            same = math.isclose(want, have, rel_tol=1e-9, abs_tol=1e-3 if "bytes" in name else 1e-15)
        if not same:
            wrong[name] = (want, have)
    return wrong


@pytest.mark.parametrize("block", range(8))
def test_random_cases_agree_with_the_slow_twin(block: int) -> None:
    size = CASES // 8
    wrong = {}
    for case in random_cases(CASES, seed=20250515)[block * size : (block + 1) * size]:
        if found := differences(summary(case), ask(case).results):
            wrong[case] = found
    assert not wrong


def test_the_random_cases_reach_every_corner() -> None:
    cases = random_cases(CASES, seed=20250515)
    fits = Counter(Oracle(c).pool > 0 for c in cases)
    assert fits[True] >= 150
    for degree in ("tp", "pp", "dp", "cp", "ep"):
        assert sum(getattr(c, degree) > 1 for c in cases) >= 20
    assert len({(c.model, c.assumptions) for c in cases}) >= 12
    assert sum(c.devices == 16 for c in cases) >= 10
