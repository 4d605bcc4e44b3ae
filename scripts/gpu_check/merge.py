#!/usr/bin/env python3
"""Puts the phases' lines into one JSON file.

    merge.py FOLDER [--into FOLDER/gpu.json]

{"rehearsal": bool, "phases": {name: {"complete": bool, "rows": {id: row}}}}; the last row of an id counts.
"""
import argparse
import json
from pathlib import Path

from phase import read_rows

PHASES = ["facts", "ops", "models", "speed", "serve", "peers"]


def merged(folder):
    phases, rehearsal = {}, False
    for name in PHASES:
        path = Path(folder) / f"{name}.jsonl"
        if not path.exists():
            continue
        rows = read_rows(path)
        done = rows.pop("phase_done", None)
        rehearsal = rehearsal or bool(done and done["rehearsal"])
        phases[name] = {"complete": done is not None, "rows": rows}
    return {"rehearsal": rehearsal, "phases": phases}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--into")
    arguments = parser.parse_args()
    target = Path(arguments.into or Path(arguments.folder) / "gpu.json")
    target.write_text(json.dumps(merged(arguments.folder), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
