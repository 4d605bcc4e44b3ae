#!/usr/bin/env python3
"""Every way out that an error names is in advice.tsv, with the test that does what it says, or the reason why none does."""
import re

from source import CPP, ROOT, files, finish, literals, read

LIST = "tests/house/advice.tsv"
NOT_PRODUCT = ("tests", "scripts")
# Reasons in place of a test. "later" is for advice that a test could follow: its count may only fall.
REASONS = {"gpu": "needs a GPU, its driver or NCCL",
           "machine": "needs another machine, launcher, operating system or build",
           "outside": "done outside of the program: a download, a file's owner, a disk",
           "size": "needs more memory, time or data than a test has",
           "checked": "no command leads to it: an earlier check refuses first",
           "later": "no test follows it yet",
           "text": "no advice: the words have another meaning here"}
MAX_LATER = 2

VERBS = """add ask build change check choose convert copy divide download export fetch fix give increase install keep leave
           let load lower make merge move name pass pick prepare put quantize raise read rebuild reduce remove rename
           repair replace restart retry run say see send set shorten split start switch take train try turn unload unset
           upgrade use wait write""".split()
AFTER = r"(?:^(?:\\n *)?|\()|(?:[;:,?]|\bor|\band|\bthen|\bfirst|\binstead) "
PHRASES = "did you mean|hf download|git lfs install|with WSD give"
ADVICE = re.compile(rf"(?:{AFTER})(?:then |first )?({'|'.join(VERBS)})(?= )|{PHRASES}")
# Documentation and help: a sentence, an option, a table of a generated page.
HELP = re.compile(r"(?:\\n)*(?:[A-Z][a-z]|[#|<%])")
# Operations that failed, as `fail_os("open shard", ...)` names them.
OPERATION = re.compile(r"^(?:open|read|write|save|load|use|list|copy) (?:a )?\w+(?: \w+)?$")


def is_advice(literal):
    return not HELP.match(literal) and not OPERATION.match(literal) and ADVICE.search(literal) is not None


def rows(text):
    """(line number, file, fragment, test or reason) of the list."""
    for number, line in enumerate(text.splitlines(), 1):
        if line and not line.startswith("#"):
            yield number, *(line.split("\t") + ["", ""])[:3]


def check_source(path, text, listed):
    """The advice of a file that the list lacks. listed: its fragments."""
    return [f"{path}:{text.count(chr(10), 0, begin) + 1}: advice that {LIST} lacks: \"{literal}\"; "
            "add the file, a fragment of the text, and the test that follows it"
            for begin, literal in literals(text)
            if is_advice(literal) and not any(fragment in literal for fragment in listed)]


def tests_of(text, path):
    """The names that a row may have after the file of a test."""
    if path.endswith(".py"):
        return set(re.findall(r"(?m)^\s+def (test_\w+)\(", text)) | set(re.findall(r'(?m)^    "(\w+)": ', text))
    return {f"{suite}.{name}" for suite, name in re.findall(r"(?m)^TEST(?:_[FP])?\((\w+), (\w+)\)", text)}


def spelled(text):
    """A test's text with neighbouring literals joined and quotes as they are shown."""
    return re.sub(r"""["']\s*\n\s*[fr]*["']""", "", text).replace('\\"', '"').replace("\\'", "'")


def check_row(number, path, fragment, follower, source, test_text):
    """The problems of a row. source: the file's text, or None; test_text(path): likewise of a test."""
    place = f"{LIST}:{number}"
    if source is None or not any(fragment in literal for _, literal in literals(source)):
        return [f"{place}: no text of {path} has \"{fragment}\""]
    if follower in REASONS:
        return []
    name, _, test = follower.partition("::")
    text = test_text("tests/" + name)
    if text is None or test not in tests_of(text, name):
        return [f"{place}: \"{follower}\" is no test (FILE::NAME) and none of {', '.join(REASONS)}"]
    words = fragment.replace('\\"', '"').strip(" ;:,()")
    return [] if words in spelled(text) else [f"{place}: {name} does not have the words \"{words}\""]


def text_of(path):
    return read(path) if (ROOT / path).is_file() else None


def main():
    sources = {str(path): read(path) for path in files(CPP) if path.parts[0] not in NOT_PRODUCT}
    table = list(rows(read(LIST)))
    problems = []
    for path, text in sources.items():
        problems += check_source(path, text, [fragment for _, where, fragment, _ in table if where == path])
    for row in table:
        problems += check_row(*row, sources.get(row[1]), text_of)
    followers = [follower for _, _, _, follower in table]
    for reason, meaning in REASONS.items():
        print(f"{followers.count(reason):4} {reason}: {meaning}")
    tested = sum(follower not in REASONS for follower in followers)
    print(f"{tested:4} followed by a test")
    if followers.count("later") > MAX_LATER:
        problems.append(f"{LIST}: {followers.count('later')} rows wait for a test, at most {MAX_LATER}")
    finish("advice of errors", problems, len(table))


if __name__ == "__main__":
    main()
