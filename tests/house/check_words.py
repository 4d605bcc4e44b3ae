#!/usr/bin/env python3
"""Names that only some folders may use, words and expressions that nobody may, and the length of files."""
import re
from fnmatch import fnmatchcase
from pathlib import Path

from source import CPP, code_only, files, finish, read, search

MAX_LINES = 600
NO_LIMIT = {".md", ".json", ".safetensors", ".idx", ".bin", ".tsv", ".txt"}

# (what, pattern over code without comments and strings, folders and files that may; * is any part of a path)
OWNED = [
    ("MPI", re.compile(r"\bmpi\.h\b|\bP?MPI_[A-Z]\w*"), ("parallel/comm/", "scripts/pmpi/", "tests/parallel/")),
    ("CUDA", re.compile(r"\bcuda(?:[A-Z]\w*|_runtime\w*)|\bcu(?:blas|dnn|rand)\w*|__global__|<<<"),
     ("engine/device/cuda/", "engine/device/launch.h", "engine/ops/*.cu", "engine/ops/*.cuda.cpp", "engine/ops/*.cuda.h",
      "optim/cuda/", "parallel/comm/cuda/", "tests/emulator/", "tests/cuda/")),
    ("NCCL", re.compile(r"\bnccl\w*"), ("parallel/comm/", "tests/emulator/", "tests/cuda/")),
    ("oneDNN", re.compile(r"\bdnnl\w*"), ("engine/ops/",)),
    ("the environment", re.compile(r"\b(?:secure_)?getenv\b|\b(?:set|put|unset)env\b|\benviron\b"),
     ("parallel/comm/", "engine/io/hub_cache.cpp", "tests/parallel/environment.h",
      "tests/parallel/test_launch.cpp", "tests/cuda/test_device_use.cpp")),
    ("exit and abort", re.compile(r"(?<![\w.>:])(?:std::)?(?:_?exit|abort|quick_exit|terminate)\s*\("),
     ("tests/", "scripts/", "parallel/child_process.cpp", "parallel/comm/")),
]
# Written in two halves so that this file passes its own check.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")

BLOCK = re.compile(r"\{[^{}]*\}")
CONTROL = re.compile(r"\s*(?:else\s+)?(?:if|while|for|switch)\b[^(]*\(")


def statements(code):
    """(offset, text) of each statement of C++, those of blocks, lambdas' too, by themselves; blanks stand for them."""
    while block := BLOCK.search(code):
        begin, end, inside = block.start(), block.end(), block[0][1:-1]
        if ";" in inside or not inside.strip():
            yield from statements_of_block(begin + 1, inside)
            goes_on = code[end:].lstrip()[:1] in {",", ")", ";", "(", "."}  # behind a lambda
            code = code[:begin] + re.sub(r"[^\n]", " ", inside) + ("  " if goes_on else " ;") + code[end:]
        else:  # a list of values
            code = code[:begin] + "(" + inside + ")" + code[end:]
    yield from statements_of_block(0, code)


def statements_of_block(offset, code):
    for statement in code.split(";"):
        at = 0
        while control := CONTROL.match(statement, at):  # what stands in its brackets is an expression by itself
            begin, depth = at, 1
            at = control.end()
            while depth > 0 and at < len(statement):
                depth += {"(": 1, ")": -1}.get(statement[at], 0)
                at += 1
            yield offset + begin, statement[begin:at]
        yield offset + at, statement[at:]
        offset += len(statement) + 1


def around_awaits(statement):
    """The statement with what stands in brackets without a co_await blanked: a choice there is of other things."""
    while group := re.search(r"\([^()]*\)", statement):
        rest = "[" + group[0][1:-1] + "]" if "co_await" in group[0] else re.sub(r"[^\n]", " ", group[0])
        statement = statement[:group.start()] + rest + statement[group.end():]
    return statement


def chosen_awaits(path, code):
    """GCC 12 makes wrong code of co_await within a ?: expression, which has crashed the router."""
    for offset, statement in statements(code) if "co_await" in code else ():
        if "co_await" not in statement:
            continue
        around = around_awaits(statement)
        if "?" in around:
            line = code.count("\n", 0, offset + around.index("co_await")) + 1
            yield f"{path}:{line}: co_await within ?: is compiled wrong by GCC 12; write if and else"


def check(path, text):
    path = Path(path)
    problems = []
    if path.suffix in CPP:
        code = code_only(text)
        for what, pattern, owners in OWNED:
            if not any(fnmatchcase(str(path), owner + "*" * owner.endswith("/")) for owner in owners):
                problems += search(path, pattern, code, f"{{word}}: {what} belongs to {', '.join(owners)}")
        problems += chosen_awaits(path, code)
    problems += search(path, UNFINISHED, text, "{0}: finish it, or open an issue")
    lines = text.count("\n")
    limited = path.suffix not in NO_LIMIT or path.name == "CMakeLists.txt"
    if limited and lines > MAX_LINES:
        problems.append(f"{path}: {lines} lines, at most {MAX_LINES}: split it by what its parts do")
    if text and not text.endswith("\n"):
        problems.append(f"{path}: no line feed at the end")
    return problems


def is_text(path):
    return path.suffix in CPP | {".py", ".sh", ".md", ".json", ".cmake", ".in", ".txt", ".js", ".css", ".html"}


def main():
    checked = [path for path in files() if is_text(path)]
    finish("words and lengths", [p for path in checked for p in check(path, read(path))], len(checked))


if __name__ == "__main__":
    main()
