#!/usr/bin/env python3
"""docs/reference/performance-gpu.md is what the results and the predictions say, and claims nothing that has no result."""
import json
import re
import subprocess
import sys

from source import ROOT, finish

PAGE = ROOT / "docs/reference/performance-gpu.md"
RESULTS = ROOT / "docs/reference/results/gpu.json"


def main():
    ran = subprocess.run([sys.executable, "-B", str(ROOT / "scripts/gpu_check/page.py"), "--check"],
                         capture_output=True, text=True, check=False)
    problems = [] if ran.returncode == 0 else [ran.stderr.strip()]
    text = PAGE.read_text(encoding="utf-8")
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        if results["rehearsal"]:
            problems.append(f"{RESULTS} is of a rehearsal")
    elif re.search(r"\| (yes|ok|agrees) \|", text) or "not run" not in text:
        problems.append(f"{PAGE} claims results, and there are none")
    finish("page of GPU results", problems, 1)


if __name__ == "__main__":
    main()
