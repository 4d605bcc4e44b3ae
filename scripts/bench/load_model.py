#!/usr/bin/env python3
"""Memory and time of opening a model of others: peak anonymous memory of each rank beside its share of the weights, and bytes
a second beside `dd` of the same files, read from the disk and from the page cache; and of importing it.

    scripts/bench/make_hf_checkpoint.py /tmp/tinyllama
    scripts/bench/load_model.py /tmp/tinyllama [--trireme build/release/trireme]

A rank's time is that of the whole command `trireme logits` on three ids: start, read, compute, write.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path


def family(pid):
    """A process and all that it started."""
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += family(int(child))
    except OSError:
        pass
    return found


def anonymous_kib(pid):
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def measure(command):
    """(seconds, largest anonymous memory of any process in bytes), sampled every 2 ms."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak, pids, rounds = 0, [process.pid], 0
    while process.poll() is None:
        if rounds % 50 == 0:
            pids = family(process.pid)
        rounds += 1
        peak = max([peak, *map(anonymous_kib, pids)])
        time.sleep(0.002)
    if process.returncode != 0:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return time.monotonic() - begin, peak * 1024


def forget(files):
    """Drops the files' pages from the cache."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def dd(files, *options, to="/dev/null"):
    begin = time.monotonic()
    for number, file in enumerate(files):
        target = to if to == "/dev/null" else f"{to}{number}"
        subprocess.run(["dd", f"if={file}", f"of={target}", "bs=4M", *options], check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trireme", default="trireme")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    files = sorted(args.model.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)

    def line(what, seconds, peak=None, share=None):
        memory = "" if peak is None else f"{peak / 2**20:9.1f} MiB, {peak / share:.3f} of the rank's share"
        print(f"{what:32} {seconds:7.2f} s {size / seconds / 1e9:6.2f} GB/s {memory}", flush=True)

    with tempfile.TemporaryDirectory(dir=args.model.resolve().parent) as name:
        folder = Path(name)
        tokens = folder / "tokens.jsonl"
        tokens.write_text(json.dumps([1, 2, 3]) + "\n")
        for cold in (True, False):
            place = "disk" if cold else "cache"
            for tp in (0, 1, 2):
                best = None
                for _ in range(args.rounds):
                    if cold:
                        forget(files)
                    else:
                        dd(files)
                    if tp == 0:
                        found = (dd(files), None)
                    else:
                        found = measure([args.trireme, "logits", args.model, "--tokens", tokens, "--output", folder / "x.safetensors",
                                         "--tensor-parallel", str(tp), "--ranks", str(tp)])
                    best = min(best or found, found)
                line(f"{place}, " + ("dd" if tp == 0 else f"tensor-parallel {tp}"), *best, *([size / tp] if tp else []))
        for cold in (True, False):
            compare_import(args, files, folder, cold, line)


def compare_import(args, files, folder, cold, line):
    """dd to files and import in turn; the ratio is taken within each round."""
    ways = (lambda: (dd(files, "conv=fsync", to=folder / "copy"), 0),
            lambda: measure([args.trireme, "checkpoint", "import", args.model, folder / "ours"]))
    rounds = []
    for _ in range(args.rounds):
        pair = []
        for copy in ways:
            os.sync()
            if cold:
                forget(files)
            else:
                dd(files)
            pair.append(copy())
            shutil.rmtree(folder / "ours", ignore_errors=True)
            for written in folder.glob("copy*"):
                written.unlink()
        rounds.append(pair)
    place = "disk" if cold else "cache"
    line(f"{place}, dd to files, with fsync", statistics.median(own[0] for own, _ in rounds))
    line(f"{place}, import", statistics.median(ours[0] for _, ours in rounds), max(ours[1] for _, ours in rounds),
         sum(file.stat().st_size for file in files))
    ratios = [own[0] / ours[0] for own, ours in rounds]
    print(f"{place}, import at {statistics.median(ratios):.0%} of dd's speed ({', '.join(f'{r:.0%}' for r in ratios)})", flush=True)


if __name__ == "__main__":
    main()
