#!/usr/bin/env python3
"""Ops are sorted by family, the suffix of a file says what compiles it, and families include each other one way only
(docs/design/architecture.md, "An op")."""
import re
from collections import defaultdict
from pathlib import PurePosixPath

from source import CPP, code_only, files, finish, read

OPS = "engine/ops"
# A family may include itself, engine/ops/context.h and the families listed here; each is in use. From the bottom up.
FAMILIES = {
    "backend": [],  # parts that kernels of several families share
    "rows": ["backend"],
    "gemm": ["backend", "rows"],
    "quantized": ["backend", "rows", "gemm"],
    "norm": ["backend", "rows"],
    "attention": ["backend", "rows"],
    "loss": ["backend"],
    "moe": ["backend", "rows", "gemm", "loss"],
    "optimizer": ["backend"],
    "sampling": ["backend"],
    "compression": ["backend"],
}
MAX_FLAT = 3  # files of engine/ops itself, which belong to no family
FORM = re.compile(r"^(\w+)\.(h|cpp|kernels\.h|cpu\.h|cpu\.cpp|cu|cuda\.h|cuda\.cpp)$")
FORMS = "X.h, X.cpp, X.kernels.h, X.cpu.h, X.cpu.cpp, X.cu, X.cuda.h and X.cuda.cpp"
BACKEND_FOLDERS = {"cpu": {".h": ".cpu.h", ".cpp": ".cpu.cpp"}, "cuda": {".h": ".cuda.h", ".cpp": ".cuda.cpp"}}
INCLUDE = re.compile(r'^\s*#include\s*["<]([^">]+)[">]')
NOT_PRODUCT = ("tests", "scripts")


def suffix(path):
    """".cpu.cpp" of a/b.cpu.cpp"""
    name = PurePosixPath(path).name
    return name[name.index("."):] if "." in name else ""


def is_cuda(path):
    return suffix(path) in (".cu", ".cuda.cpp", ".cuda.h")


def is_cpu_kernel(path):
    return suffix(path) in (".cpu.cpp", ".cpu.h")


def family_of(path):
    """Family that a file is in; "" for those of engine/ops itself, None for any other."""
    parts = PurePosixPath(path).parts[2:]
    if not str(path).startswith(OPS + "/") or len(parts) > 2 or (len(parts) == 2 and parts[0] not in FAMILIES):
        return None
    return parts[0] if len(parts) == 2 else ""


def homes(paths):
    """{op: its family}: that of its header, else of any of its files."""
    found = {}
    for path in sorted(paths, key=lambda path: (suffix(path) != ".h", str(path))):
        if family_of(path):
            found.setdefault(PurePosixPath(path).name.split(".")[0], family_of(path))
    return found


def right_path(path, home):
    """The path that a misplaced file should have; <family> where its name does not say which."""
    path = PurePosixPath(path)
    stem = path.name.split(".")[0]
    end = suffix(path)
    for folder in path.parts[2:-1]:
        end = BACKEND_FOLDERS.get(folder, {}).get(end, end)
    parts = stem.split("_")
    named = ["_".join(parts[:n]) for n in range(len(parts), 0, -1)]
    family = next((home[name] for name in named if name in home), "<family>")
    return f"{OPS}/{family}/{stem}{end}"


def check_places(paths):
    """paths: of all C++ files of engine/ops."""
    problems, home = [], homes(paths)
    flat = [path for path in paths if family_of(path) == ""]
    if len(flat) > MAX_FLAT:
        problems.append(f"{OPS}: {len(flat)} files outside of the families, at most {MAX_FLAT}: "
                        + ", ".join(f"{path} (to {right_path(path, home)}?)" for path in flat))
    for path in paths:
        name = PurePosixPath(path).name
        if not FORM.match(name):
            problems.append(f"{path}: files of an op X are {FORMS}")
        elif family_of(path) is None:
            problems.append(f"{path}: belongs to {right_path(path, home)}; families are {', '.join(FAMILIES)}")
        elif family_of(path) and home[name.split(".")[0]] != family_of(path):
            problems.append(f"{path}: belongs to {right_path(path, home)}, where the op's header is")
    return problems


def included(text):
    for number, line in enumerate(code_only(text).splitlines(), 1):
        found = INCLUDE.match(line)
        if found and found[1].startswith(OPS + "/"):
            yield number, found[1]


def check_include(path, name):
    """What is wrong with an include of a file of engine/ops, or None."""
    if PurePosixPath(name).suffix != ".h":
        return f"{name} is a source: sources are compiled, not included"
    if not str(path).startswith(OPS + "/"):
        return None if suffix(name) == ".h" else f"{name} is not for other rooms, which include an op's X.h only"
    if suffix(path) == ".h" and suffix(name) != ".h":
        return f"{name} is for sources: X.h is the specification of an op"
    if (is_cuda(path) or suffix(path) == ".kernels.h") and is_cpu_kernel(name):
        return f"{name} is for CPU kernels: what both backends need is in X.kernels.h"
    if (is_cpu_kernel(path) or suffix(path) == ".kernels.h") and is_cuda(name):
        return f"{name} is for CUDA sources: what both backends need is in X.kernels.h"
    own, other = family_of(path), family_of(name)
    if not other or other == own or other in FAMILIES.get(own, ()) or (own == "" and suffix(path) != ".h"):
        return None
    return f"{own or OPS} may not include {other}: arrows between families run the other way"


def unused(edges):
    """edges: {(family, included family)}"""
    return [f"{family} may include {other}, and does not: take it out of the table in tests/house/check_ops.py"
            for family, others in FAMILIES.items() for other in others if (family, other) not in edges]


def upward(table):
    order = list(table)
    return [f"{family} may include {other}, which is listed after it in the table in tests/house/check_ops.py"
            for family, others in table.items() for other in others if order.index(other) > order.index(family)]


def check(texts):
    """texts: {path: text} of the product's C++ files."""
    paths = [path for path in texts if path.startswith(OPS + "/")]
    problems, edges = check_places(paths) + upward(FAMILIES), defaultdict(set)
    for path, text in texts.items():
        for number, name in included(text):
            problem = check_include(path, name)
            problems += [f"{path}:{number}: {problem}"] if problem else []
            edges[family_of(path), family_of(name)].add(path)
    return problems, edges


def main():
    texts = {str(path): read(path) for path in files(CPP) if path.parts[0] not in NOT_PRODUCT}
    problems, edges = check(texts)
    finish("ops", problems + unused(edges), sum(path.startswith(OPS + "/") for path in texts))


if __name__ == "__main__":
    main()
