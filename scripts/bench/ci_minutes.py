#!/usr/bin/env python3
"""Minutes of each part of CI (.ci/run), cold and warm: two fresh clones of HEAD, the first with an empty compiler cache,
the second with what the first left there. Nothing else should run meanwhile.

    ci_minutes.py [--write] [--without-cuda] [--logs FOLDER] [--only cold|warm]

--write puts the table between the marks of docs/design/development.md. --logs keeps the logs cold.log and warm.log and
the compiler cache (ccache/) in FOLDER; logs that are there are not made again, so the two runs may be hours and commits
apart. --only makes one of them, if it is missing, and prints no table.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/development.md"
NAMES = ("cold", "warm")
BEGIN, END = "<!-- minutes of CI: begin -->\n", "<!-- minutes of CI: end -->\n"


def run_ci(name, folder, without_cuda):
    """Makes the log of a name; one of a run that failed is called NAME.failed.log."""
    cache, log, failed = folder / "ccache", folder / f"{name}.log", folder / f"{name}.failed.log"
    if name == "cold":
        shutil.rmtree(cache, ignore_errors=True)
    elif not cache.exists():
        sys.exit(f"{folder} has no compiler cache (ccache/); remove cold.log, if it is there, and run with --only cold")
    command = [ROOT / "scripts/before_push.sh", *(["--without-cuda"] if without_cuda else [])]
    with failed.open("w", encoding="utf-8") as written:
        code = subprocess.run(list(map(str, command)), env={**os.environ, "CCACHE_DIR": str(cache.resolve())}, stdout=written,
                              stderr=subprocess.STDOUT, check=False).returncode
    if code != 0:
        sys.exit(f"CI failed with exit code {code}: {failed.read_text(encoding='utf-8', errors='replace')[-3000:]}")
    failed.rename(log)


def commit(log):
    found = re.search(r"(?m)^== CI of commit ([0-9a-f]+)$", log.read_text(encoding="utf-8", errors="replace"))
    if not found:
        sys.exit(f"{log}: no line \"== CI of commit ...\"; remove the file to make it again")
    return found[1]


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


def table(logs):
    """Rows of the parts, and a column for each log that names its commit."""
    columns = [minutes(log) for log in logs]
    parts = dict.fromkeys(part for column in columns for part in column)
    rows = [[part, *(f"{column[part]:.1f}" if part in column else "" for column in columns)] for part in parts]
    head = ["part", *(f"{log.stem} at {commit(log)}, min" for log in logs)]
    return "\n".join([f"`scripts/bench/ci_minutes.py --write`, {processor()}:", "", f"| {' | '.join(head)} |",
                      "|---" + "|--:" * len(logs) + "|", *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--without-cuda", action="store_true")
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--only", choices=NAMES)
    options = parser.parse_args()
    if options.only and (options.write or not options.logs):
        parser.error("--only needs --logs, and makes no table to --write")
    if options.write and not (BEGIN in PAGE.read_text(encoding="utf-8") and END in PAGE.read_text(encoding="utf-8")):
        sys.exit(f"{PAGE} has no marks for the table")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in [options.only] if options.only else NAMES:
            if not (folder / f"{name}.log").exists():
                run_ci(name, folder, options.without_cuda)
        if options.only:
            return
        text = table([folder / f"{name}.log" for name in NAMES])
    print(text, end="")
    if options.write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
