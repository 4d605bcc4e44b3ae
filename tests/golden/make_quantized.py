#!/usr/bin/env python3
"""Writes tests/golden/quantized/<kind>/: a tiny llama with quantized matrices as they are published, and the numbers they stand
for (expected.safetensors), computed here from the formats' definitions in numpy; mxfp4: a tiny gpt-oss with quantized experts.

    python3 -m venv venv && venv/bin/pip install numpy
    venv/bin/python tests/golden/make_quantized.py
"""
import json
import struct
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "quantized"
C, F, V, KV = 16, 24, 10, 8
MATRICES = {"self_attn.q_proj": (C, C), "self_attn.k_proj": (KV, C), "self_attn.v_proj": (KV, C),
            "self_attn.o_proj": (C, C), "mlp.gate_proj": (F, C), "mlp.up_proj": (F, C), "mlp.down_proj": (C, F)}
NAMES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.int32): "I32", np.dtype(np.uint8): "F8_E4M3",
         np.dtype(np.int8): "I8", np.dtype(np.int64): "I64"}
CONFIG = {"model_type": "llama", "vocab_size": V, "hidden_size": C, "intermediate_size": F, "num_hidden_layers": 1,
          "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}


def save(path, tensors, of_bytes="F8_E4M3"):
    """uint8 arrays are 8-bit floats here, or another type of one byte."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        dtype = of_bytes if values.dtype == np.uint8 else NAMES[values.dtype]
        header[name] = {"dtype": dtype, "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def e4m3(codes):
    """1 sign, 4 exponent (bias 7), 3 mantissa; no infinities."""
    sign = np.where(codes >> 7, -1.0, 1.0)
    exponent, mantissa = (codes >> 3 & 15).astype(int), (codes & 7).astype(float)
    return (sign * np.where(exponent == 0, mantissa / 8 * 2.0 ** -6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))).astype(np.float32)


def fp8(rng, shape, block=(12, 10)):
    codes = rng.integers(0, 256, shape).astype(np.uint8)
    codes[(codes & 127) == 127] = 0  # NaN
    blocks = [-(-n // b) for n, b in zip(shape, block)]
    scales = rng.uniform(1e-4, 1e-3, blocks).astype(np.float32)
    spread = np.repeat(np.repeat(scales, block[0], 0), block[1], 1)[:shape[0], :shape[1]]
    return {"weight": codes, "weight_scale_inv": scales}, e4m3(codes) * spread


def pack(values, bits, order=None):
    """(rows, n) to (rows, n bits / 32): number order[k] of each 32 / bits goes to bits [k bits, (k + 1) bits)."""
    per = 32 // bits
    order = order or range(per)
    parts = values.reshape(values.shape[0], -1, per).astype(np.uint32)
    words = np.zeros(parts.shape[:2], np.uint32)
    for k, source in enumerate(order):
        words |= parts[:, :, source] << np.uint32(k * bits)
    return words.view(np.int32)


def groups_of_numbers(rng, shape, bits, groups, symmetric):
    out, inputs = shape
    codes = rng.integers(0, 2 ** bits, (inputs, out))
    zeros = np.full((groups, out), 2 ** (bits - 1)) if symmetric else rng.integers(0, 2 ** bits, (groups, out))
    scales = rng.uniform(1e-3, 1e-2, (groups, out)).astype(np.float16)
    return codes, zeros, scales


def numbers(codes, zeros, scales, index):
    return np.ascontiguousarray(((codes - zeros[index]).astype(np.float32) * scales[index].astype(np.float32)).T)


def gptq(rng, shape, bits, symmetric, shuffled):
    inputs, size = shape[1], 8
    codes, zeros, scales = groups_of_numbers(rng, shape, bits, inputs // size, symmetric)
    index = np.arange(inputs) // size
    if shuffled:  # desc_act: inputs were ordered by their activations
        index = rng.permutation(index)
    stored = (zeros - 1) % 2 ** bits
    tensors = {"qweight": np.ascontiguousarray(pack(np.ascontiguousarray(codes.T), bits).T), "qzeros": pack(stored, bits),
               "scales": scales, "g_idx": index.astype(np.int32)}
    return tensors, numbers(codes, zeros, scales, index)


def awq(rng, shape):
    inputs, size = shape[1], 8
    codes, zeros, scales = groups_of_numbers(rng, shape, 4, inputs // size, False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return ({"qweight": pack(codes, 4, order), "qzeros": pack(zeros, 4, order), "scales": scales},
            numbers(codes, zeros, scales, np.arange(inputs) // size))


def ct_fp8(rng, shape):
    """One scale for each output."""
    codes = rng.integers(0, 256, shape).astype(np.uint8)
    codes[(codes & 127) == 127] = 0  # NaN
    scales = rng.uniform(1e-4, 1e-3, (shape[0], 1)).astype(np.float16)
    return {"weight": codes, "weight_scale": scales}, e4m3(codes) * scales.astype(np.float32)


def ct_int8(rng, shape):
    """One scale for the whole matrix."""
    codes = rng.integers(-128, 128, shape).astype(np.int8)
    scale = rng.uniform(1e-4, 1e-3, 1).astype(np.float32)
    return {"weight": codes, "weight_scale": scale}, codes.astype(np.float32) * scale


def ct_int4(rng, shape, size, symmetric):
    """Groups of `size` inputs. Codes and zeros are -8 to 7 and stored with 8 added; the zeros of 8 outputs are an int32."""
    (out, inputs), groups = shape, shape[1] // size
    codes, zeros = rng.integers(-8, 8, shape), rng.integers(-8, 8, (out, groups))
    scales = rng.uniform(1e-3, 1e-2, (out, groups)).astype(np.float16)
    zeros = zeros * (not symmetric)
    tensors = {"weight_packed": pack(codes + 8, 4), "weight_scale": scales, "weight_shape": np.array(shape, np.int64)}
    if not symmetric:
        padded = np.pad(zeros + 8, ((0, -out % 8), (0, 0)))
        tensors["weight_zero_point"] = np.ascontiguousarray(pack(np.ascontiguousarray(padded.T), 4).T)
    spread = np.repeat(scales.astype(np.float32), size, 1)
    return tensors, (codes - np.repeat(zeros, size, 1)).astype(np.float32) * spread


def compressed(layout, **weights):
    weights = {"dynamic": False, "symmetric": True, "observer": "minmax", "group_size": None, **weights}
    return {"quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed", "ignore": ["lm_head"],
            "kv_cache_scheme": None, "global_compression_ratio": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None,
                                          "output_activations": None}}}


CASES = {
    "ct_fp8": (ct_fp8, compressed("float-quantized", num_bits=8, type="float", strategy="channel")),
    "ct_int8": (ct_int8, compressed("int-quantized", num_bits=8, type="int", strategy="tensor")),
    "ct_int4": (lambda rng, shape: ct_int4(rng, shape, 8, True),
                compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=8)),
    "ct_int4_zeros": (lambda rng, shape: ct_int4(rng, shape, 4, False),
                      compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=4, symmetric=False)),
    "fp8": (fp8, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [12, 10]}),
    "gptq": (lambda rng, shape: gptq(rng, shape, 4, True, False),
             {"quant_method": "gptq", "bits": 4, "group_size": 8, "sym": True, "desc_act": False}),
    "gptq_desc_act": (lambda rng, shape: gptq(rng, shape, 8, False, True),
                      {"quant_method": "gptq", "bits": 8, "group_size": 8, "sym": False, "desc_act": True}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 8, "zero_point": True, "version": "gemm"})}


def mxfp4(rng, shape):
    """Rows of blocks of 32 numbers of 4 bits (E2M1), two in a byte, and their powers of two."""
    blocks = [*shape[:-1], shape[-1] // 32]
    codes = rng.integers(0, 256, [*blocks, 16]).astype(np.uint8)
    scales = rng.integers(115, 124, blocks).astype(np.uint8)
    scales.flat[:3] = [0, 1, 251]  # the smallest, which is subnormal in float32, the next, and the largest without infinities
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    numbers_of = table[np.stack([codes & 15, codes >> 4], -1)].reshape(*blocks, 32)
    values = (numbers_of * 2.0 ** (scales[..., None].astype(float) - 127)).astype(np.float32)
    return {"blocks": codes, "scales": scales}, values.reshape(shape)


def make_mxfp4(folder):
    rng, experts, width, hidden, heads = np.random.default_rng(7), 2, 32, 64, 4
    folder.mkdir(parents=True, exist_ok=True)
    tensors, expected = {}, {}
    for name, shape in (("gate_up_proj", (experts, 2 * width, hidden)), ("down_proj", (experts, hidden, width))):
        parts, values = mxfp4(rng, shape)
        name = "model.layers.0.mlp.experts." + name
        tensors |= {f"{name}_{part}": array for part, array in parts.items()}
        expected[name] = np.ascontiguousarray(values.transpose(0, 2, 1))  # (experts, in, out), as in unquantized files
    layer = {"self_attn.q_proj.weight": (heads * 4, hidden), "self_attn.k_proj.weight": (8, hidden),
             "self_attn.v_proj.weight": (8, hidden), "self_attn.o_proj.weight": (hidden, heads * 4),
             "self_attn.q_proj.bias": (heads * 4,), "self_attn.k_proj.bias": (8,), "self_attn.v_proj.bias": (8,),
             "self_attn.o_proj.bias": (hidden,), "self_attn.sinks": (heads,), "mlp.router.weight": (experts, hidden),
             "mlp.router.bias": (experts,), "mlp.experts.gate_up_proj_bias": (experts, 2 * width),
             "mlp.experts.down_proj_bias": (experts, hidden), "input_layernorm.weight": (hidden,),
             "post_attention_layernorm.weight": (hidden,)}
    plain = {"model.embed_tokens.weight": (V, hidden), "lm_head.weight": (V, hidden), "model.norm.weight": (hidden,)}
    plain |= {"model.layers.0." + name: shape for name, shape in layer.items()}
    for name, shape in plain.items():
        tensors[name] = expected[name] = rng.standard_normal(shape).astype(np.float32)
    save(folder / "model.safetensors", tensors, "U8")
    save(folder / "expected.safetensors", expected)
    config = {**CONFIG, "model_type": "gpt_oss", "hidden_size": hidden, "intermediate_size": width, "num_attention_heads": heads,
              "num_key_value_heads": 2, "head_dim": 4, "num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": 7,
              "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    make_mxfp4(FOLDER / "mxfp4")
    for name, (quantize, settings) in CASES.items():
        rng = np.random.default_rng(7)
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        tensors, expected = {}, {}
        for module, shape in MATRICES.items():
            parts, values = quantize(rng, shape)
            prefix = "model.layers.0." + module
            tensors |= {f"{prefix}.{part}": array for part, array in parts.items()}
            expected[prefix + ".weight"] = values.astype(np.float32)
        for plain, shape in (("model.embed_tokens", (V, C)), ("lm_head", (V, C)), ("model.norm", (C,)),
                             ("model.layers.0.input_layernorm", (C,)), ("model.layers.0.post_attention_layernorm", (C,))):
            tensors[plain + ".weight"] = expected[plain + ".weight"] = rng.standard_normal(shape).astype(np.float32)
        save(folder / "model.safetensors", tensors)
        save(folder / "expected.safetensors", expected)
        (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": settings}, indent=2) + "\n")


if __name__ == "__main__":
    main()
