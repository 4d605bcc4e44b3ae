#!/usr/bin/env python3
"""Prints once more, below ctest's summary, what the failed tests of a run said.

    failed_tests.py RESULTS.xml        JUnit's XML as ctest --output-junit writes it

Of each test: the lines that name a failure with what follows them, then the last ones, some 80 lines in all.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

NAMES_A_FAILURE = re.compile(r": Failure$|^(FAIL|ERROR): |^Traceback|==ERROR|==WARNING|runtime error:|[Ee]xception|[Aa]ssert")
FOLLOWING, LAST, MAX_LINES = 12, 15, 80


def excerpt(text, max_lines=MAX_LINES):
    """Of these lines the telling ones, "..." where some are left out."""
    lines = text.splitlines()
    chosen = set()
    for i, line in enumerate(lines):
        if NAMES_A_FAILURE.search(line) and len(chosen) < max_lines - LAST:
            chosen.update(range(i, min(i + FOLLOWING, len(lines))))
    chosen.update(range(max(0, len(lines) - LAST), len(lines)))
    shown, previous = [], -1
    for i in sorted(chosen):
        if i != previous + 1:
            shown.append("...")
        shown.append(lines[i])
        previous = i
    return shown


def failed_cases(cases):
    """Cases that failed or could not be started; not those that were skipped."""
    out = []
    for case in cases:
        skipped = case.find("skipped")
        why = "" if skipped is None else skipped.get("message", "")
        if case.get("status") == "fail" or (why and not why.startswith("SKIP_")):
            out.append(case)
    return out


def print_failures(cases):
    for case in failed_cases(cases):
        skipped = case.find("skipped")
        why = "" if skipped is None else skipped.get("message", "")
        print(f"\n== failed: {case.get('name')}, {float(case.get('time')):.1f} s {why}".rstrip())
        print("\n".join(excerpt(case.findtext("system-out") or "")))


if __name__ == "__main__":
    print_failures(ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
