#include "chat/code_tracker.h"

#include <gtest/gtest.h>

namespace strata::chat {
namespace {

bool in_code(std::string_view text) {
  CodeTracker whole;
  whole.feed(text);
  CodeTracker bytewise;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bytewise.feed(text.substr(i, 1));
    (void)bytewise.in_code();  // asking changes nothing
  }
  EXPECT_EQ(whole.in_code(), bytewise.in_code()) << text;
  return whole.in_code();
}

TEST(CodeTracker, KnowsCodeFromText) {
  for (const std::string_view code : {"```",
                                      "```\n",
                                      "```sh\nls ",
                                      "```\nls\n``",
                                      "````\n```\n",
                                      "~~~\n```\n",
                                      "~~~ a`b` \n",
                                      "```\n``` x\n",
                                      "text\n  ```\n",
                                      "> ```\n> ",
                                      "- ```\n",
                                      "12. ```\n",
                                      "`",
                                      "``",
                                      "`a",
                                      "a `b",
                                      "``a`b",
                                      "``a` ",
                                      "\\\\`a",
                                      "`a\\` `b",
                                      "```a``` `",
                                      "```\n`\n",
                                      "\n```\r\nx\r\n"}) {
    EXPECT_TRUE(in_code(code)) << code;
  }
  for (const std::string_view text : {"",
                                      "a",
                                      "`a`",
                                      "``a`b``",
                                      "```a```",
                                      "```\nls\n```",
                                      "```\nls\n```\n",
                                      "```\n````",
                                      "```\n``` \t",
                                      "~~~\n~~~",
                                      "~~ x",
                                      "a ~~~\n",
                                      "`a\n",
                                      "``a`\n",
                                      "\\`a",
                                      "x```\n",
                                      "> ```\n> ```\n",
                                      "```\r\nx\r\n```\r\n",
                                      "```a``` b",
                                      "`` ` `` x"}) {
    EXPECT_FALSE(in_code(text)) << text;
  }
}

}  // namespace
}  // namespace strata::chat
