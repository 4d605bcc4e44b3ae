#!/usr/bin/env python3
"""Runs ctest over a folder and sums up: what failed, what was unstable, what was skipped and why.

    run_suites.py FOLDER [ctest argument...]

A suite that fails is run once more, alone. If it passes then, it is unstable: the last lines name it, and the run
passes, unless the same suite was also unstable in the run of the previous commit (the newest ancestor of HEAD that was
tested on this machine; ~/.cache/trireme/unstable.json has the last 100 runs). More than MAX_REPEATED failures are not
chance and are not repeated.

FOLDER/results.xml: the results in JUnit's format. Exit code 0, or 8 as ctest's.
"""
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from failed_tests import failed_cases, print_failures

MAX_REPEATED = 5
MAX_RUNS = 100
# GoogleTest's lines of a skipped case, and unittest's.
SKIPPED_CASES = (re.compile(r"(?m)^.+:\d+: Skipped\n(.+)$"), re.compile(r"(?m) \.\.\. skipped ['\"](.+)['\"]$"))
MAX_OUTPUT = 1 << 20  # bytes of a suite that passes; ctest keeps 1 KiB by itself


def ctest(folder, results, *arguments):
    """Runs ctest; returns its cases, or None where it ran no test."""
    results.unlink(missing_ok=True)
    subprocess.run(["ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error", "--output-junit", results,
                    "--test-output-size-passed", str(MAX_OUTPUT), *arguments], stdin=subprocess.DEVNULL, check=False)
    return list(ElementTree.parse(results).getroot().iter("testcase")) if results.exists() else None


def passes_alone(folder, name):
    print(f"\n== {name} failed: run once more, alone", flush=True)
    cases = ctest(folder, folder / "again.xml", "-j1", "-R", f"^{re.escape(name)}$")
    return bool(cases) and not failed_cases(cases)


def skipped_suites(cases):
    """(suite, reason) of each suite that its program skipped."""
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
            said = (case.findtext("system-out") or "").strip().splitlines()
            yield case.get("name"), said[-1] if said else "no reason given"


def skipped_cases(cases):
    """(suite, reason) -> number of the cases that passing suites left out."""
    found = Counter()
    for case in cases:
        for pattern in SKIPPED_CASES:
            found.update((case.get("name"), reason) for reason in pattern.findall(case.findtext("system-out") or ""))
    return found


def git(*arguments):
    ran = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else None


def record_path():
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trireme/unstable.json"


def read_runs(path):
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))
        return [run for run in runs if isinstance(run["commit"], str) and isinstance(run["unstable"], list)]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def unstable_before(runs, head):
    """Suites that were unstable at the newest ancestor of HEAD among the runs."""
    for run in reversed(runs):
        if run["commit"] != head and git("merge-base", "--is-ancestor", run["commit"], head) is not None:
            return set(run["unstable"])
    return set()


def record(unstable):
    """Notes this run, and returns the suites of it that were unstable at the previous commit too."""
    head = git("rev-parse", "HEAD")
    if not head:
        return set()
    path, runs = record_path(), read_runs(record_path())
    before = unstable_before(runs, head)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([*runs, {"commit": head, "unstable": sorted(unstable)}][-MAX_RUNS:]), encoding="utf-8")
    except OSError as error:
        print(f"== cannot note unstable suites: {error}")
    return before & set(unstable)


def sum_up(cases, failed, unstable, twice):
    suites = dict(skipped_suites(cases))
    inner = skipped_cases(cases)
    for name, reason in suites.items():
        print(f"skipped: {name}: {reason}")
    for (name, reason), count in sorted(inner.items()):
        print(f"skipped: {count} case{'s' * (count > 1)} of {name}: {reason}")
    for name in unstable:
        print(f"unstable: {name} failed, then passed alone" + (", at the previous commit too" if name in twice else ""))
    for name in failed:
        print(f"failed: {name}")
    print(f"{len(cases) - len(failed) - len(suites)} passed, {len(failed)} failed, {len(suites)} skipped")
    print(f"{sum(inner.values())} cases of passing suites skipped, {len(unstable)} suites unstable")


def main(folder, *arguments):
    folder = Path(folder).resolve()  # ctest takes the path of results from there
    results = folder / "results.xml"
    cases = ctest(folder, results, *arguments)
    if not cases:
        print("no test ran")
        return 8
    first = [case.get("name") for case in failed_cases(cases)]
    unstable = [name for name in first if passes_alone(folder, name)] if len(first) <= MAX_REPEATED else []
    failed = [name for name in first if name not in unstable]
    print_failures(cases)
    twice = record(unstable)
    print()
    sum_up(cases, failed, unstable, twice)
    return 8 if failed or twice else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
