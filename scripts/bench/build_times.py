#!/usr/bin/env python3
"""What building the program costs from nothing, as Markdown: CPU time and wall time, seconds of each library, and what
reading each heavy header costs.

    build_times.py [--against COMMIT]... [--jobs N] [--build-dir DIR]

--against builds that commit too, in the same run. Nothing comes from the compiler's cache. Each source tree is a clone
of this repository's commit: changes that are not committed are not measured. Kernels are built for this machine's
instruction set (TRIREME_ISA=native) where the commit can do that.
"""
import argparse
import os
import re
import resource
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ["nlohmann/json.hpp", "CLI/CLI.hpp", "boost/asio/co_spawn.hpp", "boost/asio/ssl.hpp", "boost/beast/http.hpp",
           "prometheus/registry.h", "spdlog/spdlog.h", "sentencepiece_processor.h", "dnnl.hpp", "mpi.h", "functional",
           "filesystem", "map", "string"]


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*command, cwd=None, log=None):
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    subprocess.run(list(map(str, command)), cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=log, check=True)


def library_of(output):
    """The target that an object belongs to; None of what is no object."""
    found = re.search(r"([\w.-]+)\.dir/.*\.(?:o|gch)$", output)
    return found[1] if found else None


def seconds_of(ninja_log):
    """Seconds of each target's objects, and how many there are."""
    seconds, objects = Counter(), Counter()
    for line in ninja_log.splitlines():
        fields = line.split("\t")
        if len(fields) < 4 or (library := library_of(fields[3])) is None:
            continue
        seconds[library] += (int(fields[1]) - int(fields[0])) / 1e3
        objects[library] += 1
    return seconds, objects


def build(commit, folder, jobs):
    """CPU seconds, wall seconds, and (seconds, objects) of each target."""
    source, out, log = folder / "source", folder / "build", folder / "log"
    run("git", "clone", "-q", "--shared", "--no-checkout", ROOT, source)
    run("git", "checkout", "-q", commit, cwd=source)
    with log.open("w") as written:
        run("cmake", "-S", source, "-B", out, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTRIREME_TESTS=OFF",
            "-DTRIREME_CUDA=OFF", "-DTRIREME_ISA=native", log=written)  # as quickstart.sh does
        begin, used = time.monotonic(), cpu_seconds()
        run("cmake", "--build", out, "--target", "trireme", "-j", jobs, log=written)
    return cpu_seconds() - used, time.monotonic() - begin, seconds_of((out / ".ninja_log").read_text())


def header_seconds(header, folder):
    """CPU seconds of a file that includes nothing else, by the lowest of three."""
    source = folder / "one.cpp"
    source.write_text(f"#include <{header}>\n")
    include = subprocess.run(["pkg-config", "--cflags", "ompi-c"], capture_output=True, text=True, check=False).stdout.split()
    best = None
    for _ in range(3):
        used = cpu_seconds()
        run("c++", "-std=c++20", "-fsyntax-only", "-w", *include, source)
        best = min(cpu_seconds() - used, best or 1e9)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--build-dir", metavar="DIR", help="where the temporary clones go")
    options = parser.parse_args()
    head = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], text=True).strip()
    print("| commit | objects | CPU time, min | wall time, min |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.build_dir) as temporary:
        folder = Path(temporary)
        for commit in [head, *options.against]:
            (folder / commit).mkdir()
            cpu, wall, (seconds, objects) = build(commit, folder / commit, options.jobs)
            print(f"| {commit} | {sum(objects.values())} | {cpu / 60:.1f} | {wall / 60:.1f} |", flush=True)
            if commit == head:
                of_head = seconds, objects
        print("\n| library | objects | seconds |\n|---|---|---|")
        seconds, objects = of_head
        for name, spent in seconds.most_common():
            print(f"| {name} | {objects[name]} | {spent:.1f} |")
        print("\n| header | seconds to read it |\n|---|---|")
        costs = {header: header_seconds(header, folder) for header in HEADERS}
        for header, spent in sorted(costs.items(), key=lambda one: -one[1]):
            print(f"| `{header}` | {spent:.2f} |")


if __name__ == "__main__":
    main()
