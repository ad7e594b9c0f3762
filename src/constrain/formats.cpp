// The values of JSON Schema's `format`, as patterns from the documents that define them. Where a
// rule is not regular, or validators differ, the narrower reading is taken: what is written within
// a constraint then passes any of them.
#include <array>
#include <mutex>
#include <string>

#include "constrain/automaton.h"
#include "constrain/character_sets.h"
#include "constrain/time_limit.h"

namespace strata::constrain {
namespace {

std::string group(std::string_view inner) {
  return std::string("(?:").append(inner).append(")");
}
// Any of them, in a group.
std::string one_of(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all.append(part).append("|");
  if (!all.empty()) all.pop_back();
  return group(all);
}
std::string all_of(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

// --- RFC 3339 ---

std::string date() {
  const std::string leap_year =
      one_of({R"(\d\d(?:0[48]|[2468][048]|[13579][26]))", "(?:[02468][048]|[13579][26])00"});
  return one_of({R"(\d{4}-(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01]))",
                 R"(\d{4}-(?:0[469]|11)-(?:0[1-9]|[12]\d|30))", R"(\d{4}-02-(?:0[1-9]|1\d|2[0-8]))",
                 all_of({leap_year, "-02-29"})});
}

// A minute's second 60 is at the end of a day of UTC, where the offset is a multiple of a quarter
// of an hour, as all in use are.
std::string leap_seconds() {
  const auto clock = [](unsigned minutes) {
    return fmt::format("{:02}:{:02}", minutes / 60, minutes % 60);
  };
  constexpr unsigned kDay = 24 * 60;
  std::string all;
  for (unsigned local = 14; local < kDay; local += 15) {
    all += fmt::format(R"({}{}:60(?:\.\d+)?(?:{}\+{}|-{}))", all.empty() ? "" : "|", clock(local),
                       local + 1 == kDay ? "[Zz]|" : "", clock((local + 1) % kDay),
                       clock(kDay - 1 - local));
  }
  return group(all);
}

std::string time() {
  return one_of(
      {R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d))",
       leap_seconds()});
}

std::string duration() {
  const std::string time = R"(T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))";
  const std::string date = R"((?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D))";
  return all_of({"P", one_of({all_of({date, group(time), "?"}), time, R"(\d+W)"})});
}

Result<Regular> whole(std::string_view pattern) {
  return regex(pattern, Match::whole);
}

// --- hosts ---

// Labels of up to 63 of these characters, hyphens within them, at least `least` of the labels. That
// all are within 253 characters is kept in units of 32: a label takes one or two of seven.
Result<Regular> labels(std::string_view characters, unsigned least) {
  const auto label = [&](std::string_view inner) {
    return whole(
        all_of({"[", characters, "](?:[", characters, "-]{0,", inner, "}[", characters, "])?"}));
  };
  STRATA_ASSIGN(const Regular up_to_31, label("29"));
  STRATA_ASSIGN(const Regular up_to_63, label("61"));
  const Regular dot = Regular::literal(".");
  std::array<Regular, 8> lists;  // [units]
  for (unsigned units = 1; units < lists.size(); ++units) {
    const auto led_by = [&](const Regular& first, unsigned needs) -> Result<Regular> {
      if (needs >= units) return needs == units ? first : Regular();
      const Regular more[] = {dot, lists[units - needs]};
      STRATA_ASSIGN(const Regular rest, concat(more));
      STRATA_ASSIGN(const Regular tail, repeat(rest, 0, 1));
      const Regular all[] = {first, tail};
      return concat(all);
    };
    STRATA_ASSIGN(const Regular a, led_by(up_to_31, 1));
    STRATA_ASSIGN(const Regular b, led_by(up_to_63, 2));
    const Regular both_kinds[] = {a, b};
    STRATA_ASSIGN(lists[units], either(both_kinds));
  }
  STRATA_ASSIGN(const Regular enough, whole(fmt::format("(?:[^.]+\\.){{{},}}[^.]+", least - 1)));
  return both(lists.back(), enough);
}

constexpr std::string_view kAlphanumeric = "A-Za-z0-9";
// Ranges of ASCII, written without a comma ("a-z0-9"), and Unicode's categories.
CharacterSet characters(std::string_view ascii,
                        std::initializer_list<std::string_view> categories) {
  CharacterSet all;
  for (std::size_t i = 0; i + 2 < ascii.size(); i += 3)
    all.push_back({static_cast<char32_t>(ascii[i]), static_cast<char32_t>(ascii[i + 2])});
  for (const std::string_view category : categories) {
    const CharacterSet more = property_characters(category).value_or(CharacterSet());
    all.insert(all.end(), more.begin(), more.end());
  }
  return sorted(std::move(all));
}

// RFC 1123.
Result<Regular> hostname() {
  return labels(kAlphanumeric, 1);
}

// RFC 5890, without what needs a table for each character (contexts, normal forms) and without a
// bound: that counts the octets of Punycode. The third and fourth characters of a label are not
// both hyphens. Written over characters, not as a pattern: that takes a third of the time.
//
// Adds the states of a label, the first of them its start; behind a dot it goes on with the state
// `next`.
constexpr std::uint32_t kIdnLabelStates = 7;
void add_idn_label(std::vector<CharacterState>& states, bool may_end, std::uint32_t next) {
  enum : std::uint32_t { kStart, kOne, kTwo, kSecondHyphen, kThirdHyphen, kMore, kHyphen };
  const auto base = static_cast<std::uint32_t>(states.size());
  const CharacterSet letters = characters("a-z0-9", {"Ll", "Lo", "Lm", "Nd"});
  const CharacterSet inner = characters("a-z0-9", {"Ll", "Lo", "Lm", "Nd", "Mn", "Mc"});
  states.resize(base + kIdnLabelStates);
  const auto connect = [&](std::uint32_t from, const CharacterSet& in, std::uint32_t to) {
    states[base + from].steps.push_back({in, to});
  };
  connect(kStart, letters, base + kOne);
  connect(kOne, inner, base + kTwo);
  connect(kOne, {{'-', '-'}}, base + kSecondHyphen);
  for (const std::uint32_t second : {kTwo, kSecondHyphen}) {
    connect(second, inner, base + kMore);
    connect(second, {{'-', '-'}}, base + kThirdHyphen);
  }
  connect(kThirdHyphen, inner, base + kMore);
  for (const std::uint32_t later : {kMore, kHyphen}) {
    connect(later, inner, base + kMore);
    connect(later, {{'-', '-'}}, base + kHyphen);
  }
  for (const std::uint32_t whole : {kOne, kTwo, kMore}) {
    states[base + whole].accepting = may_end;
    connect(whole, {{'.', '.'}}, next);
  }
}
Result<Regular> idn_hostname() {
  std::vector<CharacterState> states;
  add_idn_label(states, true, 0);
  return over_characters(states);
}

// RFC 5321's Dot-string and a domain of at least two labels; up to 64 characters before the @.
Result<Regular> email() {
  const std::string_view atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  STRATA_ASSIGN(const Regular words, whole(all_of({atom, "(?:\\.", atom, ")*"})));
  STRATA_ASSIGN(const Regular length, repeat(Regular::any_character(), 1, 64));
  STRATA_ASSIGN(const Regular local, both(words, length));
  STRATA_ASSIGN(const Regular domain, labels(kAlphanumeric, 2));
  const Regular parts[] = {local, Regular::literal("@"), domain};
  return concat(parts);
}
// RFC 6531, without bounds: two states for the words before the @, two labels, of which the second
// may be followed by more.
Result<Regular> idn_email() {
  const CharacterSet atom = characters("A-Za-z0-9!-!#-'*-+/-/=-=?-?^-`{-~---", {"L", "M", "N"});
  std::vector<CharacterState> states(2);
  states[0].steps = {{atom, 1}};
  states[1].steps = {{atom, 1}, {{{'.', '.'}}, 0}, {{{'@', '@'}}, 2}};
  constexpr std::uint32_t kSecond = 2 + kIdnLabelStates;
  add_idn_label(states, false, kSecond);
  add_idn_label(states, true, kSecond);
  return over_characters(states);
}

// RFC 2673 and RFC 4291, the latter as RFC 3986 writes it down.
std::string ipv4() {
  const std::string octet = R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
  return all_of({octet, "(?:\\.", octet, "){3}"});
}
std::string ipv6() {
  const std::string h16 = "[0-9A-Fa-f]{1,4}";
  const std::string ls32 = one_of({all_of({h16, ":", h16}), ipv4()});
  const std::string group16 = all_of({"(?:", h16, ":)"});
  const auto before = [&](unsigned most) {
    return all_of({"(?:", group16, fmt::format("{{0,{}}}", most), h16, ")?"});
  };
  std::string all = all_of({group16, "{6}", ls32, "|::", group16, "{5}", ls32});
  for (unsigned left = 0; left < 5; ++left)
    all += all_of({"|", before(left), "::", group16, fmt::format("{{{}}}", 4 - left), ls32});
  return group(all_of({all, "|", before(5), "::", h16, "|", before(6), "::"}));
}

// --- RFC 3986 and RFC 3987 ---

struct Identifiers {
  std::string beyond, beyond_in_query;  // characters that IRIs have and URIs do not

  std::string characters(std::string_view also) const {
    return one_of({all_of({"[A-Za-z0-9._~!$&'()*+,;=", also, beyond, "-]"}), "%[0-9A-Fa-f]{2}"});
  }
  std::string segment() const { return characters(":@"); }
  std::string authority() const {
    const std::string literal =
        one_of({ipv6(), all_of({"[vV][0-9A-Fa-f]+\\.", "[A-Za-z0-9._~!$&'()*+,;=:-]+"})});
    return all_of({"(?:", characters(":"), "*@)?",
                   one_of({all_of({"\\[", literal, "\\]"}), characters("") + "*"}), "(?::\\d*)?"});
  }
  std::string after_path() const {
    const std::string query = one_of({segment(), all_of({"[/?", beyond_in_query, "]"})});
    return all_of({"(?:\\?", query, "*)?(?:#", one_of({segment(), "[/?]"}), "*)?"});
  }
  std::string segments() const { return all_of({"(?:/", segment(), "*)*"}); }
  // What comes between the scheme, or the beginning, and the query.
  std::string hierarchy(const std::string& first) const {
    return one_of({all_of({"//", authority(), segments()}),
                   all_of({"/(?:", segment(), "+", segments(), ")?"}),
                   all_of({first, "+", segments()})});
  }
  // A scheme alone names nothing, and validators refuse it before a query.
  std::string absolute() const {
    return all_of({"[A-Za-z][A-Za-z0-9+.-]*:", hierarchy(segment()), after_path()});
  }
  // Without a scheme the first segment has no colon.
  std::string relative() const { return all_of({hierarchy(characters("@")), "?", after_path()}); }
  std::string reference() const { return one_of({absolute(), relative()}); }
};

Identifiers uris() {
  return {};
}
Identifiers iris() {
  std::string planes = R"(\u{A0}-\u{D7FF}\u{F900}-\u{FDCF}\u{FDF0}-\u{FFEF})";
  for (unsigned plane = 1; plane <= 14; ++plane)
    planes += fmt::format("\\u{{{:X}}}-\\u{{{:X}}}", plane * 0x10000 + (plane == 14 ? 0x1000 : 0),
                          plane * 0x10000 + 0xFFFD);
  return {planes, R"(\u{E000}-\u{F8FF}\u{F0000}-\u{FFFFD}\u{100000}-\u{10FFFD})"};
}

// RFC 6570; names of variables without dots.
std::string uri_template() {
  const std::string name = R"((?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?::[1-9]\d{0,3}|\*)?)";
  const std::string literal = one_of({R"([^\x00-\x20\x7F-\x9F"'<>%\\^`{|}])", "%[0-9A-Fa-f]{2}"});
  return all_of({"(?:", literal, R"(|\{[+#./;?&=,!@|]?)", name, "(?:,", name, ")*\\})*"});
}

// RFC 6901.
std::string json_pointer() {
  return "(?:/(?:[^~/]|~[01])*)*";
}

struct Format {
  std::string_view name;
  Result<Regular> (*make)();
};
constexpr Format kFormats[] = {
    {"date-time", [] { return whole(all_of({date(), "[Tt]", time()})); }},
    {"date", [] { return whole(date()); }},
    {"time", [] { return whole(time()); }},
    {"duration", [] { return whole(duration()); }},
    {"email", email},
    {"idn-email", idn_email},
    {"hostname", hostname},
    {"idn-hostname", idn_hostname},
    {"ipv4", [] { return whole(ipv4()); }},
    {"ipv6", [] { return whole(ipv6()); }},
    {"uri", [] { return whole(uris().absolute()); }},
    {"uri-reference", [] { return whole(uris().reference()); }},
    {"iri", [] { return whole(iris().absolute()); }},
    {"iri-reference", [] { return whole(iris().reference()); }},
    {"uri-template", [] { return whole(uri_template()); }},
    {"uuid", [] { return whole("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"); }},
    {"json-pointer", [] { return whole(json_pointer()); }},
    {"relative-json-pointer",
     [] { return whole(all_of({"(?:0|[1-9]\\d*)(?:#|", json_pointer(), ")"})); }},
};

}  // namespace

std::optional<Regular> format_text(std::string_view name) {
  static std::mutex lock;
  static std::array<std::optional<Regular>, std::size(kFormats)> made;
  for (std::size_t i = 0; i < std::size(kFormats); ++i) {
    if (kFormats[i].name != name) continue;
    const std::lock_guard held(lock);
    if (!made[i]) {
      // None of them is near a limit; a test makes them all. It is made for all that come, so the
      // time is not that of the first.
      const TimeLimit::Exempt all;
      Result<Regular> language = kFormats[i].make();
      if (!language) return std::nullopt;
      made[i] = *std::move(language);
    }
    return made[i];
  }
  return std::nullopt;
}

}  // namespace strata::constrain
