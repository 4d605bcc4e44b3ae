#!/usr/bin/env python3
"""Chat templates and what Python's Jinja2 makes of them, set up as HuggingFace's transformers do.

    make_chat.py                                       write tests/golden/chat.json
    make_chat.py --compare TRIREME TEMPLATE.jinja...   compare on conversations, for templates of real models

Needs `pip install jinja2`.
"""
import argparse
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox

FILE = Path(__file__).resolve().parent / "chat.json"
NOW = 1700000000


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: writes what is in it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env


TOOL = {"type": "function", "function": {
    "name": "get_wind", "description": "Wind <now> & \"later\" at a harbour",
    "parameters": {"type": "object", "properties": {"harbour": {"type": "string", "description": "its name"},
                                                    "hours": {"type": "integer", "enum": [1, 6, 24]}},
                   "required": ["harbour"]}}}
CALL = {"id": "call12345", "type": "function",
        "function": {"name": "get_wind", "arguments": {"harbour": "Piraeus", "hours": 6, "exact": True, "near": None, "at": 1.5}}}
TEXT = "  Where does the wind come from? \u00c9t\u00e9 \u98a8\n"
CONVERSATIONS = {
    "user": {"messages": [{"role": "user", "content": TEXT}]},
    "prompt": {"messages": [{"role": "user", "content": TEXT}], "add_generation_prompt": True},
    "system": {"messages": [{"role": "system", "content": "You row."}, {"role": "user", "content": "Go"},
                            {"role": "assistant", "content": "Gone."}, {"role": "user", "content": "Back"}],
               "add_generation_prompt": True},
    "long": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
                          {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "reasoning_content": "why"}]},
    "tools": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Wind?"},
                           {"role": "assistant", "content": "", "tool_calls": [CALL]},
                           {"role": "tool", "content": "{\"from\": \"north\"}", "tool_call_id": "call12345", "name": "get_wind"},
                           {"role": "assistant", "content": "North."}, {"role": "user", "content": "Thanks"}],
              "tools": [TOOL], "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
              "add_generation_prompt": True, "enable_thinking": False},
    "odd": {"messages": [{"role": "assistant", "content": "first"}, {"role": "user", "content": ""}]},
}

# Written for these tests: every construct that templates of the common families use.
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m.content if m.content is string else "
              "m.content | map(attribute='text') | join(' / ')) + '<|im_end|>' + '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "headers": """{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = "" %}
    {%- set rest = messages %}
{%- endif %}
{%- if not date is defined %}{%- set date = "26 Jul 2024" %}{%- endif %}
{{- "<|h|>system<|/h|>\\n\\n" + system ~ " Today: " ~ date }}
{%- if tools is not none and tools is defined %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{% for message in rest -%}
    {%- if message.role not in ['user', 'assistant', 'tool'] %}{{ raise_exception('role ' ~ message.role) }}{% endif %}
    {%- if 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception("one call at a time") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
        {%- for k, v in call.arguments.items() %}{{ k }}={{ v }}{% if not loop.last %}, {% endif %}{% endfor %}
    {%- elif message.content is iterable and message.content is not string %}
        {%- for part in message.content if part.type == 'text' %}[{{ loop.index0 }}/{{ loop.length }}:{{ part['text'] | upper }}]{% endfor %}
    {%- else %}
        {{- '<|h|>' + message['role'] + '<|/h|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|h|>assistant<|/h|>\\n\\n' }}{%- endif %}
""",
    "namespace": """{%- set ns = namespace(last=-1, found=false, text='') %}
{%- for m in messages[::-1] %}
    {%- set i = (messages | length - 1) - loop.index0 %}
    {%- if not ns.found and m.role == 'user' and not (m.content is string and m.content.startswith('<tool')) %}
        {%- set ns.found = true %}{%- set ns.last = i %}
    {%- endif %}
{%- endfor %}
last={{ ns.last }}
{%- macro show(m, mark='*', end=None) -%}
    {{ mark }}{{ m.role | capitalize }}{{ mark }}: {% if m.content is string %}{{ m.content }}{% else %}{{ m.content | length }} parts{% endif %}
    {%- if end is not none %}{{ end }}{% endif %}
{%- endmacro %}
{% for m in messages %}
{%- set content = m.content if m.content is string else '' %}
{%- set reason = '' %}
{%- if m.reasoning_content is defined and m.reasoning_content is not none %}
    {%- set reason = m.reasoning_content %}
{%- elif '</think>' in content %}
    {%- set reason = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
    {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{ show(m) }}|{{ show(m, mark='_', end='.') }}|{{ reason }}|{{ content }}|
{%- if loop.previtem is defined and loop.previtem.role == m.role %} again{% endif %}
{%- if loop.nextitem and loop.nextitem.role == 'tool' %} tool follows{% endif %}
{% endfor %}
{% generation %}{{ messages[-1].content }}{% endgeneration %}
""",
    "white space": "  {% if true %}\n  kept\n  {% endif %}\nline\n{#- comment -#}\n   {#+ kept blanks #}\n{{ 1 }}\n  {%+ if true %}x{% endif +%}\n"
                   "\ty{% set a = 1 -%}   \n  z{%- for i in range(3) %} {{ i }}{% endfor %}\n{% raw %}{{ raw }} {% if %}{% endraw %}\r\nend\n\n",
    "values": """{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2.5 * 2 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ -2 ** 2 }}
{{ true }} {{ none }} {{ [1, 'a', "it's", none, 1.0, {'k': 'v'}] }} {{ {'a': [true], 'b': {}} }} {{ (1, 2)[1] }} {{ [] }} {{ 'q"\\'' }}
{{ 'abc'[1] }} {{ 'h\\u00e9llo'[1:3] }} {{ 'abc'[::-1] }} {{ [1,2,3,4][1:-1] }} {{ 'abcdef'[-3:] }} {{ [3,1,2] | sort | first }} {{ missing }}|
{{ missing is defined }} {{ missing | default('d') }} {{ '' | default('e', true) }} {{ none is none }} {{ 3 is odd }} {{ 'a' in 'cat' }} {{ 'x' not in ['y'] }}
{{ 'A' if false else 'B' }} {{ 'C' if false }}| {{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ not true or true }} {{ 'a' ~ 1 ~ none }} {{ 'ab' * 2 }} {{ [1] + [2] }}
{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.rsplit('-', 1) }}|{{ 'a b c'.split(' ', 1) }}
{{ 'Hello World'.lower() }} {{ 'hello wORLD'.title() }} {{ 'abc'.upper() }} {{ 'aXbX'.replace('X', '-') }} {{ 'abc'.find('c') }} {{ 'banana'.count('an') }}
{{ 'ab' | length }} {{ {'a': 1, 'b': 2} | length }} {{ {'b': 2, 'a': 1} | dictsort | map('first') | list }} {{ {'a': 1}.items() | map('last') | list }} {{ {'a': 1}.get('z', 5) }} {{ {'a': 1}.get('z') }}
{{ [1, 2, 3] | map('string') | join('+') }} {{ ['a', 'B'] | map('upper') | list }} {{ [0, 1, 2] | select | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ [1,2,3] | sum }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }} {{ messages | map(attribute='role') | unique | join(',') }}
{{ '5' | int + 1 }} {{ 'x' | int }} {{ '2.5' | float }} {{ 2.567 | round(1) }} {{ 2.5 | round | int }} {{ [1, 3, 2] | max }} {{ [] | first is defined }} {{ -3 | abs }}
{{ 'a\\nb' | indent }} {{ 'a\\nb' | indent(2, true) }} {{ "<a href='x'>" | e }} {{ 'abc' | reverse }} {{ [1, 2] | last }} {{ 'x' | string }} {{ ['b', 'A'] | sort }} {{ 'x y' | replace(' ', '_') }}
{{ {'z': 1, 'a': [1, {'b': none}], 'e': '\\u98a8 <&>'} | tojson }} {{ {'z': [], 'a': {}} | tojson(indent=2) }} {{ {'z': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}
{%- for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ loop.index }}{{ loop.cycle('a', 'b') }}{% else %}none{% endfor %}
{%- for i in [] %}x{% else %} empty{% endfor %}{% set a, b = 1, 2 %} {{ a + b }}{% set block %}in {{ a }}{% endset %} {{ block | upper }}{% filter upper %} f{{ b }}{% endfilter %}
{%- for k, v in {'x': 1, 'y': 2}.items() recursive_ok if v > 1 %}{% endfor %}
""".replace("{%- for k, v in {'x': 1, 'y': 2}.items() recursive_ok if v > 1 %}{% endfor %}\n", "")
    + "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}",
    "finer points": """{% raw %}
 {{ a }}
   {% endraw %}|{%- raw -%}  b {%- endraw -%}  |{% raw %}c {%+ endraw %}
{{ {'k': '\\u98a8 \\U0001F600'} | tojson(ensure_ascii=true) }} {{ [1, {'a': 2}] | tojson(indent=2, separators=(', ', ': ')) }}
{{ "it's o'clock (or not)-yes" | title }} {{ "it's o'clock" | capitalize }} {{ "it's".title() }}
{{ ['a', 'B', 'b', 'A'] | unique | list }} {{ ['b', 'A', 'C'] | min }} {{ ['b', 'A', 'c'] | max }} {{ ['b', 'A'] | min(case_sensitive=true) }}
{{ 1 is sameas true }} {{ true is sameas true }} {{ 1 is sameas 1.0 }} {{ none is sameas none }} {{ [] is sameas [] }}
{{ '\\U0001F600' }} {{ '\\v' | length }} {{ '\\101\\60' }} {{ '\\0' | length }} {{ '\\\\' }} {{ [missing, missing] }} {{ [[], {}, ''] }}
{{ '\\n\\na' | indent(2, first=true) }}| {{ 'a\\n\\nb' | indent(2, true, true) }}|""",
    "calls": """
{%- macro box(title, width=3, fill='-') -%}
[{{ title }}{{ fill * width }}{{ caller(title | upper, 2) if caller }}]{{ varargs }}{{ kwargs }}
{%- endmacro %}
{%- macro each(items) %}{% for i in items %}{{ loop.index }}={{ caller(i, loop.last) }};{% endfor %}{% endmacro %}
{%- macro plain(a, b=a ~ '!', c=none) %}<{{ a }}|{{ b }}|{{ c }}>{% endmacro %}
{{ box('a') }} {{ box('b', 1, '+', 'x', 4, k=5, j='z') }} {{ box(width=0, title='t', other=[1]) }}
{% call(t, n) box('c', 2) %}{{ t }}{{ n }}{{ messages | length }}{% set inner = 1 %}{% endcall %} {{ inner is defined }}
{% call(i, last=false, more='?') each([3, (4, 5)]) -%} {{ i }}{{ '.' if last else more }} {%- endcall %}
{% call each([]) %}{% endcall %}
{% for m in messages %}{% call(a, last) each([m.role]) %}{{ a }}{{ loop.index }}{% endcall %}{% endfor %}
{{ plain(1) }}{{ plain(1, c=2) }}{{ plain(*[1, 2]) }}{{ plain(**{'a': 7, 'c': 8}) }}{{ plain(*(1,), **{'b': 2}) }}{{ plain(1, 2, 3,) }}
{{ box.name }} {{ box.arguments }} {{ box.catch_kwargs }} {{ box.catch_varargs }} {{ box.caller }} {{ plain.caller }} {{ plain is callable }}
{%- macro tree(t) %}({{ t.n }}{% for c in t.c %}{{ tree(c) }}{% endfor %}){% endmacro %} {{ tree({'n': 1, 'c': [{'n': 2, 'c': []}, {'n': 3}]}) }}
{%- macro own(caller='none') %}{{ caller if caller is string else caller() }}{% endmacro %} {{ own() }}{% call own() %}given{% endcall %}
""",
    "call without caller": "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "too many arguments": "{% macro m(a) %}x{% endmacro %}{{ m(1, 2) }}",
    "unknown argument": "{% macro m(a) %}x{% endmacro %}{{ m(b=2) }}",
    "argument twice": "{% macro m(a) %}x{% endmacro %}{{ m(1, a=2) }}",
    "caller outside": "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "blocks": """{% set a = 1 %}{% with a = 2, b = a, (c, d) = (3, 4) %}{{ a }}{{ b }}{{ c }}{{ d }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}{{ b is defined }}
{% with %}{% set z = 1 %}{% endwith %}{{ z is defined }}
{% block head %}{{ a }}{{ messages | length }}{% set a = 9 %}{% endblock %}{{ a }}{% for i in [7] %}{% block one scoped %}{{ i }}{% endblock one %}{% block two %}{{ i is defined }}{% endblock %}{% endfor %}
{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{% with j = i %}{% if j == 4 %}{% break %}{% endif %}{{ j }}{% endwith %}{% else %}none{% endfor %}
{% for x in [{'n': 'a', 'c': [{'n': 'b', 'c': [{'n': 'c', 'c': []}]}, {'n': 'd', 'c': []}]}] recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ x.n }}{% if x.c %}({{ loop(x.c) }}){% endif %}{% endfor %}
{% for i, (x, y) in [(1, (2, 3)), [4, [5, 6]]] %}{{ i }}{{ x }}{{ y }} {% endfor %}{% for x in 1, 2, 3 %}{{ x }}{% endfor %}{% set p, (q, s) = 1, 'ab' %}{{ p }}{{ q }}{{ s }}
{% for i in [1, 1, 2, 2] %}{% if loop.changed(i) %}{{ i }}{% endif %}{% endfor %}{% for i in 'ab' %}{{ loop.revindex }}{{ loop.cycle('x', 'y') }}{% endfor %}
{% set t | upper | replace('A', '_') %}abc{{ 'a' }}{% endset %}{{ t }}{% filter lower | indent(2) %}AB
C{% endfilter %}{% generation %}{% set g = 1 %}x{% endgeneration %}{{ g is defined }}
{% for i in [] %}{% else %}{% set e = 1 %}none{% endfor %}{{ e is defined }}
{%- for i in [1, 2] %}{% set cut %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endset %}{{ cut }}{% endfor %}
{% set row = cycler('odd', 'even') %}{{ row.current }}{{ row.next() }}{{ row.next() }}{{ row.current }}{{ row.next() }}{% set _ = row.reset() %}{{ row.current }}
{% set pipe = joiner() %}{% set bar = joiner('|') %}{% for i in 'abc' %}{{ pipe() }}{{ bar() }}{{ i }}{% endfor %}
{{ dict(a=1, b='x') }} {{ dict([('k', 2)], z=3) }} {{ dict({'k': 2}) }} {% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}{{ ns['a'] }}
""",
    "tuples": """{{ (1, 'a') }} {{ (1,) }} {{ () }} {% set t = 1, 2 %}{{ t }} {{ 1, 2 }} {{ (1, 2) + (3,) }} {{ (1, 2) * 2 }} {{ (1, 2, 3)[1:] }} {{ (1, 2) == [1, 2] }} {{ (1, 2) == (1, 2) }} {{ (1, 2) < (1, 3) }} {{ (1, [2]) | tojson }}
{{ {'a': 1}.items() | list }} {{ {'a': 1} | items | list }} {{ {'b': 1, 'a': 2} | dictsort }} {{ (3, 1, 2) | sort }} {{ (1, 2) | list }} {{ 2 in (1, 2) }} {{ 'abc'.startswith(('x', 'a')) }} {{ (1, 2) is sequence }} {{ (1, 2) is mapping }} {{ (1, 2) | length }}
{% for g in messages | groupby('role') %}{{ g.grouper }}:{{ g.list | length }};{% endfor %}{% for role, list in messages | groupby('role') %}{{ role }} {{ list | map(attribute='role') | join }} {% endfor %}
{{ [{'a': 'x', 'n': 1}, {'a': 'X', 'n': 2}, {'n': 3}] | groupby('a', default='y') | map('first') | list }} {{ [{'a': 'x'}, {'a': 'X'}] | groupby('a', case_sensitive=true) | list }} {{ [{'a': {'b': 1}}, {'a': {'b': 0}}] | groupby('a.b') | list }} {{ [[1, 2], [1, 3]] | groupby(0) | list }}
{{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 1}, {'a': 0, 'b': 9}] | sort(attribute='a,b') | map(attribute='b') | list }} {{ [{'a': [5, 6]}] | map(attribute='a.1') | list }} {{ [{}] | map(attribute='a.b', default='d') | list }}
{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ [1, 2, 3, 4, 5] | slice(3) | list }} {{ [1, 2, 3, 4, 5] | slice(3, '-') | list }} {{ [1, 2] | slice(3) | list }}
{% set d = {'a': 1} %}{{ d.copy() }} {{ [1].copy() }} {{ [1, 2, 1].count(1) }} {{ ['a', 'b'].index('b') }} {{ d.get('a') }} {{ [1, 2, 3] | select('>', 1) | list }} {{ [1, 2, 3] | select('<=', 2) | list }} {{ [1, 2] | select('greaterthan', 1) | list }} {{ [1, 2, 3] | reject('>=', 2) | list }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }}
{{ [{}, {'b': 1}] | sort(attribute='a') }} {{ [{}] | max }} {{ none | selectattr('a') | list }} {{ none | map('upper') | list }} {{ 0 | reject | list }} {{ [1, none] < [2, none] }} {{ [none, 1] < [none, 2] }} {{ 5 | round }} {{ true | round }} {{ 5 | round(method='ceil') }}
{{ messages | selectattr('role', '==', 'user') | list | length }} {{ messages | selectattr('role', 'in', ('user', 'tool')) | list | length }} {{ messages | selectattr('tool_calls', 'defined') | list | length }}
""",
    "formats": """{{ '%s and %s' % ('a', 1) }} {{ '%s' % [1, 2] }} {{ '%(k)s-%(n)03d' % {'k': 'v', 'n': 7} }} {{ '%5s|%-5s|%.2s|%05d|%+d|% d|%x|%X|%#x|%o|%c|%%' % ('ab', 'cd', 'efg', 42, 42, 42, 255, 255, 255, 8, 'z') }}
{{ '%.2f %8.3f %-8.1f| %e %G %g %F' % (3.14159, 2.5, 2.25, 12345.678, 0.00001, 1000000, 1) }} {{ '%d' % 3.99 }} {{ '%d' % true }} {{ '%r %s' % ("it's", none) }} {{ '%*d|%-*d|%.*f' % (5, 1, 5, 2, 1, 2.55) }} {{ '100%%' % () }} {{ '%s' % none }} {{ '%05.1f|%+.1e|%.3d|%08.2f|%-+6d|' % (2.55, 12.0, 7, 0 - 3.5, 3) }} {{ 'x' % [] }}
{{ '%s is %s' | format('a', 2) }} {{ '%(a)s %(b).1f' | format(a='x', b=2) }} {{ '%s' | format((1, 2)) }}
{{ '{} {}'.format('a', 1) }} {{ '{1}{0}{1}'.format('a', 'b') }} {{ '{name}: {v[0]} {v[k]!r} {{x}}'.format(name='n', v={'0': 1, 'k': 'q'}) }} {{ '{0[1]} {0[k]}'.format([1, 2]) if false else '{0[1]}'.format([1, 2]) }}
{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05}|{:5}|{:.2}'.format('ab', 'cd', 'e', 'fg', 42, 'h', 'ijk') }} {{ '{:,} {:_} {:.2f} {:,.1f} {:%} {:.1%} {:e} {:x} {:#X} {:b} {:o}'.format(1234567, 1234567, 3.14159, 9876.54, 0.5, 0.123, 12345.678, 255, 255, 5, 8) }}
{{ '{:+} {: } {:08.3f} {:<8.1f}| {:=+6}|{:g} {:G} {:.3}'.format(3, 3, 3.14159, 2.25, 7, 1e10, 1e-10, 2.0) }} {{ '{:{}}|{:{w}.{p}f}'.format('a', 4, 1.5, w=7, p=2) }} {{ '{}{}{}'.format(none, true, [1, 'a']) }} {{ '{!s:>4}'.format(1) }} {{ '{:風^5}'.format('x') }} {{ '{:10}|{:d}'.format(true, true) }}
{{ 'ab'.center(7) }}|{{ 'ab'.center(5, '*') }}|{{ 'abc'.center(6) }}|{{ 'abc' | center(6) }}|{{ 'a' | center(4) }}|{{ 'ab'.ljust(4, '.') }}{{ 'ab'.rjust(4) }} {{ '-7'.zfill(4) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} {{ 'abcabc'.rfind('b') }} {{ 'abcabc'.find('b', 2) }} {{ 'abcabc'.index('c', 0 - 2) }} {{ 'aXbXa'.count('a', 1) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ '12'.isdecimal() }} {{ '1x'.isnumeric() }} {{ 'ab'.isascii() }} {{ 'é'.isascii() }} {{ ''.isascii() }}
{{ 'a long text of words' | truncate(10) }} {{ 'a long text of words' | truncate(10, true, '>', 0) }} {{ 'short' | truncate(10) }} {{ 'exactly ten' | truncate(8, leeway=0) }} {{ "one two,three it's" | wordcount }} {{ '<' | forceescape }} {{ {'items': 1} | attr('items') is callable }} {{ {'a': 1} | attr('a') is defined }}
""",
    "too few values": "{{ '%s %s' % ('a',) }}",
    "too many values": "{{ '%s' % ('a', 'b') }}",
    "wrong value": "{{ '%d' % 'a' }}",
    "missing name": "{{ '%(a)s' % {'b': 1} }}",
    "missing place": "{{ '{} {}'.format(1) }}",
    "wrong places": "{{ '{} {0}'.format(1) }}",
    "a string as number": "{{ '{:d}'.format('x') }}",
    "unlike tuples": "{{ (1, 2) + [3] }}",
    "a filter never used": "{% if false %}{{ 1 | no_such_filter }}{{ 1 is no_such_test }}{% endif %}x",
    "arguments out of order": "{{ dict(a=1, 2) }}",
    "missing member of a member": "{{ [{}] | map(attribute='a.b') | list }}",
    "undefined attribute": "{{ missing.member }}",
    "order of unlike": "{{ 1 < 'a' }}",
    "not callable": "{{ messages() }}",
    "unknown filter": "{{ 1 | no_such_filter }}",
    "not closed": "{% if true %}x",
    "refuses": "{{ raise_exception('no') }}",
    "changes": "{% set l = [1] %}{{ l.append(2) }}",
}


def python(template, conversation):
    """The text, or None where it fails."""
    variables = {"add_generation_prompt": False, "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "tools": None,
                 **conversation}
    try:
        return environment().from_string(template).render(**variables)
    except Exception:  # noqa: BLE001: whatever it is, ours must fail too
        return None


def ours(trireme, template_file, conversation):
    done = subprocess.run([trireme, "tokenize", "--tokenizer", "byte", "--chat", "--render", "--chat-template", template_file],
                          input=json.dumps({"tools": None, **conversation}), capture_output=True, text=True, encoding="utf-8")
    return done.stdout if done.returncode == 0 else None, done.stderr


def compare(trireme, files):
    wrong = runs = failures = 0
    for file in files:
        template = Path(file).read_text(encoding="utf-8")
        for name, conversation in CONVERSATIONS.items():
            want = python(template, conversation)
            got, message = ours(trireme, file, conversation)
            runs += 1
            failures += want is None
            if want != got:
                wrong += 1
                if wrong <= 20:
                    print(f"{file} {name}:\n   theirs {want!r}\n   ours   {got!r} {message.strip()}")
    print(f"{len(files)} templates, {runs} renderings ({failures} of which Jinja2 refuses), {wrong} differ")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", nargs="*")
    parser.add_argument("--compare", metavar="TRIREME")
    arguments = parser.parse_args()
    if arguments.compare:
        sys.exit(1 if compare(arguments.compare, arguments.templates) else 0)
    cases, known = [], set()
    for template in TEMPLATES.values():
        for name, conversation in CONVERSATIONS.items():
            text = python(template, conversation)
            if (template, text) not in known:
                cases.append({"template": template, "conversation": name, "text": text})
            known.add((template, text))
    FILE.write_text(json.dumps({"made_by": f"jinja2 {jinja2.__version__}", "conversations": CONVERSATIONS, "cases": cases},
                               indent=1) + "\n", encoding="utf-8")
    print(f"{FILE.name}: {len(cases)} cases, {sum(c['text'] is None for c in cases)} refused")


if __name__ == "__main__":
    main()
