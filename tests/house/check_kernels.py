#!/usr/bin/env python3
"""The first statement of every kernel is begin_kernel(): without it, a kernel reads before earlier ones have written
(engine/device/launch.h). What it hands over as before() reads nothing."""
import re

from source import code_only, files, finish, read

SUFFIXES = {".cu", ".h"}
# Of a block's number, which no kernel writes; and the call, whose before() is one prefetch.
FIRST = re.compile(r"(const int64_t \w+ = static_cast<int64_t>\(blockIdx\.\w\) \* \w+;)?"
                   r"begin_kernel\((\[&\] \{ prefetch_\w+\([^;]*\); \})?\);")


def behind(text, begin):
    """The place after the bracket that closes the first one at or after `begin`."""
    depth = 0
    for i in range(text.index("(", begin), len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    return len(text)


def check(path, text):
    code, problems = code_only(text), []
    for found in re.finditer(r"\b__global__\b", code):
        end = behind(code, found.end())
        if "__launch_bounds__" in code[found.end():end]:
            end = behind(code, end)
        body = re.sub(r"\s*\n\s*", "", code[end:].lstrip().removeprefix("{").lstrip())
        if not FIRST.match(body):
            line = code.count("\n", 0, found.start()) + 1
            problems.append(f"{path}:{line}: a kernel whose first statement is not begin_kernel()")
    return problems


def main():
    paths = [path for path in files(SUFFIXES) if path.parts[0] != "tests"]
    problems = [problem for path in paths for problem in check(path, read(path))]
    finish("kernels", problems, len(paths))


if __name__ == "__main__":
    main()
