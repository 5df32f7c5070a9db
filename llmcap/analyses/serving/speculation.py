"""Speculative decoding: a draft proposes tokens, one step of the model verifies them together.

The draft is one layer like the model's last with its head: a multi-token-prediction layer (DeepSeek, GLM) is that, and
EAGLE's draft heads are of the same size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import StepModel
from llmcap.arch.operators import Gemm, operator_table
from llmcap.arch.parameters import weight_bytes_per_device
from llmcap.arch.structure import Structure
from llmcap.engine import serving
from llmcap.engine.cost import Cost, Value
from llmcap.records import dataclass

OWN: Final = "mtp"
"""Key of `parameters_apart` under which a model counts prediction layers of its own."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft of a setting, and how many of its tokens are accepted."""

    steps: StepModel
    memory: MemoryModel
    weights_per_device: float
    """Beside the model's own. [B]"""
    tokens: int
    acceptance: float

    @classmethod
    def of(cls, setting: Setting) -> Draft:
        """The draft that a setting's options ask for."""
        options = setting.options
        assert options.draft_tokens is not None and options.acceptance is not None  # options_from saw to it
        drafting = _drafting(setting)
        # Embedding and head are the model's own.
        own = replace(drafting.structure, vocab=0, position_parameters=0, other_parameters=0)
        weights = weight_bytes_per_device(own, setting.weights, setting.parallelism)
        return cls(StepModel(drafting), MemoryModel.of(drafting), weights, options.draft_tokens, options.acceptance)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a verifying step yields on average."""
        return float(serving.tokens_per_step(self.acceptance, self.tokens))

    def decode(self, model: StepModel, each: Value, context: Value, output: Value) -> Cost:
        """Mean cost per token: one verifying step and its drafting steps, over the tokens they yield.

        Parameters
        ----------
        model : StepModel
            Of the model that verifies.
        each : float or ndarray
            Sequences of a replica.
        context, output : float or ndarray
            [tokens]
        """
        setting = model.setting
        each, context = np.asarray(each, dtype=np.float64), np.asarray(context, dtype=np.float64)
        after = np.maximum(np.asarray(output, dtype=np.float64) - 1.0, 1.0)
        m = np.maximum(each / setting.parallelism.pp, 1.0)
        rows = self.tokens + 1
        verify = model.tokens(m * rows, m, "decode") + model.embedding(m * rows, 1.0) + model.logits(m * rows)
        for op in setting.operators.attention:
            verify = verify + model.decode_attention(op, m, context, after, queries=rows)
        step = verify * setting.assumptions.scales.decode + self.steps.decode(each, context, output) * self.tokens
        return step * (1.0 / self.tokens_per_step)


def has_own_layer(setting: Setting) -> bool:
    """Whether the model comes with prediction layers."""
    return OWN in setting.model.parameters_apart


def _drafting(setting: Setting) -> Setting:
    """The setting with a single layer, whose steps run inside those of the model: no host time of their own."""
    one = _last_layer(setting)
    table = operator_table(
        one, setting.weights, setting.activation_dtype, setting.kv_dtype, setting.attention_dtype, setting.parallelism,
        [d for d in ("fp32", "bf16", "fp16") if setting.machine.has_peak(d)],
    )  # fmt: skip
    # The last hidden state and the last token's embedding, side by side, come down to one width.
    width = float(one.hidden)
    like = table.head
    projection = Gemm(
        "draft.projection", 1, 2.0 * width, width / setting.parallelism.tp, like.weight_dtype, like.compute_dtype,
        like.weight_bytes / (like.k * like.n) * 2.0 * width * width / setting.parallelism.tp,
        like.bytes_per_row / (like.k + like.n) * (2.0 * width + width / setting.parallelism.tp),
    )  # fmt: skip
    quiet = setting.engine.decode.model_copy(update={"step": 0.0, "sequence": 0.0})
    return replace(
        setting, structure=one, operators=replace(table, gemms=(*table.gemms, projection)),
        engine=setting.engine.model_copy(update={"decode": quiet}),
    )  # fmt: skip


def _last_layer(setting: Setting) -> Structure:
    """The structure of one layer: the last that mixes tokens, with the last feed-forward block."""
    layers = list(setting.model.layer_sequence())
    mixer = next(layer.mixers[-1] for layer in reversed(layers) if layer.mixers)
    ffn = next((layer.ffns[-1] for layer in reversed(layers) if layer.ffns), None)
    whole = setting.structure
    mixers = tuple((part, 1) for part, _ in whole.mixers if part.name == mixer)
    ffns = tuple((part, 1) for part, _ in whole.ffns if part.name == ffn)
    return replace(whole, mixers=mixers, ffns=ffns, layers=1, norm_elements=3 * whole.hidden)
