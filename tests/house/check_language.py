#!/usr/bin/env python3
"""Plain technical English: 100 columns, no openings and words that only a translation has, short commit subjects.

Read are Markdown, comments, and the string literals of the product: help, errors, log lines, pages.
"""
import re
import subprocess
from pathlib import Path

from source import CPP, ROOT, files, finish, literals, read

COLUMNS = 100
SUBJECT = 72
# Subjects of commits after this one are checked; it is the last one with the older, longer ones.
LAST_UNCHECKED = "487663ba4c4d"
# Made by the program or by scripts: their text is in the sources, and a paragraph is one line.
GENERATED = {f"docs/reference/{name}.md" for name in ("config-reference", "deepspeed-keys", "model-keys", "adapter-keys",
                                                      "serving-api", "layouts", "performance-gpu")}

NOT_PRODUCT = ("tests", "scripts")

# What to write in its place.
WORDS = {
    r"by and by": "incrementally",
    r"(?:come|comes|came|coming) of(?! age)": "the result, or what happens to it",
    r"(?:become|becomes|became) of": "how it is handled",
    r"of others": "third-party, or other users'",
    r"(?:hand|hands|handed) in": "submit",
    r"(?:take|takes|took) back": "cancel, or return",
    r"(?:beginning|beginnings) of (?:(?:a|the|its|their|all) )?(?:prompts?|texts?)": "prefix",
    r"one behind the other": "one after the other",
    r"guess(?:es|ed|ing)?": "draft tokens, to draft",
    r"wish(?:es|ed)?": "request",
    r"(?:go|goes|went|going) on": "continue",
    r"who(?:m)?ever": "name the one who does it",
    r"anew": "again",
    r"told|tells": "report, return, notify",
    r"hear(?:s|d)?": "receive, detect",
}
# The same in C++; Markdown still has some.
MORE_WORDS = {
    r"behind(?! (?:a |an |the |its |one )?(?:prox(?:y|ies)|router|launchers?|load balancer|mpirun|Slurm))": "after, past",
    r"answer(?:s|ed|ing)?": "response, to respond or return",
    r"tell|telling": "report, notify, distinguish",
    r"lies|lay|lain": "is, starts, is stored",
    r"(?:stands|stood)(?! for)": "is",
    r"goes": "continues, is written, is sent",
}


def pattern_of(words):
    named = "|".join(f"(?P<w{i}>{word})" for i, word in enumerate(words))
    return re.compile(rf"(?<![\w-])(?:{named})(?![\w-])", re.I)


FORBIDDEN = pattern_of(WORDS)
ALL_WORDS = WORDS | MORE_WORDS
ALL_FORBIDDEN = pattern_of(ALL_WORDS)
OPENING = re.compile(r"(?:Of|What) ")
OPENING_OF_PARAGRAPH = re.compile(r"(?:Of |What (?:is|was|are) (?:held|kept|known|told|asked) )")
LINK_TARGET = re.compile(r"\]\([^)]*\)")
CODE_SPAN = re.compile(r"`[^`]*`")


def words_of(where, text, forbidden=FORBIDDEN, words=WORDS):
    """One problem for each forbidden word of a line of prose."""
    instead = list(words.values())
    return [f'{where}: "{found[0]}": write {instead[int(found.lastgroup[1:])]}' for found in forbidden.finditer(text)]


def words_of_cpp(where, text):
    return words_of(where, CODE_SPAN.sub("", text), ALL_FORBIDDEN, ALL_WORDS)


def prose(text):
    """(number, line, whether it opens a paragraph) of Markdown without code: fences and indented blocks."""
    fenced = code = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            fenced = not fenced
        elif not fenced:
            code = bool(stripped) and line.startswith("    ") and (code or not before)
            if not code:
                yield number, line, not before or bool(re.match(r"[-*] |\d+\. ", stripped))
        before = "" if stripped.startswith("```") else stripped


def check_markdown(path, text):
    problems, paragraph = [], ""
    for number, line, opens in prose(text):
        where, stripped = f"{path}:{number}", line.strip()
        length = len(LINK_TARGET.sub("]", line))
        if length > COLUMNS and stripped[:1] not in ("|", "!"):
            problems.append(f"{where}: {length} columns, at most {COLUMNS}")
        if opens and OPENING_OF_PARAGRAPH.match(re.sub(r"^(?:[-*]|\d+\.) ", "", stripped)):
            problems.append(f"{where}: a paragraph that opens with {stripped.split(' ')[0]!r}: begin with the noun")
        # A phrase may be divided by a line end: the last words of the line before come along.
        tail = "" if opens else paragraph
        said = CODE_SPAN.sub("", line)
        problems += [p for p in words_of(where, f"{tail} {said.strip()}") if p not in set(words_of(where, tail))]
        paragraph = " ".join(said.split()[-2:])
    return problems


def comments(text):
    """(number, text of the comment, whether it opens one) of C++ lines with a // comment."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'((?:[^"/]|"(?:[^"\\]|\\.)*"|/(?!/))*)//+ ?(.*)', line)
        if found:
            alone = not found[1].strip()
            yield number, found[2], not (inside and alone)
            inside = alone
        else:
            inside = False


def check_comments(path, text):
    problems, lines = [], text.splitlines()
    for number, comment, opens in comments(text):
        where = f"{path}:{number}"
        if len(lines[number - 1]) > COLUMNS:
            problems.append(f"{where}: a comment to column {len(lines[number - 1])}, at most {COLUMNS}")
        if opens and OPENING.match(comment):
            problems.append(f'{where}: opens with "{comment.split(" ")[0]}": begin with the noun')
        problems += words_of_cpp(where, comment)
    return problems


def check_strings(path, text):
    """Problems of the literals that people read: those of several words."""
    problems = []
    for begin, literal in literals(text):
        if " " in literal.strip():
            problems += words_of_cpp(f"{path}:{text.count(chr(10), 0, begin) + 1}", literal.replace("\\n", " "))
    return problems


def check_subject(subject):
    if len(subject) <= SUBJECT:
        return []
    return [f"commit subject of {len(subject)} characters, at most {SUBJECT}: {subject}"]


def git(*arguments):
    """What git prints, or None where it fails or is absent."""
    try:
        ran = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def new_subjects(run=git):
    """Subjects of commits after LAST_UNCHECKED; none where this history does not hold it: a shallow clone, a source
    archive, another repository around it."""
    top = run("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != ROOT or run("merge-base", "--is-ancestor", LAST_UNCHECKED, "HEAD") is None:
        return []
    return (run("log", "--no-merges", "--format=%s", f"{LAST_UNCHECKED}..HEAD") or "").splitlines()


def main():
    problems = []
    documents = [path for path in files({".md"}) if str(path) not in GENERATED]
    for path in documents:
        problems += check_markdown(path, read(path))
    sources = files(CPP)
    for path in sources:
        text = read(path)
        problems += check_comments(path, text)
        if path.parts[0] not in NOT_PRODUCT:
            problems += check_strings(path, text)
    subjects = new_subjects()
    for subject in subjects:
        problems += check_subject(subject)
    print(f"language: {len(subjects)} commit subjects")
    finish("language", problems, len(documents) + len(sources))


if __name__ == "__main__":
    main()
