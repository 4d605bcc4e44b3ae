#!/usr/bin/env python3
"""The kernels that are written for tensor cores use them: their machine code has matrix instructions.

    check_sass.py BUILD

Looks at every kernel of the *_mma*.cu files in a build with CUDA, for every architecture it was built for.
Needs cuobjdump (and nvdisasm) of a CUDA toolkit; without, or without such a build, exits with 77.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
MATRIX = re.compile(r"\b(?:HMMA|IMMA|HGMMA|UTCHMMA)\b")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
ARCH = re.compile(r"^\s*arch = (\S+)")


def count(sass):
    """{(kernel, arch): matrix instructions} of what cuobjdump -sass prints."""
    found, arch, key = {}, "?", None
    for line in sass.splitlines():
        if begin := ARCH.match(line):
            arch, key = begin[1], None
        elif begin := FUNCTION.match(line):
            key = (begin[1], arch)
            found[key] = 0
        elif key and MATRIX.search(line):
            found[key] += 1
    return found


def tool(name):
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / name
    return shutil.which(name) or (str(toolkit) if toolkit.exists() else None)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def main():
    objects = sorted(Path(sys.argv[1]).glob("CMakeFiles/trireme_cuda.dir/**/*_mma*.cu.o"))
    if not objects:
        skip(f"{sys.argv[1]} was built without the CUDA backend")
    missing = [name for name in ("cuobjdump", "nvdisasm") if tool(name) is None]
    if missing:
        skip(f"{' and '.join(missing)} of the CUDA toolkit not found")
    environment = dict(os.environ)
    environment["PATH"] += os.pathsep + str(Path(tool("nvdisasm")).parent)
    problems, kernels, archs = [], 0, set()
    for path in objects:
        sass = subprocess.run([tool("cuobjdump"), "-sass", str(path)], capture_output=True, text=True, check=True,
                              env=environment).stdout
        found = count(sass)
        if not found:
            problems.append(f"{path.name} has no machine code")
        for (kernel, arch), instructions in sorted(found.items()):
            kernels += 1
            archs.add(arch)
            if instructions == 0:
                problems.append(f"{path.name}: {kernel} has no matrix instruction for {arch}")
    for problem in problems:
        print(problem)
    print(f"tensor cores: {kernels} kernels for {', '.join(sorted(archs))}, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
