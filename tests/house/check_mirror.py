#!/usr/bin/env python3
"""Unit tests are at the path of the source they test: a/b/c.cpp has tests/a/b/test_c.cpp.

check_mirror.py [--list]   --list: sources whose test is elsewhere, each with the files it is in

A source of one backend counts as its op: a/b/c.cpu.cpp and a/b/c.cuda.cpp too have tests/a/b/test_c.cpp.
A file of unit tests (GoogleTest) below tests/ is a test of
  - the source at its mirrored path;
  - sources of the same top-level folder that share its name (test_replicas.cpp, replicas.cpp) or the name
    of one of its suites in Pascal case (TEST(PrefixTable, ...), prefix_table.cpp): of several of one
    name the nearest to its folder;
  - if that finds none, the source of the first header of its top-level folder that it includes.
A source has a unit test if some file is a test of it by these rules, and has it where the mirror says if
that path is a file with a test case. The second line of the output also counts every source whose
header some unit test includes, if only to prepare a test of another source: the widest meaning.
Tests of the whole program (e2e), of layouts, of kernels on an emulated GPU (cuda, emulator) and fuzz
targets belong to no single source and do not count.
"""
import re
import sys
from collections import defaultdict
from pathlib import PurePosixPath

from source import code_only, files, finish, read

# Percent of the sources with a unit test that have it at the mirrored path. It only goes up.
MIN_SHARE = 95

NOT_PRODUCT = ("tests", "scripts")
NOT_UNIT = ("compare", "cuda", "e2e", "emulator", "fuzz", "golden", "house", "layouts", "support")
CASE = re.compile(r"^TEST(?:_[FP])?\(\s*(\w+),", re.M)
INCLUDE = re.compile(r'^#include "([^".]+)\.(?:\w+\.)?h"', re.M)


def unit(source):
    """The source without .cpp, .cpu.cpp or .cuda.cpp."""
    path = PurePosixPath(source)
    return str(path.with_name(path.name.split(".")[0]))


def mirrored(source):
    """Path of the unit test of a source."""
    path = PurePosixPath(unit(source))
    return f"tests/{path.parent}/test_{path.name}.cpp"


def plain(name):
    return name.replace("_", "").lower()


def common(a, b):
    """Number of leading folders that two paths share."""
    pairs = zip(PurePosixPath(a).parent.parts, PurePosixPath(b).parent.parts)
    same = [x == y for x, y in pairs]
    return (same + [False]).index(False)


def subjects(test, text, sources):
    """Sources that a file of unit tests is a test of. sources: all of the product, without .cpp."""
    path = PurePosixPath(test).relative_to("tests")
    own = str(path.parent / path.stem.removeprefix("test_"))
    named = {path.stem.removeprefix("test_"), *CASE.findall(text)}
    names = {plain(name) for name in named} | {plain(name.removesuffix("Test")) for name in named}
    by_name = defaultdict(list)
    for source in sources:
        if PurePosixPath(source).parts[0] == path.parts[0] and plain(PurePosixPath(source).name) in names:
            by_name[PurePosixPath(source).name].append(source)
    found = {own} & set(sources)
    for same in by_name.values():
        found.add(max(sorted(same), key=lambda source: (common(own, source), -source.count("/"))))
    if not found:
        included = [name for name in INCLUDE.findall(text) if name.split("/")[0] == path.parts[0]]
        found = set(included[:1]) & set(sources)
    return found


def tests_of(texts, sources):
    """{source: its files of unit tests}. texts: {path: text} of all of them."""
    tests = defaultdict(list)
    for path, text in sorted(texts.items()):
        code = code_only(text)
        if CASE.search(code):
            for source in subjects(path, code, sources):
                tests[source].append(path)
    return tests


def astray(tests):
    """The sources of tests_of() whose unit test is not at the mirrored path."""
    return {source: paths for source, paths in sorted(tests.items()) if mirrored(f"{source}.cpp") not in paths}


def percent(part, whole):
    return 100 * part / max(whole, 1)


def check(tests, min_share):
    share = percent(len(tests) - len(astray(tests)), len(tests))
    return [] if share >= min_share else [
        f"{share:.1f} % of the sources with a unit test have it at the mirrored path, at least {min_share} % must: "
        f"a/b/c.cpp has {mirrored('a/b/c.cpp')} (check_mirror.py --list names those that have it elsewhere)"]


def main():
    paths = list(files({".cpp"}))
    sources = sorted({unit(path) for path in paths if path.parts[0] not in NOT_PRODUCT})
    texts = {str(path): read(path) for path in paths
             if path.parts[0] == "tests" and path.name.startswith("test_") and path.parts[1] not in NOT_UNIT}
    tests = tests_of(texts, sources)
    elsewhere = astray(tests)
    if "--list" in sys.argv[1:]:
        for source, where in elsewhere.items():
            print(f"{source}.cpp: {', '.join(where)}")
    there = len(tests) - len(elsewhere)
    print(f"{len(tests)} product sources with a unit test, {there} at the mirrored path "
          f"({percent(there, len(tests)):.1f} %)")
    wide = set(tests) | {name for text in texts.values() for name in INCLUDE.findall(text)} & set(sources)
    print(f"{len(wide)} with one or with a header that a unit test includes, {there} at the mirrored path "
          f"({percent(there, len(wide)):.1f} %)")
    finish("unit tests", check(tests, MIN_SHARE), len(texts))


if __name__ == "__main__":
    main()
