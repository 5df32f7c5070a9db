"""Parameters of multi-token prediction layers, which are counted apart from the text model."""

from __future__ import annotations

from llmcap.specs.huggingface.config import Config
from llmcap.specs.huggingface.draft import Draft, Part


def count_apart(c: Config, d: Draft) -> None:
    """Count the layers of num_nextn_predict_layers: each a copy of the last layer, a projection and three norms.

    The projection joins two hidden vectors to one; embedding and head are shared with the model.
    """
    number = c.optional("num_nextn_predict_layers", minimum=0, most=100) or 0
    c.skip("index_share_for_mtp_iteration", "mtp_num_layers", "mtp_share_layers")
    if not number or not d.layers:
        return
    mixers, ffns = d.layers[-1]
    if len(mixers) != 1 or len(ffns) != 1:
        return
    mixer, ffn = d.mixers[mixers[0]], d.ffns[ffns[0]]
    if mixer["kind"] not in ("attention", "mla") or ffn["kind"] not in ("dense", "moe"):
        return
    layer = (_latent if mixer["kind"] == "mla" else _attention)(mixer, d.hidden)
    layer += (_experts if ffn["kind"] == "moe" else _dense)(ffn, d.hidden) + 2 * d.hidden
    d.apart["mtp"] = number * (layer + 2 * d.hidden**2 + 3 * d.hidden)


def _attention(m: Part, hidden: int) -> int:
    width, kv = m["head_dim"], m["kv_heads"]
    value = m.get("v_head_dim", width)
    total = hidden * (m["heads"] * (width + value) + kv * (width + value))
    total += m["heads"] * width + kv * (width + value) if m.get("qkv_bias") else 0
    return int(total + (2 * width if m.get("qk_norm") == "head" else 0))


def _latent(m: Part, hidden: int) -> int:
    q_in = m.get("q_lora_rank", 0)
    query = m["heads"] * (m["qk_nope_head_dim"] + m["qk_rope_head_dim"])
    latent = m["kv_lora_rank"] + m["qk_rope_head_dim"]
    total = hidden * (q_in + latent) + (q_in or hidden) * query + q_in + int(m["kv_lora_rank"])
    total += m["kv_lora_rank"] * m["heads"] * (m["qk_nope_head_dim"] + m["v_head_dim"])
    total += m["heads"] * m["v_head_dim"] * hidden
    if index := m.get("indexer"):
        total += index["heads"] * index["head_dim"] * (q_in or hidden) + hidden * (index["head_dim"] + index["heads"])
        total += 2 * index["head_dim"]
    return int(total)


def _experts(f: Part, hidden: int) -> int:
    matrices = 3 if f.get("gated", True) else 2
    total = matrices * hidden * (f["experts"] * f["intermediate"] + f.get("shared_intermediate", 0))
    return int(total + hidden * f["experts"] + (f["experts"] if f.get("router_bias") else 0))


def _dense(f: Part, hidden: int) -> int:
    return int((3 if f.get("gated", True) else 2) * hidden * f["intermediate"])
