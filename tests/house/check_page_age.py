#!/usr/bin/env python3
"""Pages that a long measurement wrote were measured at most so many commits ago. Each names its commit in a row of its
first table, `| commit | HASH |`. The page of GPUs is not among them: nobody without one could renew it. Skipped without
the history."""
import re
import subprocess
import sys
from pathlib import Path

from source import ROOT, SKIPPED, finish, read

# Page: commits since its measurement.
MAX_COMMITS = {"docs/reference/layouts.md": 100, "docs/reference/performance.md": 150}


def git(*arguments):
    """What git prints, or None where it fails."""
    try:
        ran = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def commits_since(commit):
    """None: it is no ancestor of HEAD."""
    if git("merge-base", "--is-ancestor", commit, "HEAD") is None:
        return None
    count = git("rev-list", "--count", f"{commit}..HEAD", "--")
    return None if count is None else int(count)


def check(page, text, limit, count=commits_since):
    found = re.search(r"(?m)^\| made by \| `([^`]+)` \|$", text)
    how = f"write it again: {found[1]}" if found else "write it again"
    found = re.search(r"(?m)^\| commit \| (\S+) \|$", text)
    if not found:
        return [f"{page}: no row | commit | HASH |"]
    if found[1].endswith("-dirty"):
        return [f"{page}: measured with changes beside {found[1]}; {how}"]
    age = count(found[1])
    if age is None:
        return [f"{page}: {found[1]} is no ancestor of HEAD; {how}"]
    return [f"{page}: measured {age} commits ago, at most {limit} are allowed; {how}"] if age > limit else []


def main():
    # A source archive may lie in another repository.
    top = git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != ROOT or git("rev-parse", "--is-shallow-repository") != "false":
        print("age of pages: no git history here")
        sys.exit(SKIPPED)
    finish("age of pages", [problem for page, limit in MAX_COMMITS.items() for problem in check(page, read(page), limit)],
           len(MAX_COMMITS))


if __name__ == "__main__":
    main()
