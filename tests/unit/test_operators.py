"""The operator table of Llama 4 Maverick and its parallel layouts, counted by hand from the published shapes.

Hidden 5,120; 40 query and 8 KV heads of 128; dense width 16,384; experts and shared expert 8,192; 128 experts, one per
token; vocabulary 202,048; 12 global and 36 chunked layers; 24 dense and 24 expert layers.
"""

from __future__ import annotations

import pytest

from llmcap.arch.operators import OperatorTable, compute_dtype, operator_table
from llmcap.arch.parameters import WeightDtypes
from llmcap.arch.structure import Parallelism, structure_of
from llmcap.specs.model import Model
from llmcap.specs.registry import load_as

H = 5120
FP8 = WeightDtypes("fp8", (("embedding", "bf16"), ("lm_head", "bf16"), ("norm", "bf16"), ("router", "bf16")))


def table(p: Parallelism, *, model: str = "llama-4-maverick", kv: str = "fp8") -> OperatorTable:
    structure = structure_of(load_as(Model, "model", model).document)
    return operator_table(structure, FP8, "fp8", kv, "fp8", p)


def gemms(t: OperatorTable) -> dict[str, tuple[int, float, float, str]]:
    return {g.name: (g.layers, g.k, g.n, g.compute_dtype) for g in t.gemms}


def test_matrices_on_one_device() -> None:
    found = gemms(table(Parallelism()))
    # q, k and v side by side: (40 + 8 + 8) x 128 = 7,168 outputs.
    assert found["global.qkv_proj"] == (12, H, 7168, "fp8")
    assert found["chunked.qkv_proj"] == (36, H, 7168, "fp8")
    assert found["global.o_proj"] == (12, 5120, H, "fp8")
    assert found["dense.up"] == (24, H, 2 * 16384, "fp8")
    assert found["dense.down"] == (24, 16384, H, "fp8")
    assert found["moe.shared_up"] == (24, H, 2 * 8192, "fp8")
    # The router stays in bf16 and is multiplied in it.
    assert found["moe.router"] == (24, H, 128, "bf16")


def test_matrices_on_one_of_eight() -> None:
    found = gemms(table(Parallelism(tp=8)))
    # 5 query heads and one K and one V head: 7 x 128 = 896.
    assert found["global.qkv_proj"][1:3] == (H, 896)
    assert found["global.o_proj"][1:3] == (640, H)
    assert found["dense.up"][1:3] == (H, 4096)
    assert found["dense.down"][1:3] == (2048, H)
    assert found["moe.router"][1:3] == (H, 128)  # every device routes all of its tokens


def test_matrix_parameters_per_token_are_those_of_the_architecture() -> None:
    """15.115 B per prefill token in Maverick, 15.103 B in Scout: embedding and lm_head left out."""
    for model, billions in (("llama-4-maverick", 15.115), ("llama-4-scout", 15.103)):
        t = table(Parallelism(), model=model)
        plain = sum(g.layers * g.k * g.n for g in t.gemms)
        routed = sum(e.layers * e.work.active_per_token * e.work.parameters_per_expert for e in t.experts)
        assert (plain + routed) / 1e9 == pytest.approx(billions, abs=5e-4)


def test_kv_heads_are_copied_beyond_their_number() -> None:
    # 40 query heads on 40 devices, 8 KV heads: each device holds one whole K and V head.
    found = table(Parallelism(tp=40))
    assert gemms(found)["global.qkv_proj"][1:3] == (H, 3 * 128)
    assert found.attention[0].slot_bytes == 2 * 128


def test_bytes_of_attended_tokens() -> None:
    # One token of one layer: 2 x 8 x 128 elements; fp8 one byte, bf16 two, NVFP4 0.5625; an eighth of it under TP8.
    for kv, width in (("fp8", 1.0), ("bf16", 2.0), ("nvfp4", 0.5625)):
        assert table(Parallelism(), kv=kv).attention[0].slot_bytes == 2048 * width
        assert table(Parallelism(tp=8), kv=kv).attention[0].slot_bytes == 256 * width


def test_experts() -> None:
    whole = table(Parallelism()).experts[0]
    # 3 x 5,120 x 8,192 parameters, one byte each.
    assert whole.bytes_per_expert == 125_829_120
    assert (whole.layers, whole.pool, whole.share) == (24, 1, 1.0)
    # Expert parallelism over data-parallel ranks pools their tokens.
    spread = table(Parallelism(tp=2, dp=4, ep=8)).experts[0]
    assert (spread.pool, spread.share) == (4, 1 / 8)
    # In and out in bf16: 4 x 5,120; then one of eight devices has 1/8 of the rows: 5,120 x (2 + 4) + 8,192 x (4 + 2).
    assert spread.bytes_per_row == 4 * H + (H * 6 + 8192 * 6) / 8


@pytest.mark.parametrize(
    ("layout", "group", "slices", "pool"),
    [
        # tp, dp, ep -> devices that share one set of experts, slices of each expert, ranks whose tokens meet.
        ((8, 1, 1), 8, 8, 1),
        ((8, 1, 2), 8, 4, 1),
        ((8, 1, 8), 8, 1, 1),
        ((2, 4, 8), 8, 1, 4),
        ((2, 4, 4), 4, 1, 2),
        ((4, 2, 2), 4, 2, 1),
        ((1, 8, 8), 8, 1, 8),
        ((8, 2, 16), 16, 1, 2),
    ],
)
def test_expert_groups(layout: tuple[int, int, int], group: int, slices: int, pool: int) -> None:
    tp, dp, ep = layout
    p = Parallelism(tp=tp, dp=dp, ep=ep)
    assert (p.expert_group, p.expert_slices, p.expert_pool) == (group, slices, pool)
    # ep sets of slices fill the group, and the group fits the devices that share it.
    assert ep * slices == group
    assert (tp * dp) % group == 0


def test_messages() -> None:
    def found(p: Parallelism) -> dict[str, tuple[float, int, float]]:
        return {x.name: (x.count, x.ranks, x.bytes_per_token) for x in table(p).exchanges}

    assert found(Parallelism()) == {}
    # After each of 48 mixers and 48 feed-forward blocks and after the embedding: 97 sums of 5,120 x 2 bytes.
    assert found(Parallelism(tp=8)) == {"all-reduce": (97.0, 8, 10240.0)}
    # Experts over data-parallel ranks: all-to-all replaces the 24 sums; a rank sends its half of the token's row.
    spread = found(Parallelism(tp=2, dp=4, ep=8))
    assert spread["all-reduce"] == (73.0, 2, 10240.0)
    assert spread["moe.dispatch"] == (24.0, 8, 2560.0)
    assert spread["moe.combine"] == (24.0, 8, 5120.0)
    assert found(Parallelism(pp=4))["stage hand-over"] == (3.0, 2, 10240.0)


def test_wide_weights_run_wide_and_narrow_ones_as_the_activations() -> None:
    assert compute_dtype("bf16", "fp8") == "bf16"
    assert compute_dtype("fp8", "bf16") == "bf16"
    assert compute_dtype("int4", "fp8") == "fp8"
