# SPDX-License-Identifier: MIT
"""Small random models of published families in many shapes, as classes of transformers 5.23.0 make them."""
import torch
from transformers import AutoModelForCausalLM
from transformers import (BambaConfig, FalconH1Config, GraniteMoeHybridConfig, Lfm2Config, NemotronHConfig, Qwen3_5TextConfig)

SIZES = dict(vocab_size=128, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=512)
MAMBA = dict(mamba_d_state=16, mamba_d_head=16, mamba_n_heads=8, mamba_expand=2)
KINDS = ["linear_attention", "full_attention", "linear_attention", "linear_attention"]


def granite():
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(position_embedding_type="rope")), (4, 1, dict(tie_word_embeddings=True)),
                                 (8, 2, dict(mamba_conv_bias=False, head_dim=24)), (1, 4, dict(layer_types=None)),
                                 (2, 2, dict(time_step_limit=(0.01, 0.2)))):
        yield GraniteMoeHybridConfig(**{**SIZES, **MAMBA, "num_key_value_heads": keys, "mamba_n_groups": groups, "num_local_experts": 0,
                                        "num_experts_per_tok": 0, "shared_intermediate_size": 80, "intermediate_size": 80, "layer_types": KINDS, "embedding_multiplier": 3.0,
                                        "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.1, **change})


def bamba():
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(tie_word_embeddings=True)), (4, 1, dict(mamba_conv_bias=False)),
                                 (2, 2, dict(attn_layer_indices=[0, 1, 2, 3]))):
        yield BambaConfig(**{**SIZES, **MAMBA, "num_key_value_heads": keys, "mamba_n_groups": groups, "intermediate_size": 80,
                             "attn_layer_indices": [1, 3], "pad_token_id": None, **change})


def nemotron():
    words = ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention", "full_attention"]
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(head_dim=24)), (4, 1, dict(use_conv_bias=False)), (8, 2, dict(intermediate_size=96)),
                                 (2, 2, dict(layers_block_type=["linear_attention"] * 3))):
        yield NemotronHConfig(**{"vocab_size": 128, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": keys, "head_dim": 16,
                                 "intermediate_size": 80, "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 12, "n_groups": groups,
                                 "layers_block_type": words, "time_step_min": 1e-30, **change})


def qwen():
    for key_heads, value_heads, change in ((2, 4, {}), (1, 3, dict(tie_word_embeddings=True)), (2, 2, {}), (2, 6, dict(linear_value_head_dim=24)),
                                           (4, 4, dict(layer_types=["full_attention", "linear_attention"] * 2))):
        yield Qwen3_5TextConfig(**{**SIZES, "num_key_value_heads": 2, "intermediate_size": 80, "head_dim": 32, "linear_num_key_heads": key_heads,
                                   "linear_num_value_heads": value_heads, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
                                   "layer_types": KINDS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25,
                                                                             "mrope_section": [2, 1, 1], "mrope_interleaved": True}, **change})


def falcon():
    for groups, keys, change in ((1, 2, {}), (2, 4, dict(mamba_rms_norm=True, mamba_norm_before_gate=False)), (2, 1, dict(mamba_rms_norm=True)),
                                 (1, 2, dict(tie_word_embeddings=True)), (3, 2, dict(mamba_conv_bias=False, head_dim=24))):
        yield FalconH1Config(**{**SIZES, "mamba_d_ssm": 96, "mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": groups,
                                "num_key_value_heads": keys, "intermediate_size": 80, "pad_token_id": None, "embedding_multiplier": 3.5,
                                "lm_head_multiplier": 0.3, "attention_in_multiplier": 1.2, "attention_out_multiplier": 0.9, "key_multiplier": 0.4,
                                "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.25, "ssm_multipliers": [0.35, 0.25, 0.4, 0.5, 0.3],
                                "mlp_multipliers": [0.9, 0.6], **change})


def lfm2():
    for keys, change in ((2, {}), (1, dict(tie_word_embeddings=False)), (4, dict(conv_L_cache=4)), (2, dict(block_auto_adjust_ff_dim=True, block_multiple_of=16))):
        yield Lfm2Config(**{**SIZES, "num_key_value_heads": keys, "intermediate_size": 96, "block_auto_adjust_ff_dim": False,
                            "layer_types": ["conv", "full_attention", "conv", "full_attention"], "pad_token_id": None, **change})


FAMILIES = dict(granite=granite, bamba=bamba, nemotron=nemotron, qwen=qwen, falcon=falcon, lfm2=lfm2)


def random_model(config, seed):
    """Every tensor random: class defaults of A_log, D and norms are constants, where a mistake would not show."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for name, p in model.named_parameters():
        last = name.split(".")[-1]
        with torch.no_grad():
            if last == "A_log":
                p.uniform_(-1, 2)
            elif last == "dt_bias":
                p.uniform_(-4, -1)
            elif p.dim() == 1:
                p.normal_(0.0 if "conv" in name else 1.0, 0.2)
            else:
                p.normal_(0.0, 0.5 if "conv" in name else p.shape[-1] ** -0.5)
    return model
