#!/usr/bin/env python3
"""Training steps of trireme beside PyTorch: same shapes, same threads, interleaved in one run.

    scripts/bench/train_vs_peers.py [--trireme build/release/trireme] [--threads N] [--rounds 3] [--steps 5]

PyTorch is the system's (Debian: python3-torch) with the settings that make it fastest on a CPU: an OpenBLAS
with OpenMP threads (Debian: libopenblas0-openmp), pinned threads, AVX-512 kernels, and a malloc that keeps its
memory and uses huge pages. Rounds alternate between the two, the ratio is that of the medians over rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = [("gpt2-124m", 4, 64), ("gpt2-124m", 4, 256), ("llama-15m", 8, 256)]
OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-openmp"


def torch_environment(threads):
    tunables = {"hugetlb": 1, "mmap_threshold": 1 << 34, "trim_threshold": 1 << 34, "top_pad": 1 << 28}
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="true", OMP_PLACES="cores",
                       ATEN_CPU_CAPABILITY="avx512",
                       GLIBC_TUNABLES=":".join(f"glibc.malloc.{k}={v}" for k, v in tunables.items()))
    if Path(OPENBLAS).is_dir():
        environment["LD_LIBRARY_PATH"] = OPENBLAS
    return environment


def run(command, environment=None):
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{ran.stderr}")
    return json.loads(ran.stdout.splitlines()[-1])


def measure(arguments, model, batch, length, dtype):
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(run([arguments.trireme, "bench", "train", "--model", model, "--batch", str(batch),
                         "--sequence-length", str(length), "--dtype", dtype, "--steps", str(arguments.steps),
                         "--threads", str(arguments.threads), "--json"]))
        theirs.append(run([arguments.python, HERE / "torch_peer.py", model, str(batch), str(length),
                           str(arguments.steps), dtype, str(arguments.threads)],
                          torch_environment(arguments.threads)))
    best = min(ours, key=lambda r: r["median_ms"])
    mine = statistics.median(r["median_ms"] for r in ours)
    other = statistics.median(r["median_ms"] for r in theirs)
    tokens = batch * length
    shares = " ".join(f"{k} {100 * v:.0f}%" for k, v in best["shares"].items())
    print(f"| {model} B{batch} T{length} {dtype} | {mine:.0f} | {1e3 * tokens / mine:.0f} | {100 * best['mfu']:.0f} % "
          f"| {other:.0f} | {1e3 * tokens / other:.0f} | {other / mine:.2f} | {shares} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default=HERE.parents[1] / "build/release/trireme")
    parser.add_argument("--python", default="/usr/bin/python3", help="the one that has torch")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    if subprocess.run([arguments.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        sys.exit(f"{arguments.python} has no torch; install it (Debian: python3-torch) or give --python")
    print("| case | ms/step | tokens/s | of peak | PyTorch ms/step | tokens/s | ratio | time |")
    print("|---|---|---|---|---|---|---|---|")
    for model, batch, length in CASES:
        for dtype in ("float32", "bfloat16"):
            measure(arguments, model, batch, length, dtype)


if __name__ == "__main__":
    main()
