#!/usr/bin/env python3
"""Includes run one way only, from the root, and heavy headers stay out of headers (docs/design/architecture.md)."""
import re
from pathlib import Path

from source import CPP, CUDA_SOURCE, ROOT, code_only, files, finish, read



def engine(rooms):
    return [f"engine/{room}" for room in rooms.split()]


def transformer(rooms):
    return [f"transformer/{room}" for room in rooms.split()]


def training(rooms):
    return [f"training/{room}" for room in rooms.split()]


# A room may include itself and the rooms listed here; each is in use, so that this table is the architecture. Rooms are
# listed from the bottom up.
MAY_INCLUDE = {
    "engine/core": [],
    "engine/device": ["engine/core"],
    "engine/ops": ["engine/core", "engine/device"],
    "engine/io": ["engine/core"],
    "engine/config": ["engine/core", "engine/io"],
    "engine/text": engine("core io config"),
    "engine/observe": ["engine/core", "engine/io"],
    "parallel/comm/liveness": ["engine/core"],
    "parallel/comm/transport": [*engine("core observe"), "parallel/comm/liveness"],
    "parallel": [*engine("core device ops io observe"), "parallel/comm/liveness", "parallel/comm/transport"],
    "transformer/config": engine("core ops"),
    "transformer/families": [*engine("core config"), "transformer/config"],
    "transformer/pass": ["engine/ops", "parallel", *transformer("config families")],
    "transformer/layers": [*engine("ops text"), "parallel", *transformer("config families pass")],
    "transformer/model": [*engine("core ops config"), "parallel", *transformer("config families pass layers")],
    "transformer/formats": [*engine("core ops io text config observe"), *transformer("config families layers model")],
    "transformer/checkpoint": [*engine("core ops io text config observe"), "parallel",
                               *transformer("config families layers model formats")],
    "optim": [*engine("core device ops io config"), "parallel"],
    "serving/scheduler": ["engine/core", "engine/ops"],
    "serving/load_balancer": ["engine/core"],
    "serving/engine": [*engine("core device ops observe"), "parallel", *transformer("pass model formats"),
                       "serving/scheduler", "serving/load_balancer"],
    "serving/distributed": [*engine("core observe"), "parallel/comm/liveness", "parallel", "serving/scheduler"],
    "serving/model": [*engine("core device ops observe"), "parallel", *transformer("pass model checkpoint"),
                      "serving/scheduler", "serving/engine", "serving/distributed"],
    "serving/text": ["engine/core", "engine/text"],
    "serving/structured": [*engine("core io text"), "serving/scheduler"],
    "serving/api": [*engine("core io text config"), "serving/scheduler", "serving/text", "serving/structured"],
    "serving/http/server": [*engine("core observe"), "serving/api"],
    "serving/http/service": [*engine("core text observe"), "transformer/model", "serving/scheduler", "serving/engine",
                             "serving/structured", "serving/api", "serving/http/server"],
    "serving/client": ["engine/core"],
    "serving/router": [*engine("core io observe"), "serving/api", "serving/load_balancer", "serving/http/server",
                       "serving/client"],
    "serving/web_ui": ["serving/http/server"],
    "serving/bench": ["engine/core", "engine/io", "serving/client"],
    "training/config": [*engine("core io text config"), "parallel",
                        *transformer("config families pass layers model formats checkpoint"), "optim"],
    "training/data": [*engine("core ops io text"), "parallel", "transformer/layers", "training/config"],
    "training/data/examples": [*engine("core ops io text config"), "transformer/checkpoint", "training/config", "training/data"],
    "training/step": [*engine("core device ops"), "parallel", *transformer("pass model"), "optim",
                      *training("config data")],
    "training/checkpoint": [*engine("ops io observe"), "parallel", *transformer("families formats checkpoint"),
                            *training("config data step")],
    "training/eval": [*engine("core ops io text observe"), "parallel", *transformer("families model checkpoint"),
                      *training("data/examples step checkpoint")],
    "training/report": [*engine("core io observe"), "parallel", "training/config"],
    "training/sites": [*engine("core io observe"), "parallel", *training("config step")],
    "training/run": [*engine("core device ops io config observe"), "parallel", *transformer("model formats checkpoint"), "optim",
                     *training("config data data/examples step checkpoint eval report sites")],
    "commands": [*engine("core device ops io text config observe"), "parallel",
                 *transformer("config families pass layers model formats checkpoint"), "serving/engine",
                 "serving/distributed", "serving/model", "serving/http/server", "serving/http/service", "serving/web_ui", "serving/bench",
                 "serving/router", "commands/training"],
    "commands/training": [*engine("core ops io config observe"), "parallel", *transformer("model formats"), "serving/api",
                          *training("config data data/examples eval report run sites"), "commands"],
    "main.cpp": ["commands"],
}
# A header that says this in its first comment may include heavy ones; only its like may include it.
CPP_ONLY = "For .cpp files only"
# Headers that cost a second of compile time each, and everyone who includes the header pays.
HEAVY = re.compile(r"^(nlohmann/json\.hpp|CLI/.*|fmt/.*|spdlog/.*|dnnl.*|oneapi/.*|mpi\.h|sentencepiece.*|boost/.*|openssl/.*|prometheus/.*|regex|iostream)$")
# The CUDA toolkit's headers belong to sources that only the backend compiles (engine/core/device_memory.h).
CUDA_ONLY = "For CUDA sources only"
CUDA = re.compile(r"^(cuda.*|cublas.*|cudnn.*|nccl.*|nvtx3/.*)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def says(text, sentence):
    """Whether a file says this, be it on two lines of a comment."""
    return sentence in re.sub(r"\s*\n\s*// ?", " ", text)


def room_of(path):
    """The innermost room a path lies in; None for tests, scripts and unknown folders."""
    text = str(path)
    inside = [room for room in MAY_INCLUDE if text == room or text.startswith(room + "/")]
    return max(inside, key=len, default=None)


def in_tree(name):
    return (ROOT / name).exists() or (ROOT / (name + ".in")).exists()


def check(path, text, exists=in_tree, cpp_only=frozenset()):
    """cpp_only: names of the headers that say CPP_ONLY."""
    path = Path(path)
    problems = []
    room = room_of(path)
    in_tests = path.parts[0] in ("tests", "scripts")
    if room is None and not in_tests:
        problems.append(f"{path}: this folder is no room of the house; add it to tests/house/check_includes.py")
    if path.suffix == ".h" and "#pragma once" not in text:
        problems.append(f"{path}: a header without #pragma once")
    for number, line in enumerate(code_only(text).splitlines(), 1):
        where = f"{path}:{number}"
        if path.suffix == ".h" and re.search(r"\busing\s+namespace\b", line):
            problems.append(f"{where}: `using namespace` in a header")
        found = INCLUDE.match(line)
        if not found:
            continue
        bracket, name = found.groups()
        heavy = (name in cpp_only or HEAVY.match(name)) and not says(text, CPP_ONLY)
        if path.suffix == ".h" and not in_tests and heavy:
            problems.append(f"{where}: {name} belongs into .cpp files only")
        if bracket == "<":
            may = CUDA_SOURCE.match(str(path)) or (path.suffix == ".h" and says(text, CUDA_ONLY))
            if CUDA.match(name) and not in_tests and not may:
                problems.append(f"{where}: {name} belongs into a cuda/ folder, in engine/ops into "
                                "a .cu, .cuda.cpp or .cuda.h file")
            continue
        if not exists(name):
            problems.append(f'{where}: "{name}" does not exist; includes are written from the root')
            continue
        target = room_of(name)
        if in_tests or room is None or target == room:
            continue
        if target is None or target not in MAY_INCLUDE[room]:
            problems.append(f"{where}: {room} may not include {target or name}: arrows run the other way")
    return problems


def edges(path, text):
    """The rooms that a file's room includes, as (room, included room)."""
    room = room_of(path)
    named = (INCLUDE.match(line) for line in code_only(text).splitlines())
    included = {room_of(found.group(2)) for found in named if found and found.group(1) == '"'}
    return {(room, other) for other in included if room and other and other != room}


def unused(used):
    """Edges of the table that no file needs."""
    return [f"{room} may include {other}, and does not: take it out of the table in tests/house/check_includes.py"
            for room, others in MAY_INCLUDE.items() for other in others if (room, other) not in used]


def upward(table):
    """Edges to a room further down in the table, which could close a circle; not to a room inside the same one."""
    order = list(table)
    return [f"{room} may include {other}, which is listed after it in the table in tests/house/check_includes.py"
            for room, others in table.items() for other in others
            if order.index(other) > order.index(room) and not other.startswith(room + "/")]


def main():
    checked = files(CPP)
    texts = {path: read(path) for path in checked}
    cpp_only = {str(path) for path, text in texts.items() if path.suffix == ".h" and says(text, CPP_ONLY)}
    problems = [p for path, text in texts.items() for p in check(path, text, cpp_only=cpp_only)]
    product = {path: text for path, text in texts.items() if Path(path).parts[0] not in ("tests", "scripts")}
    problems += unused(set().union(*(edges(path, text) for path, text in product.items())))
    problems += upward(MAY_INCLUDE)
    finish("includes", problems, len(checked))


if __name__ == "__main__":
    main()
