#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/jinja.json: what transformers (jinja2) renders from templates of our own that use each construct, filter,
test and method, and the messages of its errors. A message is left out where ours says it in other words: MESSAGES.

Usage: jinja.py [FILE]    (needs transformers)
"""
import datetime
import json
import sys
from pathlib import Path

import transformers.utils.chat_template_utils as utils

NOW = 1785672123  # seconds of the clock that strftime_now shows

VARIABLES = {
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi <b> & \"you\" 'two' \n"},
                 {"role": "assistant", "content": "Hé!", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": [True, None]}}}]}],
    "bos_token": "<s>", "n": 7, "zero": 0, "big": 9007199254740993, "x": 2.5, "neg": -3, "yes": True, "no": False, "nothing": None, "empty": "",
    "word": "straße ǆ ΑΣ ﬁ", "text": "a,b,,c", "spaces": "  two\t words\n", "list": [3, 1, 2], "names": ["b", "A", "c", "B"], "nested": [[1, [2]], {"k": [3]}],
    "dict": {"b": 2, "a": 1, "C": 3}, "items": {"items": 5, "get": 6}, "reals": [1.0, 0.1, 1e16, 1e-5, 123456.789, 1e22, 5e-324, -0.0, 1e100, 100.0],
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 30, "tags": []}],
    "odd": "tab\there \\ nul\x01 é\u200b 😀 \u2028 'q' \"d\"", "schema": {"type": "object", "properties": {"p": {"type": ["string", "null"]}}, "required": ["p"]},
}

TEMPLATES = [
    # text and white space
    "plain", "", "\n", "a\n", "a\n\n", "a\r\nb\rc\r\n", "{{ 1 }}\n{{ 2 }}\n", "{% if yes %}\na\n{% endif %}\nb", "  {% if yes %}  \n  a\n  {% endif %}\nb",
    "x {% if yes %} y {% endif %} z", "x {%- if yes -%} y {%- endif -%} z", "x\n  {%+ if yes %} y\n  {%+ endif +%}\nz", "{# c #}a{# c #}\nb{#- c -#}  d", "  {# c #}\n  a",
    "a  {{- 1 -}}  b", "a\n\n{{- 1 }}\n\n b", "{% raw %}{{ x }} {% if %}{% endraw %}\nb", "a {%- raw -%}  {{ x }}  {%- endraw -%}  b", "  {% raw %}\na{% endraw %}", "{#- {{ x }} {% if #}z",
    "{{ '{{' }} {{ '%}' }}", "{ { % # }", "a\u3000{%- if yes %}b{% endif %}", "\t \x0b{% if yes %}b{% endif %}", "{% if yes -%}\n\n  a\n{%- endif %}\n", "{{ {'a': {'b': 1}}}}", "{{ {'a': 1}['a'] }}",
    "{%if yes%}a{%endif%}", "{{1}}{{-2-}} {{3}}", "{% if yes %}{# c #}\n{% endif %}\n\nx", "a{% set q = 1 %}\n\n  {% set r = 2 %}\nb", "a {% set q %}  t {% endset %}|{{ q }}|",
    # literals and printing
    "{{ none }} {{ None }} {{ true }} {{ False }} {{ 1 }} {{ 1.0 }} {{ 'a' }}", "{{ nothing }}{{ yes }}{{ x }}{{ big }}{{ missing }}", "{{ [1, 'a', none, [true], {}] }} {{ (1,) }} {{ () }} {{ (1, 2) }}",
    "{{ {'a': 1, 2: 'b', none: 3} }}", "{% for r in reals %}{{ r }} {% endfor %}", "{{ reals }}", "{{ 1_000 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 0 }} {{ 00 }} {{ 1_0.2_5 }}", "{{ odd }}", "{{ [odd] }}",
    "{{ ['it\\'s', \"a\\\"b\", 'both \\' \"'] }}", "{{ 'a\\n\\t\\\\\\x41\\u00e9\\U0001F600\\101\\q' }}", "{{ 'a' 'b' \"c\" }}", "{{ nested }} {{ schema }}", "{{ range(3) }} {{ range(1, 9, 2) }} {{ range(3)|list }} {{ range(5, 0, -2)|list }}",
    "{{ dict.keys() }} {{ dict.values() }} {{ dict.items() }}", "{{ [missing] }} {{ missing }}", "{{ 1, 2 }}", "{{ [1, 2,] }} {{ {'a': 1,} }} {{ (1, 2,) }}", "{{ dict(a=1, b='x') }} {{ dict([('a', 1)]) }} {{ dict({'q': 1}, r=2) }}",
    # operators
    "{{ 1 + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}", "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1.5 + 1 }} {{ 2 * 1.5 }} {{ 2.0 ** 0.5 }} {{ 6 / 3 }}",
    "{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ [0] * 2 }} {{ 2 * 'x' }} {{ 'a' * -1 }}|", "{{ 1 ~ 'a' ~ none ~ 1.5 ~ [1] }} {{ 1 ~ 2 + 3 }}", "{{ +n }} {{ -n }} {{ - -n }} {{ -x }} {{ -yes }} {{ not yes }} {{ not not n }}",
    "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' != 'b' }} {{ 2 >= 2 }} {{ 1 <= 0 }} {{ big == 9007199254740992.0 }}", "{{ 'a' in 'abc' }} {{ 1 in [1] }} {{ 'a' not in dict }} {{ 'b' in dict.keys() }} {{ 2 in range(3) }} {{ '' in 'a' }} {{ 1 in missing }}",
    "{{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none or [] }} {{ 1 or missing.x }} {{ none and missing.x }}", "{{ 'y' if yes else 'n' }} {{ 'y' if no }}| {{ 1 if no else 2 if no else 3 }} {{ (1 if no) is defined }}", "{{ 'é%sü %d %r %5.2f|%-4s|%04d|%+d|%x|%%' % ('s', 3, 'q', 2.5, 'ab', 7, 5, 255) }}", "{{ '%s' % [1] }} {{ '%(a)s-%(b)03d' % {'a': 1, 'b': 2} }} {{ '%s' % none }}",
    "{{ {'a': 1} == {'a': 1.0} }} {{ [1] == (1,) }} {{ missing == none }} {{ missing == other }} {{ nothing == none }} {{ [] == [] }} {{ {'a': [1]} == {'a': [2]} }}", "{{ (1, 2)[0] }} {{ true + true }} {{ 5 % 2 == 1 and 'odd' }} {{ 1 if 'a' is string and not no else 2 }}",
    # access
    "{{ messages[0].role }} {{ messages[0]['role'] }} {{ messages[-1]['content'] }} {{ messages[9] }}|{{ messages[0].x }}|{{ messages[0]['x'] }}|{{ dict.b }}{{ dict['b'] }}", "{{ items['items'] }} {{ items['get'] }} {{ items.items() }} {{ items.get('get') }}", "{{ word[0] }} {{ word[-1] }} {{ word[99] }}| {{ list.0 }} {{ nested.1.k.0 }} {{ 'abc'['upper']() }}",
    "{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[::2] }} {{ word[1:4] }} {{ word[::-1] }} {{ word[-3:] }} {{ list[5:] }} {{ list[-9:2] }} {{ (1, 2, 3)[1:] }} {{ list[none:2] }} {{ range(9)[2:4]|list }}", "{{ list[2:0:-1] }} {{ 'abcdef'[4:1:-2] }} {{ list[:] }} {{ 'é😀x'[1] }} {{ list[true] }} {{ 'abc'[::-2] }}",
    "{{ messages[2].tool_calls[0].function.arguments.y[1] }} {{ messages[2]['tool_calls'][0]['function']['arguments']['y'][0] }}", "{{ list['x'] }}|{{ n['x'] }}|{{ nothing['x'] }}|{{ n.x }}|{{ 'a'.x }}|{{ n[0] }}|{{ dict[[1]] }}|{{ list[1.0] }}|{{ 5[1:2] }}", "{{ dict.get('a') }} {{ dict.get('z') }} {{ dict.get('z', 'd') }} {{ dict.get('z', default=1) if false }}",
    # statements
    "{% if no %}a{% elif zero %}b{% elif n %}c{% else %}d{% endif %}", "{% if no %}a{% else %}d{% endif %}{% if missing %}x{% endif %}", "{% if yes: %}colon{% endif %}", "{% for i in list %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for c in 'aé' %}[{{ c }}]{% endfor %}{% for k in dict %}{{ k }}{% endfor %}", "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, (a, b) in [(1, (2, 3))] %}{{ k }}{{ a }}{{ b }}{% endfor %}", "{% for i in range(10) if i is even and i > 2 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}",
    "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}", "{% for i in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }} {% endfor %}", "{% for i in range(6) if i != 3 %}{{ i }}{{ loop.nextitem }}{{ loop.last }}{{ loop.previtem is defined }}{{ loop.length }} {% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in [1] %}{% continue %}{% else %}else{% endfor %}{% for i in [1] %}{% break %}{% else %}else{% endfor %}", "{% for i in [1, 2] %}{% for j in [3, 4] %}{{ loop.index }}{{ i }}{{ j }}{% if j == 3 and i == 2 %}{% break %}{% endif %} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in [1, 2] %}{% set outer = loop %}{% for j in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}", "{% for n in nested recursive %}{% if n is iterable and n is not string and n is not mapping %}[{{ loop(n) }}]{% else %}{{ n }}:{{ loop.depth }}{% endif %}{% endfor %}", "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 5 %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(a=1, b=[]) %}{% for i in list %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.z }}|{{ ns['a'] }}",
    "{% set ns = namespace(found=false) %}{% for i in list if not ns.found %}{{ i }}{% set ns.found = i == 1 %}{% endfor %}", "{% set ns = namespace(found=false) %}{% for i in list if not ns.found %}{{ i }}{{ loop.last }}{% set ns.found = true %}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}{% set (d, e) = [3, 4] %}{{ d }}{{ e }}", "{% set t %}a{{ n }}{% set inner = 1 %}{% endset %}{{ t }}{{ inner }}{% set u | upper | trim %} b {% endset %}{{ u }}|",
    "{% if yes %}{% set v = 1 %}{% endif %}{{ v }}{% if no %}{% set w = 1 %}{% endif %}{{ w }}|", "{% with a = 1, b = 2 %}{{ a + b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}|", "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}", "{% filter upper %}a{{ n }}b{% set q = 1 %}{% endfilter %}{{ q }}{% filter replace('a', 'b')|trim %} aaa {% endfilter %}|",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='z') }} {{ m(b=5, a=4) }} {{ m() }}|{{ m(1)|length }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(2, 3) }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro m(a) %}<{{ caller(a) }}>{% endmacro %}{% call(q) m(7) %}in {{ q }}{{ n }}{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}", "{% macro m() %}{{ v }}{{ bos_token }}{% endmacro %}{{ m() }}{% set v = 5 %}{{ m() }}{% for v in [1] %}{{ m() }}{% endfor %}", "{% for i in [1, 2] %}{% macro m(a) %}{{ i }}{{ a }}{% endmacro %}{{ m('x') }}{% endfor %}", "{{ missing is defined }}{% macro missing() %}{% endmacro %}{{ missing is defined }} {{ missing is callable }}",
    "a{% generation %}b{{ n }}\n{% endgeneration %}c{% generation %}{% endgeneration %}d\n{%- generation -%} é {%- endgeneration -%}\n z", "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}{% set q = 1 %}{% endgeneration %}{{ q }}{% endfor %}", "é{% set t %}x{% generation %}yy{% endgeneration %}{% endset %}[{{ t }}]", "{% macro m() %}1{% generation %}2{% endgeneration %}3{% endmacro %}ab{{ m() }}c",
    # filters
    "{{ 'ab'|upper }} {{ 'AB'|lower }} {{ 'aB cd'|capitalize }} {{ 'ab cd-ef(gh) i\\'j'|title }} {{ word|upper }} {{ word|lower }} {{ word|capitalize }} {{ word|title }}", "{{ word.title() }} {{ 'ΑΣ ΑΣΑ Σ'.lower() }} {{ 'ŉ ΐ ᾳ ᾲ ß'.upper() }} {{ 'ßx ŉ ᾳ ᾲ ﬁ'.title() }} {{ 'İ'.lower()|length }} {{ 'aBß'.swapcase() }} {{ 'ǆ'.capitalize() }}",
    "[{{ spaces|trim }}] [{{ 'xxaxx'|trim('x') }}] [{{ '\\u3000a\\xa0'|trim }}]", "{{ list|length }} {{ 'é😀'|length }} {{ dict|count }} {{ missing|length }} {{ range(4)|length }} {{ dict.keys()|length }}", "{{ missing|default('d') }} {{ ''|default('d') }}| {{ ''|default('d', true) }} {{ none|d('x') }} {{ none|d('x', boolean=true) }} {{ missing|default }}|", "{{ list|join }} {{ list|join('-') }} {{ people|join(',', attribute='name') }} {{ 'abc'|join('.') }} {{ missing|join('x') }}| {{ [1, none, 'a']|join(1) }}",
    "{{ text|replace(',', ';') }} {{ 'aaaa'|replace('a', 'b', 2) }} {{ 'abc'|replace('', '-') }} {{ 123|replace(2, 'x') }} {{ 'aa'|replace('a', 'aa', count=1) }}", "{{ list|first }} {{ list|last }} {{ []|first }}|{{ 'abc'|last }} {{ list|min }} {{ list|max }} {{ []|max }}| {{ names|min }} {{ names|max(case_sensitive=true) }} {{ people|min(attribute='age') }}", "{{ list|sort }} {{ list|sort(reverse=true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ people|sort(attribute='age,name')|map(attribute='name')|list }} {{ people|sort(true, attribute='age')|map(attribute='name')|list }}",
    "{{ dict|dictsort }} {{ dict|dictsort(true) }} {{ dict|dictsort(false, 'value') }} {{ dict|dictsort(reverse=true) }}", "{{ dict|items|list }} {{ missing|items|list }} {{ dict|list }} {{ 'ab'|list }}", "{{ list|reverse|list }} {{ 'abc'|reverse }} {{ names|unique|list }} {{ names|unique(true)|list }} {{ [1, 1.0, true, 2]|unique|list }}", "{{ people|map(attribute='name')|list }} {{ people|map(attribute='tags.0', default='-')|list }} {{ names|map('upper')|list }} {{ ['a1']|map('replace', '1', '2')|list }} {{ none|map('upper')|list }}",
    "{{ range(6)|select('odd')|list }} {{ range(6)|reject('odd')|list }} {{ [0, 1, '']|select|list }} {{ range(9)|select('divisibleby', 3)|list }} {{ range(5)|select('>', 2)|list }} {{ [1, 'a']|select('string')|list }}", "{{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|join(' ') }} {{ people|rejectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('tags', 'defined')|list|length }} {{ messages|selectattr('role', '==', 'user')|list|length }}", "{{ list|sum }} {{ people|sum(attribute='age') }} {{ list|sum(start=10) }} {{ [[1], [2]]|sum(start=[]) }}",
    "{{ '3'|int }} {{ '3.7'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ none|int(2) }} {{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ ' 12 '|int }} {{ '-7'|int }} {{ '+1e2'|float }} {{ '007'|int }} {{ '.5'|float }} {{ '5.'|float }}", "{{ -5|abs }} {{ -2.5|abs }} {{ (-3)|abs }} {{ 42.55|round }} {{ 42.55|round(1) }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(1, method='ceil') }} {{ 2.5|round }} {{ 3|round }} {{ 1234|round(-2) }} {{ 2.675|round(2) }} {{ 3.5|round|int }}", "{{ dict|string }} {{ 1.0|string }} {{ 'a'|string }} {{ none|string }} {{ missing|string }}|",
    "{{ '<a>'|safe }} {{ '<'|safe + '<' }} {{ '<' + '>'|safe }} {{ '<'|safe ~ '<' }} {{ '<&\"\\''|e }} {{ '<'|escape|escape }} {{ ('<'|safe)|upper + '>' }} {{ ['<'|safe] }} {{ '<'|safe is escaped }} {{ '<x>'|e|length }}", "{{ 'a\\nb\\n\\nc'|indent }} {{ 'a\\nb'|indent(2, true) }} {{ 'a\\n\\nb'|indent(1, blank=true) }} {{ 'a\\nb'|indent('--') }}", "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '..', 0) }}", "[{{ 'ab'|center(7) }}] [{{ 'abc'|center(6) }}] {{ 'a b-c d_e'|wordcount }} {{ '%s-%s'|format(1, 'b') }} {{ '%(a)s'|format(a=2) }}",
    "{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }}", "{{ dict|attr('items')() }} {{ dict|attr('a') is defined }} {{ 'a'|attr('upper')() }} {{ {'k': 1}|attr('k') }}|", "{% set g = list|map('string') %}{{ g|list }}{{ g|list }}{% set h = list|select %}{{ h|first }}{{ h|list }}",
    # tojson
    "{{ schema|tojson }} {{ schema|tojson(indent=2) }}", "{{ odd|tojson }} {{ odd|tojson(ensure_ascii=true) }} {{ '<&>\\''|tojson }}", "{{ [1, 2.0, none, true, 'a', [], {}]|tojson }} {{ reals|tojson }} {{ [[], {}, [1]]|tojson(indent=1) }}", "{{ dict|tojson(sort_keys=true) }} {{ dict|tojson(separators=(',', ':')) }} {{ dict|tojson(indent='\\t') }} {{ list|tojson(indent=0) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }} {{ 'a'|safe|tojson }} {{ list|tojson(indent=none) }} {{ messages|tojson(indent=4) }}",
    # tests
    "{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ nothing is none }} {{ n is not none }} {{ nothing is defined }} {{ messages[0].zz is defined }}", "{{ 1 is number }} {{ true is number }} {{ 'a' is string }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ yes is boolean }} {{ yes is true }} {{ no is false }} {{ 1 is true }}", "{{ dict is mapping }} {{ list is mapping }} {{ list is sequence }} {{ dict is sequence }} {{ 'a' is sequence }} {{ 1 is sequence }} {{ list is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ missing is iterable }} {{ missing is sequence }} {{ dict.items() is sequence }} {{ (list|map('string')) is sequence }} {{ (list|map('string')) is iterable }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ 'a' is in 'abc' }} {{ 1 is in [2] }} {{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 2 is gt 1 }} {{ 2 is ge 2 }} {{ 1 is lt 2 }} {{ 1 is le 0 }} {{ 1 is ne 1 }} {{ 3 is lessthan 4 }} {{ 3 is greaterthan 4 }}", "{{ none is sameas none }} {{ yes is sameas true }} {{ 1 is sameas true }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ range is callable }} {{ 1 is callable }} {{ 'a' is not string }} {{ not 'a' is string }} {{ [] is defined and [] }}",
    # methods
    "{{ text.split(',') }} {{ text.split(',', 1) }} {{ text.rsplit(',', 1) }} {{ spaces.split() }} {{ 'a b  c'.split(none, 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ 'a--b'.split('--')[-1] }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a'.split(maxsplit=1) }} {{ 'a,b,c'.rsplit(',') }}", "[{{ spaces.strip() }}][{{ spaces.lstrip() }}][{{ spaces.rstrip() }}][{{ 'xyax'.strip('xy') }}][{{ 'xxa'.lstrip('x') }}][{{ 'axx'.rstrip('x') }}][{{ '\\n\\na\\n'.strip('\\n') }}]", "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'a'.startswith('') }} {{ 'abc'.endswith('abcd') }}",
    "{{ 'abcabc'.find('c') }} {{ 'abc'.find('z') }} {{ 'éabc'.find('b') }} {{ 'abcabc'.rfind('c') }} {{ 'abcabc'.find('a', 1) }} {{ 'abc'.index('b') }} {{ 'aaa'.count('a') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'ab'.rindex('b') }} {{ 'abab'.count('b', 2) }}", "{{ ', '.join(['a', 'b']) }} {{ 'aXb'.replace('X', '') }} {{ 'aaa'.replace('a', 'b', 1) }} {{ 'ab'.upper() }} {{ 'AB'.lower() }} {{ 'aB'.capitalize() }} {{ 'a b'.title() }} {{ 'a\\nb\\r\\nc\\x85d'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}", "{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB1'.isupper() }} {{ 'ab1'.islower() }} {{ '1'.isupper() }} {{ 'a\\n'.isprintable() }} {{ '१'.isdecimal() }}",
    "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removeprefix('x') }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} [{{ 'a'.ljust(3) }}] [{{ 'a'.rjust(3, '*') }}] [{{ 'ab'.center(5, '.') }}] {{ '-5'.zfill(4) }} {{ '5'.zfill(3) }}", "{{ '{} {}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('x', 'y') }} {{ '{a}-{b}'.format(a=1, b=2) }} {{ '{{}}'.format() }} {{ '{:>5}|{:<4}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:+} {:,} {:x} {:.2f} {:%}'.format(42, 5, 1234567, 255, 3.14159, 0.25) }} {{ '{!r:>6}'.format('q') }} {{ '{a[k]} {b.role} {c[0]}'.format(a={'k': 1}, b=messages[0], c=list) }}", "{{ '{:.3}|{:8.2f}|{:<6}|{:e}|{:g}|{:b}|{:#x}|{:o}|{:X}'.format('abcdef', 2.5, 3, 12345.678, 0.0001, 5, 255, 8, 171) }} {{ '{}{}{}'.format(none, true, 1.0) }} {{ '{:=+6d}|{:6}|{:6}|{:010.3f}|{: d}'.format(5, 7, 'x', -3.14159, 4) }}",
    "{{ list.index(1) }} {{ list.count(3) }} {{ (1, 2).index(2) }} {{ dict.copy() }} {{ list.copy() }}", "{% set f = 'abc'.upper %}{{ f() }} {% set g = namespace %}{{ g(a=1).a }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %a %A %j %y %I %p %% %-d %e %f') }}", "{% if strftime_now is defined %}{{ strftime_now('%d %B, %Y') }}{% endif %}", "{{ messages|length }}{{ messages[1:]|length }}{{ (messages|first).role }}{{ messages|map(attribute='role')|join('>') }}", "{{ 'x'.join(dict) }} {{ dict|join('-') }} {{ dict.items()|first }} {{ dict.keys()|list|sort }}", "{{ namespace(a=1)['a'] }} {{ namespace({'q': 2}).q }} {{ dict() }} {{ dict(a=1)|length }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }} {{ m(**{'a': 2}) }} {{ dict(*[[('k', 1)]], **{'z': 2}) }} {{ range(*[1, 3])|list }}", "{{ 'a' if yes else raise_exception('no') }}", "{% set loop = 1 %}{% for i in [1] %}{{ loop.index }}{% endfor %}{{ loop }}", "{% set messages = messages[1:] %}{{ messages|length }}{% set bos_token = 'B' %}{{ bos_token }}", "{% set range = 5 %}{{ range }}", "{{ true is true }}{{ True is sameas true }}{{ none is none }}", "{{- bos_token }}\n{%- for m in messages %}\n    {%- if loop.first %}\n        {{- 'first' }}\n    {%- endif %}\n    {{- '<|' + m['role'] + '|>\\n' + m['content'] | trim + '\\n' }}\n{%- endfor %}\n",
    # errors
    "{{ raise_exception('Broken: ' ~ n) }}", "a\n\n{% if yes %}{{ raise_exception('At three') }}{% endif %}", "{{ missing.x }}", "{{ missing['x'] }}", "{{ messages[9].role }}", "{{ messages[0].x.y }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ 1 + missing }}", "{{ -missing }}", "{{ missing < 1 }}", "{{ none.x.y }}", "{{ messages.x.y }}", "{{ n.x.y }}", "{{ (1 if no).x }}", "{{ ([]|first).x }}",
    "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + 'a' }}", "{{ none + 'a' }}", "{{ 'a' - 'b' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ -'a' }}", "{{ 1 in 5 }}", "{{ 1 in 'a' }}", "{{ n() }}", "{{ none() }}", "{{ list.append(1) }}", "{{ dict.update({}) }}", "{{ dict.pop('a') }}", "{{ ''.__class__ }}", "{{ ''.__class__.x }}", "{{ list.pop.x }}", "{% set ns = namespace(_a=1) %}", "{% set ns = namespace() %}{% set ns._b = 1 %}", "{% set dict.x = 1 %}", "{% set missing.x = 1 %}",
    "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% set a, b = [1] %}", "{{ 5|length }}", "{{ 5|list }}", "{{ none|join }}", "{{ 5|items|list }}", "{{ missing|tojson }}", "{{ range(3)|tojson }}", "{{ 'abc'.split('') }}", "{{ 'abc'.index('z') }}", "{{ '-'.join([1]) }}", "{{ 'a'.startswith(1) }}", "{{ {[]: 1} }}", "{{ list[::0] }}", "{{ range(1000000) }}", "{{ range(0, 9, 0) }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ 'a' % 1 }}", "{{ [1, 'a']|sort }}", "{{ dict|dictsort(by='x') }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ 'a'|nope }}", "{{ 'a' is nope }}", "{{ [1]|selectattr|list }}", "{{ [1]|map|list }}", "{% for i in [1] %}{{ loop([2]) }}{% endfor %}", "{{ messages[0]['content'].nope() }}", "{{ x|round(1, 'up') }}",
    # what does not parse
    "{% if %}", "{% if yes %}", "{% endif %}", "{% for %}", "{% for i in %}{% endfor %}", "{% nope %}", "{{ 1 + }}", "{{ }}", "{{ 1", "{% set %}", "{% set 1 = 2 %}", "{{ 'a }}", "{# a", "{% raw %}a", "{{ (1 }}", "{{ 1) }}", "{{ [1} }}", "{{ a b }}", "{{ a.'b' }}", "{% for i in list %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ 1 is is }}", "{% break %}", "{{ $ }}", "{% set a.b.c = 1 %}", "{{ a[1:2:3:4] }}", "{% call 1 %}{% endcall %}", "{% if yes %}{% endfor %}", "a\nb\n{{ 1 | }}", "{% %}", "{{ {1 2} }}", "{{ f(**a, *b) }}",
]

# Errors whose words differ from Python's.
MESSAGES = ["recursion depth", "named 'nope'", "named 'is'", "innermost block", "can't assign to 'const'", "unexpected char", "outside loop"]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


def render(template):
    variables = dict(VARIABLES)
    messages = variables.pop("messages")
    try:
        texts, spans = utils.render_jinja_template([messages], chat_template=template, return_assistant_tokens_mask=True, **variables)
    except Exception as error:  # of any kind: a template may raise any of Python's
        message = str(error)
        return {"template": template, "error": "" if any(part in message for part in MESSAGES) else message}
    text = texts[0]
    return {"template": template, "text": text,
            "spans": [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans[0]]}


def main():
    utils.datetime = Clock
    cases = [render(template) for template in TEMPLATES]
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "tests/golden/jinja.json"
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    variables = json.dumps({**VARIABLES, "tools": None, "documents": None, "add_generation_prompt": False}, ensure_ascii=False)
    file.write_text(f'{{"now": {NOW}, "variables": {variables}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")
    print(len(cases), "templates,", sum("error" in case for case in cases), "errors")


if __name__ == "__main__":
    main()
