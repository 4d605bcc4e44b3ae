#!/usr/bin/env python3
"""The texts of schema_sweep, judged by Python's jsonschema: check_schemas.py SCHEMA_SWEEP [SCHEMAS]."""
import json
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: Python's jsonschema is not installed")
    sys.exit(77)

sys.setrecursionlimit(100000)  # texts of recursive schemas nest as deeply as they like
with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as lines:
    subprocess.run([sys.argv[1], "--schemas", sys.argv[2] if len(sys.argv) > 2 else "1000", "--write", lines.name],
                   check=True)
    count = bad = 0
    for line in lines:
        pair = json.loads(line)
        count += 1
        kind = jsonschema.Draft202012Validator
        try:
            kind(pair["schema"], format_checker=kind.FORMAT_CHECKER).validate(json.loads(pair["text"]))
        except (ValueError, jsonschema.ValidationError) as error:
            bad += 1
            print(f"{pair['text']}: {str(error)[:300]}")
print(f"{count} texts, {bad} of them invalid")
sys.exit(1 if bad or not count else 0)
