// The template interpreter against Jinja2 itself (tests/golden/jinja), and its limits.
#include "chat/jinja/jinja.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/json_number.h"

namespace strata::chat::jinja {
namespace {

using testing::HasSubstr;
using Variables = std::vector<std::pair<std::string, Value>>;

boost::json::value golden() {
  std::ifstream file(STRATA_GOLDEN_DIR "/jinja/cases.json");
  std::stringstream text;
  text << file.rdbuf();
  return boost::json::parse(text.str());
}

Variables variables(const boost::json::value& context) {
  Variables out;
  for (const auto& [name, value] : context.as_object()) {
    out.emplace_back(name, Value::from_json(value));
  }
  return out;
}

Result<Text> render(std::string_view source, const Variables& context = {},
                    const Limits& limits = {}) {
  STRATA_ASSIGN(const Template compiled, Template::parse(source));
  return compiled.render(context, limits);
}

std::string text_of(std::string_view source, const Variables& context = {}) {
  const auto result = render(source, context);
  return result ? result->bytes() : fmt::format("error: {}", result.error().message);
}

std::string error_of(std::string_view source, const Limits& limits = {}) {
  const auto result = render(source, {}, limits);
  return result ? fmt::format("rendered: {}", result->bytes()) : result.error().message;
}

double thread_seconds() {
  std::timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void check(const boost::json::object& expected, std::string_view source, const Variables& context) {
  const auto result = render(source, context);
  if (expected.contains("error")) {
    EXPECT_FALSE(result.has_value()) << source << "\nrendered " << (result ? result->bytes() : "");
    if (!result && expected.contains("message")) {
      EXPECT_EQ(result.error().message, expected.at("message").as_string()) << source;
    }
    return;
  }
  ASSERT_TRUE(result.has_value()) << source << "\n" << result.error().message;
  EXPECT_EQ(result->bytes(), expected.at("expected").as_string()) << source;
}

TEST(Jinja, SmallTemplatesEqualJinja2) {
  const auto cases = golden();
  const Variables context = variables(cases.at("context"));
  const auto& small = cases.at("small").as_array();
  ASSERT_GE(small.size(), 150u);
  for (const auto& item : small) {
    check(item.as_object(), item.at("template").as_string(), context);
  }
}

TEST(Jinja, ChatTemplatesEqualJinja2) {
  const auto cases = golden();
  const auto& chats = cases.at("chats").as_array();
  ASSERT_GE(chats.size(), 80u);
  for (const auto& item : chats) {
    const auto name = item.at("template").as_string();
    const auto label = item.at("conversation").as_string();
    SCOPED_TRACE(std::string(name) + " / " + std::string(label));
    check(item.as_object(), cases.at("templates").at(name).as_string(),
          variables(cases.at("conversations").at(label)));
  }
}

TEST(Jinja, ErrorsNameTheLineAndTheReason) {
  EXPECT_EQ(error_of("a\n{% if x %}\n"),
            "line 2: the template ends where '{% endif %}' is expected");
  EXPECT_EQ(error_of("a\n\n{{ 1 + }}"), "line 3: '}}' stands where a value is expected");
  EXPECT_EQ(error_of("\n{% frob %}"), "line 2: unknown tag 'frob'");
  EXPECT_EQ(error_of("\n\n{{ x.y }}"), "line 3: 'x' is undefined");
  EXPECT_EQ(error_of("{{ {}.a.b }}"), "line 1: a 'dict' has no attribute 'a'");
  EXPECT_EQ(error_of("{{ 1 + 'a' }}"), "line 1: '+' does not work on 'int' and 'str'");
  EXPECT_EQ(error_of("{{ 1 | frob }}"), "line 1: there is no filter 'frob'");
  EXPECT_EQ(error_of("{{ raise_exception('my words') }}"), "my words");
  EXPECT_EQ(error_of("{{ [].append(1) }}"),
            "line 1: access to attribute 'append' of a 'list' is not allowed");
  EXPECT_EQ(error_of("{{ ''.__class__.__mro__ }}"),
            "line 1: access to attribute '__class__' of a 'str' is not allowed");
}

TEST(Jinja, EveryLimitEndsInAnError) {
  Limits usual;
  usual.milliseconds = 100'000;  // sanitizers are slow
  const std::pair<std::string, std::string> attacks[] = {
      {"{{ range(10**9) }}", "items in one list"},
      {"{{ 'x' * 10**9 }}", "bytes in one string"},
      {"{{ [1] * 10**12 }}", "items in one list"},
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
       "loop iterations"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels of nested evaluation"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "levels of nested evaluation"},
      {"{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}",
       "bytes in one string"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l }}",
       "template needs more than"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
       "{% endfor %}{{ ns.l == (ns.l | list) and (ns.l | tojson) }}",
       "template needs more than"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}"
       "{% endfor %}",
       "levels of nested values"},
      {"{% for i in range(900000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}"
       "{% endfor %}",
       "bytes of output"},
      {"{% for i in range(20000) %}{% set n = namespace() %}{% endfor %}", "namespaces"},
      {"{{ '%99999999d' % 1 }}", "above 10000"},
      {"{{ 'x' | center(10**10) }}", "bytes in one string"},
      {"{{ 'x' | indent(10**10) }}", "bytes in one string"},
  };
  for (const auto& [source, reason] : attacks) {
    const auto result = render(source, {}, usual);
    ASSERT_FALSE(result.has_value()) << source;
    EXPECT_THAT(result.error().message, HasSubstr(reason)) << source;
  }
  Limits few;
  few.steps = 1000;
  EXPECT_THAT(error_of("{% for i in range(5000) %}{{ i }}{% endfor %}", few),
              HasSubstr("more than 1000 evaluation steps"));
}

// What costs much for each step: all end within the time, and a single operation.
TEST(Jinja, SlowTemplatesEndInTime) {
  const std::string_view attacks[] = {
      "{% set s = 'a' * 255 %}{% for i in range(999999) %}"
      "{% set x = s|upper|lower|title|capitalize|trim %}{% endfor %}",
      "{% set s = 'ab' * 8000000 %}{% for i in range(100000) %}{% set x = s|upper %}{% endfor %}",
      "{% set s = ' ' * 30000000 %}{% for i in range(100000) %}{% set x = s|trim %}{% endfor %}",
      "{% set c = 'b' * 10000000 ~ 'a' %}{% set s = 'a' * 10000000 %}"
      "{% for i in range(1000) %}{% set x = s.strip(c) %}{% endfor %}",
      "{% set ns = namespace(d={}) %}{% for i in range(100000) %}"
      "{% set ns.d = dict(ns.d, **{'k' ~ i: i}) %}{% endfor %}",
      "{% for i in range(1000) %}{% set x = range(1000000)|unique|list %}{% endfor %}",
      "{% set d = dict(range(100000)|map('string')|batch(2)) %}{% for i in range(100000) %}"
      "{% set x = d.items() %}{% endfor %}",
      "{% set s = 'x' * 10000000 %}{% for i in range(9999) %}{% set x = s|replace('', 'y') %}"
      "{% endfor %}",
      "{% for i in range(100000) %}{% set x = 'x' * 30000000 %}{% endfor %}",
      "{% set s = 'a\n' * 1000000 %}{% for i in range(9999) %}{% set x = s|indent %}{% endfor %}",
      "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(40) }}",
  };
  Limits limits;
  limits.milliseconds = 200;  // a fifth of the usual, for a fast test
  for (const auto source : attacks) {
    const double start = thread_seconds();
    const auto result = render(source, {}, limits);
    ASSERT_FALSE(result.has_value()) << source;
    EXPECT_EQ(result.error().code, ErrorCode::exhausted) << source;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(thread_seconds() - start, 2.0) << source;
#endif
  }
}

TEST(Jinja, DeepSourcesAreRefusedByTheParser) {
  const auto repeat = [](std::string_view text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  const auto nested = [&](std::string_view open, std::string_view close) {
    return error_of(fmt::format("{{{{ {}1{} }}}}", repeat(open, 100000), repeat(close, 100000)));
  };
  EXPECT_THAT(nested("(", ")"), HasSubstr("levels of nesting"));
  EXPECT_THAT(nested("[", "]"), HasSubstr("levels of nesting"));
  EXPECT_THAT(nested("{1:", "}"), HasSubstr("levels of nesting"));
  EXPECT_THAT(nested("x[", "]"), HasSubstr("levels of nesting"));
  EXPECT_THAT(nested("x(", ")"), HasSubstr("levels of nesting"));
  EXPECT_THAT(nested("-", ""), HasSubstr("levels of nesting"));
  EXPECT_THAT(nested("not ", ""), HasSubstr("levels of nesting"));
  EXPECT_THAT(error_of(std::string("{{ 1") + repeat("+1", 100000) + "}}"), HasSubstr("levels"));
  EXPECT_THAT(error_of(std::string("{{ x") + repeat(".a", 100000) + "}}"), HasSubstr("levels"));
  EXPECT_THAT(error_of(std::string("{{ x") + repeat("|e", 100000) + "}}"), HasSubstr("levels"));
  EXPECT_THAT(error_of(std::string("{{ x") + repeat(" if x", 100000) + "}}"), HasSubstr("levels"));
  EXPECT_THAT(error_of(repeat("{% if x %}", 100000)), HasSubstr("levels of nesting"));
  EXPECT_THAT(error_of(std::string("{% set ") + repeat("(", 100000) + repeat(")", 100000) + "%}"),
              HasSubstr("levels of nesting"));
  EXPECT_EQ(text_of(std::string("{{ ") + repeat("(", 50) + "1" + repeat(")", 50) + " }}"), "1");
  EXPECT_EQ(text_of(std::string("{{ ''") + repeat(" ~ 'x'", 5000) + " }}").size(), 5000u);
}

TEST(Jinja, RandomSourcesNeverCrash) {
  static constexpr std::string_view kPieces[] = {
      "{{",     "}}",     "{%",  "%}",   "{#",       "#}",       "-",      "+",
      "if ",    "for ",   "in ", "set ", "x",        "'a'",      "1",      "(",
      ")",      "[",      "]",   "{",    "}",        "|",        "is ",    "not ",
      "=",      ",",      ".",   ":",    " endif ",  " endfor ", "macro ", "else",
      "raw",    "endraw", "\n",  "~",    "**",       "//",       "loop",   "namespace",
      "tojson", "\\",     "\"",  "\xff", "range(3)", "endmacro", "call",   "filter",
      "with",   "break",  "e9",  "0x"};
  std::uint32_t state = 12345;
  const auto random = [&](std::uint32_t bound) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % bound;
  };
  for (int round = 0; round < 20000; ++round) {
    std::string source;
    for (std::uint32_t i = random(20); i > 0; --i) source += kPieces[random(std::size(kPieces))];
    if (round % 2 == 0) source = "{{ " + source + " }}";
    (void)render(source, {{"x", Value(std::int64_t{3})}});
  }
}

// Marks untrusted bytes with <>.
std::string marked(std::string_view source, const Variables& context) {
  const auto result = render(source, context);
  if (!result) return fmt::format("error: {}", result.error().message);
  std::string out;
  std::size_t at = 0;
  for (const auto& range : result->untrusted()) {
    out += result->bytes().substr(at, range.begin - at);
    out += fmt::format("<{}>", result->bytes().substr(range.begin, range.end - range.begin));
    at = range.end;
  }
  return out + result->bytes().substr(at);
}

TEST(Jinja, StringsRememberWhereTheyComeFrom) {
  const Variables context = variables(boost::json::parse(
      R"({"u": " User Text ", "d": {"key": "val", "n": 5}, "l": ["a", "b"], "b": true})"));
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a{{ u }}b", "a< User Text >b"},
      {"{{ 'x' + u|trim + 'y' }}", "x<User Text>y"},
      {"{{ u.strip()|upper ~ 1 }}", "<USER TEXT>1"},
      {"{{ ('pre' + u + 'post')[1:6] }}", "re< Us>"},
      {"{{ ('ab' + u.strip())[::-1] }}", "<txeT resU>ba"},
      {"{{ l|join(', ') }}", "<a>, <b>"},
      {"{{ ', '.join(l) }}", "<a>, <b>"},
      {"{{ 'a-b'|replace('-', u|trim) }}", "a<User Text>b"},
      {"{{ u.strip().replace(' ', '_') }}", "<User>_<Text>"},
      {"{{ u.split() | first }}", "<User>"},
      {"{{ ('x y ' ~ u).split(' ', 2)[2] }}", "< User Text >"},
      {"{{ d|tojson }}", R"(<{"key": "val", "n": 5}>)"},
      {"{{ {'k': 1, 'j': d.n}|tojson }}", R"({"k": 1, "j": 5})"},
      {"{{ {'k': d.key}|tojson }}", R"(<{"k": "val"}>)"},
      {"{{ d }}", "<{'key': 'val', 'n': 5}>"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "<key>=<val>;<n>=5;"},
      {"{{ d.n }}{{ b }}{{ u|length }}", "5True11"},
      {"{{ '%s:%s' % ('a', l[0]) }}", "a:<a>"},
      {"{{ 'q{}'.format(l[0]) }}", "q<a>"},
      {"{% set x %}a{{ u|trim }}{% endset %}{{ x }}", "a<User Text>"},
      {"{% macro m(t) %}[{{ t }}]{% endmacro %}{{ m(l[1]) }}", "[<b>]"},
      {"{% filter upper %}a{{ l[0] }}{% endfilter %}", "A<A>"},
      {"{{ ('é' ~ l[0] ~ 'é')|upper }}", "É<A>É"},
      {"{{ ('a\n' ~ u.strip())|indent(2) }}", "a\n  <User Text>"},
      {"{{ u.strip()|title }}", "<User Text>"},
      {"{{ l[0]|e }}{{ u|int(3) }}", "<a>3"},
      {"{{ 'a' if l[0] == 'a' else l[0] }}", "a"},
      {"{{ u.partition('ser')[1] }}", "ser"},
      {"{{ l[0] * 2 }}{{ l[0].center(3) }}", "<aa> <a> "},
      {"{{ {l[0]: 1}|list|first }}", "<a>"},
  };
  for (const auto& [source, expected] : cases)
    EXPECT_EQ(marked(source, context), expected) << source;
}

// As Python, whose integers have any size; but no number becomes infinite.
TEST(Jinja, NumbersOfAnySize) {
  const Variables context = variables(*parse_json_exact(
      R"({"a": 100000000000000000000, "b": -9223372036854775809, "c": 9223372036854775808,
          "d": 0.1000000000000000000001, "e": 1e20, "f": 1e400, "g": 100000000000000000001,
          "h": -2.5E+999})",
      "the context"));
  const std::pair<const char*, const char*> cases[] = {
      {"{{ a }}|{{ [a, b] }}|{{ a | tojson }}|{{ {'k': b} | tojson }}",
       "100000000000000000000|[100000000000000000000, -9223372036854775809]|100000000000000000000|"
       "{\"k\": -9223372036854775809}"},
      {"{{ d }} {{ e }} {{ f }} {{ f | tojson }}", "0.1 1e+20 1e400 1e400"},
      {"{{ [h] }} {{ {'k': h} | tojson }} {{ -h }} {{ h | abs }} {{ f | string | length }}",
       "[-2.5E+999] {\"k\": -2.5E+999} 2.5E+999 2.5E+999 5"},
      {"{{ f is float }} {{ f is integer }} {{ h < f }} {{ -h > f }} {{ f == f }} {{ f == -h }} "
       "{{ f > a }} {{ 'y' if f }} {{ f | float }}",
       "True False True True True False True y 1e400"},
      {"{{ a == e }} {{ g == e }} {{ g > e }} {{ a < g }} {{ a == g }} {{ b < c }} {{ a < f }}",
       "True False True True False True True"},
      {"{{ -c }} {{ -b }} {{ b | abs }} {{ -a }} {{ +a }}",
       "-9223372036854775808 9223372036854775809 9223372036854775809 -100000000000000000000 "
       "100000000000000000000"},
      {"{{ a is integer }} {{ a is number }} {{ a is float }} {{ 'y' if a }} {{ a | int }}",
       "True True False y 100000000000000000000"},
      {"{{ '100000000000000000001' | int }} {{ '%d' % a }} {{ a | string }} {{ a | float }}",
       "100000000000000000001 100000000000000000000 100000000000000000000 1e+20"},
      {"{{ a / 2 }} {{ {a: 1}[g - 0 if false else a] }} {{ [a, g] | max }}",
       "5e+19 1 100000000000000000001"},
      {"{{ a + 1 }}", "error: a number must be an integer of 64 bits; this one is larger"},
  };
  for (const auto& [source, expected] : cases) {
    const std::string text = text_of(source, context);
    EXPECT_TRUE(text == expected || (text.starts_with("error: ") && text.ends_with(expected + 7)))
        << source << "\n"
        << text << "\n"
        << expected;
  }
}

TEST(Jinja, OneTemplateRendersInSeveralThreads) {
  const auto compiled = Template::parse(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% set ns = namespace(n=0) %}"
      "{% for i in range(n) %}{% set ns.n = ns.n + i %}{{ m(i) }}{% endfor %}{{ ns.n }}");
  ASSERT_TRUE(compiled.has_value());
  std::vector<std::string> out(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < out.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto text = compiled->render({{"n", Value::integer(t + 1)}});
        out[t] = text ? text->bytes() : text.error().message;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(out[0], "<0>0");
  EXPECT_EQ(out[3], "<0><1><2><3>6");
}

}  // namespace
}  // namespace strata::chat::jinja
