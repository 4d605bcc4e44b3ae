#!/usr/bin/env python3
"""Tokenizers with every kind of decoder, and the text that their own libraries make of random token ids.

    make_detokenized.py                                    write tests/golden/detokenized/*.json
    make_detokenized.py --compare TRIREME [--sequences N] [--seed S]
                                                           compare on random ids, these tokenizers and tokenizers/*.json

Needs `pip install tokenizers sentencepiece` (tests/golden/README.md).
"""
import argparse
import io
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

GOLDEN = Path(__file__).resolve().parent
FOLDER = GOLDEN / "detokenized"
SPACE = "\u2581"
# Complete characters of one to four bytes, and leads and tails that are none together.
BYTES = [0x0A, 0x20, 0x41, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xED, 0xC0, 0xFF]
WORDS = ["a", "b", "ab", "ba", SPACE, SPACE * 2, SPACE + "a", SPACE * 2 + "b", "a" + SPACE, "\u6d77", SPACE + "\u00e9", "  c",
         "c ", "##a", "</w>", "a</w>"]
SPECIAL = ["<unk>", "<s>", "</s>"]


def by_hand(decoder, words=None, normalizer=None):
    """A vocabulary that is not trained: only decoding is looked at."""
    pieces = SPECIAL + [f"<0x{b:02X}>" for b in BYTES] + (words or WORDS)
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[], unk_token="<unk>"))
    if normalizer:
        t.normalizer = normalizer
    t.add_special_tokens(SPECIAL)
    t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("Row", normalized=True)])
    if decoder:
        t.decoder = decoder
    return t


def sequence(*parts):
    return decoders.Sequence(list(parts))


def byte_letters(values):
    """How the alphabet of ByteLevel spells bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return "".join(chr(b) if b in shown else chr(0x100 + hidden.index(b)) for b in values)


def byte_level():
    letters = [byte_letters([b]) for b in BYTES + [ord("b")]]
    return by_hand(decoders.ByteLevel(), letters + [byte_letters(b"A\xe2\x82"), byte_letters(b"\xac b"), "no letter \u6d77"])


def fallback(*behind):
    return sequence(decoders.Replace(SPACE, " "), decoders.ByteFallback(), *behind)


def strip(left, right=0):
    return decoders.Strip(content=" ", left=left, right=right)


JSON_KINDS = {
    "none": lambda: by_hand(None),
    "byte_level": byte_level,
    "llama2": lambda: by_hand(fallback(decoders.Fuse(), strip(1))),
    "gemma": lambda: by_hand(fallback(decoders.Fuse())),
    "unfused": lambda: by_hand(fallback(strip(1))),
    "stripped": lambda: by_hand(fallback(decoders.Fuse(), strip(2, 2))),
    "metaspace": lambda: by_hand(decoders.Metaspace(prepend_scheme="always", split=False)),
    "metaspace_never": lambda: by_hand(decoders.Metaspace(prepend_scheme="never", split=True)),
    "metaspace_bytes": lambda: by_hand(sequence(decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"))),
    "replaced": lambda: by_hand(sequence(decoders.Fuse(), decoders.Replace("aba", "<X>"), decoders.Replace(SPACE + SPACE, "-"))),
    "words": lambda: by_hand(sequence(decoders.Replace("</w>", " "), decoders.Fuse()), normalizer=normalizers.Lowercase()),
}


def trained(**options):
    rng = random.Random(5)
    stems = ["sea", "wind", "oar", "row", "deck", "sail", "crew", "night", "the", "and", "\u00e9t\u00e9", "\u6d77\u98a8"]
    lines = [" ".join(rng.choice(stems) for _ in range(rng.randint(1, 9))) for _ in range(400)]
    out = io.BytesIO()
    options = {"normalization_rule_name": "identity", "minloglevel": 2, "hard_vocab_limit": options["model_type"] == "bpe", **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, num_threads=1, **options)
    return out.getvalue()


SP_KINDS = {
    "sp_bpe": lambda: trained(model_type="bpe", vocab_size=300, byte_fallback=True, remove_extra_whitespaces=False),
    "sp_extra": lambda: trained(model_type="bpe", vocab_size=290, byte_fallback=True, remove_extra_whitespaces=True,
                                user_defined_symbols=["<think>", SPACE * 2, SPACE * 3 + "a"]),
    "sp_no_prefix": lambda: trained(model_type="unigram", vocab_size=60, add_dummy_prefix=False, remove_extra_whitespaces=False,
                                    unk_surface=" (?) "),
    "sp_plain": lambda: trained(model_type="unigram", vocab_size=60),
    "sp_word": lambda: trained(model_type="word", vocab_size=16),
    "sp_char": lambda: trained(model_type="char", vocab_size=24, add_dummy_prefix=False),
    "sp_suffix": lambda: trained(model_type="unigram", vocab_size=60, treat_whitespace_as_suffix=True),
}


class Json:
    def __init__(self, data):
        self.data, self.tokenizer = data, Tokenizer.from_str(json.dumps(data))
        self.size = self.tokenizer.get_vocab_size()
        self.bytes = [i for i in range(self.size) if (self.tokenizer.id_to_token(i) or "").startswith("<0x")]

    def write(self, folder):
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(self.data), encoding="utf-8")
        return path

    def text(self, ids, special):
        return self.tokenizer.decode(ids, skip_special_tokens=not special)

    def fixture(self):
        return {"made_by": f"tokenizers {tokenizers.__version__}", "tokenizer": self.data}


class SentencePiece:
    """Its own text has no special tokens; unknown ones are written as they are."""

    def __init__(self, model):
        self.model = model
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = self.processor.get_piece_size()
        self.bytes = [i for i in range(self.size) if self.processor.is_byte(i)]

    def write(self, folder):
        path = folder / "tokenizer.model"
        path.write_bytes(self.model)
        return path

    def text(self, ids, special):
        return None if special else self.processor.decode(ids)

    def fixture(self):
        return {"made_by": f"sentencepiece {sentencepiece.__version__}", "model": self.model.hex()}


def random_ids(rng, tokenizer):
    """Runs of byte tokens, half of them a character's, among tokens of all kinds."""
    spell = {b: i for b, i in zip(sorted(BYTES), sorted(tokenizer.bytes))} if len(tokenizer.bytes) == len(BYTES) else \
        dict(enumerate(tokenizer.bytes))
    ids = []
    for _ in range(rng.randint(0, 7)):
        if tokenizer.bytes and rng.random() < 0.4:
            if rng.random() < 0.6:
                text = "".join(rng.choice("A\n \u00e9\u20ac\U0001f600") for _ in range(rng.randint(1, 3)))
                ids += [spell[b] for b in text.encode() if b in spell]
            else:
                ids += [rng.choice(tokenizer.bytes) for _ in range(rng.randint(1, 3))]
        else:
            ids += [rng.randrange(tokenizer.size) for _ in range(rng.randint(1, 2))]
    return ids


def sequences_for(name, tokenizer, count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        ids = random_ids(rng, tokenizer)
        if name == "stripped":  # the library panics where nothing is left
            ids.insert(rng.randint(0, len(ids)), tokenizer.tokenizer.token_to_id("b"))
        yield ids


def golden(name, tokenizer, seed):
    cases = []
    for ids in sequences_for(name, tokenizer, 120, seed):
        cases.append([ids, tokenizer.text(ids, False), tokenizer.text(ids, True)])
    return {**tokenizer.fixture(), "cases": cases}


def ours(trireme, path, sequences, options):
    lines = "".join(json.dumps(i) + "\n" for i in sequences)
    out = subprocess.run([trireme, "detokenize", "--jsonl", "--tokenizer", path, *options], input=lines, text=True,
                         capture_output=True, encoding="utf-8")
    if out.returncode != 0:
        print("   refused: " + out.stderr.strip())
        return [None] * len(sequences)
    return [json.loads(line)["text"] for line in out.stdout.split("\n")[:-1]]


def compare(trireme, name, tokenizer, count, seed):
    sequences = list(sequences_for(name, tokenizer, count, seed))
    wrong = {}
    with tempfile.TemporaryDirectory() as folder:
        path = tokenizer.write(Path(folder))
        for special in (False, True):
            want = [tokenizer.text(ids, special) for ids in sequences]
            if None in want:
                continue
            got = ours(trireme, path, sequences, [] if special else ["--no-special"])
            wrong[special] = [(i, w, g) for i, w, g in zip(sequences, want, got, strict=True) if w != g]
    shown = f", {len(wrong[True])} differ with special tokens" if True in wrong else ""
    print(f"{name:18} {count} sequences, {len(wrong[False])} differ{shown}", flush=True)
    for ids, want, got in wrong[False][:2] + wrong.get(True, [])[:2]:
        print(f"   {ids}\n      theirs {want!r}\n      ours   {got!r}")
    return sum(map(len, wrong.values()))


def kinds():
    for name, make in JSON_KINDS.items():
        yield name, Json(json.loads(make().to_str()))
    for name, make in SP_KINDS.items():
        yield name, SentencePiece(make())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", metavar="TRIREME")
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.compare:
        FOLDER.mkdir(exist_ok=True)
        for number, (name, tokenizer) in enumerate(kinds()):
            text = json.dumps(golden(name, tokenizer, number), ensure_ascii=True, separators=(",", ":"))
            (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{name:18} {len(text)} bytes")
        return
    wrong = 0
    for name, tokenizer in kinds():
        wrong += compare(arguments.compare, name, tokenizer, arguments.sequences, arguments.seed)
    for file in sorted((GOLDEN / "tokenizers").glob("*.json")):
        tokenizer = Json(json.loads(file.read_text(encoding="utf-8"))["tokenizer"])
        wrong += compare(arguments.compare, "tokenizers/" + file.stem, tokenizer, arguments.sequences, arguments.seed)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
