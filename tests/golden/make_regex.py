#!/usr/bin/env python3
"""What the tokenizers library (Oniguruma) finds with regular expressions of every construct.

    make_regex.py                              write tests/golden/regex.json
    make_regex.py --texts 500 [--seed S]       write it with so many random texts for each expression,
                                               for a comparison by hand: then run test_engine_text

Needs `pip install tokenizers`. Texts have characters whose properties Unicode 14 and later agree on.
"""
import argparse
import json
import random
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers

FILE = Path(__file__).resolve().parent / "regex.json"
MARK = "\u25a0"  # in the place of a match
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TAIL = r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REAL = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": LLAMA3,
    "qwen2": LLAMA3.replace("{1,3}", ""),
    "qwen35": LLAMA3.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace("{1,3}", ""),
    "cl100k": (r"(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
               r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"),
    "o200k": (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
              rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?" + TAIL),
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
              + TAIL.replace("{1,3}", ""),
    "kimi": (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+"
             rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]+"
             rf"[{LOWER}&&[^\p{{Han}}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?" + TAIL.replace("/", "")),
    "deepseek3": (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                  r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    "deepseek3_cjk": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "deepseek_llm": r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0370-\u0373]+",
    "deepseek_words": r"\s?\p{L}+",
    "deepseek_punctuation": r"\s?\p{P}+",
    "bloom": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    "falcon_digits": "[0-9][0-9][0-9]",
    "starcoder_newlines": r"[\r\n]",
    "spaces": " {2,}",
    "mpt": r"\s+$",
}
CONSTRUCTS = r"""
\w+ \W+ [\w]+ [^\w]+ [\W]+ [\W\d]+ \p{Word} [\p{Word}] \d+ \D+ [^\d]+ \s+ \S+ [\S]+ [^\S]+ \h+ \H+ [\h]+ [\H]+
\bs \bk|k\b \Bk \b \B \A. .\z .\Z .$ ^. \Z \z ^ $ ^$ \G. \Gk (?<=k)\G. k\Ks \Kk k\K \R \R+ \R\n [\R]+ \N+ \O+ .+ (?m).+
(?m:.).  (?-m:.)+ [[:alnum:]]+ [[:alpha:]]+ [[:blank:]]+ [[:cntrl:]]+ [[:digit:]]+ [[:graph:]]+ [[:lower:]]+
[[:print:]]+ [[:punct:]]+ [[:space:]]+ [[:upper:]]+ [[:xdigit:]]+ [[:word:]]+ [[:ascii:]]+ [[:^alpha:]]+ [[:^graph:]]
[^[:alpha:]]+ [[:alpha:][:digit:]]+ [:alpha:]+ [[:alpha:]-]+ \p{Alnum}+ \p{Punct}+ [\p{Punct}]+ \p{Graph} \p{^Print}
\p{L}+ \P{L}+ \p{^L}+ \P{^L}+ \p{letter} \p{Uppercase_Letter} \p{uppercase-letter} \p{LC} [\p{LC}]+ \p{Lu} \p{Lm} \p{M}
\p{N} \p{No} \p{Nl} \p{P} \p{S} \p{Sc} \p{Sk} \p{Zs} \p{Z} \p{Cc} \p{Cf} \p{C} \p{Any} \p{Assigned} \p{Han}+ \p{Hani}
\p{Greek} \p{Grek} \p{Common} \p{Inherited} \p{Latin}+ \p{Alphabetic}+ \p{White_Space} \p{Lowercase} \p{Emoji}
\p{Extended_Pictographic} \p{Join_Control} \p{ID_Start}+ \p{Math} \p{Dash} \p{Ideographic} \p{Hiragana} \p{Katakana}
[s[kt]]+ [a-z&&[^st]]+ [^a-z&&st] [\p{L}&&[^\p{Han}]]+ [\p{L}&&\p{Lu}&&[A-Z]] [s&&] [&&s] [^s[^k]] [[^\w]k]+ [^[s]k]+
[\d&&[^5]]+ [a-c&&b-d[k]]+ []s]+ [^]s]+ [s-]+ [-s]+ [a-c-k]+ [\w-]+ [\]k]+ [s\-k]+ [&s]+ [\b\t] [\x61-\x7a]+ [\u0061-k]+
[\n-\r] [^\n]+ [\x{e9}\x{df}] [\xE2\x96\x81]+ [.+*]+ [[s]] [[[k]]] [[:alpha:]&&[^k]]+ [^\p{L}\p{N}]+ [\p{Lu}a]+ [\P{L}k]+
s{,2} s{2} s{2}? s{2}+ s{1,2} s{1,2}? s{1,2}+ s{2,1} s{2,1}+ s{2,} s{2,}? s{2,}+ s{,} s{k s{,2}? s?? s*? s+? s?+ s*+ s++s
s++k s*+s (?:s|k)** (?:s+)+k (?:s*)* (?:s*?)+ (?:s??)+k (?:ss)*?k (|s)+ (?:|s)+ (s*)+k (?:s|st)t (?:s|st){2} (?>s+)s
(?>s|st)t \Qs\E \Q[k]\E \<s \>k \% \- \s- \_ \x73 \163 \x{73} \x{73}\x{6b} \x{73_6b} \u00e9 \o{163} \xC3\xA9 \303\251
\t \v \f \e \a \0 \x0 \cI \C-I (?i)s (?i)k+ (?i)ss (?i)sss (?i)ssss (?i)ss+ (?i)ss? (?i)st (?i)ffi (?i)ff (?i)fi+
(?i)\u00df (?i)\u00df+ (?i)ma\u00df (?i)[\u00df] (?i)[\u00df]+ (?i)[^\u00df]+ (?i)[\u00e0-\u00ff]+ (?i)[s] (?i)[^k]+
(?i)\u0130 (?i)[\u0130] (?i)\u03c3+ (?i)\u03b9 (?i)\u212a (?i)\u01c6 (?i)\ufb01 (?i)[\ufb01] (?i)s(?:s) (?i)(?:s)s (?i)(s)s
(?i)(?:s|k)s (?i:s)s (?i)s(?-i)s (?i)s(?-i:s) (?i)\p{Lu} (?i)[\p{Lu}] (?i)[^\p{Lu}] (?i)[\p{L}]+ (?i)[\W] (?i)[[:upper:]]
(?i)[[:lower:]&&[^k]] (?i)[k&&S] (?i)[k&&K] (?i)[k[^s]] (?i)'(?:s|t|re) (?i)\w (?i)(k)\1 (?i)(?<=s)s (?i)(?<=\u00df)s
(?<=(?i)ss)k (?x)_s_k (?x:_s_)_k (?x)s_#_c (?x)s_+ (?x)[s_k]+ (?x)s\_k (?#c)s s(?#c)+ s(?i)k|s s(?i)k|s|t (?:s(?i)k|s)t (?i-m:s)k
(?i)s|k (k|(?i)s)t (?m-i:.) (?=k) (?!k) (?=k)k s(?=k) s(?!k) (?<=s) (?<=s)k (?<!s)k (?<=s|kk)t (?<!s|kk)t (?<=^)s (?<=\A)s
(?<=\n)s (?<=\bs)k (?=(k))\1s (s)\1 (s)\1+ (?:(s)|k)\1 (s)|k\1 \1(s) (s)(k)\2\1 (?<n>s)\k<n> (?'n's)\k'n' (?<n>s)(k)\k<n>
(s)\k<1> (s)\k<-1> (s)\k'1' ((s)k)\2 (?<n>s|k\g<n>t) (s|k\g<1>t) k\g<0>?t (?<n>s){0}\g<n>k (s)\g<1> \g<1>(s)
(s)?(?(1)k|t) (?<n>s)?(?(<n>)k|t) (s)?(?(1)k) (s)?k(?(1)) (?:s()|k)(?(1)t|s) [sk](?:[^st]|\b) _ __+ (?:)_* _|(?=s)
""".replace("\n", " ").split(" ")
CONSTRUCTS = sorted({c.replace("_", " ") if c != r"\_" else c for c in CONSTRUCTS if c} | {
    "", "()", "k*", "(?:)", "s|", "|s", "[\u00e9\u00df]", "\u00e9+", "\U0001f600", "(?<na_me>s)\\k<na_me>", "\\p{White_Space}",
    "\\p{Uppercase_Letter}", "(?x) s  # comment\n k", "\\p{Extended_Pictographic}", "\\p{Join_Control}", "\\p{ID_Start}+"})
REFUSED = [  # of Oniguruma, but not here
    "(?~sk)", "(?~|s|k)", r"\y", r"\Y", r"\X", "(?W)s", "(?D)s", "(?S)s", "(?P)s", "(?y{w})s", "(?I)s", "(?L)s", "(?C)s",
    "(*FAIL)", "(?{s})", r"\M-a", r"\pL", r"\p{In_Basic_Latin}", "(?<=s*)k", "(?<n>s)(?<n>k)\\k<n>",
    r"(?<n>s)\k<n+0>", "(?(s)k|t)", r"(s)\g<1>\1", "(?i)s\u00df", "s{70000}", r"[\x{61-63}]", r"\x{110000}"]
INVALID = [  # in Oniguruma
    "(", ")", "[", "[]", "*", "+s", "s|*", "{1}", "s|{2,1}", "[z-a]", "[[:odd:]]", r"\p{Odd}", r"\p{Xan}", r"\p{L&}", r"\p{Script=Greek}",
    "(?s)s", "(?P<n>s)", "(?^i:s)", r"(s)\2", r"\k<n>", r"\g<n>", r"(?<n>s)(k)\1", "(?=s)*", "^*", "s\\", r"\xE2",
    r"\u12", "(?(1)s)", "(?#", "(?<n"]

POOL = [
    "skt", "sktSKT", "abcdefgzAMZ", "0123456789", " ", "  ", "\t\n\r\v\f", "\r\n", "\n", "'s't're'll",
    ".,;:!?-_()[]{}<>|/\\\"'`~@#$%^&*+=", "\u00e9\u00e8\u00df\u1e9e\u017f\u212a\u0130\u0131\u00b5", "ss", "st", "ffi", "fi", "\ufb00\ufb01\ufb03\ufb05\ufb06",
    "\u0391\u03b1\u03c3\u03c2\u0345\u1fbe\u03b9\u0390", "\u0416\u0436", "\u01c4\u01c5\u01c6", "\u05d0\u05b8", "\u0627\u0644\u064b",
    "\u0915\u094d\u0937", "\u0e01\u0e33", "\u4e2d\u6587\u3007\u3005", "\u3042\u30ab\u309a\u30fc", "\ud55c\u1112\u1161", "\U0001f600\U0001f469\u200d\U0001f4bb\ufe0f",
    "\u00a0\u2003\u3000\u2028\u2029\u0085\u180e\u200b\ufeff", "e\u0301a\u030a\u0323", "\u00bd\u00b2\u00b9\u2163\u2460\u2074", "\u0661\u0967\uff11", "\u200c\u200d",
    "\U00020000\U0001f1e9\U0001f1ea", "\x01\x07\x08\x1b\x7f", "\u20ac\u2122\u00a7\u2014\u203f\u2581", "QE%->", "i\u0307"]


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 14)):
        run = rng.choice(POOL)
        whole = len(run) > 1 and rng.random() < 0.3
        parts.append(run if whole else "".join(rng.choice(run) for _ in range(rng.randint(1, 4))))
    return "".join(parts)


def replaced(pattern, texts):
    replace = normalizers.Replace(Regex(pattern), MARK)
    return [replace.normalize_str(text) for text in texts]


def splits(pattern, texts):
    """Pieces by every behavior, and inverted."""
    out = []
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        for invert in [False, True]:
            split = pre_tokenizers.Split(Regex(pattern), behavior, invert)
            name = "".join(word.capitalize() for word in behavior.split("_"))
            out.append({"pattern": pattern, "behavior": name, "invert": invert,
                        "pieces": [[piece for piece, _ in split.pre_tokenize_str(t)] for t in texts]})
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    fixed = ["s", "ks skt ssstt k\nst\r\nS\u017f\n", "We're 12345 DON'T\u00b2 x\u0301\u200d\u212a  \r\n\r\n  caf\u00e9 \u4e2d\u6587ABC def\n ",
             "\u00dfss\u1e9eSS ma\u00df \ufb03 ffi \ufb01 st\ufb05 \u0130i\u0307 \u03c3\u03c2\u03a3", "a]b[c-d\\s- _ k  s\t{,} s{k Qs[k]E%%->",
             "(_.,!?\u2026)|x \u3002\u20ac$+<~ \U0001f600\U0001f469\u200d\U0001f4bb\u0e33\u0967\u2460\u2163"]
    texts = fixed + [random_text(rng) for _ in range(options.texts)]
    for pattern in REFUSED:
        Regex(pattern)
    for pattern in INVALID:
        try:
            Regex(pattern)
        except Exception:
            continue
        raise SystemExit(f"{pattern} is valid")
    patterns = list(dict.fromkeys(list(REAL.values()) + CONSTRUCTS))
    out = {"texts": texts, "replaced": {p: replaced(p, texts) for p in patterns},
           "splits": [s for p in ["k", "(?=k)", r"\b", r"\s+", ""] for s in splits(p, fixed[:3])],
           "refused": REFUSED, "invalid": INVALID}
    with open(FILE, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False, separators=(',', ':'))}"
                                        for k, v in out.items()) + "\n}\n")
    print(f"{len(patterns)} expressions x {len(texts)} texts")


if __name__ == "__main__":
    main()
