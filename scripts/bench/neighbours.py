#!/usr/bin/env python3
"""Time between tokens of one client while another one's request asks for much work beside the model: each parameter that
costs work a token, at its bound, beside a plain request with as many choices.

    scripts/bench/neighbours.py [--vocabulary 128256] [--choices 32] [--rounds 5] [--only REGEX]

The model is a small Llama with weights that mean nothing and a large vocabulary, so that almost all time is the head's and
the sampler's. Two API keys: one streams `--choices` texts with the parameters of the row, the other one text. By turns with
plain texts; the ratio is the median of the rounds' ratios.
"""
import argparse
import contextlib
import http.client
import itertools
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from local_server import free_port, open_here, served

SOURCE = Path(__file__).resolve().parents[2]
KEYS = ("other", "heavy")
LENGTH = 4096
WORD = 300  # ids of words begin before


def ids(count, first=WORD):
    return list(range(first, first + count))


def kinds(vocabulary):
    """{name: fields, or (fields, those of the plain request beside it)}: what a request may ask at most."""
    long = {"prompt": ids(LENGTH - 3072)}
    again = {"max_tokens": 1, "n": 1, "again": True}
    words = [f" w{WORD + i}" for i in range(1024)]
    schema = {"type": "array", "items": {"enum": [f"w{i}" for i in range(1000)]}}
    return {
        "greedy": {"temperature": 0},
        "temperature 2": {"temperature": 2},
        "top_k 40": {"top_k": 40},
        "top_k 100000": {"top_k": min(100_000, vocabulary)},
        "top_p 0.9": {"top_p": 0.9},
        "min_p 1e-6": {"min_p": 1e-6},
        "typical_p 0.5": {"typical_p": 0.5},
        "all filters": {"typical_p": 0.9, "top_k": 100_000, "top_p": 0.99, "min_p": 1e-6, "temperature": 2},
        "logprobs 5": {"logprobs": 5},
        "logprobs 20": {"logprobs": 20},
        "logit_bias of 1,024": {"logit_bias": {str(i): 1 for i in ids(1024)}},
        "bad_words of 1,024": {"bad_words": words},
        "stop of 16": {"stop": [chr(97 + i) * 255 for i in range(16)]},
        "min_tokens": {"min_tokens": 1000},
        "penalties over a long text": ({**long, "repetition_penalty": 1.1, "frequency_penalty": 1}, long),
        "echo, logprobs 20, again and again": ({**long, **again, "echo": True, "logprobs": 20}, {**long, **again}),
        "regex": {"structured_outputs": {"regex": "( w[0-9]+)+"}},
        "JSON schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
        "all of them": ({**long, "repetition_penalty": 1.1, "frequency_penalty": 1, "logprobs": 20, "min_tokens": 1000,
                         "bad_words": words, "logit_bias": {str(i): 1 for i in ids(1024)}, "typical_p": 0.5,
                         "stop": [chr(97 + i) * 255 for i in range(16)]}, long),
    }


def ask(port, key, fields, number=0):
    """again: of other requests with the same prompt, none finds it in the cache."""
    fields = {**fields, "cache_salt": str(number)} if fields.get("again") else fields
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = {"model": "m", "prompt": [WORD], "stream": True, "ignore_eos": True, "seed": 1, **{k: v for k, v in fields.items() if k != "again"}}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"{key}: {response.status} {response.read().decode()}")
    return connection, response


class Heavy:
    """Requests one after the other, until close(); whatever comes is thrown away."""

    def __init__(self, port, fields):
        self.port, self.fields, self.closed = port, fields, False
        self.connection, self.response = ask(port, "heavy", fields)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            for number in itertools.count(1):
                while self.response.read1(1 << 20):
                    pass
                if self.closed:
                    return
                self.connection, self.response = ask(self.port, "heavy", self.fields, number)

    def close(self):
        self.closed = True
        with contextlib.suppress(OSError, AttributeError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.connection.close()


def running(port):
    with open_here(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return int(re.search(r"(?m)^vllm:num_requests_running(?:\{[^}]*\})? (\d+)", response.read().decode())[1])


def wait_for(port, count):
    while running(port) != count:
        time.sleep(0.02)


def gaps(args, port, fields):
    """Milliseconds between the other client's tokens, in order of size."""
    fields = {"n": args.choices, "max_tokens": 3000, **fields}
    heavy = Heavy(port, fields)
    if not fields.get("again"):
        wait_for(port, fields["n"])
    connection, response = ask(port, "other", {"temperature": 0, "max_tokens": args.tokens + 1})
    times = [time.monotonic() for line in iter(response.readline, b"") if line.startswith(b"data: {")]
    connection.close()
    heavy.close()
    wait_for(port, 0)
    return sorted(1000 * (b - a) for a, b in zip(times[1:], times[2:]))


def share(sorted_values, of):
    return sorted_values[min(len(sorted_values) - 1, int(of * len(sorted_values)))]


def measure(args, port):
    print(f"vocabulary {args.vocabulary:,}, {args.choices} choices, {args.threads} threads, medians of {args.rounds} rounds\n")
    print("| parameters of the heavy request | other's P50, ms: plain | with them | P99, ms: plain | with them | ratio of P99 |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    for name, fields in kinds(args.vocabulary).items():
        if not re.search(args.only, name):
            continue
        fields, plain = fields if isinstance(fields, tuple) else (fields, {})
        rounds = [(gaps(args, port, plain), gaps(args, port, fields)) for _ in range(args.rounds)]
        of = [[statistics.median(share(pair[side], p) for pair in rounds) for side in (0, 1)] for p in (0.5, 0.99)]
        ratio = statistics.median(share(b, 0.99) / share(a, 0.99) for a, b in rounds)
        print(f"| {name} | " + " | ".join(f"{v:.1f}" for pair in of for v in pair) + f" | {ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=SOURCE / "build/release/trireme", type=Path)
    for name, value in (("vocabulary", 128_256), ("choices", 32), ("rounds", 5), ("tokens", 100), ("hidden", 64), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default: {value:,}")
    parser.add_argument("--only", default=".", help="rows whose name matches")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        subprocess.run([sys.executable, SOURCE / "scripts/bench/make_hf_checkpoint.py", folder / "model", "--layers", "2", "--hidden",
                        str(args.hidden), "--heads", "4", "--kv-heads", "4", "--inner", str(2 * args.hidden), "--vocabulary",
                        str(args.vocabulary), "--positions", str(LENGTH)], check=True, stdout=subprocess.DEVNULL)
        port = free_port()
        command = [args.trireme, "serve", folder / "model", "--served-model-name", "m", "--port", port, "--threads", args.threads,
                   "--metrics-access", "open", "--max-num-seqs", max(64, args.choices + 1), *(f"--api-key={key}" for key in KEYS)]
        with open(folder / "log", "w", encoding="utf-8") as log, served(command, port, log):
            measure(args, port)


if __name__ == "__main__":
    main()
