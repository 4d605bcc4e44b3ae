#!/usr/bin/env python3
"""README.md has the figures of the measured pages, and its picture of the libraries the arrows that includes may have."""
import sys

from source import ROOT, finish, read

sys.path.insert(0, str(ROOT / "scripts"))
import draw_libraries
import readme_figures


def check(readme, picture):
    return [problem for problem in (readme_figures.problem(readme), draw_libraries.problem(picture)) if problem]


def main():
    picture = draw_libraries.PICTURE
    finish("README", check(read("README.md"), picture.read_text(encoding="utf-8") if picture.exists() else ""), 2)


if __name__ == "__main__":
    main()
