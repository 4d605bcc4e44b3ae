#!/usr/bin/env python3
"""The container image can start: check_image.py PROGRAM. Every library that the program is linked with belongs to a
package of the list that scripts/Dockerfile installs, and the image does not run as root."""
import re
import shutil
import subprocess
import sys

from source import ROOT

DOCKERFILE = ROOT / "scripts/Dockerfile"
LIST = ROOT / "scripts/runtime_packages.sh"


def needed(program):
    """Names of the shared libraries that the program is linked with."""
    dynamic = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)


def packages(program):
    return subprocess.run([LIST, program], capture_output=True, text=True, check=True).stdout.split()


def missing(libraries, names):
    """Libraries that no package of `names` installs."""
    files = subprocess.run(["dpkg-query", "-L", *names], capture_output=True, text=True, check=True).stdout.split()
    installed = {file.rsplit("/", 1)[-1] for file in files}
    return [library for library in libraries if library not in installed]


def problems(dockerfile, libraries, names):
    """What keeps the image from starting, or makes it start as root."""
    found = [f"no package of scripts/runtime_packages.sh installs {library}" for library in missing(libraries, names)]
    last_stage = dockerfile.rsplit("\nFROM ", 1)[-1]
    if "packages.txt" not in last_stage:
        found.append("scripts/Dockerfile does not install the derived list, packages.txt")
    if not re.search(r"^USER (?!root)", last_stage, re.MULTILINE):
        found.append("scripts/Dockerfile runs as root")
    return found


def main():
    if shutil.which("dpkg-query") is None or shutil.which("readelf") is None:
        print("skipped: needs dpkg-query and readelf")
        return 77
    program = sys.argv[1]
    libraries, names = needed(program), packages(program)
    found = problems(DOCKERFILE.read_text(), libraries, names)
    print(f"{len(libraries)} libraries, {len(names)} packages: {' '.join(names)}")
    for problem in found:
        print(problem)
    return 1 if found or not libraries else 0


if __name__ == "__main__":
    sys.exit(main())
