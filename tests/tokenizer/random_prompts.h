// Prompts of mixed origin that grow, shrink and fork at random, over vocabularies whose special
// tokens begin like each other.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tokenizer/vocabularies.h"

namespace strata {

inline Tokenizer awkward_tokenizer(PreTokenizerKind kind, bool nfc) {
  using enum TokenKind;
  auto v = small_vocabulary(
      {"a b", "b c", "ab c", "Ġ a", "Ġ Ġ", "< |", "| >", "Ã ©", "æ ĸ", "æĸ ĩ", "Ì ģ", "Ċ Ċ"},
      {{"<a", user_defined},
       {"<ab>", control},
       {"<abc", user_defined},
       {"b>", control},
       {"<|im_start|>", control},
       {"<|im_end|>", control},
       {"<|im_end|>\n", control},
       {"<think>", user_defined},
       {"</think>", user_defined},
       {"<|a_rather_long_one_here|>", control},
       {"a_rath", user_defined},  // stands in the one before
       {"\xE6\x96\x87<", control}});
  v.rules.pre.kind = kind;
  v.rules.nfc = nfc;
  auto made = Tokenizer::from_vocabulary(std::move(v), {});
  if (!made) throw std::runtime_error(made.error().message);
  return std::move(*made);
}

// What texts are made of: whole and broken literals, characters of all lengths, broken ones.
inline constexpr std::string_view kParts[] = {"<a",
                                              "<ab>",
                                              "<abc",
                                              "b>",
                                              "<|im_start|>",
                                              "<|im_end|>",
                                              "<|im_end|>\n",
                                              "<think>",
                                              "</think>",
                                              "<|a_rather_long_one_here|>",
                                              "<|im_",
                                              "end|>",
                                              "<",
                                              "<|a_rather_long_one_her",
                                              "e|>",
                                              "/think>",
                                              "a",
                                              "b",
                                              "c",
                                              "abc",
                                              " ",
                                              "  ",
                                              "\n",
                                              "1",
                                              "23",
                                              ">",
                                              "'s",
                                              "\u00E9",
                                              "e\u0301",
                                              "\u0301",
                                              "\u6587",
                                              "\U0001F600",
                                              "\xC3",
                                              "\xA9",
                                              "\xE6\x96",
                                              "hello there"};

using Random = std::mt19937;

// In [0, size).
inline std::size_t below(Random& random, std::size_t size) {
  return std::uniform_int_distribution<std::size_t>(0, size - 1)(random);
}
inline bool chance(Random& random, double share) {
  return std::uniform_real_distribution<>()(random) < share;
}

struct TestPrompt {
  using Range = Tokenizer::Range;
  std::string text;
  std::vector<bool> trust;  // of each byte

  void insert(std::size_t at, std::string_view part, bool trusted) {
    text.insert(at, part);
    trust.insert(trust.begin() + static_cast<std::ptrdiff_t>(at), part.size(), trusted);
  }
  void append(std::string_view part, bool trusted) { insert(text.size(), part, trusted); }
  void cut(std::size_t size) {
    text.resize(size);
    trust.resize(size);
  }
  std::vector<Range> ranges() const {
    std::vector<Range> made;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!trust[i]) continue;
      if (!made.empty() && made.back().end == i) {
        ++made.back().end;
      } else {
        made.push_back({i, i + 1});
      }
    }
    return made;
  }
};

inline std::string random_text(Random& random, std::size_t most_parts) {
  std::string text;
  for (std::size_t n = 1 + below(random, most_parts); n > 0; --n) {
    text += kParts[below(random, std::size(kParts))];
  }
  return text;
}

// One step of a conversation.
inline void change(TestPrompt& prompt, Random& random) {
  const std::size_t size = prompt.text.size();
  const std::size_t what = below(random, 16);
  if (what < 9 || size == 0) {
    for (std::size_t n = 1 + below(random, 3); n > 0; --n) {
      prompt.append(random_text(random, 6), chance(random, 0.6));
    }
  } else if (what < 11) {
    prompt.insert(below(random, size), random_text(random, 3), chance(random, 0.5));
  } else if (what < 13) {
    prompt.cut(below(random, size));
  } else if (what < 14) {
    prompt.text[below(random, size)] = static_cast<char>("<ab>|"[below(random, 5)]);
  } else {
    const std::size_t begin = below(random, size);
    const std::size_t end = std::min(size, begin + below(random, 20));
    const bool trusted = chance(random, 0.5);
    for (std::size_t i = begin; i < end; ++i) prompt.trust[i] = trusted;
  }
  if (prompt.text.size() > 400) prompt.cut(below(random, 300));
}

}  // namespace strata
