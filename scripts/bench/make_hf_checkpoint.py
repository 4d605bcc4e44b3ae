#!/usr/bin/env python3
"""Writes a HuggingFace directory of a llama with random bfloat16 weights: TinyLlama's 1.1 billion, or other sizes.

    scripts/bench/make_hf_checkpoint.py DIR [--layers 22] [--hidden 2048] [--shard-bytes 1000000000]

Needs numpy. Streaming: a tensor at a time.
"""
import argparse
import json
import struct
from pathlib import Path

import numpy as np


def tensors(args):
    width = args.hidden // args.heads
    yield "model.embed_tokens.weight", (args.vocabulary, args.hidden)
    for layer in range(args.layers):
        prefix = f"model.layers.{layer}."
        for name, rows in (("q", args.heads), ("k", args.kv_heads), ("v", args.kv_heads)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows * width, args.hidden)
        yield prefix + "self_attn.o_proj.weight", (args.hidden, args.hidden)
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", (args.inner, args.hidden)
        yield prefix + "mlp.down_proj.weight", (args.hidden, args.inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", (args.hidden,)
    yield "model.norm.weight", (args.hidden,)
    yield "lm_head.weight", (args.vocabulary, args.hidden)


def bfloat16(rng, shape):
    values = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def write_shard(path, shard, rng):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shard:
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shard:
            file.write(bfloat16(rng, shape).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    for name, value in (("layers", 22), ("hidden", 2048), ("heads", 32), ("kv-heads", 4), ("inner", 5632),
                        ("vocabulary", 32000), ("positions", 2048), ("shard-bytes", 1_000_000_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    shards, size = [[]], 0
    for name, shape in tensors(args):
        more = 2 * int(np.prod(shape))
        if shards[-1] and size + more > args.shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += more
    rng = np.random.default_rng(0)
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_shard(args.directory / file, shard, rng)
        weight_map.update({name: file for name, _ in shard})
    (args.directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (args.directory / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": args.vocabulary,
        "hidden_size": args.hidden, "intermediate_size": args.inner, "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads, "num_key_value_heads": args.kv_heads, "hidden_act": "silu",
        "max_position_embeddings": args.positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16"}, indent=2))


if __name__ == "__main__":
    main()
