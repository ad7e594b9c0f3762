#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <random>

#include "constrain/regular.h"
#include "tokenizer/utf8.h"

namespace strata::constrain {
namespace {

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

// The string a literal stands for, as Boost.JSON reads it.
std::optional<std::string> value_of(std::string_view literal) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(literal, error);
  if (error || !value.is_string()) return std::nullopt;
  return std::string(value.as_string());
}

class Spellings {
 public:
  explicit Spellings(unsigned seed) : random_(seed) {}
  unsigned below(unsigned n) { return static_cast<unsigned>(random_()) % n; }

  char32_t character() {
    constexpr char32_t kEdges[] = {0,      0x1F,   0x20,   '"',     '\\',    '/',     '\n',
                                   0x7F,   0x80,   0x7FF,  0x800,   0xFFF,   0x1000,  0xD7FF,
                                   0xE000, 0xFFFF, 0xFFFD, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF};
    for (;;) {
      char32_t c = 0;
      switch (below(4)) {
        case 0:
          c = kEdges[below(std::size(kEdges))];
          break;
        case 1:
          c = 'a' + below(6);
          break;
        case 2:
          c = below(0x3000);
          break;
        default:
          c = below(0x110000);
      }
      if (c < 0xD800 || c > 0xDFFF) return c;
    }
  }
  std::string hex(unsigned unit) {
    std::string text = "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) {
      // By steps: with sanitizers g++ 12 takes the wrong character out of a chosen literal.
      const std::string_view digits = below(2) == 0 ? "0123456789abcdef" : "0123456789ABCDEF";
      text += digits[unit >> shift & 15];
    }
    return text;
  }
  // One of the spellings of a character; sometimes none of JSON.
  std::string spelled(char32_t c) {
    const std::size_t which = std::u32string_view(U"\"\\/\b\f\n\r\t").find(c);
    if (which != std::u32string_view::npos && below(2) == 0) return {'\\', "\"\\/bfnrt"[which]};
    if (below(3) == 0) {
      if (c < 0x10000) return hex(c);
      return hex(0xD800 + ((c - 0x10000) >> 10)) + hex(0xDC00 + (c & 0x3FF));
    }
    return utf8(c);
  }
  std::string literal(std::u32string_view text) {
    std::string result = "\"";
    for (const char32_t c : text) result += spelled(c);
    return result + '"';
  }
  // A byte changed, lost or added.
  std::string damaged(std::string literal) {
    constexpr std::string_view kBytes = "\"\\/bfnrtu0189aAdDfFcC\n\x80\xBF\xED\xA0 {";
    const std::size_t at = below(static_cast<unsigned>(literal.size()));
    const char byte = kBytes[below(static_cast<unsigned>(kBytes.size()))];
    switch (below(3)) {
      case 0:
        literal[at] = byte;
        break;
      case 1:
        literal.erase(at, 1);
        break;
      default:
        literal.insert(at, 1, byte);
    }
    return literal;
  }

 private:
  std::mt19937 random_;
};

TEST(JsonString, IsEverySpellingThatAParserReads) {
  Spellings spellings(1);
  const Regular any = json_string(Regular::text()).value();
  int read = 0;
  for (int round = 0; round < 60'000; ++round) {
    std::u32string text;
    for (unsigned i = spellings.below(4); i-- > 0;) text += spellings.character();
    std::string literal = spellings.literal(text);
    for (unsigned i = spellings.below(3); i-- > 0 && !literal.empty();)
      literal = spellings.damaged(literal);
    const bool is_string =
        value_of(literal).has_value() && literal.front() == '"' && literal.back() == '"';
    read += is_string ? 1 : 0;
    ASSERT_EQ(any.accepts(literal), is_string) << literal;
  }
  EXPECT_GT(read, 10'000);
}

TEST(JsonString, IsTheInverseImageOfItsText) {
  Spellings spellings(2);
  for (int round = 0; round < 60; ++round) {
    // Some characters and ranges, once or more often, or anything but they.
    std::vector<CodePoints> in;
    for (unsigned i = 1 + spellings.below(3); i-- > 0;) {
      const char32_t first = spellings.character();
      in.push_back({first, first + spellings.below(2) * spellings.below(0x2000)});
    }
    Regular text = Regular::characters(in);
    text = repeat(text, spellings.below(2), 1 + spellings.below(3)).value();
    if (spellings.below(3) == 0) text = without(Regular::text(), text).value();
    const Regular language = json_string(text).value();
    for (int i = 0; i < 400; ++i) {
      std::u32string value;
      for (unsigned n = spellings.below(4); n-- > 0;)
        value += spellings.below(2) == 0 ? spellings.character()
                                         : in[spellings.below(unsigned(in.size()))].first;
      std::string literal = spellings.literal(value);
      if (spellings.below(4) == 0) literal = spellings.damaged(literal);
      const auto parsed = value_of(literal);
      const bool belongs =
          parsed && literal.front() == '"' && literal.back() == '"' && text.accepts(*parsed);
      ASSERT_EQ(language.accepts(literal), belongs) << literal;
    }
  }
}

TEST(JsonString, LoneSurrogatesAndRawControlsAreNone) {
  const Regular any = json_string(Regular::text()).value();
  for (const std::string_view bad :
       {R"("\uD800")", R"("\uDC00")", R"("\uD800\uD800")", R"("\uD800x")", R"("\uDBFF\n")",
        R"("\uDC00\uD800")", R"("\u12")", R"("\x41")", "\"\n\"", "\"a", "a\"", "\"\"\"",
        "\"\xED\xA0\x80\"", "\"\x80\""})
    EXPECT_FALSE(any.accepts(bad)) << bad;
  EXPECT_TRUE(any.accepts(R"("\uD83D\uDE00\ud83d\ude00\u0000\u001f")"));
  EXPECT_TRUE(any.accepts("\"\x7F\""));
  const Regular smile = json_string(Regular::literal("\U0001F600")).value();
  EXPECT_TRUE(smile.accepts(R"("\uD83d\uDe00")"));
  EXPECT_TRUE(smile.accepts("\"\U0001F600\""));
  EXPECT_FALSE(smile.accepts(R"("\uD83D\uDE01")"));
}

TEST(JsonString, LengthsAloneAreTheSameTheShortWay) {
  for (const auto& [least, most] : std::initializer_list<std::pair<unsigned, unsigned>>{
           {0, 0}, {0, 1}, {0, 4}, {2, 3}, {3, 3}}) {
    const Regular lengths = repeat(Regular::any_character(), least, most).value();
    // A character that is left out and added again keeps the general construction.
    const CodePoints but_x[] = {{0, 'w'}, {'y', kLastCodePoint}};
    const Regular no_x =
        json_string(repeat(Regular::characters(but_x), least, most).value()).value();
    const Regular with_x =
        json_string(
            without(lengths, repeat(Regular::characters(but_x), least, most).value()).value())
            .value();
    const Regular parts[] = {no_x, with_x};
    EXPECT_EQ(json_string(lengths).value(), either(parts).value()) << least << " " << most;
  }
  const Regular many = json_string(repeat(Regular::any_character(), 3, {}).value()).value();
  const Regular few = json_string(repeat(Regular::any_character(), 0, 2).value()).value();
  EXPECT_EQ(many, without(json_string(Regular::text()).value(), few).value());
  const Regular long_text =
      json_string(repeat(Regular::any_character(), 0, 10'000).value()).value();
  EXPECT_TRUE(long_text.accepts('"' + std::string(10'000, 'x') + '"'));
  EXPECT_FALSE(long_text.accepts('"' + std::string(10'001, 'x') + '"'));
}

TEST(JsonString, ManyWords) {
  std::vector<Regular> words;
  for (unsigned i = 0; i < 1'000; ++i)
    words.push_back(Regular::literal(fmt::format("{:x}-\u00e9z", i * 7919)));
  const Regular list = either(words).value();
  const Regular language = json_string(list).value();
  Spellings spellings(3);
  for (unsigned i = 0; i < 2'000; ++i) {
    std::u32string word;
    for (const char c : fmt::format("{:x}-", i * 7919 / 2)) word += static_cast<char32_t>(c);
    const std::string literal = spellings.literal(word + U"\u00e9z");
    EXPECT_EQ(language.accepts(literal), list.accepts(value_of(literal).value())) << literal;
  }
}

// A word has a way of its own; here it is a language that only happens to have one text.
TEST(JsonString, WordsAreSpelledAsTextsAre) {
  for (const std::string_view word :
       {"", "a", "name", "$ref", "0aF", "a\"b\\c/d", "\b\f\n\r\t\x01\x7f", "\u00e9\u07ff",
        "\u65e5\u672c\uffff", "\U0001F600x\U0010FFFF", "uuu\\u"}) {
    const Regular longer = Regular::literal(std::string(word) + "x");
    const Regular two[] = {Regular::literal(word), longer};
    const Regular same = without(either(two).value(), longer).value();
    EXPECT_EQ(json_string(Regular::literal(word)).value(), json_string(same).value()) << word;
  }
}

TEST(JsonString, TextThatIsNotUtf8IsLeftOut) {
  const Regular parts[] = {Regular::literal("a"), Regular::literal("\xFF")};
  EXPECT_EQ(json_string(either(parts).value()).value(), json_string(Regular::literal("a")).value());
  EXPECT_TRUE(json_string(Regular::literal("\xFF")).value().is_nothing());
  EXPECT_TRUE(json_string(Regular()).value().is_nothing());
}

TEST(JsonNumber, IsWhatAParserReads) {
  std::mt19937 random(4);
  constexpr std::string_view kBytes = "0123456789-+.eE";
  const Regular number = json_number();
  int read = 0;
  for (int round = 0; round < 300'000; ++round) {
    std::string text;
    for (auto i = 1 + random() % 7; i-- > 0;) text += kBytes[random() % kBytes.size()];
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(text, error);
    const bool is_number = !error && value.is_number();
    read += is_number ? 1 : 0;
    ASSERT_EQ(number.accepts(text), is_number) << text;
  }
  EXPECT_GT(read, 5'000);
  EXPECT_TRUE(number.accepts("-12345678901234567890.5e-7"));
}

// A number without an exponent, times 10^6.
std::int64_t millionths(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::int64_t value = 0;
  int places = -1;
  for (const char c : text) {
    if (c == '.') {
      places = 0;
      continue;
    }
    value = value * 10 + (c - '0');
    if (places >= 0) ++places;
  }
  for (int i = std::max(places, 0); i < 6; ++i) value *= 10;
  return negative ? -value : value;
}

TEST(JsonNumber, BoundsAreExact) {
  std::mt19937 random(6);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random()) % n; };
  const auto number = [&] {
    std::string text = below(2) == 0 ? "-" : "";
    text += std::to_string(below(3) == 0 ? below(12) : below(2) == 0 ? 0 : below(1'200));
    if (below(2) == 0) {
      text += '.';
      for (unsigned i = 1 + below(4); i-- > 0;) text += below(2) == 0 ? '0' : char('0' + below(10));
    }
    return text;
  };
  for (int round = 0; round < 400; ++round) {
    const std::string least = number(), most = number();
    NumberBounds bounds;
    if (below(3) > 0) bounds.least = least;
    if (below(3) > 0) bounds.most = most;
    bounds.above_least = below(2) == 0;
    bounds.below_most = below(2) == 0;
    bounds.integer = below(3) == 0;
    bounds.zeros = below(2) == 0;
    if (below(4) == 0) bounds.multiple_of = 1 + below(30);
    if (!bounds.integer && !bounds.least && !bounds.most && !bounds.multiple_of) continue;
    const bool integer = bounds.integer || bounds.multiple_of;
    const Regular language = json_number(bounds).value();
    for (int i = 0; i < 300; ++i) {
      const std::string text = i == 0 ? least : i == 1 ? most : number();
      const std::int64_t value = millionths(text);
      bool belongs = true;
      if (bounds.least)
        belongs = belongs && (value > millionths(least) ||
                              (value == millionths(least) && !bounds.above_least));
      if (bounds.most)
        belongs = belongs &&
                  (value < millionths(most) || (value == millionths(most) && !bounds.below_most));
      if (integer) belongs = belongs && value % 1'000'000 == 0;
      if (integer && !bounds.zeros) belongs = belongs && text.find('.') == text.npos;
      if (bounds.multiple_of)
        belongs = belongs && value / 1'000'000 % std::int64_t(*bounds.multiple_of) == 0;
      ASSERT_EQ(language.accepts(text), belongs)
          << text << " within " << bounds.least.value_or("") << " .. " << bounds.most.value_or("");
    }
  }
}

TEST(JsonNumber, BoundsOfAnySizeAndNotation) {
  const auto within = [](std::string_view least, std::string_view most) {
    NumberBounds bounds;
    bounds.least = least;
    bounds.most = most;
    return json_number(bounds).value();
  };
  EXPECT_EQ(within("-1.5e2", "25E-1"), within("-150", "2.5"));
  EXPECT_EQ(within("0.0e5", "1e+2"), within("-0", "100.00"));
  EXPECT_EQ(within("12.5e-3", "1e20"), within("0.0125", "100000000000000000000"));
  const Regular wide = within("-9007199254740993", "123456789012345678901234567890.5");
  EXPECT_TRUE(wide.accepts("-9007199254740993"));
  EXPECT_FALSE(wide.accepts("-9007199254740993.1"));
  EXPECT_FALSE(wide.accepts("-9007199254740994"));
  EXPECT_TRUE(wide.accepts("123456789012345678901234567890.50"));
  EXPECT_FALSE(wide.accepts("123456789012345678901234567890.51"));
  EXPECT_FALSE(wide.accepts("01"));
  EXPECT_FALSE(wide.accepts("1."));
  EXPECT_FALSE(wide.accepts("1e1"));
  EXPECT_TRUE(within("2", "1").is_nothing());
  EXPECT_EQ(json_number(NumberBounds()).value(), json_number());
}

TEST(JsonNumber, BoundsThatAreRefused) {
  const auto code = [](NumberBounds bounds) {
    const auto language = json_number(bounds);
    return language ? std::optional<ErrorCode>() : language.error().code;
  };
  for (const std::string_view text : {"", "x", "01", "1.", "+1", "NaN", "1e", " 1"})
    EXPECT_EQ(code({.least = text, .most = {}, .multiple_of = {}}), ErrorCode::invalid_argument);
  for (const std::string_view text : {"1e5000", "1e-5000", "1e99999999999999999999"})
    EXPECT_EQ(code({.least = {}, .most = text, .multiple_of = {}}), ErrorCode::unsupported);
  EXPECT_EQ(code({.least = {}, .most = {}, .multiple_of = 0}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.least = {}, .most = {}, .multiple_of = 10'001}), ErrorCode::unsupported);
  EXPECT_EQ(code({.least = {}, .most = {}, .multiple_of = 10'000}), std::nullopt);
  EXPECT_EQ(code({.least = "0e99999999999999999999", .most = {}, .multiple_of = {}}), std::nullopt);
}

}  // namespace
}  // namespace strata::constrain
