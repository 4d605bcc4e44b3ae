#!/usr/bin/env python3
"""Tokens a second that clients get of trireme serve beside llama-server: the same GGUF file, the same threads, by turns.

    scripts/bench/serve_vs_llama.py --llama-server PATH [--model llama-15m] [--kinds bf16] [--clients 1,8,32]

Both serve a Llama of a shape of configs/models with weights that mean nothing, each from the same file and with room for as many
sequences as there are clients. `trireme bench serve` asks one of them and then the other in a closed loop, with random prompts
and texts of a fixed length; the ratio is the median of the rounds' ratios.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from decode_vs_llama import SOURCE, run, write_gguf
from local_server import free_port, served


def rate(args, port, clients, folder):
    """Of a closed loop: tokens a second, median times to the first token and between tokens in milliseconds."""
    out = folder / "result.json"
    run([args.trireme, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", "--max-concurrency", clients, "--num-prompts",
         args.requests * clients, "--input-len", args.input_len, "--output-len", args.output_len, "--random-vocab-size", 30000,
         "--extra-body", json.dumps({"cache_prompt": False}), "--output", out])
    result = json.loads(out.read_text())
    if result["completed"] != args.requests * clients:
        sys.exit(f"{result['completed']} of {args.requests * clients} requests were completed")
    return result["output_throughput"], result["median_ttft_ms"], result["median_itl_ms"]


def measure(args, kind, folder):
    model = json.loads((SOURCE / f"configs/models/{args.model}.json").read_text())
    path = folder / "model.gguf"
    write_gguf(path, model, kind, with_words=True)
    most = max(args.clients)
    length = args.input_len + args.output_len + 8
    ports = free_port(), free_port()
    ours = [args.trireme, "serve", "--model", path, "--port", ports[0], "--threads", args.threads, "--max-num-seqs", most,
            "--max-model-len", length, *(["--dtype", "bf16"] if kind == "bf16" else []),
            *(["--dtype", "bf16", "--quantization", kind] if kind.startswith("q") else [])]
    theirs = [args.llama_server, "-m", path, "--host", "127.0.0.1", "--port", ports[1], "-t", args.threads, "-np", most,
              "-c", most * length]
    with open(folder / "log", "w", encoding="utf-8") as log, served(ours, ports[0], log), served(theirs, ports[1], log):
        for clients in args.clients:
            pairs = [(rate(args, ports[0], clients, folder), rate(args, ports[1], clients, folder)) for _ in range(args.rounds)]
            figures = [[statistics.median(pair[side][i] for pair in pairs) for i in range(3)] for side in (0, 1)]
            ratio = statistics.median(mine[0] / other[0] for mine, other in pairs)
            shown = " | ".join(f"{mine:.1f} | {other:.1f}" for mine, other in zip(*figures, strict=True))
            print(f"| {args.model} | {kind} | {clients} | {shown} | {ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-server", required=True, type=Path, help="llama.cpp's program of that name")
    parser.add_argument("--trireme", default=SOURCE / "build/release/trireme", type=Path)
    parser.add_argument("--model", default="llama-15m")
    parser.add_argument("--kinds", default="bf16")
    parser.add_argument("--clients", default=[1, 8, 32], type=lambda words: [int(word) for word in words.split(",")])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=8, help="of each client")
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=128)
    args = parser.parse_args()
    print("| shape | weights | clients | trireme tokens/s | llama-server | TTFT ms | llama-server | ITL ms | llama-server | ratio |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for kind in args.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            measure(args, kind, Path(folder))


if __name__ == "__main__":
    main()
