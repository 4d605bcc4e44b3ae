#!/usr/bin/env python3
"""What transformers makes of texts with the tokenizers of tests/golden/tokenizers and files beside them.

    make_tokenizer_configs.py                       write tests/golden/tokenizer_configs.json
    make_tokenizer_configs.py --compare TRIREME [--text FILE] [--seed S] [DIR...]
                                                    compare on pieces of a text, these and the tokenizers in DIRs

Needs `pip install transformers` (tests/golden/README.md says which version made the file).
"""
import argparse
import json
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TEXTS = ["", " ", "hello", " hello", "  two  spaces ", "The sea\n and the  wind.\n\n", "it's 12345", "\u00e9\u4e2d\u6587 \U0001f642",
         "a<|endoftext|>b", "x</s>y", "<s> hi</s> there", "<|im_start|>user\nhi<|im_end|>", "[PAD]x", "q<extra> r", "u<mark>  v",
         "!"]
PAD = {"pad_token": "[PAD]"}
EXTRA = "<extra>"


def contents(name):
    made = json.loads((FOLDER / "tokenizers" / f"{name}.json").read_text())["tokenizer"]
    return json.loads(made) if isinstance(made, str) else made


def mark(tokenizer, **flags):
    """An id after the last one, as added_tokens_decoder has it."""
    ids = list(tokenizer["model"]["vocab"].values()) + [t["id"] for t in tokenizer["added_tokens"]]
    token = {"content": "<mark>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": False}
    return {str(max(ids) + 1): {**token, **flags}}


def listed(tokenizer, **flags):
    return {str(t["id"]): {**{k: v for k, v in t.items() if k != "id"}, **flags} for t in tokenizer["added_tokens"]}


def variants():
    """(tokenizer, tokenizer_config.json, other files beside it)"""
    classes = {"gpt2": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer", "llama3": "PreTrainedTokenizerFast", "mistral": "LlamaTokenizer"}
    for name, kind in classes.items():
        tokenizer, base = contents(name), {"tokenizer_class": kind}
        next_id = int(next(iter(mark(tokenizer))))
        yield name, base, {}
        yield name, {**base, "add_bos_token": True, "add_eos_token": True, "model_max_length": 3, "padding_side": "left"}, {}
        yield name, {**base, "clean_up_tokenization_spaces": True}, {}
        yield name, {**base, **PAD}, {}
        yield name, {**base, "additional_special_tokens": [EXTRA]}, {}
        yield name, {**base, "extra_special_tokens": {"image_token": EXTRA}}, {}
        yield name, {**base, "image_token": EXTRA}, {}
        yield name, {**base, "eos_token": "!"}, {}
        yield name, {**base, "added_tokens_decoder": {**listed(tokenizer), **mark(tokenizer, rstrip=True)}}, {}
        yield name, {**base, "added_tokens_decoder": listed(tokenizer, lstrip=True)}, {}
        yield name, base, {"added_tokens.json": {"<mark>": next_id}}
        yield name, base, {"added_tokens.json": {"[PAD]": next_id}, "special_tokens_map.json": PAD}
    for name, kind in (("gpt2", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer"), ("mistral", "LlamaTokenizer"),
                       ("llama2", "LlamaTokenizer")):
        if name != "llama2":
            yield name, {"tokenizer_class": kind, "add_prefix_space": True}, {}
        yield name, {"tokenizer_class": kind, "add_prefix_space": False}, {}
    for name in ("gpt2", "llama2"):
        yield name, {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": name == "gpt2", "legacy": True}, {}
    for legacy in (True, False):
        yield "mistral", {"tokenizer_class": "LlamaTokenizer", "legacy": legacy}, {}


def write(folder, config, files):
    # The model's family decides for a class; this one has none of its own.
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))


def theirs(folder, texts):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text)["input_ids"] for text in texts]
    return ids, [tokenizer.decode(one, skip_special_tokens=True) for one in ids]


def cases(texts):
    for name, config, files in variants():
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "tokenizer.json").write_text(json.dumps(contents(name)))
            write(folder, config, files)
            yield folder, {"tokenizer": name, "config": config, "files": files}, *theirs(folder, texts)


def directories(paths, texts):
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(path, folder, dirs_exist_ok=True)
            yield Path(folder), {"tokenizer": str(path)}, *theirs(folder, texts)


def compare(program, texts, paths):
    different = 0
    for source in (cases(texts), directories(paths, texts)):
        for folder, what, ids, _ in source:
            run = subprocess.run([program, "tokenize", "--tokenizer", str(folder), "--jsonl", "--json", "--parse-special"],
                                 input="".join(json.dumps(text) + "\n" for text in texts), capture_output=True, text=True)
            ours = [json.loads(line)["ids"] for line in run.stdout.splitlines()]
            wrong = [text for text, a, b in zip(texts, ours, ids) if a != b]
            if run.returncode or wrong:
                different += 1
                print(json.dumps(what)[:200], run.stderr.strip() or f"{len(wrong)} of {len(texts)} differ: {wrong[0]!r}")
    print(f"{different} tokenizers differ")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", metavar="TRIREME")
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("directories", nargs="*", metavar="DIR")
    arguments = parser.parse_args()
    if arguments.compare:
        random.seed(arguments.seed)
        text = Path(arguments.text).read_text() if arguments.text else ""
        starts = [random.randrange(len(text)) for _ in range(200)] if text else []
        pieces = [text[at:at + random.randrange(1, 300)] for at in starts]
        raise SystemExit(min(1, compare(arguments.compare, TEXTS + pieces, arguments.directories)))
    made = [{**what, "ids": ids, "decoded": decoded} for _, what, ids, decoded in cases(TEXTS)]
    lines = ",\n".join(json.dumps(one) for one in made)
    (FOLDER / "tokenizer_configs.json").write_text(f'{{"texts": {json.dumps(TEXTS)},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
