"""Copies below device memory by hand: what the ranks of a tensor-parallel group store in a tier and read from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import llmcap
from llmcap.analyses.offload.tier_table import tier_table
from llmcap.arch.state import copies_kept
from llmcap.arch.structure import structure_of
from llmcap.errors import DocumentError
from llmcap.specs.model import Model
from llmcap.specs.registry import load_as

# DeepSeek-V3 keeps 512 + 64 numbers in each of 61 layers: 35,136 bytes a token in fp8. A DGX H200 has 2 TB of DRAM and
# 8 x 3.84 TB of drives.
LATENT = {"model": "deepseek-v3", "hardware": "dgx-h200", "context": 100_000, "output_tokens": 1, "kv_dtype": "fp8"}


def tier(name: str, **options: Any) -> dict[str, Any]:
    answer = llmcap.estimate(**options)
    return next(row for row in answer.tiers if row["tier"] == name)


def copies(model: str, tp: int, *, once: bool) -> float:
    structure = structure_of(load_as(Model, "model", model).document)
    return float(copies_kept(structure, 1000.0, "fp8", tp, latent_once=once))


@pytest.mark.parametrize(
    ("model", "tp", "once", "expected"),
    [
        ("llama-3.1-70b", 8, True, 1.0),  # a KV head for each rank
        ("llama-3.1-70b", 16, True, 2.0),  # 8 KV heads on 16 ranks: each rank stores its own
        ("qwen3-235b-a22b", 8, True, 2.0),  # 4 KV heads on 8 ranks
        ("falcon-7b", 8, True, 8.0),  # one KV head is a head, no latent: no connector stores it once
        ("deepseek-v3", 8, True, 1.0),
        ("deepseek-v3", 8, False, 8.0),
        ("deepseek-v3.2", 4, False, 4.0),  # index keys are copied as the latent is
        ("deepseek-v3", 1, False, 1.0),
    ],
)
def test_copies(model: str, tp: int, once: bool, expected: float) -> None:
    assert copies(model, tp, once=once) == pytest.approx(expected)


def test_a_hybrid_stores_its_states_once_and_its_latents_by_the_connector() -> None:
    # Kimi Linear, 1,000 tokens: 7 latent layers of 576 numbers, 20 layers with 32 states of 128 x 128 in fp32 and a
    # convolution of 3 x 3 x 4,096 bf16. In fp8 the latents take 7 x 576,000 = 4,032,000 bytes, the states
    # 20 x (32 x 128 x 128 x 4 + 3 x 12,288 x 2) = 43,417,600; with 8 copies of the former 75,673,600 of 47,449,600.
    assert copies("kimi-linear-48b", 8, once=False) == pytest.approx(75_673_600 / 47_449_600)
    assert copies("kimi-linear-48b", 8, once=True) == 1.0


def test_connectors_hold_latents_once_or_per_rank() -> None:
    # 100,001 tokens are 3.5136 GB: 2 TB hold 569 of them, or 71 with 8 copies; 30.72 TB hold 8,743.
    assert tier("dram", engine="vllm", **LATENT)["users_held"] == 569
    assert tier("dram", engine="sglang", **LATENT)["users_held"] == 71
    assert tier("nvme", engine="sglang", **LATENT)["users_held"] == 8743


def test_drives_are_read_once_or_by_every_rank() -> None:
    # Eight drives bring 8 x 6.9 x 0.9 = 49.68 GB/s. vLLM: one rank reads and passes on, bounded by a device's link,
    # 2 MB in 3.15 us + 2 MB / (0.805 x 64 GB/s). SGLang: eight ranks read the same bytes from the same drives.
    once, each = (tier("nvme", engine=e, **LATENT) for e in ("vllm", "sglang"))
    assert once["effective_read_bytes_per_s"] == pytest.approx(2e6 / (3.15e-6 + 2e6 / 51.52e9))
    assert each["effective_read_bytes_per_s"] == pytest.approx(49.68e9 / 8.0)
    assert each["read_bytes_per_s"] == once["read_bytes_per_s"]  # the drives' own rate is what it is


def test_host_memory_is_read_by_every_rank_over_its_own_link() -> None:
    # 0.85 x 614.4 GB/s for 8 readers are 65 GB/s; each rank's worker moves 44.7 GB/s, which is less.
    assert tier("dram", engine="vllm", **LATENT)["effective_read_bytes_per_s"] == pytest.approx(44.7e9)


def test_copied_heads_take_room_whatever_the_connector() -> None:
    # 2 x 4 x 128 x 94 layers = 96,256 bytes a token and twice that on 8 ranks: 2 TB / (192,512 x 100,001) = 103.
    options = LATENT | {"model": "qwen3-235b-a22b"}
    assert tier("dram", engine="vllm", **options)["users_held"] == 103
    assert tier("dram", engine="sglang", **options)["users_held"] == 103


def test_the_ideal_keeps_and_reads_once() -> None:
    found = tier("nvme", engine="sglang", assumptions="ideal", **LATENT)
    assert found["users_held"] == 8743
    assert found["effective_read_bytes_per_s"] == pytest.approx(found["read_bytes_per_s"])


def test_writes_count_the_copies() -> None:
    rows = {
        engine: tier_table(
            model="deepseek-v3", hardware="dgx-h200", context="100k", kv_dtype="fp8", engine=engine, arrivals="0.1/s"
        ).rows
        for engine in ("vllm", "sglang")
    }
    once, each = (next(r for r in rows[e] if r["tier"] == "dram") for e in ("vllm", "sglang"))
    assert each["written_bytes_per_s"] == pytest.approx(8.0 * once["written_bytes_per_s"])


def test_the_answer_says_who_keeps_what() -> None:
    said = {s["name"]: s["text"] for s in llmcap.estimate(engine="sglang", **LATENT).to_dict()["assumptions"]}
    assert "Of a latent SGLang keeps one copy in nvme and 8 in dram." in said["KV copies"]


def test_kept_per_rank_and_read_once_is_refused(tmp_path: Path) -> None:
    source = Path(llmcap.__file__).parents[1] / "engines" / "vllm.yaml"
    text = source.read_text(encoding="utf-8").replace("latent_kept: once", "latent_kept: per rank", 2)
    wrong = tmp_path / "mine.yaml"
    wrong.write_text(text.replace("id: vllm", "id: mine"), encoding="utf-8")
    with pytest.raises(DocumentError, match="kept per rank is read per rank"):
        llmcap.estimate(engine=str(wrong), **LATENT)
