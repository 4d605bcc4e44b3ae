#!/usr/bin/env python3
"""Code has no branch on a model's family: what families differ in is a field of their tables
(transformer/families/family.h, transformer/formats/gguf/gguf_architectures.h) or of ModelConfig."""
import re

from source import CPP, code_only, files, finish, read

PRODUCT = re.compile(r"^(commands|engine|optim|parallel|serving|training|transformer)/")
MAY_NAME = re.compile(r"^transformer/(families/|config/model_config\.h$|formats/gguf/gguf_architectures\.h$)")
NAMES = re.compile(r"\bModelFamily::k\w+")


def check(path, text):
    if not PRODUCT.match(path) or MAY_NAME.match(path):
        return []
    return [f"{path}:{number}: {found[0]}: make what differs a field of the family's table (transformer/families/family.h)"
            for number, line in enumerate(code_only(text).splitlines(), 1) if (found := NAMES.search(line))]


def main():
    texts = {str(path): read(path) for path in files(CPP)}
    finish("families", [p for path, text in texts.items() for p in check(path, text)], len(texts))


if __name__ == "__main__":
    main()
