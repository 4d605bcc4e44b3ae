#!/usr/bin/env python3
"""Every house check of documents and texts fails on a sample that it exists to refuse, and passes its repaired twin."""
import sys
import tempfile
import unittest
from pathlib import Path

import check_advice
import check_dependencies
import check_docs
import check_image
import check_page_age
import check_readme


class Advice(unittest.TestCase):
    def advised(self, *lines):
        return [text for _, text in check_advice.literals("\n".join(lines) + "\n") if check_advice.is_advice(text)]

    def test_texts(self):
        for line in ('fail("it is there; remove it");', 'fail("use ", x, " instead");', 'fail(x, ", or set y to 1");',
                     'fail("a: give " "one");', 'fail(" (see ", x, " --help)");', 'fail("--min 0: give more");',
                     'fail("\\nrepair one");', 'fail("F16 is: make such a file");', 'fail("; did you mean ", x);'):
            self.assertEqual(len(self.advised(line)), 1, line)
        for line in ('add("Set of keys: use one", 1);', 'fail("open file");', 'fail("it is used; the run goes on");',
                     '// fail("; remove it");', '#include "use that"', 'add("write");', 'f(R"(use it; remove it)");',
                     'fail("a useful set of things");'):
            self.assertEqual(self.advised(line), [], line)

    def test_sources(self):
        text = 'fail("it is there; remove it");\n'
        self.assertEqual(check_advice.check_source("a/b.cpp", text, ["; remove it"]), [])
        (problem,) = check_advice.check_source("a/b.cpp", "\n" + text, ["; use another"])
        self.assertIn("a/b.cpp:2: ", problem)

    def test_rows(self):
        texts = {"tests/e2e/test_a.py": '"please remove "\n  f"it"\nA = {\n    "row": 1,\n}\n\n\nclass A:\n    def test_b(self):\n        pass\n',
                 "tests/c/test_c.cpp": "TEST(Suite, Name) {}  // remove it\n", "tests/c/test_d.cpp": "TEST(Suite, Name) {}\n"}
        check = lambda fragment, follower, source='f("; remove it");\n': check_advice.check_row(
            1, "a/b.cpp", fragment, follower, source, texts.get)
        for follower in ("gpu", "e2e/test_a.py::row", "e2e/test_a.py::test_b", "c/test_c.cpp::Suite.Name"):
            self.assertEqual(check("; remove it", follower), [], follower)
        for follower in ("", "tomorrow", "e2e/test_a.py::test_c", "e2e/test_d.py::row", "c/test_c.cpp::Name", "c/test_d.cpp::Suite.Name"):
            self.assertEqual(len(check("; remove it", follower)), 1, follower)
        self.assertEqual(len(check("; use it", "gpu")), 1)
        self.assertEqual(len(check("; remove it", "gpu", source=None)), 1)
        self.assertEqual(list(check_advice.rows("# a\nb\tc\td\n")), [(2, "b", "c", "d")])


class Image(unittest.TestCase):
    GOOD = "FROM a AS build\nRUN b\n\nFROM c\nRUN xargs -a packages.txt apt-get install\nUSER trireme\n"

    def test_what_keeps_an_image_from_starting(self):
        libraries = ["libz.so.1"]
        if check_image.shutil.which("dpkg-query") is None:
            self.skipTest("needs dpkg-query")
        self.assertEqual(check_image.problems(self.GOOD, libraries, ["zlib1g"]), [])
        self.assertEqual(len(check_image.problems(self.GOOD, libraries, ["libc6"])), 1)
        self.assertEqual(len(check_image.problems(self.GOOD.replace("USER trireme", "USER root"), libraries, ["zlib1g"])), 1)
        self.assertEqual(len(check_image.problems(self.GOOD.replace("-a packages.txt", ""), libraries, ["zlib1g"])), 1)


class Docs(unittest.TestCase):
    def test_failing_command_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            run = lambda text: check_docs.run_blocks(Path("a.md"), text, Path(folder), {})
            self.assertEqual(len(run("```sh tested\nfalse\n```\n")), 1)
            self.assertEqual(len(run("```sh tested\nfalse | cat\n```\n")), 1)
            self.assertEqual(run("```sh tested\ntrue\n```\n```sh\nfalse\n```\n"), [])

    def test_links(self):
        here = Path("docs/reference/exit-codes.md")
        self.assertEqual(len(check_docs.broken_links(here, "[a](no-such.md)\n")), 1)
        self.assertEqual(len(check_docs.broken_links(here, "`scripts/no_such.sh`\n")), 1)
        self.assertEqual(len(check_docs.broken_links(here, "[a](checkpoint-format.md#no-such-heading)\n")), 1)
        self.assertEqual(len(check_docs.broken_links(here, "# A heading\n[a](#another)\n")), 1)
        fine = "# The `heading`: one\n[a](#the-heading-one) [b](exit-codes.md#exit-codes) [c](https://example.org#x)\n"
        self.assertEqual(check_docs.broken_links(here, fine), [])

    def test_index(self):
        pages = [Path(name) for name in ("docs/README.md", "docs/guide/a.md", "docs/reference/b.tsv", "docs/images/c.png")]
        index = "- [a](guide/a.md#part)\n- [b](reference/b.tsv)\n"
        self.assertEqual(check_docs.missing_in_index(index, pages), [])
        for line in index.splitlines(keepends=True):
            self.assertEqual(len(check_docs.missing_in_index(index.replace(line, ""), pages)), 1)


class Dependencies(unittest.TestCase):
    def test_rows(self):
        script = "g++|gcc-c++|build|compiler\nlibx-dev|-|test|x\n"
        page = "| compiler | `g++` | GPL-3.0 |\n| x | `libx-dev` | MIT |\n"
        self.assertEqual(check_dependencies.check(script, page), [])
        self.assertEqual(len(check_dependencies.check(script, page.replace(" MIT ", "  "))), 1)
        self.assertEqual(len(check_dependencies.check(script, page + "| y | `liby-dev` | MIT |\n")), 1)


class Readme(unittest.TestCase):
    figures, drawing = check_readme.readme_figures, check_readme.draw_libraries

    def test_figures(self):
        text = self.figures.replaced(self.figures.BEGIN + self.figures.END, self.figures.table())
        picture = self.drawing.PICTURE.read_text(encoding="utf-8")
        self.assertEqual(check_readme.check(text, picture), [])
        self.assertIn("run scripts/readme_figures.py", check_readme.check(text.replace("2", "3"), picture)[0])
        self.assertIn("once each", check_readme.check(text.replace(self.figures.END, ""), picture)[0])

    def test_rows_of_pages(self):
        head = "| commit | a1b2c3d4 |\n| machine | 2 cores of an X (fast) |\n"
        section = "| case | tokens/s | tokens/s | ratio |\n|---|---|---|---|\n| GPT-2 124M, B 4 | 1,250 | 200 | 1.50 |\n"
        before, columns, rows, cells = self.figures.find_row(section + "\n", "gpt 2 124m, b 4")
        self.assertEqual(self.figures.cell_after(columns, cells, "tokens/s", after="tokens/s"), "200")
        self.assertEqual(self.figures.range_of(columns, rows, "b 4"), "1.50 to 1.50 (1)")
        self.assertEqual(self.figures.measured_at(before, head), ("a1b2c3d4", "2 cores of an X (fast)"))
        self.assertEqual(self.figures.measured_at("Commit of another (commit 7654321): 2020, commit 1234567, on a machine with "
                                                  "AVX2 only and\nnothing else.\n", head), ("1234567", "a machine with AVX2 only"))
        self.assertEqual(self.figures.measured_at("On 2 cores of an Y (new, quick), commit 1234567.\n", head)[1],
                         "2 cores of an Y (new)")
        self.assertEqual(self.figures.measured_at("Llama 1B, commit 1234567, on 2 cores of an Y (AVX-512 with bf16, without\nAMX; "
                                                  "then Z):\n", head), ("1234567", "2 cores of an Y (AVX-512 with bf16)"))
        self.assertEqual([self.figures.number(cell) for cell in ("1,250", "7.26", "not run: no vLLM")],
                         ["1,250", "7.3", "not measured"])
        for lost in (lambda: self.figures.find_row(section, "gpt 2 124m, b 8"), lambda: self.figures.section_of(section, "A"),
                     lambda: self.figures.cell_after(columns, cells, "ms"), lambda: self.figures.measured_at("", "")):
            self.assertRaises(self.figures.Missing, lost)

    def test_picture(self):
        text = self.figures.replaced(self.figures.BEGIN + self.figures.END, self.figures.table())
        picture = self.drawing.PICTURE.read_text(encoding="utf-8")
        for lost in ("<title>engine/io</title>", "<title>engine/io&#45;&gt;engine/core</title>"):
            self.assertIn("run scripts/draw_libraries.py", check_readme.check(text, picture.replace(lost, ""))[0])
        self.assertEqual(len(check_readme.check(text, "")), 1)
        for table in ({**self.drawing.MAY_INCLUDE, "engine/io": []}, {**self.drawing.MAY_INCLUDE, "engine/new": []},
                      {**self.drawing.MAY_INCLUDE, "parallel": [], "parallel/comm/transport": [], "parallel/comm/liveness": []}):
            self.assertNotEqual(self.drawing.problem(picture, table), "")

    def test_arrows_that_follow_are_left_out(self):
        graph = {"a": ["b", "c"], "b": ["c"], "c": []}
        self.assertEqual(self.drawing.reduced(graph), {"a": ["b"], "b": ["c"], "c": []})


class PageAge(unittest.TestCase):
    def problems(self, commit, age):
        text = f"| | |\n|---|---|\n| commit | {commit} |\n| made by | `scripts/x.sh` |\n"
        return check_page_age.check("docs/page.md", text, 100, lambda _: age)

    def test_age(self):
        self.assertEqual(self.problems("a1b2c3", 100), [])
        self.assertIn("write it again: scripts/x.sh", self.problems("a1b2c3", 101)[0])
        self.assertEqual(len(self.problems("a1b2c3", None)), 1)
        self.assertEqual(len(self.problems("a1b2c3-dirty", 0)), 1)
        self.assertEqual(len(check_page_age.check("docs/page.md", "no table\n", 100, lambda _: 0)), 1)

    def test_history(self):
        self.assertIsNone(check_page_age.commits_since("not-a-commit"))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
