#!/usr/bin/env python3
"""What guessing ahead is worth: tokens a second of trireme serve with --speculative-config and without, the same requests.

    scripts/bench/speculation.py [--model llama-15m] [--kind bf16] [--guesses 4]

The model has the shape of one of configs/models and weights that mean nothing, so each prompt is a few words again and again and
the texts, written greedily, repeat themselves soon: what lookup in the text (n-gram) is made for, and the most that it can give.
Servers with and without take turns. Their texts are the same but where two words are as likely but for rounding, which depends on
how many tokens a step has (not with --deterministic). The gain is the median of the rounds' ratios.
"""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from decode_vs_llama import SOURCE, write_gguf
from local_server import free_port, open_here, served


def write_texts(port, args):
    """The texts of all requests, one after another, and tokens a second."""
    texts, tokens, begin = [], 0, time.monotonic()
    for request in range(args.requests):
        prompt = [1] + [300 + 10 * request + i for i in range(8)] * 6
        body = {"model": "model", "prompt": prompt, "max_tokens": args.tokens, "temperature": 0, "ignore_eos": True}
        call = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})
        try:
            with open_here(call, timeout=600) as response:
                result = json.load(response)
        except urllib.error.HTTPError as error:
            sys.exit(f"{error}: {error.read().decode()}")
        texts.append(result["choices"][0]["text"])
        tokens += result["usage"]["completion_tokens"]
    return texts, tokens / (time.monotonic() - begin)


def counted(port, name):
    with open_here(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        page = response.read().decode()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=SOURCE / "build/release/trireme", type=Path)
    parser.add_argument("--model", default="llama-15m")
    parser.add_argument("--kind", default="bf16", choices=("f32", "bf16"))
    parser.add_argument("--guesses", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128, help="of each text")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    model = json.loads((SOURCE / f"configs/models/{args.model}.json").read_text())
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.gguf"
        write_gguf(path, model, args.kind, with_words=True)
        plain = [args.trireme, "serve", "--model", path, "--served-model-name", "model", "--port", ports[0],
                 "--threads", args.threads, "--max-num-seqs", 1, *(["--dtype", "bf16"] if args.kind == "bf16" else [])]
        guessing = [*plain, "--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": args.guesses})]
        guessing[guessing.index(ports[0])] = ports[1]
        log = open(Path(name) / "log", "w", encoding="utf-8")
        with log, served(plain, ports[0], log), served(guessing, ports[1], log):
            pairs, same = [], 0
            for _ in range(args.rounds):
                (texts, rate), (others, faster) = (write_texts(port, args) for port in ports)
                same += sum(map(str.__eq__, texts, others))
                pairs.append((rate, faster))
            drafted, accepted = (counted(ports[1], f"vllm:spec_decode_num_{what}_tokens_total")
                                 for what in ("draft", "accepted"))
    print("| shape | weights | guesses | accepted | same texts | tokens/s without | with | gain |\n"
          "|---|---|---|---|---|---|---|---|")
    rates = " | ".join(f"{statistics.median(side):.1f}" for side in zip(*pairs, strict=True))
    print(f"| {args.model} | {args.kind} | {args.guesses} | {100 * accepted / max(drafted, 1):.0f} % | "
          f"{same} of {args.rounds * args.requests} | {rates} | "
          f"{statistics.median(faster / rate for rate, faster in pairs):.2f} |")


if __name__ == "__main__":
    main()
