// strata drafts: measures on the demo model, and says what is wrong with what it is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/cli/program.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using namespace strata::test;

class DraftsCommand : public Program {
 protected:
  Outcome drafts(const std::string& arguments) const {
    return run("drafts -n 8 -r 1 --limit 2 --threads 1 -m " STRATA_SOURCE_DIR
               "/models/demo/strata-demo-46m.gguf " +
               arguments);
  }
  // A file of prompts.
  std::string prompts(const std::string& text) const {
    const std::string path = (folder / "prompts.jsonl").string();
    std::ofstream(path) << text;
    return path;
  }
  static std::vector<std::string> lines(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  }
};

TEST_F(DraftsCommand, measures_each_arm_and_that_all_say_the_same) {
  const std::string file =
      prompts(R"({"messages":[{"role":"user","content":"Hello"}],"reasoning_effort":null}

{"messages":[{"role":"user","content":"Count to ten."}],"enable_thinking":false}
{"messages":[{"role":"user","content":"not reached"}]}
)");
  const Outcome r = drafts("--arms off,auto,3 --prompts " + file);
  EXPECT_EQ(r.code, 0) << r.error;
  const auto out = lines(r.out);
  ASSERT_EQ(out.size(), 5u) << r.out;
  EXPECT_THAT(out[0], AllOf(HasSubstr("tokens/s"), HasSubstr("right by depth")));
  EXPECT_THAT(out[1], StartsWith("off "));
  EXPECT_THAT(out[1], HasSubstr("1.00x"));
  EXPECT_THAT(out[2], StartsWith("auto "));
  EXPECT_THAT(out[3], StartsWith("3 "));
  EXPECT_EQ(out[4], "2 prompts, 1 runs of each; all answers are equal");
  // With no drafts a round makes a token.
  std::istringstream off(out[1]);
  std::string name, speed, ratio, spread;
  double a_round = 0;
  std::uint64_t guessed = 1;
  off >> name >> speed >> ratio >> spread >> a_round >> guessed;
  EXPECT_EQ(guessed, 0u) << out[1];
}

TEST_F(DraftsCommand, random_prompts_and_an_oracle) {
  const Outcome r = drafts("--arms off,2 -p 16 --oracle 1,1");
  EXPECT_EQ(r.code, 0) << r.error;
  ASSERT_EQ(lines(r.out).size(), 4u) << r.out;
  EXPECT_THAT(lines(r.out)[2], HasSubstr("100.0%"));
  EXPECT_THAT(r.out, HasSubstr("all answers are equal"));
}

TEST_F(DraftsCommand, refuses_arms_that_are_none) {
  for (const char* arm : {"16", "-1", "on", "1.5", "off,never"}) {
    const Outcome r = drafts(std::string("--arms=") + arm);
    EXPECT_EQ(r.code, 2) << arm;
    EXPECT_THAT(r.error,
                AllOf(StartsWith("strata: "), HasSubstr("it must be auto, off or 1 to 15")))
        << arm;
    EXPECT_EQ(lines(r.error).size(), 1u) << r.error;
  }
}

TEST_F(DraftsCommand, refuses_files_that_are_no_prompts) {
  const std::pair<const char*, const char*> files[] = {
      {"", "holds no prompts"},
      {"\n\n", "holds no prompts"},
      {"{\"messages\":", "line 1 of"},
      {"[]", "line 1 of"},
      {"{\"prompt\":\"a\"}", "has no messages"},
      {"{\"messages\":5}", "line 1 of"},
      {"{\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]}", "line 1 of"},
      {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\nnonsense", "line 2 of"}};
  for (const auto& [text, sentence] : files) {
    const Outcome r = drafts("--prompts " + prompts(text));
    EXPECT_EQ(r.code, 1) << text;
    EXPECT_THAT(r.error,
                AllOf(StartsWith("strata: "), HasSubstr(sentence), HasSubstr("prompts.jsonl")))
        << text;
    EXPECT_EQ(lines(r.error).size(), 1u) << r.error;
    EXPECT_EQ(r.out, "") << text;
  }
  const Outcome none = drafts("--prompts " + (folder / "none.jsonl").string());
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.error, HasSubstr("none.jsonl"));
}

}  // namespace
