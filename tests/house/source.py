"""What the house checks share: the list of files, comments removed, reporting."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77  # ctest's SKIP_RETURN_CODE for these tests
CPP = {".h", ".cpp", ".cu", ".cuh"}
# Sources of the CUDA backend: by folder, and in engine/ops by suffix.
CUDA_SOURCE = re.compile(r"^(?:engine/device|parallel/comm|optim)/cuda/|^engine/ops/.*\.(?:cu|cuda\.cpp|cuda\.h)$")
NOT_OURS = {".git", "build", "runs", "__pycache__"}


def files(suffixes=None):
    """Paths relative to the root of all files that are tracked or could be: no ignored ones."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        names = [name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):  # a source archive, or a checkout of another user
        names = []
        for folder, folders, leaves in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in NOT_OURS]
            names += [os.path.relpath(os.path.join(folder, leaf), ROOT) for leaf in leaves]
    paths = [Path(name) for name in sorted(set(names)) if (ROOT / name).is_file()]
    return [p for p in paths if suffixes is None or p.suffix in suffixes]


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


_LITERALS = re.compile(
    r'(?P<raw>R"(?P<mark>[^()\s]{0,16})\(.*?\)(?P=mark)")'
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<char>(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+')"
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)", re.S)


def code_only(text):
    """C++ with comments and the insides of literals blanked; line numbers stay. #include lines keep theirs."""
    def blank(match):
        line_start = text.rfind("\n", 0, match.start()) + 1
        if match["string"] and text[line_start:match.start()].lstrip().startswith("#include"):
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])
    return _LITERALS.sub(blank, text)


def literals(text):
    """(offset, text) of each string literal of C++; neighbours that the compiler joins are one."""
    begin, parts, end = 0, [], -1
    for match in _LITERALS.finditer(text):
        if match["comment"] or match["char"] or match["raw"]:
            continue
        line = text.rfind("\n", 0, match.start()) + 1
        if text[line:match.start()].lstrip().startswith("#include"):
            continue
        if parts and not text[end:match.start()].strip():
            parts.append(match[0][1:-1])
        else:
            if parts:
                yield begin, "".join(parts)
            begin, parts = match.start(), [match[0][1:-1]]
        end = match.end()
    if parts:
        yield begin, "".join(parts)


def search(path, pattern, text, message):
    """One problem for each line of `text` that `pattern` is found in."""
    return [f"{path}:{number}: {message.format(*found.groups(), word=found[0])}"
            for number, line in enumerate(text.splitlines(), 1) for found in [pattern.search(line)] if found]


def finish(what, problems, count):
    """Ends a check: prints the problems; a check that looked at nothing has failed."""
    for problem in problems:
        print(problem)
    if count == 0:
        print(f"{what}: nothing was checked")
        sys.exit(1)
    print(f"{what}: {count} checked, {len(problems)} problems")
    sys.exit(1 if problems else 0)
