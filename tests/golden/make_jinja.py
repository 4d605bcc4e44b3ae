#!/usr/bin/env python3
"""Small templates and what Python's Jinja2 makes of them, set up as HuggingFace's transformers do.

    make_jinja.py        write tests/golden/jinja.json

Filters, tests and operations on undefined values, the filters int and float, cycler, joiner and
namespace, and case mappings. Needs `pip install jinja2`.
"""
import itertools
import json
import re
from pathlib import Path

from make_chat import environment

FILE = Path(__file__).resolve().parent / "jinja.json"
UNDEFINED = ["u", "d.x", "[u]", "none"]
FILTERS = {
    "abs": [""], "attr": ["('x')"], "batch": ["(2)|list"], "capitalize": ["", "(1)"], "center": ["", "(4)"], "count": [""],
    "d": ["", "('x')"], "default": ["", "('x', true)", "(u)", "(1, 2, 3)"], "dictsort": [""], "e": [""], "escape": [""],
    "first": [""], "float": ["", "(1.5)", "(u)", "(x=1)"], "forceescape": [""], "format": ["", "(1)"],
    "groupby": ["('x')"], "indent": ["", "(2, true)"], "int": ["", "(3)", "(u)", "(none)"], "items": ["|list"],
    "join": ["", "(',')", "(u)"], "last": [""], "length": ["", "(1)"], "list": [""], "lower": [""],
    "map": ["('upper')|list", "('int')|list", "(attribute='x')|list"], "max": [""], "min": [""], "reject": ["|list"],
    "rejectattr": ["('x')|list"], "replace": ["('a', 'b')", "(u, 'b')"], "reverse": ["|list"], "round": [""], "safe": [""],
    "select": ["|list", "('odd')|list"], "selectattr": ["('x')|list"], "slice": ["(2)|list"],
    "sort": ["", "(attribute='x')"], "string": [""], "sum": ["", "(start=2)"], "title": [""],
    "tojson": ["", "(indent=2)", "(odd=2)"], "trim": ["", "(u)"], "truncate": ["", "(2)"], "unique": ["|list"],
    "upper": [""], "urlencode": [""], "wordcount": [""]}
TESTS = ("boolean callable defined divisibleby(2) eq(u) eq(none) escaped even false float ge(1) in([u]) in('a') integer "
         "iterable lower mapping ne(u) none number odd sameas(u) sameas(none) sequence string true undefined upper").split()
OPERATIONS = "+ - * / // % ** ~ == != < >= and or in".split() + ["not in"]
EXPRESSIONS = """
-u|not u|u[0]|u.a.b|u()|u[1:]|[][0]|d.q.r|u if u else 1|(1 if u)|u or 2|[u, u]|{'a': u}|'%s' % u|'%d' % u|'{}'.format(u)
[u, u]/sort|[none, none]/sort|[1, u]/max|u == v|u is sameas v|range(u)|dict(a=u)|'a'.replace(u, 'b')|'a'.split(u)
'a'.strip(u)|','.join([u])|{}.get('a', u)|'a' in u|u in 'a'|2.5 is even|3.0 is odd|4.0 is divisibleby 2|[]/safe/list
""".replace("\n", "|").split("|")
NUMBERS = ["'0x1f'", "'0b11'", "'1f'", "'017'", "' 42 '", "'+5'", "'-5'", "'1_000'", "'_1'", "'1__0'", "'\u0663'", "'zz'",
           "'3.7'", "'-3.7e2'", "'nan'", "'inf'", "''", "3.7", "-3.7", "none", "true", "[]", "'99999999999999999999'",
           "'0x'", "'-0X1F'", "'0x_1f'", "'- 5'", "'0b2'", "'00'", "'\u00b2'"]
INTEGERS = ["", "(7)", "(base=16)", "(7, 16)", "(7, base=2)", "(base=0)", "(base=36)", "(base=37)", "('x')", "(none)",
            "(base='16')", "(base=true)", "(1, 2, 3)", "(7, default=8)"]
STATEMENTS = [
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{{ cycler() }}", "{% set c = cycler('a', 'b') %}{{ c.items }}{{ c.pos }}{{ c.next() }}{{ c.pos }}",
    "{% set c = cycler('a', 'b') %}{% for i in range(5) %}{{ c.next() }}{% endfor %}", "{{ (cycler('a')).next() }}",
    "{% set n = (cycler('a', 'b')).next %}{{ n() }}{{ n() }}", "{% set c = cycler(items=1) %}",
    "{% set c = cycler('a') %}{{ c.next(1) }}", "{% set c = cycler('a') %}{{ c.reset(1) }}",
    "{% set c = cycler('a') %}{% set c.current = 'x' %}", "{% set c = cycler('a') %}{{ c.nothing is defined }}{{ c['current'] }}",
    "{% set c = cycler(*[1, 2]) %}{{ c.next() }}{{ c.next() }}", "{% set c = cycler('a', 'b') %}{% set d = c %}{{ d.next() }}{{ c.next() }}",
    "{{ cycler('a') is callable }}{{ cycler('a') is mapping }}", "{{ cycler('a') | tojson }}", "{{ cycler('a') | length }}",
    "{% set j = joiner() %}{{ j() }}a{{ j() }}b{{ j() }}", "{% set j = joiner(sep='|') %}{{ j() }}a{{ j() }}b",
    "{% set j = joiner('x') %}{{ j.sep }}{{ j.used }}{{ j() }}{{ j.used }}", "{% set j = joiner('x') %}{{ j(1) }}",
    "{{ joiner(1, 2) }}", "{{ joiner(odd=1) }}", "{{ joiner() is callable }}", "{% set j = joiner(u) %}{{ j() }}{{ j() }}",
    "{% set n = namespace(a=1) %}{% set n.a = 2 %}{{ n.a }}{{ n.b }}{{ n }}", "{% set n = namespace({'a': 1}, b=2) %}{{ n.a }}{{ n.b }}",
    "{{ namespace(1) }}", "{{ namespace({}, {}) }}", "{{ namespace(a='x') | string }}", "{% set n = {} %}{% set n.a = 1 %}",
    "{% if namespace() %}y{% endif %}", "{% for x in u %}a{% else %}e{% endfor %}", "{% for x in u.y %}{% endfor %}",
    "{% set a, b = u %}", "{% for k in u.items() %}{% endfor %}", "{% for k, v in u | items %}{% else %}E{% endfor %}",
    "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(u) }}{{ m(1) }}"]
WORDS = ["\u00df", "stra\u00dfe", "\ufb01ne \ufb02at", "\u0149a", "\u0130stanbul \u0131i", "\u0391\u03a3 \u03a3\u0391\u03a3", "\u03a3",
         "\u0391\u03a3\u0301 \u0391.\u03a3 \u0391\u03a3\u0391", "\u01c6 \u01c5word \u01c4", "\u1fb3 \u1fbc \u1f80", "\u0587", "\ufb03 \ufb06",
         "they're o'neill's", "hello-wORLD (foo) [bar] {baz} <qux> a/b x_y 3d", "\u00c9T\u00c9 e\u0301A", "\u017f \u212a",
         "\u2177 \u24d0 \u00aa \u02b0", "\u4e2da \u05d0a", "\u1e9e", "1st x\u00b2y \u0663 \u00bd \u2460"]
METHODS = "upper lower title capitalize swapcase casefold isupper islower istitle isalpha isalnum isdigit isdecimal isnumeric".split()


def templates():
    for name, calls in FILTERS.items():
        for call, value in itertools.product(calls, UNDEFINED):
            yield f"{{{{ {value} | {name}{call} }}}}", {}
            if "|list" not in call:
                yield f"{{{{ ({value} | {name}{call}) is defined }}}}", {}
    for test, value in itertools.product(TESTS, ["u", "[u]", "none"]):
        yield f"{{{{ {value} is {test} }}}}", {}
    for operation, value in itertools.product(OPERATIONS, ["u", "1", "'a'", "[1]", "none"]):
        yield f"{{{{ u {operation} {value} }}}}", {}
        yield f"{{{{ {value} {operation} u }}}}", {}
    for expression in EXPRESSIONS:
        if expression:
            yield "{{ " + expression.replace("/", " | ") + " }}", {}
    for number in NUMBERS:
        for call in INTEGERS:
            yield f"{{{{ {number} | int{call} }}}}", {}
        for call in ["", "('x')"]:
            yield f"{{{{ {number} | float{call} }}}}", {}
    for statement in STATEMENTS:
        yield statement, {}
    for word in WORDS:
        for method in METHODS:
            yield f"{{{{ w.{method}() }}}}", {"w": word}
        for name in ["upper", "lower", "title", "capitalize", "wordcount"]:
            yield f"{{{{ w | {name} }}}}", {"w": word}


def main():
    env = environment()
    cases = []
    for source, variables in templates():
        try:
            text = env.from_string(source).render(d={}, **variables)
        except Exception:  # whichever: it is refused
            text = None
        if text is not None and re.search(" at 0x[0-9a-f]+>", text):
            continue  # no two runs print the same
        if text is not None and re.fullmatch("[0-9]{20,}", text) and text not in source:
            continue  # more than 64 bits, which is refused where it is not written so
        cases.append([source, variables.get("w"), text])
    with open(FILE, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    print(len(cases), "templates,", sum(c[2] is None for c in cases), "of them refused")


if __name__ == "__main__":
    main()
