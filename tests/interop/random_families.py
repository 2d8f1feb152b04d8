# SPDX-License-Identifier: MIT
"""Random weights in the shapes of published hybrid models, as directories in the form in which they are published: for
measuring speed and RAM where the real ones cannot be downloaded.

    pip install numpy
    python3 random_families.py qwen3.5-0.8b DIR [--layers 4] [--dtype bf16|f16|f32] [--shards 2] [--vocab 4096]

Nothing is held in RAM but one tensor. --layers and --vocab cut a shape to a piece of it.
"""
import argparse
import json
import pathlib
import struct

import numpy

PATTERN = "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-"


def qwen(hidden, layers, mlp, heads, key_heads, value_heads, tied=True):
    kinds = [("full_attention" if (i + 1) % 4 == 0 else "linear_attention") for i in range(layers)]
    text = dict(model_type="qwen3_5_text", hidden_size=hidden, num_hidden_layers=layers, intermediate_size=mlp, num_attention_heads=heads, num_key_value_heads=key_heads,
                head_dim=256, linear_num_key_heads=16, linear_num_value_heads=value_heads, linear_key_head_dim=128, linear_value_head_dim=128,
                linear_conv_kernel_dim=4, layer_types=kinds, vocab_size=248320, rms_norm_eps=1e-6, hidden_act="silu", attention_bias=False,
                tie_word_embeddings=tied, max_position_embeddings=262144, eos_token_id=248044,
                rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10], mrope_interleaved=True))
    return dict(model_type="qwen3_5", architectures=["Qwen3_5ForConditionalGeneration"], tie_word_embeddings=tied, text_config=text)


def granite(hidden, layers, mlp, width, attending, maximum):
    return dict(model_type="granitemoehybrid", architectures=["GraniteMoeHybridForCausalLM"], hidden_size=hidden, num_hidden_layers=layers,
                layer_types=["attention" if i in attending else "mamba" for i in range(layers)], num_attention_heads=12, num_key_value_heads=4,
                position_embedding_type="nope", attention_multiplier=0.015625, embedding_multiplier=12, residual_multiplier=0.246, logits_scaling=3,
                shared_intermediate_size=mlp, intermediate_size=mlp, num_local_experts=0, num_experts_per_tok=0, mamba_n_heads=48, mamba_d_head=width,
                mamba_d_state=128, mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False, rms_norm_eps=1e-5,
                attention_bias=False, hidden_act="silu", vocab_size=100352, tie_word_embeddings=True, max_position_embeddings=maximum, rope_theta=10000)


def falcon(hidden, layers, mlp, width, vocab):
    return dict(model_type="falcon_h1", architectures=["FalconH1ForCausalLM"], hidden_size=hidden, num_hidden_layers=layers, intermediate_size=mlp,
                num_attention_heads=8, num_key_value_heads=2, head_dim=64, mamba_d_ssm=24 * width, mamba_n_heads=24, mamba_d_head=width, mamba_d_state=128,
                mamba_n_groups=1, mamba_d_conv=4, mamba_expand=2, mamba_rms_norm=False, mamba_norm_before_gate=False, mamba_conv_bias=True,
                mamba_proj_bias=False, projectors_bias=False, attention_bias=False, mlp_bias=False, embedding_multiplier=5.656854249492381,
                lm_head_multiplier=0.0390625, attention_in_multiplier=1.0, attention_out_multiplier=0.9375, key_multiplier=0.390625,
                ssm_in_multiplier=1.25, ssm_out_multiplier=0.23570226039551587,
                ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
                mlp_multipliers=[0.8838834764831845, 0.5859375], rope_theta=1e11, rms_norm_eps=1e-5, hidden_act="silu", vocab_size=vocab,
                tie_word_embeddings=False, max_position_embeddings=16384)


SHAPES = {
    "qwen3.5-0.8b": qwen(1024, 24, 3584, 8, 2, 16),
    "qwen3.5-4b": qwen(2560, 32, 9216, 16, 4, 32),
    "nemotron-3-nano-4b": dict(model_type="nemotron_h", architectures=["NemotronHForCausalLM"], hidden_size=3136, num_hidden_layers=42, hybrid_override_pattern=PATTERN,
                               num_attention_heads=40, num_key_value_heads=8, head_dim=128, intermediate_size=12544, mlp_hidden_act="relu2", mamba_num_heads=96,
                               mamba_head_dim=80, ssm_state_size=128, n_groups=8, conv_kernel=4, expand=2, use_conv_bias=True, use_bias=False, mlp_bias=False,
                               attention_bias=False, mamba_proj_bias=False, layer_norm_epsilon=1e-5, residual_in_fp32=False, vocab_size=131072,
                               tie_word_embeddings=False, max_position_embeddings=262144),
    "granite-4.0-h-350m": granite(768, 32, 2048, 32, (10, 13, 17, 27), 32768),
    "granite-4.0-h-1b": granite(1536, 40, 4096, 64, (5, 15, 25, 35), 131072),
    "falcon-h1-0.5b": falcon(1024, 36, 2048, 64, 32784),
    "lfm2.5-1.2b": dict(model_type="lfm2", architectures=["Lfm2ForCausalLM"], hidden_size=2048, num_hidden_layers=16, intermediate_size=12288, block_ff_dim=12288,
                        block_auto_adjust_ff_dim=True, block_multiple_of=256, block_ffn_dim_multiplier=1.0, num_attention_heads=32, num_key_value_heads=8,
                        layer_types=["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)], conv_L_cache=3, conv_bias=False,
                        norm_eps=1e-5, rope_theta=1000000.0, vocab_size=65536, tie_word_embeddings=True, max_position_embeddings=128000),
}


def mamba2(at, hidden, heads, width, state, groups, norm=True):
    """in_proj holds z, x, B, C and dt one above the other."""
    inner, conv = heads * width, heads * width + 2 * groups * state
    yield at + "in_proj.weight", (inner + conv + heads, hidden)
    yield at + "conv1d.weight", (conv, 1, 4)
    yield at + "conv1d.bias", (conv,)
    for name in ("dt_bias", "A_log", "D"):
        yield at + name, (heads,)
    if norm:
        yield at + "norm.weight", (inner,)
    yield at + "out_proj.weight", (hidden, inner)


def attention(at, hidden, heads, key_heads, width, names="qkvo", gate=1):
    out = dict(q=gate * heads * width, k=key_heads * width, v=key_heads * width)
    for x in "qkv":
        yield f"{at}{x}_proj.weight", (out[x], hidden)
    yield f"{at}{names[3:]}_proj.weight", (hidden, heads * width)


def qwen_tensors(c):
    c, top = c["text_config"], "model.language_model."
    D, I = c["hidden_size"], c["intermediate_size"]
    keys, values = c["linear_num_key_heads"] * 128, c["linear_num_value_heads"] * 128
    yield top + "embed_tokens.weight", (c["vocab_size"], D)
    for i, kind in enumerate(c["layer_types"]):
        at = f"{top}layers.{i}."
        yield at + "input_layernorm.weight", (D,)
        yield at + "post_attention_layernorm.weight", (D,)
        if kind == "full_attention":
            yield from attention(at + "self_attn.", D, c["num_attention_heads"], c["num_key_value_heads"], 256, gate=2)
            for x in "qk":
                yield f"{at}self_attn.{x}_norm.weight", (256,)
        else:
            at += "linear_attn."
            yield at + "in_proj_qkv.weight", (2 * keys + values, D)
            yield at + "in_proj_z.weight", (values, D)
            for x in "ab":
                yield f"{at}in_proj_{x}.weight", (values // 128, D)
            yield at + "conv1d.weight", (2 * keys + values, 1, 4)
            for x in ("dt_bias", "A_log"):
                yield at + x, (values // 128,)
            yield at + "norm.weight", (128,)
            yield at + "out_proj.weight", (D, values)
        at = f"{top}layers.{i}.mlp."
        yield at + "gate_proj.weight", (I, D)
        yield at + "up_proj.weight", (I, D)
        yield at + "down_proj.weight", (D, I)
    yield top + "norm.weight", (D,)


def nemotron_tensors(c):
    D, I = c["hidden_size"], c["intermediate_size"]
    yield "backbone.embeddings.weight", (c["vocab_size"], D)
    for i, kind in enumerate(c["hybrid_override_pattern"]):
        at = f"backbone.layers.{i}."
        yield at + "norm.weight", (D,)
        at += "mixer."
        if kind == "M":
            yield from mamba2(at, D, c["mamba_num_heads"], c["mamba_head_dim"], c["ssm_state_size"], c["n_groups"])
        elif kind == "*":
            yield from attention(at, D, c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        else:
            yield at + "up_proj.weight", (I, D)
            yield at + "down_proj.weight", (D, I)
    yield "backbone.norm_f.weight", (D,)
    yield "lm_head.weight", (c["vocab_size"], D)


def granite_tensors(c):
    D, I = c["hidden_size"], c["shared_intermediate_size"]
    yield "model.embed_tokens.weight", (c["vocab_size"], D)
    for i, kind in enumerate(c["layer_types"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (D,)
        yield at + "post_attention_layernorm.weight", (D,)
        if kind == "attention":
            yield from attention(at + "self_attn.", D, c["num_attention_heads"], c["num_key_value_heads"], D // c["num_attention_heads"])
        else:
            yield from mamba2(at + "mamba.", D, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_d_state"], c["mamba_n_groups"])
        yield at + "shared_mlp.input_linear.weight", (2 * I, D)
        yield at + "shared_mlp.output_linear.weight", (D, I)
    yield "model.norm.weight", (D,)


def falcon_tensors(c):
    D, I = c["hidden_size"], c["intermediate_size"]
    yield "model.embed_tokens.weight", (c["vocab_size"], D)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (D,)
        yield at + "pre_ff_layernorm.weight", (D,)
        yield from mamba2(at + "mamba.", D, c["mamba_n_heads"], c["mamba_d_head"], c["mamba_d_state"], c["mamba_n_groups"], norm=False)
        yield from attention(at + "self_attn.", D, c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"])
        yield at + "feed_forward.gate_proj.weight", (I, D)
        yield at + "feed_forward.up_proj.weight", (I, D)
        yield at + "feed_forward.down_proj.weight", (D, I)
    yield "model.final_layernorm.weight", (D,)
    yield "lm_head.weight", (c["vocab_size"], D)


def lfm2_tensors(c):
    D = c["hidden_size"]
    I = (int(2 * c["intermediate_size"] / 3) + 255) // 256 * 256
    yield "model.embed_tokens.weight", (c["vocab_size"], D)
    for i, kind in enumerate(c["layer_types"]):
        at = f"model.layers.{i}."
        yield at + "operator_norm.weight", (D,)
        yield at + "ffn_norm.weight", (D,)
        if kind == "conv":
            yield at + "conv.in_proj.weight", (3 * D, D)
            yield at + "conv.conv.weight", (D, 1, 3)
            yield at + "conv.out_proj.weight", (D, D)
        else:
            width = D // c["num_attention_heads"]
            yield from attention(at + "self_attn.", D, c["num_attention_heads"], c["num_key_value_heads"], width, names="qkvout")
            for x in "qk":
                yield f"{at}self_attn.{x}_layernorm.weight", (width,)
        yield at + "feed_forward.w1.weight", (I, D)
        yield at + "feed_forward.w3.weight", (I, D)
        yield at + "feed_forward.w2.weight", (D, I)
    yield "model.embedding_norm.weight", (D,)


TENSORS = dict(qwen3_5=qwen_tensors, nemotron_h=nemotron_tensors, granitemoehybrid=granite_tensors, falcon_h1=falcon_tensors, lfm2=lfm2_tensors)


def cut(config, layers, vocab):
    """The same shape with its last layers or tokens left out."""
    config = json.loads(json.dumps(config))
    inner = config.get("text_config", config)
    if layers:
        inner["num_hidden_layers"] = layers
        for key in ("layer_types", "hybrid_override_pattern"):
            if key in inner:
                inner[key] = inner[key][:layers]
    if vocab:
        inner["vocab_size"] = vocab
    return config


def values(random, name, shape, config):
    """Of the size that trained ones have, so that what is computed neither overflows nor dies out."""
    last = name.split(".")[-1]
    if last == "A_log":
        return numpy.log(random.uniform(1, 16, shape))
    if last == "dt_bias":
        return random.uniform(-6, -2, shape)
    if "conv1d" in name or ".conv.conv." in name:
        return random.uniform(-0.5, 0.5, shape)
    if len(shape) == 1:
        zero_centred = config["model_type"] == "qwen3_5" and "linear_attn" not in name
        return random.uniform(0.8, 1.2, shape) - zero_centred
    x = random.standard_normal(size=shape, dtype=numpy.float32)
    x *= numpy.float32(shape[1] ** -0.5)
    return x


def encode(x, dtype):
    if dtype == "bf16":
        bits = numpy.ascontiguousarray(x, dtype=numpy.float32).view(numpy.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)
    return numpy.ascontiguousarray(x, dtype={"f16": numpy.float16, "f32": numpy.float32}[dtype])


def write_shard(path, tensors, config, dtype, random):
    header, at, size = {}, 0, 4 if dtype == "f32" else 2
    for name, shape in tensors:
        end = at + size * int(numpy.prod(shape))
        header[name] = {"dtype": dtype.upper(), "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            out.write(encode(values(random, name, shape, config), dtype).tobytes())
    return at


def make(folder, name, layers=0, vocab=0, dtype="bf16", shards=1, seed=1):
    config = cut(SHAPES[name], layers, vocab)
    tensors = list(TENSORS[config["model_type"]](config))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    random = numpy.random.default_rng(seed)
    config["dtype"] = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[dtype]
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    each, total, where = -(-len(tensors) // shards), 0, {}
    for s in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{s + 1:05}-of-{shards:05}.safetensors"
        part = tensors[s * each : (s + 1) * each]
        total += write_shard(folder / file, part, config, dtype, random)
        where.update({tensor: file for tensor, _ in part})
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps(dict(metadata=dict(total_size=total), weight_map=where)))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name", choices=SHAPES)
    arguments.add_argument("dir")
    arguments.add_argument("--layers", type=int, default=0)
    arguments.add_argument("--vocab", type=int, default=0)
    arguments.add_argument("--dtype", choices=("bf16", "f16", "f32"), default="bf16")
    arguments.add_argument("--shards", type=int, default=1)
    a = arguments.parse_args()
    make(a.dir, a.name, a.layers, a.vocab, a.dtype, a.shards)
