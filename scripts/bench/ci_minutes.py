#!/usr/bin/env python3
"""Minutes of each part of CI (.ci/run), cold and warm: two fresh clones of HEAD, the first with an empty compiler cache,
the second with what the first left there. Nothing else should run meanwhile.

    ci_minutes.py [--write] [--without-cuda] [--logs FOLDER]

--write puts the table between the marks of docs/design/development.md. --logs keeps both logs there, and takes the
table from logs that are there already.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/development.md"
BEGIN, END = "<!-- minutes of CI: begin -->\n", "<!-- minutes of CI: end -->\n"


def run_ci(log, cache, without_cuda):
    command = [ROOT / "scripts/before_push.sh", *(["--without-cuda"] if without_cuda else [])]
    with log.open("w", encoding="utf-8") as written:
        code = subprocess.run(list(map(str, command)), env={**os.environ, "CCACHE_DIR": str(cache)}, stdout=written,
                              stderr=subprocess.STDOUT, check=False).returncode
    if code != 0:
        sys.exit(f"CI failed with exit code {code}: {log.read_text(encoding='utf-8', errors='replace')[-3000:]}")


def minutes(log):
    """{part: minutes} of a log, in its order."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"(?s)== minutes by part\n(.*)", text)
    if not found:
        sys.exit(f"{log}: CI did not end")
    return {name: float(time) for time, name in re.findall(r"(?m)^ *([\d.]+)  (.+)$", found[1])}


def processor():
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return f"{len(os.sched_getaffinity(0))} cores of {found[1] if found else 'an unknown processor'}"


def table(cold, warm):
    commit = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
    rows = [f"| {name} | {cold[name]:.1f} | {warm.get(name, 0):.1f} |" for name in cold]
    return "\n".join([f"`scripts/bench/ci_minutes.py --write` at {commit}, {processor()}:", "",
                      "| part | cold, min | warm, min |", "|---|--:|--:|", *rows]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--without-cuda", action="store_true")
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    if options.write and not (BEGIN in PAGE.read_text(encoding="utf-8") and END in PAGE.read_text(encoding="utf-8")):
        sys.exit(f"{PAGE} has no marks for the table")
    with tempfile.TemporaryDirectory() as temporary:
        logs = options.logs or Path(temporary)
        logs.mkdir(parents=True, exist_ok=True)
        if not all((logs / f"{name}.log").exists() for name in ("cold", "warm")):
            for name in ("cold", "warm"):
                run_ci(logs / f"{name}.log", Path(temporary) / "ccache", options.without_cuda)
        text = table(minutes(logs / "cold.log"), minutes(logs / "warm.log"))
    print(text, end="")
    if options.write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
