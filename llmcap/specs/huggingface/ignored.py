"""Keys of config.json that may stay unread, and keys that must not."""

from __future__ import annotations

import re
from typing import Final

# Keys that change neither what is stored nor what is multiplied: training, initialisation, sampling, token ids,
# rotary tables, activation names, scalars inside an activation or a router's score, choices of kernels.
_WORDS: Final = """
activation_sparsity_pattern altup_active_idx altup_coef_clip architectures attention_in_multiplier
attention_multiplier attention_out_multiplier attention_output_multiplier attention_softmax_in_fp32
attention_value_scale attn_implementation attn_logit_softcap attn_logit_softcapping attn_scale
attn_softmax_in_fp32 attn_temperature_tuning attn_type auto_map aux_loss_alpha bad_words_ids
begin_suppress_tokens cache_implementation chunk_size chunk_size_feed_forward classifier_dropout clip_qkv
compress_rope_theta cross_attention_hidden_size diversity_penalty do_sample dtype early_stopping
embedding_multiplier encoder_no_repeat_ngram_size ep_size expert_selection_fn
exponential_decay_length_penalty final_logit_softcapping finetuning_task flash_attn floor_scale hc_eps
hc_sinkhorn_iters id2label indexer_rope_interleave init_config init_std initial_context_length
initializer_range interleaved_sliding_window is_decoder key_multiplier label2id layer_switch layernorm_type
length_penalty lm_head_multiplier logit_scale logits_scaling logits_to_keep mamba_chunk_size
mamba_hidden_act mamba_norm_before_gate mamba_rms_norm mamba_use_mlp max_length min_length mlp_matrices
mlp_multipliers model_type moe_apply_router_weight_on_input moe_norm_min moe_renormalize
moe_routed_scaling_factor moe_router_activation_func moe_router_logit_softcapping moe_router_pre_softmax
moe_shared_expert_overlap mtp_use_dedicated_embeddings n_group name_or_path no_repeat_ngram_size
no_rope_layer_interval no_rope_layers nope_layer_interval norm_topk_prob norm_type num_beam_groups num_beams
num_expert_group num_labels num_logits_to_keep num_return_sequences order_of_interleaved_layers
original_max_position_embeddings output_attentions output_hidden_states output_router_logits output_scores
output_vocab_size partial_rotary_factor prefix pretraining_tp problem_type pruned_heads
query_pre_attn_scalar remove_invalid_values reorder_and_upcast_attn repetition_penalty
rescale_prenorm_residual residual_in_fp32 residual_multiplier return_dict return_dict_in_generate rotary_dim
rotary_pct routed_scaling_factor router_jitter_noise scale_attn_by_inverse_layer_idx scale_attn_weights
scoring_func seq_aux shared_expert_combination_strategy shared_moe_mode ssm_in_multiplier ssm_multipliers
ssm_out_multiplier summary_type summary_use_proj suppress_tokens swiglu_alpha swiglu_limit
task_specific_params temperature temperature_tuning tf_legacy_loss tie_encoder_decoder time_step_rank
tokenizer_class top_k top_p topk_group topk_method torch_dtype torchscript transformer_block_type
transformers_version typical_p use_bfloat16 use_bidirectional_attention use_cache use_flash_attention
use_flash_attn use_gated_activation use_grouped_mm use_mamba_kernels use_mrope use_parallel_block
use_parallel_embedding use_sdpa zero_expert_type
"""
IGNORED: Final = frozenset(_WORDS.split())
IGNORED_PATTERN: Final = re.compile(
    r"^_|dropout|pdrop|dropatt|rope|loss|jitter|decoder_start|^forced_|^time_step_"
    r"|(^|_)(ln|layernorm|layer_norm|norm|rmsnorm)_?(eps|epsilon)$"
    r"|_token_(id|index)s?$|^(pad|eos|bos|sep|image|video|ignore)_(token_)?(id|index)$"
    r"|_coe?ff?(icient)?$|_act(ivation)?(_func(tion)?)?$|^(act|activation|activation_func(tion)?)$"
)
#: Keys of the vision, audio and projector parts around a text model.
VISION_PATTERN: Final = re.compile(
    r"vision|visual|image|video|audio|speech|media|^mm_|projector|spatial_|_patch|patch_|^bo[ai]_|^eo[ai]_",
    re.IGNORECASE,
)
#: Names that speak of state or compute: such a key must be understood.
SUSPICIOUS: Final = re.compile(
    r"attn|attention|window|kv|cache|sparse|index|chunk|head|expert|layer|rank|conv|ssm|mamba|moe|state|block"
    r"|share|latent|ngram|memory",
    re.IGNORECASE,
)
