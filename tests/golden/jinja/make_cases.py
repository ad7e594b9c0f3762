"""Writes cases.json: templates, their contexts, and what Jinja2 renders with the settings that
Hugging Face's tokenizers use. Run with Python 3.11 and Jinja2 3.1.6:

    python make_cases.py > cases.json
"""

import json
import sys

import jinja2

TEXT = "Hello, World"
C = {
    "s": TEXT,
    "u": "Grüße, 世界 🌍!",
    "ws": " \t\u00a0x y\u3000\n",
    "n": 7,
    "f": 2.5,
    "t": True,
    "z": None,
    "e": "",
    "xs": [3, 1, 2],
    "names": ["bob", "Alice", "carol", "Bob"],
    "d": {"b": 1, "a": {"x": [1, "two", None, True, 1.0]}, "items": 5},
    "users": [
        {"name": "Ann", "age": 30, "on": True, "g": {"k": 1}},
        {"name": "bert", "age": 25, "on": False, "g": {"k": 2}},
        {"name": "Cid", "age": 30, "on": True, "g": {"k": 0}},
    ],
    "big": 18446744073709551615,
    "q": "it's \"quoted\" \\ \n\t\x01\x7f é <b>&</b>",
}

# Each line is one template over the context C.
LINES = r"""
{{ s }}|{{ n }}|{{ f }}|{{ t }}|{{ z }}|{{ missing }}|{{ xs }}|{{ d }}
{{ 1 }} {{ 1.0 }} {{ 1e20 }} {{ 1e-7 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ 0x1F }} {{ 123456789.0 * 1e9 }} {{ 1e16 }} {{ 1e15 }}
{{ true }} {{ True }} {{ false }} {{ none }} {{ None }} {{ [true, none, 'a', 1.5, {'k': (1,)}, ()] }}
{{ 'a' 'b' "c" }} {{ 'x\ty\\z\'q\x41\u00e9\101' }}|{{ "\q" }}
{{ q }}|{{ [q] }}|{{ q|tojson }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 * 3.0 }} {{ -7.5 // 2 }} {{ 7.5 % -2 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ +5 }} {{ - 5 }} {{ true + 1 }}
{{ 'ab' * 3 }} {{ [1, 2] * 2 }} {{ [1] + [2, 3] }} {{ (1,) + (2,) }} {{ 'a' + 'b' }}
{{ 'a' ~ 1 ~ none ~ 2.0 ~ true ~ missing ~ [1] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 1 != 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ true == 1 }} {{ 'é' > 'z' }}
{{ 'ell' in s }} {{ 'xyz' not in s }} {{ 3 in xs }} {{ 'b' in d }} {{ 'x' in missing }} {{ 1 in {1: 2} }} {{ not 'a' in 'abc' }}
{{ 1 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ not 0 }} {{ 1 and '' or 'y' }} {{ not (1 and 0) }}
{{ 'yes' if t else 'no' }} {{ 'yes' if not t }}|{{ 'a' if z else 'b' if n else 'c' }}
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[:-3] }} {{ s[::2] }} {{ s[::-1] }} {{ s[10:2:-3] }} {{ u[0:9] }} {{ u[-3:] }} {{ s[99:] }}|{{ s[-99:2] }}
{{ xs[0] }} {{ xs[-1] }} {{ xs[1:] }} {{ xs[::-1] }} {{ xs[-2:] }} {{ (1, 2, 3)[1:] }} {{ xs[5] }}|{{ u[7] }}{{ u[50] }}|
{{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d['a']['x'][0] }} {{ d.nope }} {{ d.get('b') }} {{ d.get('q', 'w') }} {{ d['items'] }} {{ users.0.name }} {{ users[1].g.k }}
{{ d.a.x }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d|items|list }} {{ d|length }}
{{ missing is defined }} {{ s is defined }} {{ missing is undefined }} {{ z is none }} {{ missing is none }} {{ z is not none }} {{ d.nope is defined }}
{{ s is string }} {{ n is string }} {{ n is number }} {{ f is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ t is boolean }} {{ n is boolean }} {{ f is integer }}
{{ d is mapping }} {{ xs is mapping }} {{ xs is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ xs is iterable }} {{ n is iterable }} {{ d.items() is sequence }} {{ d.items() is iterable }}
{{ t is true }} {{ 1 is true }} {{ false is false }} {{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ range is callable }} {{ s is callable }}
{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 3 is gt(2) }} {{ 2 is ge 2 }} {{ 2 is le 1 }} {{ 'a' is in 'abc' }} {{ 1 is in [2] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ '12' is lower }} {{ z is sameas none }}
{{ not s is string }} {{ s is string and n is number }} {{ (s is string) == true }} {{ n is number or missing }}
{{ xs|tojson }} {{ d|tojson }} {{ s|tojson }} {{ u|tojson }} {{ z|tojson }} {{ t|tojson }} {{ f|tojson }} {{ (1, 2)|tojson }} {{ 1.0|tojson }} {{ big|tojson }} {{ {}|tojson }} {{ []|tojson }}
{{ d|tojson(indent=2) }}|{{ []|tojson(indent=2) }}|{{ {'a': [1, {}]}|tojson(indent=4) }}
{{ d|tojson(separators=(',', ':')) }} {{ u|tojson(ensure_ascii=true) }} {{ d|tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 2.5: 5}|tojson }} {{ d|tojson(indent='--') }}
{{ missing|default('x') }} {{ z|default('x') }} {{ z|default('x', true) }} {{ e|d('y', boolean=true) }} {{ missing|d }}|{{ d.nope.x|default('q') if false else 1 }}
{{ ws|trim }}|{{ 'xxaxx'|trim('x') }}|{{ missing|trim }}|{{ n|trim }}
{{ s|length }} {{ xs|length }} {{ d|count }} {{ u|length }} {{ missing|length }} {{ (1, 2)|length }}
{{ xs|join }} {{ xs|join(', ') }} {{ users|join('-', attribute='name') }} {{ 'abc'|join('.') }} {{ [1, 'a', none, 2.0]|join('|') }}
{{ s|upper }} {{ s|lower }} {{ u|upper }} {{ 'straße'|upper }} {{ 'hello wORLD foo-bar (baz)'|title }} {{ 'hELLO'|capitalize }} {{ 'élan'|capitalize }}
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'ab'|replace('', '-') }} {{ 121|replace(1, 3) }}
{{ xs|first }} {{ xs|last }} {{ s|first }} {{ s|last }} {{ []|first }}|{{ d|first }}
{{ 'abc'|list }} {{ d|list }} {{ (1, 2)|list }} {{ xs|list }}
{{ d|dictsort }} {{ {'b': 2, 'A': 1, 'c': 0}|dictsort }} {{ {'b': 2, 'A': 1}|dictsort(true) }} {{ {'b': 2, 'A': 1, 'c': 0}|dictsort(by='value') }} {{ {'a': 1, 'b': 2}|dictsort(reverse=true) }}
{{ names|map('upper')|list }} {{ users|map(attribute='name')|list }} {{ users|map(attribute='g.k')|join(',') }} {{ users|map(attribute='zz', default='?')|list }} {{ ['a ', ' b']|map('trim')|join }} {{ names|map('replace', 'o', '0')|list }}
{{ xs|select('odd')|list }} {{ xs|reject('odd')|list }} {{ [0, 1, '', 'a']|select|list }} {{ xs|select('gt', 1)|list }} {{ xs|select('in', [1, 2])|list }}
{{ users|selectattr('on')|map(attribute='name')|list }} {{ users|rejectattr('on')|map(attribute='name')|list }} {{ users|selectattr('age', 'equalto', 30)|list|length }} {{ users|selectattr('name', 'in', ['Ann'])|list }} {{ users|selectattr('zz', 'defined')|list }} {{ users|selectattr('g.k', '>', 0)|list|length }} {{ users|selectattr('age', '==', 25)|map(attribute='name')|first }}
{{ xs|sort }} {{ xs|sort(reverse=true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name', reverse=true)|map(attribute='name')|list }}
{{ [1, 2, 1, 3]|unique|list }} {{ names|unique|list }} {{ names|unique(true)|list }} {{ users|unique(attribute='age')|map(attribute='name')|list }}
{{ xs|reverse|list }} {{ s|reverse }} {{ u|reverse }}
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ 'a\nb'|indent('> ') }}|{{ ''|indent }}|{{ 'a\n'|indent }}
{{ '42'|int }} {{ ' 42 '|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ 3.9|int }} {{ true|int }} {{ '0x1f'|int(base=16) }} {{ none|int }} {{ -3.9|int }} {{ '-12'|int }}
{{ '4.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ '1e3'|float }} {{ none|float(1.5) }}
{{ 3|string }} {{ none|string }} {{ 1.0|string }} {{ [1]|string }} {{ 's'|string }}
{{ -3|abs }} {{ 2.5|abs }} {{ -2.5|abs }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 7|round }} {{ 42.55|round(1) }}
{{ '<b>&"\''|e }} {{ '<i>'|escape }} {{ 'x'|safe }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 0)|list }} {{ [1, 2, 3, 4, 5]|slice(2)|list }} {{ [1, 2, 3]|slice(2, 'x')|list }}
{{ xs|sum }} {{ xs|min }} {{ xs|max }} {{ users|sum(attribute='age') }} {{ users|max(attribute='age') == users[0] }} {{ []|max }}|{{ [1.5, 2]|sum }} {{ ['b', 'A']|min }}
{{ 'one two  three'|wordcount }} {{ '%s is %d'|format('x', 3) }} {{ '%(a)s'|format(a=1) }} {{ 'x'|center(5) }}| {{ 'hello big world'|truncate(9) }} {{ 'hello'|truncate(3, true) }} {{ 'foo bar baz qux'|truncate(9, false, '...', 0) }}
{% for g, us in users|groupby('age') %}{{ g }}:{{ us|map(attribute='name')|join(',') }};{% endfor %}{% for g in users|groupby('age') %}{{ g.grouper }}={{ g.list|length }} {% endfor %}
{{ '%s and %r' % ('a', 'b') }} {{ '%5.2f|%-5s|%05d|%x|%%' % (3.14159, 'ab', 42, 255) }} {{ '%s' % 'x' }} {{ '%d items' % 3 }} {{ '%(k)s' % {'k': 'v'} }} {{ '%+d' % 5 }}
{{ ws.strip() }}|{{ ws.lstrip() }}|{{ 'xyaxy'.strip('xy') }}|{{ 'aab'.lstrip('a') }}|{{ 'baa'.rstrip('a') }}|{{ 'a\n\n'.rstrip('\n') }}|
{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ 'a b c'.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b c'.rsplit(maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a</think>b</think>c'.split('</think>')[-1] }}
{{ 'a\nb\r\nc'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }}
{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('x') }}
{{ s.upper() }} {{ s.lower() }} {{ 'they\'re bill\'s'.title() }} {{ 'aBC'.capitalize() }} {{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }}
{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.find('o', 5) }} {{ s.index('W') }} {{ s.count('l') }} {{ u.find('世') }} {{ ''.find('') }}
{{ ', '.join(['a', 'b']) }} {{ '{} {}'.format(1, 'x') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}{{}}'.format(x=1) }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }}
{{ '12'.isdigit() }} {{ '1a'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }}
{{ 'x'.ljust(3, '.') }} {{ 'x'.rjust(3) }} {{ 'x'.center(4, '*') }} {{ 'xy'.center(5, '*') }} {{ '-4'.zfill(5) }} {{ 'x'['upper']() }}
{{ xs.index(1) }} {{ xs.count(3) }} {{ [1, [2]].copy() }} {{ d.copy() == d }} {{ {'a': 1} == {'a': 1.0} }} {{ [1] == (1,) }}
{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(3)|length }} {{ range(0)|list }} {{ range(4)[2] }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, b=2) }} {{ {'a': 1, 'a': 2} }} {{ {1: 'x', 'k': (1, 2)} }}
{% set x = 1 %}{% set y, z2 = 2, 3 %}{{ x }}{{ y }}{{ z2 }}{% set (a, b) = [4, 5] %}{{ a }}{{ b }}{% set tt = 1, 2 %}{{ tt }}
{% set blk %}in {{ s }} {% endset %}[{{ blk }}]{% set up | upper | replace('L', '1') %}{{ s }}{% endset %}{{ up }}
{% set ns = namespace(a=1, b='x') %}{% for i in xs %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|{% set ns.c = [1] %}{{ ns.c }}{% set ns = namespace({'q': 2}) %}{{ ns.q }}
{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = i %}{{ x }};{% endfor %}{{ x }}
{% for i in [1, 2] %}{{ k }}{% set k = i %}{% endfor %}|{% if true %}{% set iff = 5 %}{% endif %}{{ iff }}
{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if z %}x{% elif e %}y{% else %}w{% endif %}{% if xs %}L{% endif %}{% if not d %}D{% endif %}
{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ ',' if not loop.last }}{% endfor %}
{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'héy' %}{{ c }}.{% endfor %}{% for x in missing %}x{% else %}none{% endfor %}
{% for x in range(10) if x is odd %}{{ loop.index }}:{{ x }}{{ loop.last }} {% else %}no{% endfor %}{% for x in [] if x %}{% else %}empty{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in [1, [2, [3, 4]], 5] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% macro m(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=1, a=2) }}{{ m() }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}{{ m() }}{{ m.name }}
{% macro m(x) %}{{ x }}<{{ caller() }}>{% endmacro %}{% call m(1) %}body {{ s }}{% endcall %}{% macro p(x) %}{% for i in x %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(i, j) p(xs) %}{{ i }}/{{ j }} {% endcall %}
{% macro fact(k) %}{{ 1 if k < 2 else k * (fact(k - 1)|int) }}{% endmacro %}{{ fact(6) }}{% macro see() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ see() }}
{% macro m(a) %}{% set later = a %}{{ later }}{% endmacro %}{{ m(1) }}{{ later }}|{% for i in [1] %}{% macro inner() %}{{ i }}{% endmacro %}{{ inner() }}{% endfor %}
{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b')|upper %}banana{% endfilter %}{% filter trim %}  x {% endfilter %}
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}|{% with %}{% set q2 = 1 %}{{ q2 }}{% endwith %}{{ q2 }}
{% raw %}{{ not }} {% if %} {# x #}{% endraw %}|{%- raw -%}  a  {%- endraw -%}  |
{% generation %}gen {{ s }}{% endgeneration %}|
{# comment #}a{#- strip -#} b {# {{ x }} {% y %} #}c
{{ namespace(a=1).a }} {% set j = joiner(', ') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %} {% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}
{{ strftime_now('%%') }} {{ (strftime_now('%Y')|int) > 2000 }}
{{ users|map(attribute='name')|join(', ') ~ '!' }} {{ (xs|length) > 2 and s|length < 20 }} {{ 'a' + s|upper + 'b' }} {{ -1|abs }} {{ (-1)|abs }}
{{ [[1, 2], [3]]|map('length')|list }} {{ [[3, 4]]|map('first')|list }} {{ ['a', 'b']|map('upper')|map('lower')|list }} {{ [1, 2]|map('string')|join }}
{% if users|selectattr('zz', 'defined') %}generators are true{% endif %}{% if (users|selectattr('zz', 'defined')|list) %}no{% endif %}
{{ '' is string and '' is not none }}{{ {} is mapping }}{{ missing == missing2 }}{{ missing == none }}{{ z == none }}{{ missing != 1 }}
{{ d.a['x'][-1] }} {{ {'a': {'b': [10, 20]}}['a'].b[1] }} {{ [1, 2, 3][1] }} {{ 'abc'[1] }} {{ {'k': 1}.k }} {{ (s, n)[0] }}
{{ "a\\nb" }} {{ 'tab\there' }}
{{ s | replace("Hello", "<|im_start|>") | trim | lower }}{{ ' x ' | trim ~ ' y ' | trim }}
{{ {'type': ['string', 'null']}.type | join(' or ') }}{{ ['string', 'null'] is iterable and ['a'] is not string }}
{{ xs|tojson|length }} {{ d|string|length }} {{ {'a': 'é', "b": 'x"y'} }} {{ ['\n', 'a\tb', '\x07', '\u200b', '\U0001F30D'] }}
{{ xs.append is defined }}{{ d.update is defined }}{{ s.__class__ is defined }}{{ s['__class__'] is defined }}
{{ 10 // 3.0 }} {{ 1e300 * 1e10 }} {{ 5 % 2.5 }} {{ 3.0 == 3 }} {{ 1 / 3 }} {{ 100000000000000000000.0 }} {{ 1.5e-5 }} {{ 12345.678 }}
{{ 'x' if 1 else 'y' ~ 'z' }} {{ ('x' if 0 else 'y') ~ 'z' }} {{ 1 if 2 > 1 and 3 > 2 else 0 }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ (1,) }}
{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}{{ i is defined }}{{ range is defined }}
{{ -0.0 }} {{ +(-0.0) }} {{ -4.0 % 2 }} {{ 7.5 // -2.0 }} {{ -1 // 0.3 }} {{ 2.5 is even }} {{ 3.0 is odd }} {{ 7.5 is divisibleby 2.5 }}
{{ 'ﬁ ŉ ß İ ǰ'|upper }} {{ 'ΣΑΣ ΌΣΟΣ Σ. Σ\'α'|lower }} {{ 'ﬁx'|capitalize }} {{ 'ßA'.title() }} {{ 'İI'|lower }} {{ 'aBß'.swapcase() }}
{{ z|map('upper')|list }} {{ 0|select|list }} {{ false|selectattr('x')|list }} {{ e|map(attribute='q')|list }} {{ (z|map('nofilter'))|list }}
{{ 'Grüße, 世界 é_1 ½'|wordcount }} {{ '²①'.isdigit() }} {{ '½'.isdigit() }} {{ '½'.isnumeric() }} {{ s.isascii() }} {{ u.isascii() }}
{{ ['b', 'a']|sort(attribute='zz') }} {{ xs|truncate(5) }} {{ q|tojson(ensure_ascii=true) }} {{ 'a' % xs }} {{ big > 9223372036854775807 }}
""".strip("\n")

MULTI = [
    "  {% if true %}\n  a\n  {% endif %}\n  b\n",
    "{% for x in xs %}\n    {{ x }}\n{% endfor %}\nend\n\n",
    "a  {%- if true -%}  b  {%- endif -%}  c",
    "a\n  {%+ if true %}\n b\n  {%+ endif +%}\n c",
    "a {{- s -}} b\n{{- n }}\n\n{{ n -}}\n\n c",
    "x\n{# c #}\ny\n  {#- c2 #}\nz\n   {# c3 -#}\n\n w",
    "{%- for x in xs -%}\n  {{- x -}}\n{%- endfor -%}\n\n!",
    "{% set a = 1 %}\n{% set b = 2 %}\n{{ a + b }}\n",
    "<div>\n  {% raw %}\n  {{ x }}\n  {% endraw %}\n</div>",
    "\n\n{% if t %}x{% endif %}\n\n",
    "a\r\nb\rc\n{{ '\r\n' }}",
    "tab\t{% if t %}\t\n x{% endif %}",
    "{% if t %}{% if z %}no{% else %}\n  yes\n  {% endif %}\n{% endif %}after",
    "  {{ s }}  {% if t %}  {{ n }}  {% endif %}  ",
    "{% macro m(x) %}\n  <{{ x }}>\n{% endmacro %}\n{{ m(1) }}\n  {{ m(2) -}}\n  .",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'x': {}} }}",
    "{% for x in xs %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}\n",
    "{%- set content %}\n  one\n  two\n{%- endset %}[{{ content }}]",
    "{{ s\n  | upper\n  | replace('L',\n   'l') }}",
    '{{ "multi\nline" }}',
    "{ { % # } {{ '{{' }} {{ '%}' }} {% if '%}' == '%}' %}ok{% endif %}",
]

# Templates that Jinja refuses to compile or to render.
ERRORS = r"""
{{ missing.x }}
{{ missing + 1 }}
{{ missing() }}
{{ missing|int }}
{{ s.nope() }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ 'a' + none }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1 < 'a' }}
{{ z|sort }}
{{ [1, 'a']|sort }}
{{ raise_exception('Conversation roles must alternate') }}
{% for m in users %}{% if loop.index == 2 %}{{ raise_exception('bad user ' ~ m.name) }}{% endif %}{% endfor %}
{{ xs|nofilter }}
{{ xs is notest }}
{{ xs.append(1) }}
{{ d.update({'a': 1}) }}
{{ d.pop('a') }}
{{ s.__class__.__mro__ }}
{{ ''.__class__.__base__.__subclasses__() }}
{{ missing|tojson }}
{{ range|tojson }}
{{ xs[0:2:0] }}
{% for a, b in xs %}{% endfor %}
{% set a, b = [1, 2, 3] %}
{% set nn = {} %}{% set nn.x = 1 %}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{{ range() }}
{{ range(10**9) }}
{{ n() }}
{{ n|length }}
{{ (users|selectattr('on'))|length }}
{{ ''.split('') }}
{{ s.index('zz') }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ d|batch }}
{{ {[1]: 2} }}
{{ 'abc' in 5 }}
{{ 1 in 'abc' }}
{% for x in 5 %}{% endfor %}
{% if %}x{% endif %}
{% if t %}x
{% endif %}
{{ s
{{ 'abc }}
{{ 1 + }}
{{ (1 }}
{{ [1, 2 }}
{{ 1 ) }}
{% unknown %}
{% for x xs %}{% endfor %}
{% set = 1 %}
{% break %}
{% for x in xs %}{% endif %}
{% macro m( %}{% endmacro %}
{{ f(a=1, 2) }}
{# open
{% raw %} open
{{ x.1a }}
{{ a b }}
{{ $ }}
{{ ns.x = 1 }}
{{ n|indent }}
{{ n|truncate(5) }}
{{ t[1:] }}
{{ 0 ** -1 }}
{{ 10.0 ** 400 }}
""".strip("\n")

sys.path.insert(0, __file__.rsplit("/", 1)[0] if "/" in __file__ else ".")
from chat_templates import CONVERSATIONS, TEMPLATES  # noqa: E402
from huggingface import environment  # noqa: E402

env = environment()


def render(template, context):
    case = {"template": template, "context": context}
    try:
        case["expected"] = env.from_string(template).render(**context)
    except jinja2.exceptions.TemplateError as error:
        case["error"] = True
        if type(error) is jinja2.exceptions.TemplateError:
            case["message"] = str(error)
    except Exception:  # Python's own errors: TypeError, ZeroDivisionError, ...
        case["error"] = True
    return case


def main():
    small = [render(line, C) for line in LINES.split("\n")]
    small += [render(text, C) for text in MULTI]
    for case in small:
        assert "expected" in case, case["template"]
    errors = [render(line, C) for line in ERRORS.split("\n")]
    for case in errors:
        assert "error" in case, case
    for case in small + errors:
        del case["context"]
    chats = []
    for name, template in TEMPLATES.items():
        for label, conversation in CONVERSATIONS.items():
            case = render(template, conversation)
            del case["template"], case["context"]
            chats.append({"template": name, "conversation": label} | case)
    json.dump({"context": C, "small": small + errors, "templates": TEMPLATES,
               "conversations": CONVERSATIONS, "chats": chats},
              sys.stdout, ensure_ascii=False, indent=1)
    print()


main()
