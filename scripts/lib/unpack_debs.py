#!/usr/bin/env python3
"""Unpacks Debian packages into a folder, without dpkg.

    unpack_debs.py FOLDER PACKAGE.deb...

A .deb is an ar archive whose member data.tar.* holds the files (deb(5)).
"""
import io
import sys
import tarfile
from pathlib import Path


def data_of(path):
    """The member data.tar.* of a .deb."""
    raw = Path(path).read_bytes()
    if raw[:8] != b"!<arch>\n":
        sys.exit(f"unpack_debs.py: {path} is no Debian package")
    at = 8
    while at + 60 <= len(raw):
        name, size = raw[at:at + 16].decode().strip().rstrip("/"), int(raw[at + 48:at + 58])
        if name.startswith("data.tar"):
            return name, raw[at + 60:at + 60 + size]
        at += 60 + size + size % 2
    sys.exit(f"unpack_debs.py: {path} holds no data.tar")


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: unpack_debs.py FOLDER PACKAGE.deb...")
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for path in sys.argv[2:]:
        name, data = data_of(path)
        try:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for member in archive:
                    if member.name.startswith("/") or ".." in Path(member.name).parts:
                        sys.exit(f"unpack_debs.py: {path}: {member.name} leaves the folder")
                    if member.issym() and member.linkname.startswith("/"):  # so that it stays inside
                        depth = len(Path(member.name).parent.parts)
                        member.linkname = "../" * depth + member.linkname.lstrip("/")
                    archive.extract(member, target)
        except tarfile.ReadError as error:
            sys.exit(f"unpack_debs.py: {path}: {name}: {error}")


if __name__ == "__main__":
    main()
