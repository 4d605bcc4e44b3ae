#!/usr/bin/env python3
"""Writes the measured figures of README.md: those of docs/reference/performance.md, results/gpu.json and layouts.md.

    scripts/readme_figures.py [--check]

They are between two marker comments, grouped by machine and peer. --check compares instead of writing (exit code 1).
HEADLINES selects the rows; a row that the pages no longer have is an error, and a figure that was not measured is "not
measured". A table of the CPU page holds rows of one commit and machine: the last that its section names before it.
"""
import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
CPU_PAGE = "docs/reference/performance.md"
GPU_PAGE = "docs/reference/performance-gpu.md"
GPU_RESULTS = "docs/reference/results/gpu.json"
LAYOUTS = "docs/reference/layouts.md"
BEGIN = "<!-- measured figures: written by scripts/readme_figures.py -->\n"
END = "<!-- end of measured figures -->\n"
NOT_MEASURED = "not measured"

TRAINING, DECODING, SERVING = "Training steps beside PyTorch", "Tokens beside llama.cpp", "Serving beside llama-server"
# (section of the CPU page, pattern of a row's first cells, name of the row here, our column, peer, its column, pattern
# of the rows of that table whose ratios make up the range)
HEADLINES = [
    (TRAINING, r"gpt 2 124m, b 4, t 256, float32", "train GPT-2 124M, float32", "tokens/s", "PyTorch",
     "tokens/s", "float32"),
    (TRAINING, r"gpt 2 124m, b 4, t 256, bfloat16", "train GPT-2 124M, bfloat16", "tokens/s", "PyTorch",
     "tokens/s", "bfloat16"),
    (DECODING, r"llama 1b, bf16, decode", "decode Llama 1B, bfloat16", "trireme tokens/s", "llama.cpp",
     "llama.cpp tokens/s", "decode"),
    (DECODING, r"llama 1b, q8_0, decode", "decode Llama 1B, q8_0", "trireme tokens/s", "llama.cpp",
     "llama.cpp tokens/s", "decode"),
    (DECODING, r"llama 1b, q8_0, prompt of \d+", "prefill Llama 1B, q8_0", "trireme tokens/s", "llama.cpp",
     "llama.cpp tokens/s", "prompt"),
    (SERVING, r"llama 15m, bf16, 32\b.*", "serve Llama 15M, bfloat16, 32 clients", "trireme tokens/s", "llama-server",
     "llama-server", ""),
    (SERVING, r"llama 1b, bf16, 8\b.*", "serve Llama 1B, bfloat16, 8 clients", "trireme tokens/s", "llama-server",
     "llama-server", ""),
]
# (phase and id of our result, name of the row, peer, phase and id of its result)
GPU_HEADLINES = [
    (("speed", "train qwen2.5-0.5b"), "train Qwen2.5 0.5B, bfloat16", "PyTorch, compiled",
     ("peers", "compiled qwen2.5-0.5b")),
    (("speed", "train gpt2-124m"), "train GPT-2 124M, bfloat16", "PyTorch, compiled", ("peers", "compiled gpt2-124m")),
    (("serve", "trireme llama-8b, 1 clients"), "serve Llama 8B, bfloat16, 1 client", "vLLM",
     ("serve", "vllm llama-8b, 1 clients")),
    (("serve", "trireme llama-8b, 32 clients"), "serve Llama 8B, bfloat16, 32 clients", "vLLM",
     ("serve", "vllm llama-8b, 32 clients")),
]


class Missing(Exception):
    """A page lacks what HEADLINES names."""


def plain(text):
    """Lower case, without hyphens: `llama-1b` and `Llama 1B` are one shape."""
    return text.lower().replace("-", " ").strip()


def section_of(text, heading):
    found = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text)
    if not found:
        raise Missing(f"no section {heading!r}")
    return found[1]


def tables_of(section):
    """(text before the table, column names, rows) of each table, its cells stripped."""
    for found in re.finditer(r"(?m)(?:^\|.*\n)+", section):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in found[0].splitlines()]
        if len(lines) > 2:
            yield section[:found.start()], lines[0], lines[2:]


def label_of(cells, count=3):
    return plain(", ".join(cells[:count]))


def find_row(section, pattern):
    """(text before its table, columns, rows, cells) of the first row whose leading cells match the pattern."""
    for before, columns, rows in tables_of(section):
        for cells in rows:
            if any(re.fullmatch(pattern, label_of(cells, count)) for count in range(1, 4)):
                return before, columns, rows, cells
    raise Missing(f"no row {pattern!r}")


def range_of(columns, rows, pattern):
    """Smallest and largest ratio of the rows that the pattern is found in, and how many there are."""
    ratios = [float(value) for cells in rows if re.search(rf"\b{pattern}", label_of(cells))
              for value in re.findall(r"\d+\.\d+", cell_after(columns, cells, "ratio"))]
    return f"{min(ratios):.2f} to {max(ratios):.2f} ({len(ratios)})" if ratios else ""


def cell_after(columns, cells, name, after=None):
    """The cell of a column; of several with one name, of the first after the column `after`."""
    first = columns.index(after) + 1 if after else 0
    try:
        return cells[columns.index(name, first)]
    except ValueError:
        raise Missing(f"no column {name!r}") from None


def measured_at(before, page):
    """(commit, machine) of a table: the last that its section names before it, else those of the page."""
    prose = " ".join(re.sub(r"(?m)^(?:\||    ).*\n", "", before).split())
    commits = re.findall(r"\bcommit ([0-9a-f]{7,12})\b", re.sub(r"\([^)]*\)", "", prose))
    machines = re.findall(r"\b[Oo]n (an? machine with [\w ]+?|\d+ cores of an? [\w ]+?)(?= and |[,.:;]| \(([\w -]+))",
                          prose)
    rows = dict(re.findall(r"(?m)^\| (commit|machine) \| (.*?) \|$", page.split("\n## ")[0]))
    if len(rows) != 2:
        raise Missing("the first table of the page has no rows of commit and machine")
    name, kind = machines[-1] if machines else re.match(r"([^,(]+?) *(?:\(([\w -]+)|,|$)", rows["machine"]).groups("")
    return (commits[-1] if commits else rows["commit"]), f"{name} ({kind})" if kind else name


def anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def number(text):
    """The first number of a cell, with thousands divided; a cell without one was not measured."""
    found = re.search(r"\d[\d,]*(?:\.\d+)?", str(text))
    if not found:
        return NOT_MEASURED
    value = float(found[0].replace(",", ""))
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def cpu_rows(page):
    """((machine, peer), cells) of each of HEADLINES."""
    for heading, pattern, name, ours, peer, theirs, like in HEADLINES:
        try:
            before, columns, rows, cells = find_row(section_of(page, heading), pattern)
            commit, machine = measured_at(before, page)
            rate = number(cell_after(columns, cells, ours))
            their = number(cell_after(columns, cells, theirs, after=ours))
            yield (machine, peer), [name, rate, their, cell_after(columns, cells, "ratio"), range_of(columns, rows, like),
                                    f"[{commit[:8]}]({CPU_PAGE}#{anchor(heading)})"]
        except Missing as error:
            raise Missing(f"{CPU_PAGE}, section {heading!r}: {error}") from None


def gpu_rows(phases):
    """((machine, peer), cells) of each of GPU_HEADLINES."""
    device = phases["facts"]["gpu"]["name"]
    for (phase, ours), name, peer, (their_phase, theirs) in GPU_HEADLINES:
        row, other = phases.get(phase, {}).get(ours, {}), phases.get(their_phase, {}).get(theirs, {})
        if "tokens_per_second" not in row:
            raise Missing(f"{GPU_RESULTS} has no tokens_per_second of {ours!r}")
        rate, their = row["tokens_per_second"], other.get("tokens_per_second")
        heading = {"serve": "serving-beside-vllm", "speed": "beside-pytorch"}[phase]
        at = f"[{row['commit'][:8]}]({GPU_PAGE}#{heading})"
        if their and other["commit"] != row["commit"]:
            at += f", peer at {other['commit'][:8]}"
        yield (device, peer), [name, number(rate), number(their), f"{rate / their:.2f}" if their else "", "", at]


def layouts_sentence(page):
    """Losses of training layouts against one rank."""
    facts = dict(re.findall(r"(?m)^\| (runs|failed|commit) \| (\S+) \|$", page))
    exact = re.search(r"(?m)^\| float64 \| (\d+) \| \S+ \| (\S+) \|", page)
    if len(facts) != 3 or not exact:
        raise Missing(f"{LAYOUTS} has no rows of runs, failed, commit and float64")
    return (f"Training runs in layouts of up to 8 CPU ranks, each compared with one rank: {facts['failed']} of "
            f"{int(facts['runs']):,} failed;\nin float64 the loss differs by at most {exact[2]} "
            f"([{facts['commit'][:8]}]({LAYOUTS})).\n")


def table():
    """The lines between the markers."""
    page = (ROOT / CPU_PAGE).read_text(encoding="utf-8")
    phases = json.loads((ROOT / GPU_RESULTS).read_text(encoding="utf-8"))["phases"]
    lines = [["tokens/s", "Trireme", "peer", "ratio", "range (cases)", "commit"], ["---", "--:", "--:", "--:", "--:", "---"]]
    group = None
    for key, cells in [*cpu_rows(page), *gpu_rows(phases)]:
        if key != group:
            group = key
            lines.append([f"**{key[0]}**", "", f"**{key[1]}**", "", "", ""])
        lines.append(cells)
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    return "\n" + text + "\n" + layouts_sentence((ROOT / LAYOUTS).read_text(encoding="utf-8")) + "\n"


def replaced(text, new):
    """The README's text with another table between the markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise Missing(f"README.md must have these lines once each: {BEGIN}{END}")
    before, rest = text.split(BEGIN)
    return before + BEGIN + new + END + rest.split(END)[1]


def problem(text):
    """What is wrong with the README's text; empty if its figures are those of the pages."""
    try:
        current = replaced(text, table()) == text
    except Missing as error:
        return f"readme_figures: {error}"
    return "" if current else "README.md: the measured figures are not those of the pages; run scripts/readme_figures.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    if arguments.check:
        sys.exit(problem(text) or 0)
    try:
        README.write_text(replaced(text, table()), encoding="utf-8")
    except Missing as error:
        sys.exit(f"readme_figures: {error}")


if __name__ == "__main__":
    main()
