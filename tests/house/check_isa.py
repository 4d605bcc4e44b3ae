#!/usr/bin/env python3
"""Kernels compiled for one instruction set export nothing that the linker could share with other code.

An inline function or template that two object files define is kept once; if the kept copy came from the
AVX-512 object, other code would crash on a machine without it (engine/ops/backend/isa.h).

    check_isa.py BUILD_FOLDER
"""
import platform
import re
import subprocess
import sys
from pathlib import Path

from source import SKIPPED, finish

ISAS = ("avx512", "avx2")
# Data the compiler emits for exception tables; no instructions inside.
HARMLESS = re.compile(r"^DW\.ref\.|^typeinfo ")


def leaks(isa, symbols):
    """Names of global or weak definitions outside the namespace of the instruction set."""
    bad = []
    for line in symbols.splitlines():
        found = re.match(r"^[0-9a-f]+ ([A-Zu]) (.+)$", line)
        if not found or HARMLESS.match(found[2]):
            continue
        if f"trireme::cpu::{isa}::" not in found[2]:
            bad.append(found[2])
    return bad


def main():
    if platform.machine() not in ("x86_64", "AMD64"):
        print("skipped: kernels have one instruction set here")
        sys.exit(SKIPPED)
    problems, count = [], 0
    for isa in ISAS:
        for path in sorted(Path(sys.argv[1]).glob(f"engine/ops/CMakeFiles/trireme_kernels_{isa}.dir/**/*.o")):
            symbols = subprocess.run(["nm", "-C", "--defined-only", str(path)], capture_output=True, text=True,
                                     check=True).stdout
            problems += [f"{path.name} ({isa}): {name}" for name in leaks(isa, symbols)]
            count += 1
    finish("kernel symbols", problems, count)


if __name__ == "__main__":
    main()
