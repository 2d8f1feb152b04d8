# SPDX-License-Identifier: MIT
"""A random Mamba2 in the official layout, for the comparisons with llama.cpp."""
import json
import struct

import numpy


def make(folder, groups=1, rows=50288, vocab=50277, D=256, layers=3, N=64, P=64, keep=True):
    """Writes the directory tensor by tensor; returns the tensors when they are to be kept."""
    r = numpy.random.default_rng(groups)
    inner, H = 2 * D, 2 * D // P
    conv = inner + 2 * groups * N
    f = lambda x: numpy.ascontiguousarray(x, dtype=numpy.float32)
    normal = lambda shape, scale: f(r.standard_normal(size=shape, dtype=numpy.float32) * numpy.float32(scale))
    plan = {"backbone.embedding.weight": ((rows, D), lambda: normal((rows, D), 0.3))}
    for i in range(layers):
        at = f"backbone.layers.{i}."
        plan[at + "norm.weight"] = ((D,), lambda: f(r.uniform(0.8, 1.2, D)))
        at += "mixer."
        width = 2 * inner + 2 * groups * N + H
        plan[at + "in_proj.weight"] = ((width, D), lambda: normal((width, D), D**-0.5))
        plan[at + "conv1d.weight"] = ((conv, 1, 4), lambda: f(r.uniform(-0.5, 0.5, (conv, 1, 4))))
        plan[at + "conv1d.bias"] = ((conv,), lambda: f(r.uniform(-0.5, 0.5, conv)))
        plan[at + "dt_bias"] = ((H,), lambda: f(numpy.log(numpy.expm1(numpy.exp(r.uniform(numpy.log(1e-3), numpy.log(1e-1), H))))))
        plan[at + "A_log"] = ((H,), lambda: f(numpy.log(r.uniform(1, 16, H))))
        plan[at + "D"] = ((H,), lambda: f(numpy.ones(H)))
        plan[at + "norm.weight"] = ((inner,), lambda: f(r.uniform(0.8, 1.2, inner)))
        plan[at + "out_proj.weight"] = ((D, inner), lambda: normal((D, inner), inner**-0.5))
    plan["backbone.norm_f.weight"] = ((D,), lambda: f(r.uniform(0.8, 1.2, D)))
    header, at = {}, 0
    for name, (shape, _) in plan.items():
        size = 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir()
    tensors = {}
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, (_, values) in plan.items():
            x = values()
            out.write(x.tobytes())
            if keep:
                tensors[name] = x
    (folder / "config.json").write_text(json.dumps({
        "d_model": D, "n_layer": layers, "vocab_size": vocab, "ssm_cfg": {"layer": "Mamba2", "d_state": N, "headdim": P, "ngroups": groups},
        "rms_norm": True, "residual_in_fp32": True, "pad_vocab_size_multiple": 16, "tie_embeddings": True}))
    return tensors
