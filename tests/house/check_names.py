#!/usr/bin/env python3
"""No two headers define types of one name in one namespace: a program that links both takes one's functions for the other's,
and no compiler says so."""
import re
from collections import defaultdict

from source import code_only, files, finish, read

NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.M)
TYPE = re.compile(r"^(?:struct|class) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: : [^{;]*)? \{", re.M)


def types_of(text):
    """(namespace, name) of the types that stand at the margin."""
    places = [(match.start(), match[1]) for match in NAMESPACE.finditer(text)]
    for match in TYPE.finditer(text):
        inside = [name for start, name in places if start < match.start()]
        yield (inside[-1] if inside else "", match[1])


def main():
    headers = [path for path in files({".h"}) if path.parts[0] != "tests"]
    where = defaultdict(set)
    for path in headers:
        for name in types_of(code_only(read(path))):
            where[name].add(str(path))
    problems = [f"{sorted(paths)[1]}: {space}::{name} is a type of {sorted(paths)[0]} too; rename one"
                for (space, name), paths in sorted(where.items()) if len(paths) > 1]
    finish("names of types", problems, len(headers))


if __name__ == "__main__":
    main()
