#!/usr/bin/env python3
"""docs/reference/dependencies.md lists exactly the packages of scripts/lib/packages.sh, each with a licence."""
import re

from source import finish, read

PAGE = "docs/reference/dependencies.md"
LIST = "scripts/lib/packages.sh"


def packages(script):
    """Debian names of the list."""
    rows = re.findall(r"(?m)^([a-z0-9][a-z0-9+.,-]*)\|[^|]*\|(?:build|test|fuzz)\|", script)
    return {name for row in rows for name in row.split(",") if name != "-"}


def listed(page):
    """Debian names with a licence, from the rows of the tables."""
    rows = re.findall(r"(?m)^\| [^|]+ \| (`[^|]+`) \| \w[^|]* \|$", page)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def check(script, page):
    wanted, found = packages(script), listed(page)
    return ([f"{PAGE}: no row with a licence for {name} of {LIST}" for name in sorted(wanted - found)]
            + [f"{PAGE}: {name} is not in {LIST}" for name in sorted(found - wanted)])


def main():
    script = read(LIST)
    finish("licences of dependencies", check(script, read(PAGE)), len(packages(script)))


if __name__ == "__main__":
    main()
