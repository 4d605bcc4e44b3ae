#!/usr/bin/env python3
"""Names that only some folders may use, words that nobody may, and the length of files."""
import re
from pathlib import Path

from source import CPP, code_only, files, finish, read, search

MAX_LINES = 600
NO_LIMIT = {".md", ".json", ".safetensors", ".idx", ".bin", ".tsv", ".txt"}

# (what, pattern over code without comments and strings, folders and files that may)
OWNED = [
    ("MPI", re.compile(r"\bmpi\.h\b|\bP?MPI_[A-Z]\w*"), ("parallel/comm/", "scripts/pmpi/", "tests/parallel/")),
    ("CUDA", re.compile(r"\bcuda(?:[A-Z]\w*|_runtime\w*)|\bcu(?:blas|dnn|rand)\w*|__global__|<<<"),
     ("engine/device/cuda/", "engine/device/launch.h", "engine/ops/cuda/", "optim/cuda/", "parallel/comm/cuda/",
      "tests/emulator/", "tests/cuda/")),
    ("NCCL", re.compile(r"\bnccl\w*"), ("parallel/comm/", "tests/emulator/", "tests/cuda/")),
    ("oneDNN", re.compile(r"\bdnnl\w*"), ("engine/ops/",)),
    ("the environment", re.compile(r"\b(?:secure_)?getenv\b|\b(?:set|put|unset)env\b|\benviron\b"),
     ("parallel/comm/", "tests/parallel/test_launch.cpp")),
    ("exit and abort", re.compile(r"(?<![\w.>:])(?:std::)?(?:_?exit|abort|quick_exit|terminate)\s*\("),
     ("tests/", "scripts/", "parallel/launch.cpp", "parallel/comm/")),
]
# Written in two halves so that this file passes its own check.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")


def check(path, text):
    path = Path(path)
    problems = []
    if path.suffix in CPP:
        code = code_only(text)
        for what, pattern, owners in OWNED:
            if not str(path).startswith(owners):
                problems += search(path, pattern, code, f"{{word}}: {what} belongs to {', '.join(owners)}")
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
