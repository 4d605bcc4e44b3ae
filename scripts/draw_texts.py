#!/usr/bin/env python3
"""Draws a sample of the texts that a reader meets: headers, help texts, and errors and log messages.

    scripts/draw_texts.py [--seed COMMIT] [--headers 40] [--help-texts 20] [--messages 20] [--binary build/release/trireme]

For a review of the language by somebody who reads the texts for the first time: each ends with the question "read
twice?". The seed, a commit (default: HEAD) or any other word, determines which texts of the working tree are drawn, by
where they are and not by their wording: after a text is mended, the same seed draws it again, unless a text before it
in its file was added or removed. Help texts are those that the program prints for its commands or, where it is not
built, the options in the sources. Tests are left out, and so are messages that are not arguments of a call in MESSAGE.
"""
import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/house"))
from source import code_only, files, literals, read  # noqa: E402

PROGRAM = "build/release/trireme"
NOT_PRODUCT = ("tests", "scripts")
OPTION = re.compile(r"\badd_(?:option|flag|subcommand)\w*(?:<[^>]*>)?\(")
MESSAGE = re.compile(r"\b(?:fail\w*|refuse\w*|log_(?:info|warning|error|debug)|TRIREME_CHECK|throw [\w:]+|TRIREME_UNREACHABLE|report\w*\.(?:error|note))\(")
HELP_COLUMN = 30
EVERY_COMMAND_HAS = ("-h,--help", "--help-all")


def draw(seed, texts, count):
    """The `count` texts of (key, ...) whose keys have the smallest hashes with this seed, in order of their keys."""
    ranked = sorted(texts, key=lambda text: hashlib.sha256(f"{seed}\0{text[0]}".encode()).digest())
    return sorted(ranked[:count])


def product(suffixes):
    return [path for path in files(suffixes) if path.parts[0] not in NOT_PRODUCT]


def headers(paths):
    return [(str(path), read(path).rstrip()) for path in paths]


def calls(path, text, pattern):
    """(key, place and source) of the calls whose arguments have a literal of several words."""
    code = code_only(text)
    number = 0
    for match in pattern.finditer(code):
        begin = code.rfind("\n", 0, match.start()) + 1
        if re.search(r"\b(?:void|auto|bool|string)\s+(?:\w+::)*$", code[begin:match.start()]):  # a definition
            continue
        end, depth = match.end(), 1
        while depth and end < len(code):
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        call = text[match.start():end]
        if any(" " in literal.strip() for _, literal in literals(call)):
            number += 1
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path}#{number:03}", f"{path}:{line}\n" + re.sub(r"\n\s*", "\n    ", call)


def calls_in(paths, pattern):
    return [call for path in paths for call in calls(path, read(path), pattern)]


def described(page):
    """(name, help) of the options and arguments of a command's help page, and the names of its subcommands."""
    found, subcommands, section = [], [], ""
    lines = page.splitlines()
    for line, following in zip(lines, lines[1:] + [""]):
        if line and not line.startswith(" "):
            section = line if line.endswith(":") else ""
        elif not section or not line.strip():
            continue
        elif line.startswith(" " * HELP_COLUMN):
            if section != "Subcommands:":
                found[-1][1] += " " * bool(found[-1][1]) + line.strip()
        elif section == "Subcommands:":
            subcommands.append(line.split()[0])
        else:  # a name wider than its column has its help on the next line
            alone = following.startswith(" " * HELP_COLUMN) and not line[:HELP_COLUMN].endswith("  ")
            found.append([line.strip(), ""] if alone else [line[:HELP_COLUMN].strip(), line[HELP_COLUMN:].strip()])
    return [tuple(option) for option in found if option[0] not in EVERY_COMMAND_HAS], subcommands


def help_of(program, command=()):
    """(command, name, help) of a command of the program, whose own name is empty, of its options, and of all below it."""
    page = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout
    options, subcommands = described(page)
    words = " ".join(("trireme", *command))
    texts = [(words, "", page[:page.index("\nUsage: ")].strip()), *((words, name, text) for name, text in options)]
    return texts + [text for below in subcommands for text in help_of(program, (*command, below))]


def help_texts(program):
    """(key, text) of all help texts; an option that commands share counts once."""
    first = {}
    for command, name, text in help_of(program):
        first.setdefault((name or command, text), (command, name))
    return [(f"{command} {name.partition(' ')[0]}", f"{command} {name}\n    {text}")
            for (_, text), (command, name) in first.items()]


def full_hash(seed):
    """The hash of the commit that the seed names, else the seed; None for HEAD without a git history."""
    try:
        found = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{seed}^{{commit}}"],
                               capture_output=True, text=True, check=False)
    except OSError:
        return None if seed == "HEAD" else seed
    return found.stdout.strip() if found.returncode == 0 else None if seed == "HEAD" else seed


def whole_number(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def show(kind, texts, of):
    for number, (key, text) in enumerate(texts, 1):
        print(f"=== {kind} {number} of {len(texts)} (drawn from {of}){': ' + key if kind == 'header' else ''}\n")
        print(text + "\n\nread twice?\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="HEAD", help="commit or word that determines the sample (default: HEAD)")
    parser.add_argument("--headers", type=whole_number, default=40, help="number of headers (default: 40)")
    parser.add_argument("--help-texts", type=whole_number, default=20, help="number of help texts (default: 20)")
    parser.add_argument("--messages", type=whole_number, default=20, help="number of errors and log messages (default: 20)")
    parser.add_argument("--binary", type=Path, help=f"program whose help texts are drawn (default: {PROGRAM}, if built)")
    options = parser.parse_args()
    program = (options.binary or ROOT / PROGRAM).resolve()
    if options.binary and not program.is_file():
        parser.error(f"--binary {options.binary}: no such file")
    seed = full_hash(options.seed)
    if seed is None:
        parser.error("no git history here: give --seed")
    sources = product({".cpp", ".h", ".cu"})
    built = program.is_file()
    kinds = [("header", headers([path for path in sources if path.suffix == ".h"]), options.headers),
             ("help text", help_texts(program) if built else
              calls_in([path for path in sources if path.parts[0] == "commands"], OPTION), options.help_texts),
             ("message", calls_in(sources, MESSAGE), options.messages)]
    print(f"seed {seed}, help texts of {program if built else 'the sources: the program is not built'}\n")
    for kind, texts, count in kinds:
        show(kind, draw(seed, texts, count), len(texts))


if __name__ == "__main__":
    main()
