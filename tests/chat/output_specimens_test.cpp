// Every specimen, cut in every way: in pieces of 1, 3 and 17 bytes, at each single byte, and as the
// demo model's vocabulary has it; markers as tokens and as letters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/chat/demo.h"
#include "tests/chat/parse.h"
#include "tests/chat/specimens.h"

namespace strata::chat {
namespace {

namespace json = boost::json;
using Markers = Specimen::Markers;

ParserOptions options_of(const Specimen& specimen) {
  json::array tools;
  if (specimen.tools != Specimen::Tools::none) tools = json::parse(kSpecimenTools).as_array();
  if (specimen.tools == Specimen::Tools::with_envelope) {
    tools.push_back(json::parse(kEnvelopeTool));
  }
  return {specimen.thinking, tools, "call_", true, specimen.recover};
}

void check(const Specimen& specimen, const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  const Outcome out = parse(tokenizer, ids, options_of(specimen), specimen.complete);
  EXPECT_EQ(out.content, specimen.content);
  EXPECT_EQ(out.reasoning, specimen.reasoning);
  std::vector<std::string> calls;
  std::string open;
  for (std::size_t i = 0; i < out.begun.size(); ++i) {
    const std::string name = out.begun[i].substr(out.begun[i].find(' ') + 1);
    const std::string call = name + " " + out.arguments[i];
    if (out.ended.contains(i)) {
      calls.push_back(call);
    } else {
      open += call;
    }
  }
  EXPECT_EQ(calls, std::vector<std::string>(specimen.calls.begin(), specimen.calls.end()));
  EXPECT_EQ(open, specimen.open);
}

void check_cuts(const Specimen& specimen, bool marker_tokens) {
  SCOPED_TRACE(marker_tokens ? "markers are tokens" : "markers are letters");
  Pieces pieces(marker_tokens);
  std::map<std::string, std::vector<TokenId>> ways;
  for (const std::size_t size : {1, 3, 17}) {
    ways[fmt::format("pieces of {}", size)] = pieces.of_size(specimen.text, size);
  }
  for (std::size_t cut = 0; cut < specimen.text.size(); ++cut) {
    ways[fmt::format("cut at {}", cut)] = pieces.cut_at(specimen.text, cut);
  }
  const Tokenizer tokenizer = pieces.tokenizer();
  for (const auto& [way, ids] : ways) {
    SCOPED_TRACE(way);
    check(specimen, tokenizer, ids);
    if (testing::Test::HasFailure()) return;  // the other cuts say the same
  }
}

class Specimens : public testing::TestWithParam<Specimen> {};

TEST_P(Specimens, ReadTheSameHoweverTheyAreCut) {
  const Specimen& specimen = GetParam();
  if (specimen.markers == Markers::both || specimen.markers == Markers::tokens) {
    check_cuts(specimen, true);
    check(specimen, demo_tokenizer(), demo_tokenizer().encode(specimen.text));
  }
  if (specimen.markers == Markers::both || specimen.markers == Markers::letters) {
    check_cuts(specimen, false);
  }
  if (specimen.markers == Markers::plain) {
    check(specimen, demo_tokenizer(), demo_tokenizer().encode(specimen.text, Specials::none));
    std::vector<TokenId> bytes;
    for (const char& c : specimen.text) {
      bytes.push_back(demo_tokenizer().encode(std::string_view(&c, 1), Specials::none).at(0));
    }
    check(specimen, demo_tokenizer(), bytes);
  }
}

std::string test_name(const testing::TestParamInfo<Specimen>& specimen) {
  std::string name = fmt::format("{:03}_", specimen.index);
  for (const char c : fmt::format("{}_{}", specimen.param.category, specimen.param.name)) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Specimens, testing::ValuesIn(specimens()), test_name);

TEST(SpecimenCategories, HaveEnoughOfEach) {
  std::map<std::string_view, int> counts;
  for (const Specimen& specimen : specimens()) ++counts[specimen.category];
  for (const std::string_view category :
       {"act", "rescue", "mention", "cut", "miss", "recover", "same", "types"}) {
    EXPECT_GE(counts[category], 5) << category;
  }
  EXPECT_EQ(counts["envelope"], 3);
  EXPECT_GE(specimens().size(), 100u);
}

}  // namespace
}  // namespace strata::chat
