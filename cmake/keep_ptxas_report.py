#!/usr/bin/env python3
"""Runs a compiler and keeps what ptxas says of each kernel beside the object file, out of the build's output.

    keep_ptxas_report.py COMPILER ARGUMENTS... -o FILE.o   writes FILE.o.ptxas

CMake calls it as the launcher of nvcc; scripts/kernel_resources.py reads the reports.
"""
import subprocess
import sys

REPORT = ("ptxas info", "    ")  # its lines, and the indented ones that go on with them


def main():
    command = sys.argv[1:]
    ran = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    report, rest = [], []
    for line in ran.stderr.splitlines(keepends=True):
        inside = line.startswith(REPORT[0]) or (report and line.startswith(REPORT[1]) and "bytes stack" in line)
        (report if inside else rest).append(line)
    sys.stderr.write("".join(rest))
    if report and "-o" in command:
        with open(command[command.index("-o") + 1] + ".ptxas", "w", encoding="utf-8") as out:
            out.writelines(report)
    sys.exit(ran.returncode)


if __name__ == "__main__":
    main()
