#!/usr/bin/env python3
"""Adds the rows of calls to a JSON file of results.

    merge.py FOLDER... --into FILE

{"rehearsal": bool, "calls": {number: complete}, "phases": {name: {id: row}}}; the last row of an id counts, those that
FILE has being the first, but no failure replaces a result. Exit code 2 where FILE has results of another device.
"""
import argparse
import json
import sys
from pathlib import Path

from phase import add_row, read_rows


def merged(paths, kept=None):
    """kept: what a file of results has."""
    kept = kept or {"rehearsal": False, "calls": {}, "phases": {}}
    rows = {(phase, identity): row for phase, found in kept["phases"].items() for identity, row in found.items()}
    for path in paths:
        for row in read_rows(path).values():
            add_row(rows, row)
    out = {"rehearsal": kept["rehearsal"], "calls": dict(kept["calls"]), "phases": {}}
    for (phase, identity), row in rows.items():
        if phase == "calls":
            out["calls"][identity] = row["complete"] or out["calls"].get(identity, False)
            out["rehearsal"] |= row["rehearsal"]
        else:
            out["phases"].setdefault(phase, {})[identity] = row
    return out


def device(results):
    """Its name by our program; None in a rehearsal."""
    return results["phases"].get("facts", {}).get("opened", {}).get("program", {}).get("device")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--into", required=True)
    arguments = parser.parse_args()
    target = Path(arguments.into)
    target.parent.mkdir(parents=True, exist_ok=True)
    paths = [Path(folder) / "rows.jsonl" for folder in arguments.folders]
    kept = json.loads(target.read_text(encoding="utf-8")) if target.exists() else None
    come = device(merged(paths))
    if kept and come != device(kept):
        print(f"{target} has results of {device(kept)}, these are of {come}: one file is of one device; remove it to begin "
              "anew", file=sys.stderr)
        sys.exit(2)
    results = merged(paths, kept)
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
