#!/usr/bin/env python3
"""clang-tidy over the product's sources, with the checks of .clang-tidy.

    check_tidy.py BUILD_FOLDER [--changed COMMIT] [--sample N] [FILE...]

--changed looks only at .cpp files that differ from COMMIT; with FILEs, only at those. --sample takes one file in
N, other ones for every commit: the whole takes ten minutes (scripts/tidy.sh).
"""
import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_format import find_tool
from source import ROOT, SKIPPED, finish

LONGEST, TRIES = 90, 4  # seconds for one file, of which a usual one takes 5 to 10
WANTED = "16"  # older ones lack std::source_location
CRASHES = "bugprone-unchecked-optional-access"


def sources_of(path, build):
    """The sources that a compiled file is made of: those it includes where it is a unit (cmake/TriremeOptions.cmake)."""
    if not path.is_relative_to(build / "unity"):
        return [path]
    return [ROOT / name for name in re.findall(r'^#include "(.+)"$', path.read_text(), re.M)]


def jobs_of(build):
    """Source -> compile command, once each: kernels are listed three times."""
    commands = {}
    build = Path(build).resolve()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        for path in sources_of(Path(entry["file"]).resolve(), build):
            if path.suffix != ".cpp":  # GCC's atomics in the one C file are not clang's
                continue
            if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] in ("tests", "build"):
                continue
            commands.setdefault(path.relative_to(ROOT), entry)
    return commands


def arguments(entry, gcc_include):
    words = shlex.split(entry["command"])
    # Warnings are the compiler's business: no -W here.
    kept = [w for w in words if re.match(r"^-(I|D|std=|m|f)", w)]
    for i, word in enumerate(words):
        if word == "-isystem":
            kept += ["-isystem", words[i + 1]]
    # omp.h is GCC's here; it names a deallocator in __malloc__(f), which clang does not know.
    return kept + ["-idirafter", gcc_include, "-D__malloc__(f)=__nothrow__"]


def run_tool(command):
    """Its result; None where it does not end. Whether the checks of optionals end depends on the addresses that the tool happens to
    have: of one file it was 4 seconds seven times, and the eighth time it did not end. So it is tried again."""
    for _ in range(TRIES):
        try:
            return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            continue
    return None


def check(tool, path, compile_arguments, options=()):
    head, tail = [tool, "--quiet", "--warnings-as-errors=*", *options], [str(path), "--", *compile_arguments]
    ran = run_tool([*head, *tail])
    if ran is not None and ran.returncode < 0:  # the data flow of one check crashes the tool on some valid code
        ran = run_tool([*head, f"--checks=-{CRASHES}", *tail])
    if ran is None:
        return [f"{path}: {tool} has not ended {TRIES} times within {LONGEST} s: find the function with --checks=-*,ONE and split it"]
    problems = re.findall(r"^(.+?:\d+:\d+: (?:error|warning): .+)$", ran.stdout, re.M)
    if ran.returncode != 0 and not problems:
        problems = [f"{path}: {tool} failed: {ran.stderr.strip()[-400:]}"]
    return [p.replace(str(ROOT) + "/", "") for p in problems]


def in_sample(path, n):
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    digest = hashlib.sha256(f"{commit.stdout.strip()} {path}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % n == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--changed", metavar="COMMIT")
    parser.add_argument("--sample", metavar="N", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    tool = find_tool("clang-tidy", WANTED)
    if tool is None:
        print(f"skipped: clang-tidy {WANTED} is not installed")
        sys.exit(SKIPPED)
    commands = jobs_of(options.build)
    if options.changed:
        diff = ["git", "-C", str(ROOT), "diff", "--name-only", options.changed]
        options.files = [Path(p) for p in subprocess.check_output(diff, text=True).split()]
    chosen = [p for p in commands if not (options.files or options.changed) or p in options.files]
    chosen = [p for p in chosen if in_sample(p, options.sample)]
    gcc_include = subprocess.check_output(["g++", "-print-file-name=include"], text=True).strip()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda p: check(tool, p, arguments(commands[p], gcc_include)), chosen)
        problems = sorted({problem for result in results for problem in result})
    finish("static analysis", problems, len(chosen) or (1 if options.changed or options.sample > 1 else 0))


if __name__ == "__main__":
    main()
