#!/usr/bin/env python3
"""Tokens a second of trireme beside llama.cpp on a CPU: same shapes, same threads, interleaved in one run.

    scripts/bench/decode_vs_llama.py --llama-bench PATH [--models llama-15m,llama-1b] [--kinds bf16,q8_0,q4_0]

Both compute a Llama of the shapes of configs/models with weights that mean nothing; llama.cpp's lie in a GGUF file that is
written here, trireme makes its own. Rounds alternate between the two, and the ratio is the median of the rounds' ratios:
other work on the machine disturbs both, and both rates are means over the tokens. "of reading" is trireme's rate against that of reading all weights and cached keys
once at the memory bandwidth measured in the same process.
"""
import argparse
import array
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
# name -> trireme's options, GGUF's number of the type, numbers and bytes of a block
KINDS = {"f32": (["--dtype", "float32"], 0, 1, 4), "bf16": (["--dtype", "bfloat16"], 30, 1, 2),
         "q8_0": (["--dtype", "bfloat16", "--quantization", "q8_0"], 8, 32, 34),
         "q4_0": (["--dtype", "bfloat16", "--quantization", "q4_0"], 2, 32, 18)}


def tensors(model):
    """(name, rows, columns); rows 0: a vector."""
    c, inner = model["hidden_size"], model["intermediate_size"]
    kv = c // model["num_attention_heads"] * model["num_key_value_heads"]
    yield "token_embd.weight", model["vocab_size"], c
    for i in range(model["num_hidden_layers"]):
        for name, rows, columns in (("attn_q", c, c), ("attn_k", kv, c), ("attn_v", kv, c), ("attn_output", c, c),
                                    ("ffn_gate", inner, c), ("ffn_up", inner, c), ("ffn_down", c, inner)):
            yield f"blk.{i}.{name}.weight", rows, columns
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{i}.{name}.weight", 0, c
    yield "output_norm.weight", 0, c
    if not model.get("tie_word_embeddings"):
        yield "output.weight", model["vocab_size"], c


def pattern(kind, numbers):
    """The bytes of some numbers of a type, normal ones."""
    rng = random.Random(1)
    if kind in ("f32", "bf16"):
        floats = array.array("f", [rng.gauss(0, 0.02) for _ in range(numbers)])
        raw = floats.tobytes()
        return raw if kind == "f32" else b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))
    block = KINDS[kind][3]
    return b"".join(struct.pack("<e", 0.001) + rng.randbytes(block - 2).replace(b"\x80", b"\x81")
                    for _ in range(numbers // 32))


def text(word):
    return struct.pack("<Q", len(word.encode())) + word.encode()


def vocabulary(size):
    """Of a SentencePiece model: special tokens, bytes, and words that mean nothing."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    words += [f"\u2581w{i}" for i in range(size - len(words))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (size - 259)]

    def listed(key, number, raw):
        return text("tokenizer.ggml." + key) + struct.pack("<IIQ", 9, number, size) + raw

    return [listed("tokens", 8, b"".join(map(text, words))),
            listed("scores", 6, struct.pack(f"<{size}f", *(-float(i) for i in range(size)))),
            listed("token_type", 5, struct.pack(f"<{size}i", *kinds))]


def write_gguf(path, model, kind, with_words=False):
    def entry(key, value, number=4):
        if number == 8:
            return text(key) + struct.pack("<I", 8) + text(value)
        return text(key) + struct.pack("<I" + {4: "I", 6: "f"}[number], number, value)

    head = model["hidden_size"] // model["num_attention_heads"]
    words = [entry("general.architecture", "llama", 8), entry("tokenizer.ggml.model", "llama" if with_words else "no_vocab", 8),
             entry("llama.attention.layer_norm_rms_epsilon", model["rms_norm_eps"], 6),
             entry("llama.rope.freq_base", model["rope_theta"], 6)]
    for key, value in (("vocab_size", model["vocab_size"]), ("block_count", model["num_hidden_layers"]),
                       ("context_length", model["max_position_embeddings"]), ("embedding_length", model["hidden_size"]),
                       ("feed_forward_length", model["intermediate_size"]), ("rope.dimension_count", head),
                       ("attention.head_count", model["num_attention_heads"]),
                       ("attention.head_count_kv", model["num_key_value_heads"])):
        words.append(entry("llama." + key, value))
    if with_words:
        words += vocabulary(model["vocab_size"])
        words += [entry(f"tokenizer.ggml.{key}_token_id", number) for key, number in (("unknown", 0), ("bos", 1), ("eos", 2))]
    listed, at, places = b"", 0, []
    for name, rows, columns in tensors(model):
        number, block, size = KINDS[kind][1:] if rows else KINDS["f32"][1:]
        length = max(rows, 1) * columns // block * size
        dims = [columns, rows] if rows else [columns]
        listed += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        listed += struct.pack("<IQ", number, at)
        places.append((at, length, kind if rows else "f32"))
        at += (length + 31) // 32 * 32
    header = b"GGUF" + struct.pack("<IQQ", 3, len(places), len(words)) + b"".join(words) + listed
    begin = (len(header) + 31) // 32 * 32
    patterns = {k: pattern(k, 1 << 17) for k in {kind, "f32"}}
    with path.open("wb") as file:
        file.write(header)
        for offset, length, k in places:
            file.seek(begin + offset)
            while length > 0:
                piece = patterns[k][:length]
                file.write(piece)
                length -= len(piece)


def run(command, environment=None):
    ran = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{ran.stderr[-2000:]}")
    return ran.stdout


def ours(args, name, kind, prompt, tokens):
    out = run([args.trireme, "bench", "decode", "--model", name, *KINDS[kind][0], "--prompt", prompt, "--tokens", tokens,
               "--threads", args.threads, "--device", "cpu", "--json"])
    return json.loads(out.splitlines()[-1])


def theirs(args, path, prompt, tokens):
    environment = dict(os.environ, OMP_PROC_BIND="true", OMP_PLACES="cores")
    out = run([args.llama_bench, "-m", path, "-t", args.threads, "-p", prompt, "-n", tokens, "-r", 1, "-o", "json"],
              environment)
    return json.loads(out)[-1]["avg_ts"]


def measure(args, name, kind, path):
    model = json.loads((SOURCE / f"configs/models/{name}.json").read_text())
    tokens = min(args.tokens, model["max_position_embeddings"] - 2)
    prompt = min(args.prompt, model["max_position_embeddings"] - 2)
    rows = {"decode": [], f"prompt of {prompt}": []}
    shares = []
    for _ in range(args.rounds):
        mine = ours(args, name, kind, 1, tokens)
        shares.append(mine["share_of_floor"])
        rows["decode"].append((1e3 / mine["mean_token_ms"], theirs(args, path, 0, tokens)))
        mine = ours(args, name, kind, prompt, 2)
        rows[f"prompt of {prompt}"].append((1e3 * prompt / mine["prompt_ms"], theirs(args, path, prompt, 0)))
    for what, pairs in rows.items():
        share = f"{100 * statistics.median(shares):.0f} %" if what == "decode" else ""
        print(f"| {name} | {kind} | {what} | {statistics.median(p[0] for p in pairs):.1f} | {share} "
              f"| {statistics.median(p[1] for p in pairs):.1f} | {statistics.median(a / b for a, b in pairs):.2f} |",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bench", required=True, type=Path, help="llama.cpp's program of that name")
    parser.add_argument("--trireme", default=SOURCE / "build/release/trireme", type=Path)
    parser.add_argument("--models", default="llama-15m")
    parser.add_argument("--kinds", default="f32,bf16,q8_0,q4_0")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=512)
    args = parser.parse_args()
    print("| shape | weights | what | trireme tokens/s | of reading | llama.cpp tokens/s | ratio |\n|---|---|---|---|---|---|---|")
    for name in args.models.split(","):
        model = json.loads((SOURCE / f"configs/models/{name}.json").read_text())
        for kind in args.kinds.split(","):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.gguf"
                write_gguf(path, model, kind)
                measure(args, name, kind, path)


if __name__ == "__main__":
    main()
