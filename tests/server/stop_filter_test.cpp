#include "server/stop_filter.h"

#include <gtest/gtest.h>

namespace strata::server {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> matched;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, std::string_view text, std::size_t piece) {
  StopFilter filter(stops);
  Outcome outcome;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    outcome.text += filter.feed(text.substr(at, piece));
  }
  outcome.text += filter.flush();
  outcome.matched = filter.matched();
  return outcome;
}

TEST(StopFilter, CutsAtTheStopWhateverThePieces) {
  struct Case {
    std::vector<std::string> stops;
    std::string text;
    Outcome wanted;
  };
  const Case cases[] = {
      {{"END"}, "the END is near", {"the ", "END"}},
      {{"END"}, "the EN", {"the EN", std::nullopt}},
      {{"END"}, "EEND", {"E", "END"}},
      {{"aab"}, "aaab", {"a", "aab"}},
      {{"abcde", "bcd"}, "xabcde", {"xa", "bcd"}},  // the end that comes first
      {{"b", "ab"}, "xab", {"x", "ab"}},            // one end: the longer
      {{"\n\n", "\nUser:"}, "a\nb\nUser: x", {"a\nb", "\nUser:"}},
      {{"é"}, "caf\xC3\xA8 caf\xC3\xA9", {"caf\xC3\xA8 caf", "é"}},
      {{}, "nothing stops", {"nothing stops", std::nullopt}},
      {{"x"}, "", {"", std::nullopt}},
  };
  for (const Case& c : cases) {
    for (std::size_t piece = 1; piece <= 8; ++piece) {
      const Outcome got = run(c.stops, c.text, piece);
      EXPECT_EQ(got.text, c.wanted.text) << c.text << " in pieces of " << piece;
      EXPECT_EQ(got.matched, c.wanted.matched) << c.text << " in pieces of " << piece;
    }
  }
}

TEST(StopFilter, HoldsOnlyWhatMayBecomeAStop) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.feed("the E"), "the ");
  EXPECT_EQ(filter.feed("N"), "");
  EXPECT_EQ(filter.feed("x"), "ENx");
  EXPECT_EQ(filter.feed("E"), "");
  EXPECT_EQ(filter.flush(), "E");
  EXPECT_EQ(filter.feed("END and more"), "");
  EXPECT_EQ(filter.feed("more"), "");
  EXPECT_EQ(filter.flush(), "");
}

}  // namespace
}  // namespace strata::server
