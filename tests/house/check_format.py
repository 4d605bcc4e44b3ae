#!/usr/bin/env python3
"""All C++ is formatted by clang-format 14 with the repository's .clang-format."""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from source import CPP, ROOT, SKIPPED, files, finish

WANTED = "14"  # versions differ in small things, so exactly one is right


def find_tool(name, wanted=WANTED):
    for candidate in (f"{name}-{wanted}", name):
        if shutil.which(candidate):
            text = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {wanted}\.", text):
                return candidate
    return None


def check(tool, paths, cwd=ROOT):
    """Problems of the files, each once."""
    ran = subprocess.run([tool, "--dry-run", "-Werror", "--style=file", *map(str, paths)], cwd=cwd,
                         capture_output=True, text=True, check=False)
    bad = sorted(set(re.findall(r"^(.+?):\d+:\d+: error: code should be clang-formatted", ran.stderr, re.M)))
    if ran.returncode != 0 and not bad:
        return [ran.stderr.strip()]
    return [f"{path}: not formatted; run: {tool} -i {path}" for path in bad]


def main():
    tool = find_tool("clang-format")
    if tool is None:
        print(f"skipped: clang-format {WANTED} is not installed")
        sys.exit(SKIPPED)
    checked = files(CPP)
    jobs = os.cpu_count() or 1
    with ThreadPoolExecutor(jobs) as pool:
        parts = pool.map(lambda i: check(tool, checked[i::jobs]), range(min(jobs, len(checked))))
        problems = [problem for part in parts for problem in part]
    finish("format", sorted(problems), len(checked))


if __name__ == "__main__":
    main()
