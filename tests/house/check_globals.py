#!/usr/bin/env python3
"""No mutable globals: variables of a namespace, and static ones of functions and classes, are const, but for a short
list with reasons. What several objects share is passed to them."""
import re
from pathlib import Path

from source import CPP, code_only, files, finish, read

# "file variable": why there is one for the process or the thread.
ALLOWED = {
    "bpe.cpp number": "tells the vocabularies of a thread's cache apart",
    "bpe.cpp cache": "words of a thread; without it every tokenizer needs one for each thread",
    "lora.cpp source": "compiled pattern of a thread, one at a time",
    "lora.cpp regex": "compiled pattern of a thread, one at a time",
    "sample_row.cpp scratch": "weights of a row, for whoever samples on a thread: megabytes for each slot otherwise",
    "budget.cpp t_budget": "the rendering of a thread, which every filter charges",
    "value.cpp t_levels": "depth of a comparison, which operator== cannot pass on",
    "value.cpp levels": "depth of a destruction, which a destructor cannot pass on",
    "value.cpp waiting": "depth of a destruction, which a destructor cannot pass on",
    "log.cpp instance": "the process's log",
    "console.cpp instance": "the process's standard output and error",
    "console.cpp target": "the process's standard output and error",
    "console.cpp g_behind_launcher": "the process's standard output and error",
    "console.cpp g_drop_unread": "the process's standard output and error",
    "note_once.cpp mutex": "what this process has logged",
    "note_once.cpp noted": "what this process has logged",
    "mapping_guard.cpp g_guarded_mappings": "read by the SIGBUS handler",
    "mapping_guard.cpp g_guard_mutex": "of g_guarded_mappings",
    "mapping_guard.cpp g_guard_page": "read by the SIGBUS handler",
    "mapping_guard.cpp installed": "the SIGBUS handler is the process's",
    "memory.cpp g_allocation_count": "counters of the process, which tests and reports read",
    "memory.cpp g_allocated_bytes": "counters of the process, which tests and reports read",
    "cpu.cpp g_best": "instruction sets of the process (limit_isa)",
    "cpu.cpp g_active": "instruction sets of the process (limit_isa)",
    "watchdog.cpp g_wake": "written by the SIGTERM handler",
    "watchdog.cpp g_terminated": "written by the SIGTERM handler",
    "watchdog.cpp g_end_in": "read by the thread that ends the process",
    "watchdog.cpp running": "the thread that ends the process is one",
    "shared_memory.cpp counter": "names of shared memory differ within a process",
    "signals.cpp g_request": "written by signal handlers",
    "signals.cpp g_previous": "signal handlers before those of the process",
    "stop_signals.h count_": "written by signal handlers",
    "failure.cpp g_announced": "written by the watchdog before it ends the process",
    "head_checks.cpp source": "random numbers of a thread",
    "generation.cpp source": "random numbers of a thread",
}

NOT_PRODUCT = ("tests", "scripts")
NO_VARIABLE = re.compile(r"^(?:using|typedef|template|friend|static_assert|class|struct|union|enum|namespace|concept"
                         r"|requires|extern|public:|private:|protected:|TRIREME_\w+\s*\()\b|^\W*$")
VARIABLE = re.compile(r"^(?P<type>[\w:<>,*&\s\[\].+-]*[\w>*&\]])\s+\**&?(?P<name>\w+)(?:\[[^\]]*\])*\s*$")
FUNCTION_POINTER = re.compile(r"\(\*\)\([^()\n]*\)")
STATIC = re.compile(r"(?<![\w])((?:inline\s+|constinit\s+)*(?:static|thread_local)\b[^;{}()=]*)([;{=(])")


def without_preprocessor(code):
    return re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), code)


def is_const(declaration):
    """Whether what is declared cannot change: of pointers the pointer."""
    if re.search(r"\b(?:constexpr|static_assert)\b", declaration):
        return True
    return bool(re.search(r"\*\s*const\b" if "*" in declaration else r"\bconst\b", declaration))


def of_namespaces(code):
    """(offset, declaration) of the statements outside functions and classes, up to an initializer."""
    begin, at = 0, 0
    while at < len(code):
        if code[at] == ";":
            yield begin, code[begin:at]
            begin = at + 1
        elif code[at] == "}":  # of a namespace
            begin = at + 1
        elif code[at] == "{":
            head = code[begin:at]
            if re.search(r"\bnamespace\b[\w\s:]*$|\bextern\s*$", head):
                begin = at + 1
            else:
                depth = 1
                while depth > 0 and at + 1 < len(code):
                    at += 1
                    depth += {"{": 1, "}": -1}.get(code[at], 0)
                if "(" in head.split("=")[0]:  # a function's body
                    begin = at + 1
                else:  # an initializer or a type, to the semicolon
                    code = code[:begin] + head + re.sub(r"[^\n]", " ", code[begin + len(head):at + 1]) + code[at + 1:]
        at += 1


def variables(text):
    """(line, name) of what can change: of namespaces, and static or of a thread within functions and classes."""
    code = FUNCTION_POINTER.sub(lambda match: " " * len(match[0]), without_preprocessor(code_only(text)))
    found = {}
    for offset, statement in of_namespaces(code):
        declaration = statement.split("=")[0]
        stripped = re.sub(r"\[\[.*?\]\]|\balignas\([^)]*\)", " ", declaration).strip()
        match = VARIABLE.match(stripped)
        if not NO_VARIABLE.match(stripped) and "(" not in stripped and match and not is_const(stripped):
            found[match["name"]] = offset + len(statement) - len(statement.lstrip())
    for match in STATIC.finditer(code):
        declaration = match[1].strip()
        named = VARIABLE.match(declaration)
        if match[2] == "(" and "thread_local" not in declaration or not named or is_const(declaration):
            continue  # a function, or a constant
        found.setdefault(named["name"], match.start())
    return [(code.count("\n", 0, offset) + 1, name) for name, offset in found.items()]


def check(path, text, allowed):
    return [f"{path}:{line}: {name} can change and is one for all: pass it to those who need it, make it const, or "
            "give the reason in tests/house/check_globals.py"
            for line, name in variables(text) if f"{Path(path).name} {name}" not in allowed]


def unused(texts, allowed):
    used = {f"{Path(path).name} {name}" for path, text in texts.items() for _, name in variables(text)}
    return [f"tests/house/check_globals.py: there is no {name} any more" for name in allowed if name not in used]


def main():
    texts = {path: read(path) for path in files(CPP) if path.parts[0] not in NOT_PRODUCT}
    problems = [p for path, text in texts.items() for p in check(path, text, ALLOWED)] + unused(texts, ALLOWED)
    finish("globals", problems, len(texts))


if __name__ == "__main__":
    main()
