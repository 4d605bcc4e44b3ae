#!/usr/bin/env python3
"""Small tokenizers of every kind, made by HuggingFace's library, and what it makes of texts with them.

    make_tokenizers.py                                    write tests/golden/tokenizers/*.json
    make_tokenizers.py --compare TRIREME [--strings N] [--seed S] [FILE...]
                                                          compare on random strings, these tokenizers and FILEs

Needs `pip install tokenizers` (tests/golden/README.md says which version made the files).
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).resolve().parent / "tokenizers"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
SPACE = "\u2581"

# Characters of many scripts, spaces of all kinds, marks, digits of several systems, emoji, what normal forms change.
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", "  ", "\t\n\r", "'s't're'll",
    ".,;:!?-_()[]{}<>|/\\\"'`~@#$%^&*+=", "\u00e4\u00f6\u00fc\u00df\u00e9\u00e8\u00f1\u0130\u0131\u017f",
    "\u0391\u03b1\u03c3\u03c2\u03a9", "\u0416\u0436\u0449\u042f", "\u05d0\u05d1\u05b8", "\u0627\u0644\u0639\u064b",
    "\u0915\u094d\u0937\u093f", "\u0e01\u0e33\u0e48", "\u4e2d\u6587\u6f22\u5b57", "\u3042\u30ab\u309a\u30fc",
    "\ud55c\uae00\u1112\u1161\u11ab", "\U0001f600\U0001f469\u200d\U0001f4bb\ufe0f", "\u00a0\u2003\u3000\u2028\u0085\u180e",
    "e\u0301a\u030a\u0323", "\ufb01\u00bd\u00b2\u2163\u2460", "\u0661\u0967\uff11", "\u200b\u200c\u200d\ufeff",
    "\U00020000\U0001f1e9\U0001f1ea", "\x00\x01\x7f", SPACE,
]


def corpus():
    """Text to train on: made up, so that the files are ours, with some of every script."""
    rng = random.Random(3)
    stems = ["sea", "wind", "oar", "row", "deck", "trireme", "harbour", "sail", "crew", "stroke", "night", "storm", "the",
             "and", "of", "under", "over", "with", "1200", "37", "\u00e9t\u00e9", "k\u00f6ln", "\u043c\u043e\u0440\u0435",
             "\u6d77\u98a8", "\ud55c\uae00", "\u03b8\u03ac\u03bb\u03b1\u03c3\u03c3\u03b1"]
    for _ in range(3000):
        words = [rng.choice(stems) + rng.choice(["", "s", "ing", "ed", "er", "'s"]) for _ in range(rng.randint(3, 14))]
        yield " ".join(words).capitalize() + rng.choice([".", "!", "?\n", ", ", "\n\n", "  "])


def byte_level(split, individual=False, normalizer=None):
    t = Tokenizer(models.BPE(ignore_merges=individual))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), "isolated") for s in split]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator(corpus(), trainer)
    return t


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=600, initial_alphabet=t.pre_tokenizer.alphabet(),
                                                        special_tokens=["<|endoftext|>"], show_progress=False))
    return t


def llama3():
    t = byte_level([LLAMA3], individual=True)
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    bos = ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[bos])])
    return t


def qwen2():
    t = byte_level([QWEN2], normalizer=normalizers.NFC())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return t


def deepseek():
    t = byte_level(DEEPSEEK + [r"\p{N}"])
    t.add_special_tokens([AddedToken("<\uff5cbegin\u2581of\u2581sentence\uff5c>", normalized=True)])
    return t


def byte_fallback_bpe(**options):
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True, **options))
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    return t, trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)


def only_special(t, names):
    """Without the byte tokens, which are ordinary ones, among the added."""
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] in names]
    return Tokenizer.from_str(json.dumps(data))


def llama2():
    t, trainer = byte_fallback_bpe()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(corpus(), trainer)
    t = only_special(t, ["<unk>", "<s>", "</s>"])
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    t.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(content=" ", left=1, right=0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def mistral():
    t, trainer = byte_fallback_bpe()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    t.train_from_iterator(corpus(), trainer)
    t = only_special(t, ["<unk>", "<s>", "</s>"])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(content=" ", left=1, right=0)])
    t.add_special_tokens([AddedToken("[INST]", normalized=False)])
    return t


def gemma():
    t, trainer = byte_fallback_bpe()
    t.normalizer = normalizers.Replace(" ", SPACE)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.train_from_iterator(corpus(), trainer)
    t = only_special(t, ["<unk>", "<s>", "</s>"])
    t.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "),
                                         normalizers.Strip(left=False, right=True)])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=500, special_tokens=["<unk>", "</s>"],
                                                            unk_token="<unk>", show_progress=False))
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return t


def words():
    """What is left: lower case, accents, digits, punctuation, and added tokens with every flag."""
    t = Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"),
                                               pre_tokenizers.Digits(individual_digits=True)])
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=500, special_tokens=["[UNK]"], end_of_word_suffix="</w>",
                                                        show_progress=False))
    t.decoder = decoders.Sequence([decoders.Replace("</w>", " "), decoders.Fuse()])
    t.add_tokens([AddedToken("Row", single_word=True, normalized=True), AddedToken("<l>", lstrip=True, normalized=False),
                  AddedToken("<r>", rstrip=True, normalized=False), AddedToken("<lr>", lstrip=True, rstrip=True)])
    return t


KINDS = [gpt2, llama3, qwen2, deepseek, llama2, mistral, gemma, unigram, words]


def random_text(rng, markup):
    parts = []
    for _ in range(rng.randint(0, 12)):
        alphabet = rng.choice(ALPHABETS)
        choice = rng.random()
        if choice < 0.08:
            parts.append(rng.choice(markup))
        elif choice < 0.16:
            code = rng.choice([rng.randrange(0x250), rng.randrange(0x3000), rng.randrange(0xD800), rng.randrange(0x10000, 0x20000)])
            # What Unicode knows only of late every library takes by the tables it was built with; the oldest in
            # HuggingFace's is some ten years old.
            parts.append(chr(code) if unicodedata.ucd_3_2_0.category(chr(code)) != "Cn" else "x")
        else:
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 8))))
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def markup_of(tokenizer):
    added = json.loads(tokenizer.to_str())["added_tokens"]
    return [a["content"] for a in added] + ["<|", "</s>", "<0x41>"]


def decodes(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True)


def golden(tokenizer, seed):
    rng = random.Random(seed)
    texts = ["", " ", "The crew's oars, 1200 of them!", "  two  spaces\n\n", "\u00c9t\u00e9 K\u00f6ln \u6d77\u98a8 \ud55c\uae00",
             "Row row, rowing Row<l> <r> x <lr> y"] + [random_text(rng, markup_of(tokenizer)) for _ in range(60)]
    cases = []
    for text in texts:
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        marked = tokenizer.encode(text, add_special_tokens=True).ids
        cases.append({"text": text, "ids": plain, "marked": marked, "decoded": decodes(tokenizer, marked)})
    return {"made_by": f"tokenizers {tokenizers.__version__}", "tokenizer": json.loads(tokenizer.to_str()), "cases": cases}


def ours(trireme, path, texts, options):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    out = subprocess.run([trireme, "tokenize", "--jsonl", "--tokenizer", path, *options], input=lines, text=True,
                         capture_output=True, check=True, encoding="utf-8").stdout
    return [json.loads(line)["ids"] for line in out.split("\n")[:-1]]


def ours_back(trireme, path, ids):
    lines = "".join(json.dumps(i) + "\n" for i in ids)
    out = subprocess.run([trireme, "detokenize", "--jsonl", "--no-special", "--tokenizer", path], input=lines, text=True,
                         capture_output=True, check=True, encoding="utf-8").stdout
    return [json.loads(line)["text"] for line in out.split("\n")[:-1]]


def compare(trireme, name, path, tokenizer, count, seed):
    rng = random.Random(seed)
    markup = markup_of(tokenizer)
    texts = [random_text(rng, markup) for _ in range(count)]
    wrong = []
    tokenizer.encode_special_tokens = True
    plain = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    tokenizer.encode_special_tokens = False
    marked = [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=True)]
    for theirs, options in ((plain, ["--no-special"]), (marked, ["--parse-special"])):
        for text, want, got in zip(texts, theirs, ours(trireme, path, texts, options), strict=True):
            if want != got:
                wrong.append((options[0], text, want, got))
    texts_back = [decodes(tokenizer, ids) for ids in marked]
    for text, want, got in zip(texts, texts_back, ours_back(trireme, path, marked), strict=True):
        if want != got:
            wrong.append(("decode", text, want, got))
    print(f"{name:12} {count} strings, {len(wrong)} differ", flush=True)
    for kind, text, want, got in wrong[:5]:
        print(f"   {kind} {text!r}\n      theirs {want!r}\n      ours   {got!r}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="further tokenizer.json files")
    parser.add_argument("--compare", metavar="TRIREME")
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.compare:
        FOLDER.mkdir(exist_ok=True)
        for number, kind in enumerate(KINDS):
            data = golden(kind(), number)
            text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
            (FOLDER / f"{kind.__name__}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{kind.__name__:12} {len(text)} bytes")
        return
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for file in sorted(FOLDER.glob("*.json")):
            data = json.loads(file.read_text(encoding="utf-8"))["tokenizer"]
            path = Path(folder) / file.stem / "tokenizer.json"
            path.parent.mkdir()
            path.write_text(json.dumps(data), encoding="utf-8")
            wrong += compare(arguments.compare, file.stem, path, Tokenizer.from_file(str(path)), arguments.strings,
                             arguments.seed)
    for file in arguments.files:
        wrong += compare(arguments.compare, Path(file).parent.name, file, Tokenizer.from_file(file), arguments.strings,
                         arguments.seed)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
