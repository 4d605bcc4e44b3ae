#!/usr/bin/env python3
"""The documents tell the truth: commands marked as tested run, links and named files exist, and
docs/README.md lists every file of docs/.

A fenced block whose info string is `sh tested` is run by bash, all blocks of a document in one empty folder
and in order, with the built `trireme` first in PATH and $TRIREME_SOURCE naming the source tree.

    check_docs.py TRIREME_BINARY
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from source import ROOT, files, finish, read

BLOCK = re.compile(r"^```sh tested\n(.*?)^```$", re.M | re.S)
INDEX = Path("docs/README.md")
NOT_LISTED = {".png", ".svg"}  # pictures of pages
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path in backticks counts as a claim when it names a file of a folder of ours.
NAMED = re.compile(r"`((?:engine|parallel|transformer|optim|serving|training|commands|scripts|tests|docs|configs)"
                   r"/[\w./-]*\w\.(?:cpp|cu|h|py|sh|md|json|sbatch|def))`")


def run_blocks(path, text, folder, environment):
    for block in BLOCK.findall(text):
        ran = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder, env={**os.environ, **environment},
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
        if ran.returncode != 0:
            return [f"{path}: exit code {ran.returncode} from\n{block}{ran.stdout[-1000:]}{ran.stderr[-1000:]}"]
    return []


def anchors(text):
    """Of the headings, as GitHub and GitLab make them."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path, text):
    problems = []
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        file = ROOT / path.parent / target if target else None
        if file is not None and not file.exists():
            problems.append(f"{path}: link to {target}, which does not exist")
        elif anchor and (file is None or file.suffix == ".md"):
            if anchor not in anchors(text if file is None else file.read_text(encoding="utf-8")):
                problems.append(f"{path}: link to {link}, a heading that does not exist")
    return problems + [f"{path}: names {name}, which does not exist" for name in NAMED.findall(text)
                       if not (ROOT / name).exists()]


def missing_in_index(text, listed):
    """Files of docs/ (paths relative to the root) that the index does not link to."""
    linked = {os.path.normpath(INDEX.parent / target.split("#")[0]) for target in LINK.findall(text)}
    return [f"{INDEX}: no link to {path}" for path in listed
            if path != INDEX and path.suffix not in NOT_LISTED and str(path) not in linked]


def main():
    environment = {"PATH": f"{Path(sys.argv[1]).resolve().parent}:{os.environ['PATH']}", "TRIREME_SOURCE": str(ROOT)}
    documents = files({".md"})
    problems = missing_in_index(read(INDEX), [path for path in files() if path.parts[0] == INDEX.parts[0]])
    for path in documents:
        text = read(path)
        problems += broken_links(path, text)
        with tempfile.TemporaryDirectory() as folder:
            problems += run_blocks(path, text, folder, environment)
    finish("documents", problems, len(documents))


if __name__ == "__main__":
    main()
