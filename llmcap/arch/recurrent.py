"""Layers with a constant state: gated delta, Kimi delta, lightning, Mamba, short convolutions.

State sizes follow vLLM's `model_executor/layers/mamba/mamba_utils.py` shapes. FLOP per token and state element: 1 for
the decay, 2 for each of the state-key product, the outer-product update and the state-query product, as far as a layer
has them; a convolution of K taps takes 2 K per channel. Widths and counts come from the model document, `hidden` is the
model's width.
"""

from __future__ import annotations

from llmcap.arch.parts import LayerPart, Matrix, ScanWork, StateTerm
from llmcap.specs.model import GatedDelta, KimiDelta, Lightning, LinearMixer, Mamba1, Mamba2, ShortConv


def gated_delta_part(name: str, a: GatedDelta, hidden: int) -> LayerPart:
    """Gated DeltaNet (Qwen3-Next; S. Yang et al., arXiv:2412.06464): q, k of key heads, the rest of value heads.

    v, gate, beta and decay; decay and all three products, 7 FLOP per state element.

    Examples
    --------
    32 value heads of 128 with keys of 128: 524,288 state elements, 2 MiB in fp32 for each layer and sequence.
    """
    key, value = a.key_heads * a.key_dim, a.value_heads * a.value_dim
    conv = 2 * key + value
    state = a.value_heads * a.value_dim * a.key_dim
    matrices = (
        Matrix(
            "in_proj",
            hidden,
            ((2 * key, a.key_heads), (2 * (value + a.value_heads), a.value_heads)),
            "attention",
        ),
        Matrix("out_proj", value, ((hidden, 0),), "attention", "row", a.value_heads),
    )
    return LayerPart(
        name, "gated_delta", matrices,
        vectors=conv * a.conv_kernel + 2 * a.value_heads + a.value_dim,
        states=(
            StateTerm("gated_delta", state, "recurrent", a.value_heads, constant=True),
            StateTerm("gated_delta", conv * (a.conv_kernel - 1), "conv", a.key_heads, constant=True),
        ),
        scans=(ScanWork("gated_delta", 7.0 * state + 2.0 * a.conv_kernel * conv, state, a.value_heads),),
        elementwise=2 * conv + 2 * value,
    )  # fmt: skip


def kimi_delta_part(name: str, a: KimiDelta, hidden: int) -> LayerPart:
    """KDA (Kimi Linear, arXiv:2510.26692): q, k, v of all heads, low-rank decay and output gates, one beta per head.

    One decay per channel; 8 FLOP per state element are counted.
    """
    width = a.heads * a.head_dim
    rank = a.gate_rank or a.head_dim
    state = a.heads * a.head_dim * a.head_dim
    matrices = (
        Matrix("in_proj", hidden, ((3 * width, a.heads), (a.heads, a.heads)), "attention"),
        Matrix("gate_down", hidden, ((2 * rank, 1),), "attention", "none"),
        Matrix("gate_up", rank, ((2 * width, a.heads),), "attention"),
        Matrix("out_proj", width, ((hidden, 0),), "attention", "row", a.heads),
    )
    return LayerPart(
        name, "kda", matrices,
        vectors=3 * width * a.conv_kernel + a.heads + width + a.head_dim,
        states=(
            StateTerm("kda", state, "recurrent", a.heads, constant=True),
            StateTerm("kda", 3 * width * (a.conv_kernel - 1), "conv", a.heads, constant=True),
        ),
        scans=(ScanWork("kda", 8.0 * state + 6.0 * a.conv_kernel * width, state, a.heads),),
        elementwise=8 * width,
    )  # fmt: skip


def lightning_part(name: str, a: Lightning, hidden: int) -> LayerPart:
    """Lightning attention (Z. Qin et al., arXiv:2401.04658; MiniMax-01): q, k, v, an output gate, a matrix per head.

    No state-key product: 5 FLOP per state element.
    """
    width = a.heads * a.head_dim
    state = a.heads * a.head_dim * a.head_dim
    matrices = (
        Matrix("in_proj", hidden, ((4 * width, a.heads),), "attention"),
        Matrix("out_proj", width, ((hidden, 0),), "attention", "row", a.heads),
    )
    return LayerPart(
        name, "lightning", matrices, vectors=width,
        states=(StateTerm("lightning", state, "recurrent", a.heads, constant=True),),
        scans=(ScanWork("lightning", 5.0 * state, state, a.heads),),
        elementwise=6 * width,
    )  # fmt: skip


def mamba2_part(name: str, a: Mamba2, hidden: int) -> LayerPart:
    """Mamba-2 (T. Dao, A. Gu, arXiv:2405.21060): in_proj to z, x, B, C and dt; scan of about 6 H P N FLOP per token."""
    inner = a.heads * a.head_dim
    conv = inner + 2 * a.groups * a.state
    state = a.heads * a.head_dim * a.state
    matrices = (
        Matrix(
            "in_proj", hidden,
            ((2 * inner, a.heads), (2 * a.groups * a.state, a.groups), (a.heads, a.heads)), "attention",
        ),
        Matrix("out_proj", inner, ((hidden, 0),), "attention", "row", a.heads),
    )  # fmt: skip
    return LayerPart(
        name, "mamba2", matrices,
        vectors=conv * (a.conv_kernel + 1) + 3 * a.heads + inner,
        states=(
            StateTerm("mamba2", state, "recurrent", a.heads, constant=True),
            # x divides by heads, B and C by groups, which are copied when there are fewer than devices.
            StateTerm("mamba2", inner * (a.conv_kernel - 1), "conv", a.heads, constant=True),
            StateTerm("mamba2", (conv - inner) * (a.conv_kernel - 1), "conv", a.groups, constant=True),
        ),
        scans=(ScanWork("mamba2", 6.0 * state + 2.0 * a.conv_kernel * conv, state, a.heads),),
        elementwise=2 * conv + 4 * inner,
    )  # fmt: skip


def mamba1_part(name: str, a: Mamba1, hidden: int) -> LayerPart:
    """Mamba (A. Gu, T. Dao, arXiv:2312.00752): in_proj to x and z, x_proj to dt, B and C, dt_proj back."""
    state = a.inner * a.state
    matrices = (
        Matrix("in_proj", hidden, ((2 * a.inner, 0),), "attention"),
        Matrix("x_proj", a.inner, ((a.dt_rank + 2 * a.state, 1),), "attention", "row"),
        Matrix("dt_proj", a.dt_rank, ((a.inner, 0),), "attention"),
        Matrix("out_proj", a.inner, ((hidden, 0),), "attention", "row"),
    )
    vectors = a.inner * (a.conv_kernel + 1) + a.inner * a.state + 2 * a.inner
    if a.dt_bc_norm:
        vectors += a.dt_rank + 2 * a.state
    return LayerPart(
        name, "mamba1", matrices, vectors=vectors,
        states=(
            StateTerm("mamba1", state, "recurrent", a.inner, constant=True),
            StateTerm("mamba1", a.inner * (a.conv_kernel - 1), "conv", a.inner, constant=True),
        ),
        scans=(ScanWork("mamba1", 7.0 * state + 2.0 * a.conv_kernel * a.inner, state, a.inner),),
        elementwise=6 * a.inner,
    )  # fmt: skip


def short_conv_part(name: str, a: ShortConv, hidden: int) -> LayerPart:
    """LFM2's double-gated short convolution, as in transformers `modeling_lfm2.py`: it keeps kernel - 1 inputs."""
    matrices = (
        Matrix("in_proj", hidden, ((3 * hidden, 0),), "attention"),
        Matrix("out_proj", hidden, ((hidden, 0),), "attention", "row"),
    )
    return LayerPart(
        name, "short_conv", matrices, vectors=hidden * a.kernel,
        states=(StateTerm("short_conv", hidden * (a.kernel - 1), "conv", hidden, constant=True),),
        elementwise=8 * hidden,
    )  # fmt: skip


def linear_part(name: str, a: LinearMixer, hidden: int) -> LayerPart:
    """A linear map in the mixer's place: no state."""
    del a
    return LayerPart(name, "linear", (Matrix("linear", hidden, ((hidden, 0),), "attention"),), elementwise=2 * hidden)
