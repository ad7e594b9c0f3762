#include "constrain/regular.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tokenizer/utf8.h"

namespace strata::constrain {
namespace {

using testing::HasSubstr;
using Words = std::set<std::string>;

constexpr std::size_t kLength = 6;  // the words that brute force looks at
constexpr std::string_view kLetters = "abc";

std::vector<std::string> all_words() {
  std::vector<std::string> words{""};
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i].size() < kLength)
      for (const char letter : kLetters) words.push_back(words[i] + letter);
  return words;
}
const std::vector<std::string>& words() {
  static const std::vector<std::string> list = all_words();
  return list;
}

// A language both ways: as an automaton, and as its words up to kLength.
struct Language {
  Regular automaton;
  Words words;
};

Words joined(const Words& a, const Words& b) {
  Words result;
  for (const std::string& x : a)
    for (const std::string& y : b)
      if (x.size() + y.size() <= kLength) result.insert(x + y);
  return result;
}

Language random_language(std::mt19937& random, int depth) {
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (depth == 0) {
    switch (pick(4)) {
      case 0:
        return {Regular::empty(), {""}};
      case 1: {
        std::string word;
        for (int i = pick(3); i >= 0; --i) word += kLetters[pick(3)];
        return {Regular::literal(word), {word}};
      }
      case 2: {
        Language language;
        std::bitset<256> set;
        for (const char letter : kLetters)
          if (pick(2) == 0) {
            set.set(static_cast<std::uint8_t>(letter));
            language.words.insert(std::string(1, letter));
          }
        language.automaton = Regular::bytes(set);
        return language;
      }
      default: {
        const CodePoints two[] = {{U'a', U'a'}, {U'c', U'c'}};
        return {Regular::characters(two), {"a", "c"}};
      }
    }
  }
  const Language a = random_language(random, depth - 1);
  const Language b = random_language(random, depth - 1);
  Language result;
  switch (pick(5)) {
    case 0: {
      const Regular parts[] = {a.automaton, b.automaton};
      result = {concat(parts).value(), joined(a.words, b.words)};
      break;
    }
    case 1: {
      const Regular parts[] = {a.automaton, b.automaton};
      result = {either(parts).value(), a.words};
      result.words.insert(b.words.begin(), b.words.end());
      break;
    }
    case 2: {
      const auto least = static_cast<std::uint32_t>(pick(3));
      std::optional<std::uint32_t> most;
      if (pick(2) == 0) most = least + static_cast<std::uint32_t>(pick(3));
      result.automaton = repeat(a.automaton, least, most).value();
      Words power{""};
      for (std::uint32_t n = 0; n <= most.value_or(least + kLength); ++n) {
        if (n >= least) result.words.insert(power.begin(), power.end());
        power = joined(power, a.words);
      }
      break;
    }
    case 3:
      result.automaton = both(a.automaton, b.automaton).value();
      std::ranges::set_intersection(a.words, b.words,
                                    std::inserter(result.words, result.words.end()));
      break;
    default:
      result.automaton = without(a.automaton, b.automaton).value();
      std::ranges::set_difference(a.words, b.words,
                                  std::inserter(result.words, result.words.end()));
  }
  return result;
}

// Every state lives, and no two are alike: by Moore's rounds, the slow way.
void expect_minimal(const Regular& language) {
  const std::uint32_t states = language.states();
  std::vector<std::uint32_t> kind(states);
  for (std::uint32_t s = 0; s < states; ++s) kind[s] = language.accepting(s) ? 1 : 0;
  for (std::size_t kinds = 0;;) {
    std::map<std::vector<std::uint32_t>, std::uint32_t> names;
    std::vector<std::uint32_t> next(states);
    for (std::uint32_t s = 0; s < states; ++s) {
      std::vector<std::uint32_t> row{kind[s]};
      for (unsigned byte = 0; byte < 256; ++byte) {
        const auto to = language.next(s, static_cast<std::uint8_t>(byte));
        row.push_back(to == Regular::kDead ? Regular::kDead : kind[to]);
      }
      next[s] = names.try_emplace(row, static_cast<std::uint32_t>(names.size())).first->second;
    }
    kind = next;
    if (names.size() == kinds) break;
    kinds = names.size();
  }
  ASSERT_EQ(std::set(kind.begin(), kind.end()).size(), states);
  std::vector<bool> lives(states), reached(states);
  if (!language.is_nothing()) reached[language.start()] = true;
  for (std::uint32_t round = 0; round < states; ++round) {
    for (std::uint32_t s = 0; s < states; ++s) {
      lives[s] = lives[s] || language.accepting(s);
      for (unsigned byte = 0; byte < 256; ++byte) {
        const auto to = language.next(s, static_cast<std::uint8_t>(byte));
        if (to == Regular::kDead) continue;
        lives[s] = lives[s] || lives[to];
        if (reached[s]) reached[to] = true;
      }
    }
  }
  for (std::uint32_t s = 0; s < states; ++s) ASSERT_TRUE(lives[s] && reached[s]);
}

TEST(Regular, AlgebraIsThatOfSetsOfWords) {
  std::mt19937 random(7);
  for (int round = 0; round < 600; ++round) {
    const Language language = random_language(random, 1 + round % 4);
    for (const std::string& word : words())
      ASSERT_EQ(language.automaton.accepts(word), language.words.contains(word))
          << "round " << round << " '" << word << "'";
    expect_minimal(language.automaton);
    const std::optional<std::uint64_t> longest = language.automaton.longest();
    std::size_t most = 0;
    for (const std::string& word : language.words) most = std::max(most, word.size());
    if (longest && *longest <= kLength) {
      ASSERT_EQ(*longest, most);
    }
  }
}

TEST(Regular, EqualLanguagesAreEqualHoweverTheyWereMade) {
  std::mt19937 random(11);
  const auto complement = [](const Regular& a) { return without(Regular::text(), a).value(); };
  const auto join = [](const Regular& a, const Regular& b) {
    const Regular parts[] = {a, b};
    return either(parts).value();
  };
  for (int round = 0; round < 150; ++round) {
    const Regular a = random_language(random, 2).automaton;
    const Regular b = random_language(random, 2).automaton;
    EXPECT_EQ(complement(complement(a)), a);
    EXPECT_EQ(complement(join(a, b)), both(complement(a), complement(b)).value());
    EXPECT_EQ(without(a, b).value(), both(a, complement(b)).value());
    EXPECT_EQ(repeat(repeat(a, 0, {}).value(), 0, {}).value(), repeat(a, 0, {}).value());
    const Regular twice[] = {a, a};
    EXPECT_EQ(concat(twice).value(), repeat(a, 2, 2).value());
    EXPECT_EQ(a == b, without(a, b).value().is_nothing() && without(b, a).value().is_nothing());
  }
}

TEST(Regular, NothingAndTheEmptyText) {
  EXPECT_TRUE(Regular().is_nothing());
  EXPECT_EQ(Regular().states(), 0U);
  EXPECT_FALSE(Regular().accepts(""));
  EXPECT_EQ(Regular().longest(), 0U);
  EXPECT_TRUE(Regular::empty().accepts(""));
  EXPECT_FALSE(Regular::empty().accepts("a"));
  EXPECT_EQ(Regular::literal(""), Regular::empty());
  EXPECT_EQ(Regular::bytes({}), Regular());
  EXPECT_EQ(Regular::characters({}), Regular());
  EXPECT_EQ(concat({}).value(), Regular::empty());
  EXPECT_EQ(either({}).value(), Regular());
  EXPECT_EQ(repeat(Regular(), 0, 5).value(), Regular::empty());
  EXPECT_EQ(repeat(Regular(), 1, 5).value(), Regular());
  EXPECT_EQ(repeat(Regular::empty(), 3, {}).value(), Regular::empty());
  EXPECT_EQ(repeat(Regular::literal("a"), 0, 0).value(), Regular::empty());
  const auto upside_down = repeat(Regular::literal("a"), 3, 2);
  ASSERT_FALSE(upside_down);
  EXPECT_EQ(upside_down.error().code, ErrorCode::invalid_argument);
}

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(text, c);
  return text;
}

TEST(Regular, CharactersAreTheirUtf8) {
  std::mt19937 random(3);
  for (int round = 0; round < 30; ++round) {
    std::vector<CodePoints> in;
    std::vector<bool> member(kLastCodePoint + 1);
    for (auto i = random() % 5; i-- > 0;) {
      const char32_t reach = random() % 2 == 0 ? 0x900 : kLastCodePoint + 1;
      const char32_t first = static_cast<char32_t>(random()) % reach;
      const char32_t last =
          std::min<char32_t>(first + static_cast<char32_t>(random()) % reach, kLastCodePoint);
      in.push_back({first, last});
      for (char32_t c = first; c <= last; ++c) member[c] = true;
    }
    const Regular language = Regular::characters(in);
    for (char32_t c = 0; c <= kLastCodePoint; ++c)
      ASSERT_EQ(language.accepts(utf8(c)), member[c] && (c < 0xD800 || c > 0xDFFF)) << unsigned(c);
    expect_minimal(language);
  }
  const CodePoints odd[] = {{5, 3}, {0x110000, 0x120000}, {0xD800, 0xDFFF}};
  EXPECT_TRUE(Regular::characters(odd).is_nothing());
}

TEST(Regular, TextIsValidUtf8) {
  for (const std::string_view good : {"", "abc", "\u00e9", "\u20ac", "\U0001F600", "\U0010FFFF"})
    EXPECT_TRUE(Regular::text().accepts(good)) << good;
  for (const std::string_view bad : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                                     "\xF4\x90\x80\x80", "\xF5", "\xFF", "a\xE2\x82"})
    EXPECT_FALSE(Regular::text().accepts(bad));
  EXPECT_EQ(Regular::text(), repeat(Regular::any_character(), 0, {}).value());
}

TEST(Regular, TextWithoutAStop) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::string stop;
    for (auto i = 1 + random() % 5; i-- > 0;) stop += kLetters[random() % 2];
    const Regular language = text_without(stop).value();
    for (const std::string& word : words())
      ASSERT_EQ(language.accepts(word), word.find(stop) == word.npos) << stop << " " << word;
    const Regular parts[] = {Regular::text(), Regular::literal(stop), Regular::text()};
    EXPECT_EQ(language, without(Regular::text(), concat(parts).value()).value());
  }
  EXPECT_FALSE(text_without("\u20ac").value().accepts("5 \u20ac"));
  EXPECT_TRUE(text_without("\u20ac").value().accepts("5 \u20ab"));
  ASSERT_FALSE(text_without(""));
}

TEST(Regular, RepetitionsAreLinear) {
  RegularLimits limits;
  limits.states = 80'001;
  limits.steps = 0;
  const Regular lengths = repeat(Regular::any_character(), 0, 10'000, limits).value();
  EXPECT_EQ(lengths.states(), 80'001U);
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += i % 3 == 0 ? "a" : "\u20ac";
  EXPECT_TRUE(lengths.accepts(text));
  EXPECT_FALSE(lengths.accepts(text + "a"));
  limits.states = 80'000;
  const auto refused = repeat(Regular::any_character(), 0, 10'000, limits);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("80000 states"));

  for (const auto& [least, most] : std::initializer_list<std::pair<unsigned, unsigned>>{
           {0, 1}, {0, 5}, {1, 1}, {2, 7}, {4, 4}, {3, 0}}) {
    const auto bound = most == 0 ? std::optional<std::uint32_t>() : most;
    const Regular some = repeat(Regular::any_character(), least, bound).value();
    expect_minimal(some);
    for (unsigned n = 0; n < 9; ++n) {
      std::string word;
      for (unsigned i = 0; i < n; ++i) word += i % 2 == 0 ? "\U0001F600" : "x";
      EXPECT_EQ(some.accepts(word), n >= least && (!bound || n <= most)) << n;
    }
  }
}

TEST(Regular, LimitsAreNamed) {
  // An automaton that must remember the last 40 letters.
  std::bitset<256> ab;
  ab.set('a');
  ab.set('b');
  const Regular letter = Regular::bytes(ab);
  const Regular parts[] = {repeat(letter, 0, {}).value(), Regular::literal("a"),
                           repeat(letter, 40, 40).value()};
  const auto refused = concat(parts);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  RegularLimits limits;
  limits.states = 100;
  const auto states = concat(parts, limits);
  ASSERT_FALSE(states);
  EXPECT_THAT(states.error().message, HasSubstr("100 states"));
  limits = {};
  limits.steps = 50;
  const auto steps = concat(parts, limits);
  ASSERT_FALSE(steps);
  EXPECT_THAT(steps.error().message, HasSubstr("50 steps"));
  EXPECT_FALSE(both(parts[0], parts[2], limits));
  std::vector<Regular> words;
  for (int i = 0; i < 100; ++i) words.push_back(Regular::literal(std::to_string(i * 7919)));
  EXPECT_FALSE(either(words, limits));
}

TEST(Regular, ManyWords) {
  std::mt19937 random(1);
  std::vector<Regular> parts;
  Words list;
  while (list.size() < 1'000) {
    std::string word;
    for (auto i = 1 + random() % 14; i-- > 0;) word += static_cast<char>('a' + random() % 26);
    list.insert(word);
  }
  for (const std::string& word : list) parts.push_back(Regular::literal(word));
  std::ranges::shuffle(parts, random);
  const Regular language = either(parts).value();
  for (const std::string& word : list) {
    EXPECT_TRUE(language.accepts(word));
    EXPECT_FALSE(language.accepts(word + "-"));
    EXPECT_EQ(language.accepts(word.substr(1)), list.contains(word.substr(1)));
  }
  expect_minimal(either(std::span(parts).first(40)).value());
}

}  // namespace
}  // namespace strata::constrain
