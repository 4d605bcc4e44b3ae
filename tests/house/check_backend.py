#!/usr/bin/env python3
"""A program with a CUDA backend, emulated or real, has all of it.

The backend's functions are weak, so that a build without it links (engine/core/device_memory.h); one that
is declared and nowhere defined is found when it is called, or here.

    check_backend.py PROGRAM...
"""
import re
import subprocess
import sys
from pathlib import Path

from source import finish

BACKEND = re.compile(r"\btrireme::cuda::")
# "                 w trireme::cuda::f(int)", "0000000000001234 T trireme::cuda::g(int)"
LINE = re.compile(r"^([0-9a-f]*) +([A-Za-z]) (.+)$")


def functions(symbols):
    """(missing, defined): names of the backend's functions that the linker left out, how many it has."""
    missing, defined = [], 0
    for line in symbols.splitlines():
        found = LINE.match(line)
        if not found or not BACKEND.search(found[3]):
            continue
        if found[2] in "wv" and not found[1]:
            missing.append(found[3])
        elif found[2] in "TtWi":
            defined += 1
    return missing, defined


def main():
    problems = []
    for program in sys.argv[1:]:
        name = Path(program).name
        symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
        missing, defined = functions(symbols)
        problems += [f"{name} lacks {function}" for function in missing]
        if defined < 50:
            problems.append(f"{name} has {defined} functions of the backend: it is not linked")
    finish("backend", problems, len(sys.argv) - 1)


if __name__ == "__main__":
    main()
