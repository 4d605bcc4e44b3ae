#!/usr/bin/env python3
"""Registers, shared memory and spills of every kernel, from the reports a build with CUDA leaves.

    scripts/kernel_resources.py BUILD            compare with docs/reference/kernel-resources.tsv
    scripts/kernel_resources.py BUILD --write    write that table

Fails on a kernel that spills or uses local memory, on one that needs a tenth more registers than the table says
for the same compiler, and on kernels that came or went. Kernels are compared per architecture; one the table does
not know is left out.
"""
import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "kernel-resources.tsv"
KERNEL = re.compile(r"Compiling entry function '(\S+)' for '(sm_\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
MORE = 1.10
SKIPPED = 77


def read_reports(build):
    """{(file, kernel, arch): (registers, shared, stack, spilled)} by mangled name."""
    found = {}
    for path in sorted(Path(build).glob("CMakeFiles/trireme_cuda.dir/**/*.ptxas")):
        if not path.with_suffix("").exists():  # of a source that is gone
            continue
        kernel, stack, spilled = None, 0, 0
        for line in path.read_text(encoding="utf-8").splitlines():
            if begin := KERNEL.search(line):
                kernel, stack, spilled = begin.groups(), 0, 0
            elif frame := STACK.search(line):
                stack, spilled = int(frame[1]), int(frame[2]) + int(frame[3])
            elif (used := USED.search(line)) and kernel:
                shared = SHARED.search(line)
                values = (int(used[1]), int(shared[1]) if shared else 0, stack, spilled)
                found[path.name.split(".")[0], *kernel] = values
                kernel = None
    return found


def readable(names):
    """{mangled: name without the namespaces that are everywhere}."""
    tool = shutil.which("c++filt")
    if tool is None:
        return {name: name for name in names}
    out = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    # Names of anonymous namespaces of nvcc hold a hash of the file.
    strip = re.compile(r"trireme::(cuda::|cpu::)?|\(anonymous namespace\)::|_GLOBAL__N__\w+::|^void ")
    return {mangled: strip.sub("", line).split("(")[0]
            for mangled, line in zip(names, out.splitlines())}


def rows_of(build):
    reports = read_reports(build)
    names = readable(sorted({kernel for _, kernel, _ in reports}))
    rows = {}
    for (file, kernel, arch), values in reports.items():
        key = (f"{file} {names[kernel]}", arch)
        rows[key] = max(rows.get(key, (0, 0, 0, 0)), values)  # one name, two argument lists: the larger
    return rows


def compiler_of(build):
    """"13.0.88": of the nvcc that the build was configured with."""
    for path in Path(build).glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        if found := re.search(r'CMAKE_CUDA_COMPILER_VERSION "([\d.]+)"', path.read_text(encoding="utf-8")):
            return found[1]
    return "unknown"


def read_table():
    """(compiler, rows)"""
    if not TABLE.exists():
        sys.exit(f"{TABLE} is missing; make it again with --write")
    compiler, _, *lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = {}
    for line in lines:
        name, arch, *values = line.split("\t")
        rows[name, arch] = tuple(int(v) for v in values)
    return compiler.removeprefix("# nvcc "), rows


def write_table(rows, compiler):
    lines = [f"# nvcc {compiler}", "kernel\tarch\tregisters\tshared_bytes\tstack_bytes\tspill_bytes"]
    lines += ["\t".join([name, arch, *map(str, values)]) for (name, arch), values in sorted(rows.items())]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def problems_of(rows, table, same_compiler):
    problems = []
    known = {arch for _, arch in table}
    for key, (registers, _, stack, spilled) in sorted(rows.items()):
        where = f"{key[0]} for {key[1]}"
        if stack or spilled:
            problems.append(f"{where}: {stack} bytes of local memory, {spilled} bytes spilled")
        if same_compiler and key in table and registers > table[key][0] * MORE:
            problems.append(f"{where}: {registers} registers, {table[key][0]} in the table")
        if key not in table and key[1] in known:
            problems.append(f"{where} is not in the table")
    built = {arch for _, arch in rows}
    problems += [f"{name} for {arch} is in the table and not in the build"
                 for name, arch in sorted(table) if arch in built and (name, arch) not in rows]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = rows_of(arguments.build)
    if not rows:
        print(f"skipped: {arguments.build} has no reports of ptxas; build with TRIREME_CUDA=ON first")
        sys.exit(SKIPPED)
    if arguments.write:
        write_table(rows, compiler_of(arguments.build))
        print(f"{TABLE.name}: {len(rows)} kernels")
        return
    compiler, table = read_table()
    built_with = compiler_of(arguments.build)
    if built_with != compiler:
        print(f"built with nvcc {built_with}, the table with {compiler}: registers are not compared")
    problems = problems_of(rows, table, built_with == compiler)
    for problem in problems:
        print(problem)
    print(f"kernel resources: {len(rows)} kernels, {len(problems)} problems"
          + ("; if they are meant: --write" if problems else ""))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
