#!/usr/bin/env python3
"""Writes a HuggingFace directory of a llama with random bfloat16 weights: TinyLlama's 1.1 billion, or other sizes.

    scripts/bench/make_hf_checkpoint.py DIR [--layers 22] [--hidden 2048] [--shard-bytes 1000000000]
    scripts/bench/make_hf_checkpoint.py DIR --config configs/models/llama-8b.json

Its tokenizer has the 256 bytes, one special token and words that mean nothing, as many as the vocabulary has places.
Needs nothing but Python: numbers are taken from a list of prime length again and again, so that no two rows are alike.
"""
import argparse
import itertools
import json
import math
import random
import struct
from pathlib import Path

PATTERN_NUMBERS = 4_194_301  # a prime
ONE = b"\x80\x3f"
END = 256  # behind the bytes


def tensors(model):
    hidden, inner = model["hidden_size"], model["intermediate_size"]
    heads, kv_heads = model["num_attention_heads"], model["num_key_value_heads"]
    width = model.get("head_dim", hidden // heads)
    yield "model.embed_tokens.weight", (model["vocab_size"], hidden)
    for layer in range(model["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            yield f"{prefix}self_attn.{name}_proj.weight", (rows * width, hidden)
        yield prefix + "self_attn.o_proj.weight", (hidden, heads * width)
        for name in ("gate", "up"):
            yield f"{prefix}mlp.{name}_proj.weight", (inner, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not model.get("tie_word_embeddings"):
        yield "lm_head.weight", (model["vocab_size"], hidden)


def pattern():
    """bfloat16 numbers between -1/32 and 1/32 as bytes, small ones oftener; 0.016 is their standard deviation.

    The upper byte holds the sign and all of the exponent but its last bit, the lower one that bit and the mantissa.
    """
    rng = random.Random(0)
    upper = bytearray()
    for byte in range(256):
        size = byte & 127
        exponent = 60 if size < 96 else 59 if size < 120 else 58 if size < 126 else 57
        upper.append(byte & 128 | exponent)
    numbers = bytearray(rng.randbytes(2 * PATTERN_NUMBERS))
    numbers[1::2] = numbers[1::2].translate(bytes(upper))
    return bytes(numbers)


def write_shard(path, shard, numbers, at):
    """Writes the tensors of a shard, whose numbers begin at that byte of the pattern; returns where they end."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shard:
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    view = memoryview(numbers)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shard:
            left = 2 * math.prod(shape)
            if len(shape) == 1:  # a norm's
                file.write(ONE * shape[0])
                continue
            while left > 0:
                piece = view[at:at + left]
                file.write(piece)
                left -= len(piece)
                at = (at + len(piece)) % len(view)
    return at


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary, as GPT-2 has them."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = itertools.count(256)
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def tokenizer(words):
    letters = byte_letters()
    vocabulary = {letter: byte for byte, letter in enumerate(letters)}
    vocabulary["<|end|>"] = END
    vocabulary.update({f"{letters[32]}w{i}": i for i in range(END + 1, words)})
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": END, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                      "merges": []}}


def write_checkpoint(directory, model, shard_bytes=1_000_000_000):
    """model: a llama's config.json."""
    if model["vocab_size"] <= END:
        raise SystemExit(f"a vocabulary of {model['vocab_size']} has no room for {END} bytes and the token that ends a text")
    directory.mkdir(parents=True, exist_ok=True)
    shards, size = [[]], 0
    for name, shape in tensors(model):
        more = 2 * math.prod(shape)
        if shards[-1] and size + more > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += more
    numbers, at, weight_map = pattern(), 0, {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        at = write_shard(directory / file, shard, numbers, at)
        weight_map.update({name: file for name, _ in shard})

    def write(name, what):
        (directory / name).write_text(json.dumps(what, indent=1), encoding="utf-8")

    write("model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    write("tokenizer.json", tokenizer(model["vocab_size"]))
    write("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
                                    "model_max_length": model["max_position_embeddings"]})
    write("config.json", {**model, "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "bos_token_id": END,
                          "eos_token_id": END, "torch_dtype": "bfloat16"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--config", type=Path, help="a llama's config.json, instead of the sizes below")
    for name, value in (("layers", 22), ("hidden", 2048), ("heads", 32), ("kv-heads", 4), ("inner", 5632),
                        ("vocabulary", 32000), ("positions", 2048), ("shard-bytes", 1_000_000_000)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default: {value:,}")
    args = parser.parse_args()
    sizes = {"model_type": "llama", "vocab_size": args.vocabulary, "hidden_size": args.hidden,
             "intermediate_size": args.inner, "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
             "num_key_value_heads": args.kv_heads, "max_position_embeddings": args.positions, "rms_norm_eps": 1e-5,
             "rope_theta": 10000.0, "tie_word_embeddings": False}
    model = json.loads(args.config.read_text(encoding="utf-8")) if args.config else sizes
    write_checkpoint(args.directory, model, args.shard_bytes)


if __name__ == "__main__":
    main()
