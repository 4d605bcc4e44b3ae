#!/usr/bin/env python3
"""Nothing is decided by the text of an error: a message that is reworded would change what the program does. Exceptions
have types and codes, failures a cause (serving/engine/failure.h)."""
import re
from pathlib import Path

from source import CPP, code_only, files, finish, read

# File names: why the text of an error is searched there.
ALLOWED = {
    "sentencepiece.cpp": "drops that library's own prefix from the message that is shown",
    "parse.cpp": "drops the JSON library's own prefix from the message that is shown",
}

NOT_PRODUCT = ("tests", "scripts")
NAMES = r"(?:why|error|reason|message|problem|failure|refusal|fault|complaint|error_text)_?"
TEXT = rf"(?:\w+(?:\.|->)what\(\)|\b{NAMES}(?:(?:\.|->)(?:why|error|message|what\(\)|reason)(?:\(\))?)?)"
WRAPPED = rf"(?:(?:std::)?string(?:_view)?[({{]\s*)*{TEXT}[)}}]*"
SEARCHED = re.compile(rf"({WRAPPED})\s*\.(?:find|rfind|starts_with|ends_with|compare)\s*\(")


def is_text(raw, offset):
    """Whether a string that is not empty begins there."""
    return raw[offset:offset + 1] == '"' and raw[offset:offset + 2] != '""'


def decisions(text):
    """(line, expression) of searches in texts of errors and comparisons with them."""
    code = code_only(text)
    for match in SEARCHED.finditer(code):
        argument = match.end() + len(text[match.end():]) - len(text[match.end():].lstrip())
        what = match[1].endswith("what()") or "what()" in match[1]
        if what or is_text(text, argument) or re.match(r"k[A-Z]", code[argument:]):
            yield code.count("\n", 0, match.start()) + 1, match[1]
    for match in re.finditer(rf"({WRAPPED})\s*(?:==|!=)\s*", code):
        following = match.start() + len(match[0].rstrip())
        following += len(text[following:]) - len(text[following:].lstrip())
        if is_text(text, following) or re.match(r"k[A-Z]\w*\b(?!::)", code[following:]):
            yield code.count("\n", 0, match.start()) + 1, match[1]
    for match in re.finditer(rf"\b(k[A-Z]\w*)\s*(?:==|!=)\s*({WRAPPED})", code):
        yield code.count("\n", 0, match.start()) + 1, match[2]


def check(path, text, allowed):
    if Path(path).name in allowed:
        return []
    return [f"{path}:{line}: `{expression}` is compared as a text: decide by the exception's type, its code or a cause"
            for line, expression in decisions(text)]


def unused(texts, allowed):
    used = {Path(path).name for path, text in texts.items() if any(True for _ in decisions(text))}
    return [f"tests/house/check_errors.py: nothing is searched in {name} any more" for name in allowed if name not in used]


def main():
    texts = {path: read(path) for path in files(CPP) if path.parts[0] not in NOT_PRODUCT}
    problems = [p for path, text in texts.items() for p in check(path, text, ALLOWED)] + unused(texts, ALLOWED)
    finish("decisions by errors", problems, len(texts))


if __name__ == "__main__":
    main()
