#!/usr/bin/env python3
"""Units (a header with its .cpp files of the same stem) include each other one way only, and a forward declaration
names a type of a room that the file's own room may include: an arrow is an arrow, declared or included."""
import re
from collections import defaultdict
from pathlib import Path

from check_includes import INCLUDE, MAY_INCLUDE, room_of
from check_names import NAMESPACE, TYPE
from source import CPP, code_only, files, finish, read

# Units of a folder that lie in cycles, of old. A count may only fall; new cycles are broken: the declaration that both
# need gets a unit of its own, or what is one concept becomes one unit.
IN_CYCLES = {"engine": 14, "optim": 0, "parallel": 12, "serving": 0, "training": 18, "transformer": 14, "commands": 0}
# (file name, type): why it is declared below the room that defines it.
DECLARED_BELOW = {}

NOT_PRODUCT = ("tests", "scripts")
FORWARD = re.compile(r"^(?:class|struct|union|enum(?: class)?) (\w+)(?: : [\w:]+)?;", re.M)
ENUM = re.compile(r"^enum (?:class )?(\w+)(?: : [\w:]+)? \{", re.M)
ELABORATED = re.compile(r"(?<![\w])(?:class|struct) ([A-Z]\w*)\s*(?=[*&>])")


def unit_of(path):
    """X.kernels.h, which an op and its kernels include, is a unit by itself."""
    path = Path(path)
    stem, *suffixes = path.name.split(".")
    return str(path.parent / (f"{stem}.kernels" if suffixes[0] == "kernels" else stem))


def unit_edges(texts):
    """{unit: units that it includes}; texts: {path: text} of the product."""
    known = {unit_of(path) for path in texts}
    edges = defaultdict(set)
    for path, text in texts.items():
        for line in code_only(text).splitlines():
            found = INCLUDE.match(line)
            if found and found[1] == '"' and unit_of(found[2]) in known - {unit_of(path)}:
                edges[unit_of(path)].add(unit_of(found[2]))
    return edges


def cycles(edges):
    """Sets of units that reach each other, the largest first (Tarjan 1972, without recursion)."""
    number, low, stack, found = {}, {}, [], []
    for start in sorted(edges):
        if start in number:
            continue
        number[start] = low[start] = len(number)
        stack.append(start)
        path = [(start, iter(sorted(edges[start])))]
        while path:
            unit, following = path[-1]
            for other in following:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    path.append((other, iter(sorted(edges.get(other, ())))))
                    break
                if other in stack:
                    low[unit] = min(low[unit], number[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[unit])
                if low[unit] == number[unit]:
                    group = stack[stack.index(unit):]
                    del stack[len(stack) - len(group):]
                    found += [sorted(group)] if len(group) > 1 else []
    return sorted(found, key=lambda group: (-len(group), group))


def check_cycles(texts, allowed):
    counts, shown = defaultdict(int), defaultdict(list)
    edges = unit_edges(texts)
    for group in cycles(edges):
        for unit in group:
            counts[Path(unit).parts[0]] += 1
        among = [f"{unit} -> {other}" for unit in group for other in sorted(edges[unit]) if other in group]
        shown[Path(group[0]).parts[0]].append("\n      ".join(among))
    return [f"{folder}: {count} units lie in cycles, at most {allowed.get(folder, 0)} of old:\n    "
            + "\n    ".join(shown[folder]) for folder, count in sorted(counts.items()) if count > allowed.get(folder, 0)]


def spaces_of(code):
    """(begin, end, full name) of the named namespaces; an anonymous one counts as what is around it."""
    spaces = []
    for match in NAMESPACE.finditer(code):
        depth, end = 1, match.end()
        while depth > 0 and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        around = [name for begin, last, name in spaces if begin < match.start() < last]
        spaces.append((match.start(), end, "::".join(around[-1:] + [match[1]])))
    return spaces


def space_at(spaces, offset):
    around = [name for begin, end, name in spaces if begin < offset < end]
    return around[-1] if around else ""


def definitions(texts):
    """{(namespace, type): paths}"""
    where = defaultdict(set)
    for path, text in texts.items():
        code = code_only(text)
        spaces = spaces_of(code)
        for pattern in (TYPE, ENUM):
            for match in pattern.finditer(code):
                where[space_at(spaces, match.start()), match[1]].add(str(path))
    return where


def declared(text):
    """(line, namespace, type) of what is declared and not defined at the margin, or within a declaration."""
    code = code_only(text)
    spaces = spaces_of(code)
    found = list(FORWARD.finditer(code))
    for match in ELABORATED.finditer(code):
        before = code[code.rfind("\n", 0, match.start()) + 1:match.start()]
        found += [] if "template" in before or "]<" in before else [match]  # their parameters
    for match in found:
        yield code.count("\n", 0, match.start()) + 1, space_at(spaces, match.start()), match[1]


def check_declarations(texts, allowed, may_include=None):
    problems = []
    where = definitions(texts)
    may = MAY_INCLUDE if may_include is None else may_include
    for path, text in texts.items():
        room = room_of(path)
        for line, space, name in declared(text):
            rooms = {room_of(defined) for defined in where.get((space, name), ())}
            if not rooms or room is None or (Path(path).name, name) in allowed:
                continue  # a type of a library
            if room not in rooms and not rooms & set(may.get(room, ())):
                problems.append(f"{path}:{line}: {name} is a type of {', '.join(sorted(map(str, rooms)))}, which {room} "
                                "may not include: arrows run the other way")
    return problems


def main():
    texts = {path: read(path) for path in files(CPP) if path.parts[0] not in NOT_PRODUCT}
    problems = check_cycles(texts, IN_CYCLES) + check_declarations(texts, DECLARED_BELOW)
    finish("units", problems, len({unit_of(path) for path in texts}))


if __name__ == "__main__":
    main()
