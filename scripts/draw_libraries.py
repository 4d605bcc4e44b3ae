#!/usr/bin/env python3
"""Draws docs/images/libraries.svg: the folders of each library, and which may include which.

    scripts/draw_libraries.py [--check]

The picture is made from MAY_INCLUDE in tests/house/check_includes.py by graphviz (`dot`). Arrows that follow from others
are left out, between libraries and within each. --check compares nodes and arrows with the table instead (exit code 1);
it needs no graphviz.
"""
import argparse
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/house"))
from check_includes import MAY_INCLUDE  # noqa: E402

PICTURE = ROOT / "docs/images/libraries.svg"
LIBRARIES = {"engine": "tensors, ops, devices, files", "parallel": "ranks, collectives", "transformer": "models",
             "optim": "optimizers", "serving": "OpenAI-compatible server", "training": "runs and their data",
             "commands": "pretrain, finetune, serve, ...", "main": "the program"}
STYLE = """
svg{--paper:#fff;--ink:#16242c;--line:#7b8d97;--box:#fff;--edge:#b9c7cf;--gray:#e9eef2;--blue:#e4eef6;--green:#e2f1ee;
--yellow:#f4efdf;--red:#f3e8ea}
@media(prefers-color-scheme:dark){svg{--paper:#14191d;--ink:#e6edf1;--line:#8fa1ac;--box:#1d252b;--edge:#4a5a65;--gray:#252d34;
--blue:#1f2f3d;--green:#1b3533;--yellow:#37321f;--red:#3a2930}}
text{fill:var(--ink);font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.graph>polygon{fill:var(--paper)}.node path{fill:var(--box)}.node path,.cluster path{stroke:var(--edge)}
.edge path{stroke:var(--line)}.edge polygon{fill:var(--line);stroke:var(--line)}
.wide path{stroke:var(--ink)}.wide polygon{fill:var(--ink);stroke:var(--ink)}
.engine>path,.commands>path{fill:var(--gray)}.parallel>path{fill:var(--blue)}.transformer>path{fill:var(--green)}
.optim>path,.training>path{fill:var(--yellow)}.serving>path{fill:var(--red)}
"""


def library_of(room):
    return room.split("/")[0]


def reduced(graph):
    """The acyclic graph without arrows that follow from others."""
    def below(node):
        return {node}.union(*map(below, graph[node]))
    return {node: [other for other in others if not any(other in below(third) for third in others if third != other)]
            for node, others in graph.items()}


def graphs(table):
    """Reduced graphs: of the libraries, and {library: of its folders}; and the arrows that run both ways."""
    libraries = dict.fromkeys(map(library_of, table))
    between = {library: sorted({library_of(other) for room in table if library_of(room) == library
                                for other in table[room]} - {library}) for library in libraries}
    order = list(table)
    both = [(a, b) for a in table for b in table[a] if a in table[b] and order.index(a) > order.index(b)]
    within = {library: reduced({room: [other for other in table[room] if library_of(other) == library
                                       and (other, room) not in both]
                                for room in table if library_of(room) == library}) for library in libraries}
    return reduced(between), within, both


def dot_source(table):
    """Graph in graphviz's language; an arrow between libraries joins two of their folders and is cut at their boxes."""
    between, within, both = graphs(table)
    lines = ['digraph libraries { compound=true; nodesep=0.2; ranksep=0.3; bgcolor=white; labelloc=b; fontsize=11; fontname="Helvetica"',
             'label="An arrow: may include. Arrows that follow from others are left out; tests/house/check_includes.py has all."',
             'node [shape=box style="rounded,filled" fillcolor=white fontname="Helvetica" fontsize=12 height=0.3 margin="0.1,0.03"]',
             'edge [arrowsize=0.6]']
    top, bottom = {}, {}  # folders of each library's first and last row
    for library, graph in within.items():
        style = library.removesuffix(".cpp")
        title = f'label="{library}: {LIBRARIES[style]}" class={style}'
        used = [other for others in graph.values() for other in others]
        top[library] = [room for room in graph if room not in used]
        bottom[library] = [room for room in graph if not graph[room]]
        chain = len(used) == len(set(used)) == len(graph) - 1 == sum(map(bool, graph.values()))
        if chain:  # in one row
            top[library] = bottom[library] = [list(graph)[len(graph) // 2]]
        if len(graph) == 1:
            lines.append(f'"{library}" [{title} fontsize=14 height=0.45 margin="0.2,0.1"]')
            continue
        lines.append(f'subgraph "cluster_{library}" {{ {title} labelloc=t labeljust=l margin=10 fontsize=14 style="rounded,filled"')
        lines.append("{ rank=same" if chain else "{")
        lines += [f'"{room}" [label="{room.removeprefix(library + "/")}"]' for room in graph]
        lines += [f'"{a}" -> "{b}" [dir={"both" if (a, b) in both else "forward"}]' for a in graph for b in graph[a]]
        lines.append("} }")
    for library, other in ((a, b) for a in between for b in between[a]):
        ends = bottom[library], top[other]
        lines.append(" -> ".join(f'"{rooms[len(rooms) // 2]}"' for rooms in ends) + " [class=wide penwidth=2 arrowsize=0.8 minlen=3"
                     + "".join(f' {end}="cluster_{name}"' for end, name in (("ltail", library), ("lhead", other))
                               if len(within[name]) > 1) + "]")
        lines += [f'"{a}" -> "{b}" [style=invis minlen=3 weight=0]' for a in ends[0] for b in ends[1]]
    return "\n".join([*lines, "}"])


def picture(table):
    if not shutil.which("dot"):
        sys.exit("draw_libraries: no program `dot`; install graphviz")
    drawn = subprocess.run(["dot", "-Tsvg"], input=dot_source(table), stdout=subprocess.PIPE, text=True, check=True).stdout
    head = '<svg role="img" aria-label="Libraries of Trireme, and which folder may include which"'
    return re.sub(r"<svg([^>]*)>", lambda found: f"{head}{found[1]}>\n<style>{STYLE}</style>", drawn[drawn.index("<svg"):], count=1)


def problem(text, table=None):
    """What is wrong with the picture's text; empty if it shows the folders and arrows of the table."""
    table = MAY_INCLUDE if table is None else table
    between, within, _ = graphs(table)
    arrows = {(a, b) for graph in [between, *within.values()] for a in graph for b in graph[a]}
    titles = [unescape(title) for title in re.findall(r'class="(?:node|edge)[^"]*">\s*<title>(.*?)</title>', text)]
    ends = [title.split("->") for title in titles if "->" in title]
    drawn = {(a, b) if library_of(a) == library_of(b) else (library_of(a), library_of(b)) for a, b in ends}
    if drawn == arrows and {title for title in titles if "->" not in title} == set(table):
        return ""
    return (f"{PICTURE.relative_to(ROOT)} does not show the table of tests/house/check_includes.py; "
            "run scripts/draw_libraries.py, which needs graphviz")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        sys.exit(problem(PICTURE.read_text(encoding="utf-8") if PICTURE.exists() else "") or 0)
    PICTURE.write_text(picture(MAY_INCLUDE), encoding="utf-8")


if __name__ == "__main__":
    main()
