#!/usr/bin/env python3
"""Puts the rows of calls into one JSON file.

    merge.py FOLDER... --into FILE

{"rehearsal": bool, "calls": {number: complete}, "phases": {name: {id: row}}}; the last row of an id counts, but no
failure replaces a result.
"""
import argparse
import json
from pathlib import Path

from phase import add_row, read_rows


def merged(paths):
    rows = {}
    for path in paths:
        for row in read_rows(path).values():
            add_row(rows, row)
    out = {"rehearsal": False, "calls": {}, "phases": {}}
    for (phase, identity), row in rows.items():
        if phase == "calls":
            out["calls"][identity] = row["complete"]
            out["rehearsal"] |= row["rehearsal"]
        else:
            out["phases"].setdefault(phase, {})[identity] = row
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--into", required=True)
    arguments = parser.parse_args()
    target = Path(arguments.into)
    target.parent.mkdir(parents=True, exist_ok=True)
    results = merged([Path(folder) / "rows.jsonl" for folder in arguments.folders])
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
