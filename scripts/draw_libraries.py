#!/usr/bin/env python3
"""Draws docs/images/libraries.svg: the folders of each library, and which may include which.

    scripts/draw_libraries.py [--check]

The picture is made from MAY_INCLUDE in tests/house/check_includes.py, bottom-up. Arrows that follow from others are left
out, between libraries and within each. --check compares instead of writing (exit code 1).
"""
import argparse
import itertools
import math
import random
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/house"))
from check_includes import MAY_INCLUDE  # noqa: E402

PICTURE = ROOT / "docs/images/libraries.svg"
WIDTH, MARGIN, GAP, PAD = 960, 16, 34, 14  # of the picture, its border, between libraries, within a library
CHIP, STEP, SPACE, TITLE = 28, 49, 18, 26  # height of a folder, of a rank of folders, between folders, of a title
PURPOSES = {"engine": "tensors, ops, devices, files", "parallel": "ranks, collectives", "transformer": "models",
            "optim": "optimizers", "serving": "OpenAI-compatible server", "training": "runs and their data",
            "commands": "pretrain, finetune, serve, ...", "main.cpp": "the program"}
STYLE = """
.lib{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;--paper:#fff;--ink:#16242c;--soft:#52646e;
--line:#7b8d97;--box:#fff;--edge:#b9c7cf;--r0:#e9eef2;--r1:#e4eef6;--r2:#e2f1ee;--r3:#f4efdf;--r4:#f3e8ea;--r5:#fff}
@media (prefers-color-scheme:dark){.lib{--paper:#14191d;--ink:#e6edf1;--soft:#a9b8c1;--line:#8fa1ac;--box:#1d252b;--edge:#4a5a65;
--r0:#252d34;--r1:#1f2f3d;--r2:#1b3533;--r3:#37321f;--r4:#3a2930;--r5:#14191d}}
.paper{fill:var(--paper)}text{fill:var(--ink);text-anchor:middle}.name{font-weight:700;font-size:15px;text-anchor:start}
.note{fill:var(--soft);font-size:12px;text-anchor:start}.chip{fill:var(--box);stroke:var(--edge)}.panel{stroke:var(--edge)}
.arrow{fill:none;stroke:var(--line);stroke-width:1.3}.wide{stroke:var(--ink);stroke-width:2.2}
.head{fill:var(--line)}.widehead{fill:var(--ink)}
""" + "".join(f".row{i}{{fill:var(--r{i})}}" for i in range(6))


def library_of(room):
    return room.split("/")[0]


def reachable(graph, start, skipped=None):
    """Nodes that arrows lead to from `start`, not by the arrow (start, skipped) itself."""
    found, stack = set(), [other for other in graph[start] if other != skipped]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += graph[node]
    return found


def reduced(graph):
    """The acyclic graph without arrows that follow from others."""
    return {node: [other for other in others if other not in reachable(graph, node, other)]
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


def lowest_ranks(graph):
    ranks = {}

    def rank(node):
        if node not in ranks:
            ranks[node] = 1 + max((rank(other) for other in graph[node]), default=-1)
        return ranks[node]
    for node in graph:
        rank(node)
    return ranks


def short_ranks(graph):
    """Ranks of the nodes within the lowest height that keep arrows short: the best of random walks, always the same."""
    chance = random.Random(1).random
    users = {node: [other for other in graph if node in graph[other]] for node in graph}
    start = lowest_ranks(graph)
    top = max(start.values())

    def length(ranks):
        return sum(ranks[node] - ranks[other] for node in graph for other in graph[node])
    best = start
    nodes, least = list(graph), sum(map(len, graph.values()))
    for _ in range(12 if length(start) > least else 0):
        ranks = dict(start)
        for _ in range(40 * len(nodes)):
            node = nodes[int(chance() * len(nodes))]
            low = max((ranks[other] + 1 for other in graph[node]), default=0)
            high = min((ranks[other] - 1 for other in users[node]), default=top)
            moved = {**ranks, node: low + int(chance() * (high - low + 1))}
            if length(moved) <= length(ranks) or chance() < 0.05:
                ranks = moved
            if length(ranks) < length(best):
                best = ranks
    return best


def with_bends(graph, ranks):
    """(nodes of each rank, links (upper, lower) of neighbouring ranks, paths {arrow: nodes on its way})."""
    rows = [[] for _ in range(max(ranks.values()) + 1)]
    for node in graph:
        rows[ranks[node]].append(node)
    links, paths = [], {}
    for node in graph:
        for other in graph[node]:
            way = [node, *[(node, other, rank) for rank in range(ranks[node] - 1, ranks[other], -1)], other]
            for bend in way[1:-1]:
                rows[bend[2]].append(bend)
            links += zip(way, way[1:])
            paths[node, other] = way
    return rows, links, paths


def crossings(rows, links):
    at = {node: (rank, index) for rank, row in enumerate(rows) for index, node in enumerate(row)}
    ends = sorted((at[upper][0], at[upper][1], at[lower][1]) for upper, lower in links)
    return sum(a[0] == b[0] and a[1] < b[1] and a[2] > b[2] for a, b in itertools.combinations(ends, 2))


def width_of(node):
    return 6 if isinstance(node, tuple) else max(58, 7.6 * len(label(node)) + 20)


def label(room):
    return room if room == library_of(room) else room.removeprefix(library_of(room) + "/")


def spread(row, wanted):
    """Centres of a row's nodes as near to the wanted ones as their widths permit (pool adjacent violators)."""
    offsets, at = [], 0
    for node, following in zip(row, [*row[1:], None]):
        offsets.append(at)
        at += (width_of(node) + (width_of(following) if following else 0)) / 2 + SPACE
    pools = []
    for node, offset in zip(row, offsets):
        pools.append([wanted[node] - offset, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            value, count = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + value * count) / (pools[-1][1] + count), pools[-1][1] + count]
    values = [value for value, count in pools for _ in range(count)]
    return {node: value + offset for node, value, offset in zip(row, values, offsets)}


def placed(rows, links):
    """x of every node, its row's order kept: several sweeps towards the mean of its neighbours."""
    near = {node: [] for row in rows for node in row}
    for upper, lower in links:
        near[upper].append(lower)
        near[lower].append(upper)
    x = {}
    for row in rows:
        x |= spread(row, dict.fromkeys(row, 0))

    def mean(node):
        weights = [(12 if isinstance(node, tuple) and isinstance(other, tuple) else 1, x[other]) for other in near[node]]
        return math.fsum(w * at for w, at in weights) / sum(w for w, _ in weights) if weights else x[node]
    for sweep in range(30):
        for row in rows if sweep % 2 else rows[::-1]:
            x |= spread(row, {node: mean(node) for node in row})
    return x


def arranged(graph):
    """(x of every node from 0, ranks, paths, width) of a library's folders, with few crossings and short arrows."""
    ranks = short_ranks(graph)
    rows, links, paths = with_bends(graph, ranks)
    chance = random.Random(2).random
    best = None
    for _ in range(40):
        rows = [sorted(row, key=lambda _: chance()) for row in rows]
        now, better = crossings(rows, links), True
        while better:
            better = False
            for row in rows:
                for i, j in itertools.combinations(range(len(row)), 2):
                    row[i], row[j] = row[j], row[i]
                    after = crossings(rows, links)
                    better |= after < now
                    if after < now:
                        now = after
                    else:
                        row[i], row[j] = row[j], row[i]
        x = placed(rows, links)
        length = round(math.fsum(abs(x[a] - x[b]) for a, b in links), 3)
        if best is None or (now, length) < best[0]:
            best = ((now, length), x)
    x = best[1]
    left = min(x[node] - width_of(node) / 2 for node in x)
    x = {node: value - left for node, value in x.items()}
    return x, ranks, paths, max(x[node] + width_of(node) / 2 for node in x)


def chip(room, x, y):
    """A folder, centred at x, its top at y."""
    width = width_of(room)
    return [f'<rect class="chip" x="{x - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}" height="{CHIP}" rx="5"/>',
            f'<text x="{x:.1f}" y="{y + 18.5:.1f}">{escape(label(room))}</text>']


def curve(points):
    """Path through points from the top down, upright at each."""
    text = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in zip(points, points[1:]):
        text += f"C{x:.1f} {(y + to_y) / 2:.1f} {to_x:.1f} {(y + to_y) / 2:.1f} {to_x:.1f} {to_y:.1f}"
    return text


class Library:
    """The box of one library: its folders as a chain beside its name, or in ranks under it."""

    def __init__(self, name, graph, both):
        self.name, self.rooms, self.both = name, list(graph), both
        self.x, self.ranks, self.paths, inner = arranged(graph)
        self.single = self.rooms == [name]
        self.chain = len(set(self.ranks.values())) == len(self.rooms)
        if name not in PURPOSES:
            sys.exit(f"draw_libraries: PURPOSES has no words for {name}")
        self.title = max(9.2 * len(name), 6.4 * len(PURPOSES[name])) + PAD
        self.height = TITLE + (max(self.ranks.values()) * STEP + CHIP) + PAD
        self.width = max(inner + 2 * PAD, self.title + PAD)
        if self.chain:
            chips = 0 if self.single else math.fsum(map(width_of, self.rooms)) + 30 * (len(self.rooms) - 1)
            self.height, self.width, self.inner = CHIP + 2 * PAD, self.title + PAD + (chips + PAD if chips else 0), chips
        else:
            self.inner = inner

    def draw(self, x, y, width, height, row):
        yield f'<rect class="panel row{row}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="8"/>'
        title_y = y + (height / 2 - 3 if self.chain else 24)
        yield f'<text class="name" x="{x + PAD:.1f}" y="{title_y:.1f}">{escape(self.name)}</text>'
        yield f'<text class="note" x="{x + PAD:.1f}" y="{title_y + 17:.1f}">{escape(PURPOSES[self.name])}</text>'
        if self.single:
            return
        yield from self.draw_chain(x, y, width, height) if self.chain else self.draw_ranks(x, y, width, height)

    def draw_chain(self, x, y, width, height):
        rooms = sorted(self.rooms, key=self.ranks.get)
        chips = math.fsum(map(width_of, rooms))
        space = min(60, (width - self.title - 2 * PAD - chips) / max(1, len(rooms) - 1))
        whole = chips + space * (len(rooms) - 1)
        at = x + max(self.title + PAD, (width - whole) / 2)
        middle, before = y + height / 2, None
        for room in rooms:
            if before is not None:
                ends = ' marker-start="url(#h)"' if (before, room) in self.both or (room, before) in self.both else ""
                yield f'<path class="arrow" marker-end="url(#h)"{ends} d="M{at - 3:.1f} {middle:.1f}H{at - space + 3:.1f}"/>'
            yield from chip(room, at + width_of(room) / 2, middle - CHIP / 2)
            at += width_of(room) + space
            before = room

    def draw_ranks(self, x, y, width, height):
        left = x + (width - self.inner) / 2
        bottom = y + height - PAD - CHIP

        def top(rank):
            return bottom - rank * STEP
        ports = self.ports()
        for (room, other), way in self.paths.items():
            points = [(left + ports[room, other, "from"], top(self.ranks[room]) + CHIP)]
            for bend in way[1:-1]:
                points += [(left + self.x[bend], top(bend[2]) - 2), (left + self.x[bend], top(bend[2]) + CHIP + 2)]
            points.append((left + ports[room, other, "to"], top(self.ranks[other]) - 2))
            yield f'<path class="arrow" marker-end="url(#h)" d="{curve(points)}"/>'
        for room in self.rooms:
            yield from chip(room, left + self.x[room], top(self.ranks[room]))

    def ports(self):
        """x of both ends of each arrow: spread over the folder's edge in the order of where the arrows come from."""
        ports = {}
        for room in self.rooms:
            for end, ways in (("from", [(key, way[1]) for key, way in self.paths.items() if key[0] == room]),
                              ("to", [(key, way[-2]) for key, way in self.paths.items() if key[1] == room])):
                ways.sort(key=lambda item: self.x[item[1]])
                apart = min(16, (width_of(room) - 16) / max(1, len(ways)))
                for index, (key, _) in enumerate(ways):
                    ports[(*key, end)] = self.x[room] + (index - (len(ways) - 1) / 2) * apart
        return ports


def rows_of(libraries, between):
    """Rows of (library, x, width), bottom-up, ordered so that every arrow between neighbouring rows is upright."""
    ranks = lowest_ranks(between)
    rows = [[name for name in between if ranks[name] == rank] for rank in range(max(ranks.values()) + 1)]
    for orders in itertools.product(*[itertools.permutations(row) for row in rows]):
        boxes = {}
        for row in orders:
            free = WIDTH - 2 * MARGIN - GAP / 2 * (len(row) - 1) - math.fsum(libraries[name].width for name in row)
            x = MARGIN
            for name in row:
                width = libraries[name].width + free / len(row)
                boxes[name] = (x, width)
                x += width + GAP / 2
        if all(overlap(boxes[a], boxes[b]) for a in between for b in between[a]):
            return [[(name, *boxes[name]) for name in row] for row in orders]
    sys.exit("draw_libraries: no order of the libraries has upright arrows only")


def overlap(a, b):
    """The middle of what two boxes (x, width) share, or None."""
    low, high = max(a[0], b[0]), min(a[0] + a[1], b[0] + b[1])
    return (low + high) / 2 if high - low > 30 else None


def picture(table=None):
    between, within, both = graphs(MAY_INCLUDE if table is None else table)
    libraries = {name: Library(name, graph, both) for name, graph in within.items()}
    rows = rows_of(libraries, between)
    heights = [max(libraries[name].height for name, _, _ in row) for row in rows]
    height = 2 * MARGIN + sum(heights) + GAP * (len(rows) - 1) + 24
    body, tops, y = [], {}, height - MARGIN
    body.append(f'<text class="note" x="{MARGIN}" y="{y - 1:.1f}">An arrow: may include. Arrows that follow from others '
                'are left out; the whole table is in tests/house/check_includes.py.</text>')
    y -= 24
    for row, (boxes, tall) in enumerate(zip(rows, heights)):
        y -= tall
        for name, x, width in boxes:
            tops[name] = (x, width, y, y + tall)
            body += libraries[name].draw(x, y, width, tall, row % 6)
        y -= GAP
    for name, others in between.items():
        for other in others:
            x = overlap(tops[name][:2], tops[other][:2])
            body.append(f'<path class="arrow wide" marker-end="url(#w)" '
                        f'd="M{x:.1f} {tops[name][3]:.1f}V{tops[other][2] - 8:.1f}"/>')
    marker = ('<marker id="{0}" viewBox="0 0 8 8" refX="{1}" refY="4" markerWidth="{2}" markerHeight="{2}" '
              'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path class="{3}" d="M0 0L8 4L0 8z"/></marker>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        'class="lib" role="img" aria-label="Libraries of Trireme, and which folder may include which">',
        f"<style>{STYLE}</style>", f"<defs>{marker.format('h', 6, 8, 'head')}{marker.format('w', 1, 11, 'widehead')}</defs>",
        f'<rect class="paper" width="{WIDTH}" height="{height:.0f}" rx="8"/>', *body, "</svg>", ""])


def problem(text, table=None):
    """What is wrong with the picture's text; empty if it shows the table."""
    return "" if text == picture(table) else (f"{PICTURE.relative_to(ROOT)} is not the table of tests/house/check_includes.py; "
                                              "run scripts/draw_libraries.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        sys.exit(problem(PICTURE.read_text(encoding="utf-8") if PICTURE.exists() else "") or 0)
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
