// The output parser, on the answers of the demo model and on shapes that went wrong elsewhere.
#include "chat/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>

#include "tests/chat/demo.h"
#include "tests/chat/parse.h"

namespace strata::chat {
namespace {

namespace json = boost::json;
using Kind = OutputEvent::Kind;

const json::array kTools = json::parse(R"([{"type": "function", "function": {"name": "f",
  "parameters": {"type": "object", "properties": {
    "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"},
    "b": {"type": "boolean"}, "a": {"type": "array"}, "o": {"type": "object"},
    "sn": {"type": ["string", "null"]}, "si": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    "in": {"type": "integer", "nullable": true}, "e": {"enum": ["1", "two"]},
    "ei": {"enum": [1, 2]}, "r": {"$ref": "#/$defs/count"}, "u": {}},
    "$defs": {"count": {"type": "integer"}}}}}])")
                               .as_array();

Outcome run(const std::vector<TokenId>& ids, bool complete = true, bool thinking = false,
            const json::array& tools = kTools, const Tokenizer& tokenizer = demo_tokenizer()) {
  return parse(tokenizer, ids, {thinking, tools, "call_"}, complete);
}

std::vector<TokenId> tokens(std::string_view text) {
  return demo_tokenizer().encode(text);
}

// The same text with one byte a token, markers excepted.
std::vector<TokenId> bytewise(std::string_view text) {
  std::vector<TokenId> ids;
  for (const TokenId id : tokens(text)) {
    if (demo_tokenizer().kind(id) != TokenKind::normal) {
      ids.push_back(id);
      continue;
    }
    for (const char c : demo_tokenizer().bytes(id)) {
      ids.push_back(demo_tokenizer().encode(std::string_view(&c, 1), Specials::none).at(0));
    }
  }
  return ids;
}

// Runs both ways of cutting the text and requires the same outcome.
Outcome both(std::string_view text, bool complete = true, bool thinking = false) {
  const Outcome coarse = run(tokens(text), complete, thinking);
  const Outcome fine = run(bytewise(text), complete, thinking);
  EXPECT_EQ(coarse.content, fine.content);
  EXPECT_EQ(coarse.reasoning, fine.reasoning);
  EXPECT_EQ(coarse.arguments, fine.arguments);
  EXPECT_EQ(coarse.message.tool_calls.size(), fine.message.tool_calls.size());
  return coarse;
}

std::string call_text(std::string_view parameters) {
  return fmt::format("<tool_call>\n<function=f>\n{}</function>\n</tool_call>", parameters);
}

std::string argument(std::string_view name, std::string_view value) {
  return fmt::format("<parameter={}>\n{}\n</parameter>\n", name, value);
}

TEST(OutputParser, AnswersOfTheEvaluation) {
  int calls = 0;
  for (const auto& line : demo_lines()) {
    const std::string output(line.at("output").as_string());
    const bool thinking = line.at("enable_thinking").as_bool();
    const json::array tools =
        line.at("tools").is_array() ? line.at("tools").as_array() : json::array();
    for (const auto& ids : {tokens(output), bytewise(output)}) {
      const Outcome result = run(ids, true, thinking, tools);
      // What stands around the blocks, found independently.
      std::string body = output.substr(0, output.find("<|im_end|>"));
      std::string reasoning;
      if (thinking) {
        const std::size_t end = body.find("\n</think>\n\n");
        ASSERT_NE(end, std::string::npos) << output;
        reasoning = body.substr(0, end);
        body = body.substr(end + 11);
      }
      EXPECT_EQ(result.reasoning, reasoning);
      std::string content = body.substr(0, body.find("<tool_call>"));
      while (content.ends_with('\n')) content.pop_back();
      EXPECT_EQ(result.content, content);
      if (!line.at("exact").as_bool()) continue;
      const json::value& expected = line.at("expected").at("tool_calls");
      const json::array wanted = expected.is_array() ? expected.as_array() : json::array();
      if (wanted.empty()) {
        EXPECT_EQ(result.content, std::string_view(line.at("expected").at("content").as_string()));
      }
      ASSERT_EQ(result.message.tool_calls.size(), wanted.size()) << output;
      for (std::size_t i = 0; i < wanted.size(); ++i, ++calls) {
        EXPECT_EQ(result.message.tool_calls[i].name, wanted[i].at("name").as_string());
        EXPECT_EQ(json::serialize(result.message.tool_calls[i].arguments),
                  json::serialize(wanted[i].at("arguments")));
      }
    }
  }
  EXPECT_GE(calls, 80);
}

TEST(OutputParser, ThinkingThenAnswer) {
  const Outcome result = both("plan\nmore\n\n</think>\n\nHi  there\n", true, true);
  EXPECT_EQ(result.reasoning, "plan\nmore");
  EXPECT_EQ(result.content, "Hi  there\n");
  EXPECT_EQ(both("<think>\nplan\n</think>\n\nHi").reasoning, "plan");
  EXPECT_EQ(both("<think>\n\n</think>\n\nHi").content, "Hi");
  EXPECT_EQ(both("\n\n  Hi").content, "  Hi");
  EXPECT_EQ(both("endless", false, true).reasoning, "endless");
  EXPECT_EQ(both("a<think>b</think>c").content, "a\n\nc");
  EXPECT_EQ(both("one</think>x<think>two</think>y", true, true).reasoning, "one\n\ntwo");
}

TEST(OutputParser, LettersOfMarkersInOrdinaryTokensAreText) {
  std::vector<TokenId> ids =
      demo_tokenizer().encode("a </think> b <tool_call>\n<function=f> <think>", Specials::none);
  EXPECT_EQ(run(ids, true, true).reasoning, "a </think> b <tool_call>\n<function=f> <think>");
  EXPECT_EQ(run(ids).content, "a </think> b <tool_call>\n<function=f> <think>");
}

TEST(OutputParser, ControlTokensGiveNoText) {
  EXPECT_EQ(both("Hi<|im_end|>").content, "Hi");
  EXPECT_EQ(both("Hi<tool_response>").content, "Hi<tool_response>");
}

TEST(OutputParser, CallsWithTextAround) {
  const Outcome result =
      both("I look. \n\n" + call_text(argument("s", "x")) + "\n" + call_text("") + "\n\nDone.");
  EXPECT_EQ(result.content, "I look.\n\nDone.");
  ASSERT_EQ(result.message.tool_calls.size(), 2u);
  EXPECT_EQ(result.arguments[0], R"({"s":"x"})");
  EXPECT_EQ(result.arguments[1], "{}");
  EXPECT_NE(result.message.tool_calls[0].id, result.message.tool_calls[1].id);
  EXPECT_EQ(result.message.tool_calls[0].id.size(), 5u + 24u);
  EXPECT_TRUE(result.message.tool_calls[0].id.starts_with("call_"));
}

TEST(OutputParser, ValuesAreTypedByTheSchema) {
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {"s", "12", R"("12")"},
      {"s", "true", R"("true")"},
      {"s", "  two\n\nlines ", R"("  two\n\nlines ")"},
      {"s", "", R"("")"},
      {"s", "\"q\" \\ \t é 🌍", R"("\"q\" \\ \t é 🌍")"},
      {"i", "5", "5"},
      {"i", "5.0", "5"},
      {"i", "5.5", "5.5"},
      {"i", " 7 ", "7"},
      {"i", "five", R"("five")"},
      {"i", "\"5\"", R"("\"5\"")"},
      {"n", "2.50", "2.5"},
      {"n", "3", "3"},
      {"n", "1e3", "1000.0"},
      {"b", "true", "true"},
      {"b", "False", "false"},
      {"b", "yes", R"("yes")"},
      {"a", "[1, \"x\"]", R"([1,"x"])"},
      {"a", "[1, ", R"("[1, ")"},
      {"a", "{}", R"("{}")"},
      {"o", "{\"k\": [1, null], \"é\": 2.0}", R"({"k":[1,null],"é":2.0})"},
      {"sn", "null", "null"},
      {"sn", "None", "null"},
      {"sn", "text", R"("text")"},
      {"si", "5", "5"},
      {"si", "five", R"("five")"},
      {"in", "null", "null"},
      {"in", "4", "4"},
      {"e", "1", R"("1")"},
      {"ei", "2", "2"},
      {"r", "3.0", "3"},
      {"u", "5", "5"},
      {"u", "hello", R"("hello")"},
      {"undeclared", "[1]", "[1]"},
      {"undeclared", "text", R"("text")"},
  };
  for (const auto& [name, value, expected] : cases) {
    const Outcome result = both(call_text(argument(name, value)));
    ASSERT_EQ(result.arguments.size(), 1u) << name;
    EXPECT_EQ(result.arguments[0], fmt::format("{{\"{}\":{}}}", name, expected));
    EXPECT_EQ(result.content, "");
  }
}

TEST(OutputParser, AValueMayTalkAboutTheFormat) {
  const std::string value =
      "a </parameter> b\n</tool_call>\n<function=x>\n<tool_call>\n</parameter>\n</parameter>!"
      "</parameter>\n</function\n<think></think>";
  const Outcome result = both(call_text(argument("s", value) + argument("i", "1")));
  ASSERT_EQ(result.message.tool_calls.size(), 1u);
  EXPECT_EQ(result.message.tool_calls[0].arguments.at("s").as_string(), value);
  EXPECT_EQ(result.message.tool_calls[0].arguments.at("i").as_int64(), 1);
}

// JSON strings hold no line break, so the end of a value in the family's form is never inside one.
TEST(OutputParser, AStringInAListMayTalkAboutTheFormat) {
  const auto values = [](const std::string& text) {
    const Outcome result = both("<tool_call>\n<function=f>\n" + text + "</function>\n</tool_call>");
    return result.arguments.size() == 1 ? result.arguments[0] : result.content;
  };
  const std::string marks = "</parameter></function> </parameter> <parameter=x>";
  for (const char* name : {"a", "o", "u"}) {
    const std::string list = fmt::format(R"(["{}","\\\"{}"])", marks, marks);
    const std::string object = fmt::format(R"({{"{}":["{}"]}})", marks, marks);
    for (const std::string& value : {list, object}) {
      if (name == std::string("a") && value == object) continue;
      if (name == std::string("o") && value == list) continue;
      EXPECT_EQ(values(argument(name, value)), fmt::format(R"({{"{}":{}}})", name, value));
      EXPECT_EQ(values(fmt::format("<parameter={}>{}</parameter>", name, value)),
                fmt::format(R"({{"{}":{}}})", name, value));
    }
  }
  // A string that was never closed ends with its line, and so does the value.
  EXPECT_EQ(values(argument("u", R"(["open)") + argument("s", "x")), R"({"u":"[\"open","s":"x"})");
  EXPECT_EQ(values("<parameter=u>[\"open</parameter>\n" + argument("s", "x")),
            R"({"u":"[\"open","s":"x"})");
  // Strings stand as they are.
  EXPECT_EQ(values("<parameter=s>[\"x</parameter>"), R"({"s":"[\"x"})");
}

TEST(OutputParser, DeepArgumentsAreJson) {
  const std::string deep = std::string(256, '[') + std::string(256, ']');
  const Outcome result = both(call_text(argument("u", deep)));
  ASSERT_EQ(result.arguments.size(), 1u);
  EXPECT_EQ(result.arguments[0], "{\"u\":" + deep + "}");
}

TEST(OutputParser, StringsStreamWhileTheyGrow) {
  OutputParser parser(demo_tokenizer(), {false, kTools, "c"});
  std::string streamed;
  std::size_t behind = 0;
  std::string fed;
  const std::string head = "<tool_call>\n<function=f>\n<parameter=s>\n";
  for (const TokenId id : tokens(head)) parser.feed(id);
  for (const TokenId id : tokens("one two three four five six seven\neight nine ten")) {
    fed += demo_tokenizer().bytes(id);
    for (const auto& event : parser.feed(id)) streamed += event.text;
    behind = std::max(behind, fed.size() - std::min(fed.size(), streamed.size()));
  }
  EXPECT_LE(behind, 2u);  // a line break may be the last of the value
}

TEST(OutputParser, SloppyCalls) {
  // The wrapper's end is missing, or the next call starts without it.
  EXPECT_EQ(both("<tool_call><function=f></function>").message.tool_calls.size(), 1u);
  const Outcome two = both(
      "<tool_call>\n<function=f>\n</function>\n<tool_call>\n<function=g>\n"
      "</function>\n</tool_call>");
  ASSERT_EQ(two.message.tool_calls.size(), 2u);
  EXPECT_EQ(two.message.tool_calls[1].name, "g");
  EXPECT_EQ(both("<tool_call><function=f></function><function=g></function></tool_call>")
                .message.tool_calls.size(),
            2u);
  // Text between parameters is skipped, a repeated parameter counts once.
  const Outcome skipped = both(
      "<tool_call><function= f ><parameter=i>1</parameter>\n<parameter=i>\n2\n"
      "</parameter><parameter=s>x</parameter></function></tool_call>");
  EXPECT_EQ(skipped.arguments.at(0), R"({"i":1,"s":"x"})");
  // The closer is missing and text follows.
  const Outcome text = both("<tool_call><function=f></function>\nDone <b>.");
  EXPECT_EQ(text.content, "Done <b>.");
  EXPECT_EQ(text.message.tool_calls.size(), 1u);
}

TEST(OutputParser, ABrokenCallIsContent) {
  for (const std::string text :
       {"<tool_call>", "<tool_call> is the tag", "Use <tool_call>\n{\"name\": \"f\"}\n</tool_call>",
        "<tool_call>\n<function=>\n</function>", "<tool_call><function=f>prose</function>",
        "<tool_call>\n<function=a<b>", "x \n<tool_call>\n<function=f>"}) {
    const Outcome result = both(text);
    EXPECT_EQ(result.content, text);
    EXPECT_TRUE(result.begun.empty()) << text;
  }
  // An opener in prose does not hide the call behind it.
  const Outcome result = both("<tool_call><tool_call><function=f></function></tool_call>");
  EXPECT_EQ(result.content, "<tool_call>");
  EXPECT_EQ(result.message.tool_calls.size(), 1u);
}

TEST(OutputParser, ACallThatIsCutIsNotInTheMessage) {
  const std::string whole = "Text " + call_text(argument("s", "a long value") + argument("i", "5"));
  const auto ids = tokens(whole);
  for (std::size_t cut = 0; cut < ids.size(); ++cut) {
    for (const bool complete : {false, true}) {
      const std::vector<TokenId> head(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
      const Outcome result = run(head, complete);
      const std::string written = demo_tokenizer().decode(head);
      const bool finished = written.find("</function>") != std::string::npos;
      const bool announced = written.find("<parameter=") != std::string::npos;
      EXPECT_EQ(result.message.tool_calls.size(), finished ? 1u : 0u) << cut;
      EXPECT_EQ(result.content, announced ? "Text" : written);
    }
  }
}

TEST(OutputParser, CallsInsideThinking) {
  const std::string call = call_text(argument("i", "5"));
  const auto calls = [&](const std::string& text, bool complete = true) {
    return both(text, complete, true);
  };
  // Delivered: at the start of a line, nothing but white space, calls or the end behind it.
  EXPECT_EQ(calls("I do.\n" + call).message.tool_calls.size(), 1u);
  EXPECT_EQ(calls("I do.\n" + call).reasoning, "I do.");
  EXPECT_EQ(calls(call + "\n" + call + "\n</think>\n\nok").message.tool_calls.size(), 2u);
  EXPECT_EQ(calls(call + "\n</think>\n\nok").content, "ok");
  // Kept as thinking, to the letter.
  const std::vector<std::string> quotes = {
      "The format is " + call, "See:\n" + call + "\nThen I wait.",
      "No:\n<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
      "What:\n<tool_call> is this?"};
  for (const std::string& text : quotes) {
    const Outcome result = calls(text);
    EXPECT_EQ(result.reasoning, text);
    EXPECT_TRUE(result.message.tool_calls.empty());
  }
  const Outcome cut = calls("I do.\n" + call, false);
  EXPECT_EQ(cut.reasoning, "I do.\n" + call);
  EXPECT_TRUE(cut.begun.empty());
  const Outcome ended = calls("So:\n<tool_call>\n<function=f>\n</think>\n\nHi");
  EXPECT_EQ(ended.reasoning, "So:\n<tool_call>\n<function=f>");
  EXPECT_EQ(ended.content, "Hi");
  // Without tools nothing in thinking is a call.
  const Outcome none = run(tokens("x\n" + call), true, true, json::array());
  EXPECT_EQ(none.reasoning, "x\n" + call);
}

TEST(OutputParser, CharactersCutAnywhere) {
  const Outcome result =
      both("Grüße 世界 🌍</think>é🌍" + call_text(argument("s", "世🌍é")), true, true);
  EXPECT_EQ(result.reasoning, "Grüße 世界 🌍");
  EXPECT_EQ(result.content, "é🌍");
  EXPECT_EQ(result.arguments.at(0), R"({"s":"世🌍é"})");
  auto ids = bytewise("a🌍");
  ids.pop_back();
  EXPECT_EQ(run(ids).content, "a\xEF\xBF\xBD");
}

TEST(OutputParser, WithoutMarkerTokensTheLettersCount) {
  Tokenizer::Vocabulary vocabulary = demo_tokenizer().vocabulary();
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    for (const std::string_view marker : {"<think>", "</think>", "<tool_call>", "</tool_call>"}) {
      if (vocabulary.tokens[i] == marker) vocabulary.tokens[i] = fmt::format("<|unused{}|>", i);
    }
  }
  const Tokenizer plain = Tokenizer::from_vocabulary(std::move(vocabulary), {}).value();
  ASSERT_FALSE(plain.special("<think>"));
  const std::string text = "a < b </thin\n</think>\n\nx <tool\n" + call_text(argument("s", "v")) +
                           call_text("") + " <tool_cal";
  const Outcome result = run(plain.encode(text), true, true, kTools, plain);
  EXPECT_EQ(result.reasoning, "a < b </thin");
  EXPECT_EQ(result.content, "x <tool\n\n <tool_cal");
  EXPECT_EQ(result.message.tool_calls.size(), 2u);
}

TEST(OutputParser, RandomTokensKeepStreamedEqualToWhole) {
  const std::vector<std::string> pieces = {"<think>",
                                           "</think>",
                                           "<tool_call>",
                                           "</tool_call>",
                                           "<function=f>",
                                           "</function>",
                                           "<parameter=s>",
                                           "<parameter=i>",
                                           "</parameter>",
                                           "\n",
                                           " ",
                                           "x",
                                           "5",
                                           "é",
                                           "<",
                                           ">",
                                           "</",
                                           "<function=",
                                           "<parameter="};
  std::uint32_t state = 7;
  const auto random = [&](std::size_t bound) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % bound;
  };
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t i = random(40); i > 0; --i) text += pieces[random(pieces.size())];
    both(text, round % 2 == 0, round % 3 == 0);
    if (testing::Test::HasFailure()) FAIL() << text;
  }
}

// Seconds of this thread's time that `work` takes with four times the text, and how many times the
// time of the text alone that is. The best of several: the machine has other work.
struct Growth {
  double seconds = 1e9;
  double ratio = 1e9;
};
Growth growth(const std::function<void(std::size_t bytes)>& work, std::size_t bytes) {
  const auto seconds = [&](std::size_t size) {
    const auto now = [] {
      std::timespec time = {};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    };
    const double begin = now();
    work(size);
    return now() - begin;
  };
  Growth best;
  double quarter = 1e9;
  for (int round = 0; round < 10 && best.ratio >= 5; ++round) {
    quarter = std::min(quarter, seconds(bytes / 4));
    best.seconds = std::min(best.seconds, seconds(bytes));
    best.ratio = best.seconds / quarter;
  }
  return best;
}

std::string repeated(const std::string& piece, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += piece;
  return text;
}

TEST(OutputParser, AFileOfAMegabyteStreamsInLinearTime) {
  for (const std::string line :
       {"int main() { return \"x\" != y; }\n", "</parameter>\n</tool_call>\n",
        "</parameter>\n</function", "\n\n\n</para", "<tool_call><think>\n```\n"}) {
    std::map<std::size_t, std::vector<TokenId>> ids;
    const auto write = [&](std::size_t bytes) {
      OutputParser parser(demo_tokenizer(), {false, kTools, "call_"});
      std::size_t streamed = 0;
      for (const TokenId id : ids.at(bytes)) {
        for (const OutputEvent& event : parser.feed(id)) streamed += event.text.size();
      }
      parser.finish(true);
      EXPECT_GT(streamed, bytes);
      EXPECT_EQ(parser.message().tool_calls.at(0).arguments.at("s").as_string(),
                repeated(line, bytes));
    };
    for (const std::size_t bytes : {250'000, 1'000'000}) {
      ids[bytes] = tokens(call_text(argument("s", repeated(line, bytes))));
    }
    const Growth result = growth(write, 1'000'000);
    EXPECT_LT(result.ratio, 6) << line;
    EXPECT_LT(result.seconds, 10) << line;
  }
}

TEST(OutputParser, OtherLongTextsTakeLinearTimeToo) {
  for (const std::string piece : {"\n", "`", "<tool_call>", "<tool_call>\n<function=f>\n",
                                  "<tool_call><function=f></function>", "</think>\n", "a <think>",
                                  "<tool_call>\n<function=f>\n</function>\n</tool_call>\n"}) {
    for (const bool thinking : {false, true}) {
      const auto read = [&](std::size_t bytes) {
        OutputParser parser(demo_tokenizer(), {thinking, kTools, "call_"});
        const auto ids = tokens(repeated(piece, bytes));
        for (const TokenId id : ids) parser.feed(id);
        parser.finish(true);
      };
      EXPECT_LT(growth(read, 200'000).ratio, 6) << piece;
    }
  }
}

// What is held back undecided has a bound, and the outcome does not depend on where it is hit.
TEST(OutputParser, HeldTextHasABound) {
  constexpr std::size_t kMax = CallReader::kMaxHeld;
  const std::string blanks(kMax, ' ');
  // White space that a call might drop.
  EXPECT_EQ(both("a" + blanks + blanks + "b").content, "a" + blanks + blanks + "b");
  OutputParser parser(demo_tokenizer(), {false, kTools, "call_"});
  std::size_t streamed = 0;
  std::size_t fed = 0;
  for (const TokenId id : tokens("a" + blanks + blanks)) {
    fed += demo_tokenizer().bytes(id).size();
    for (const OutputEvent& event : parser.feed(id)) streamed += event.text.size();
    EXPECT_LE(fed - streamed, kMax + 1);
  }
  // A call that does not come to its point.
  const std::string late = "<tool_call>" + blanks + blanks + "<function=f></function>";
  EXPECT_EQ(both(late).content, late);
  const std::string dawdling = "<tool_call><function=f>" + blanks + "</function></tool_call>";
  EXPECT_EQ(both(dawdling).content, dawdling);
  // A value that seems to end.
  const Outcome value = both(
      call_text("<parameter=s>x</parameter>" + blanks + blanks + "<parameter=i>\n1</parameter>\n"));
  ASSERT_EQ(value.arguments.size(), 1u);
  EXPECT_EQ(value.message.tool_calls.at(0).arguments.as_object().size(), 1u);
  // A call inside thinking.
  const std::string large = call_text(argument("s", std::string(kMax, 'x') + "\xC3\xA9"));
  EXPECT_EQ(both("a\n" + large, true, true).reasoning, "a\n" + large);
  for (std::size_t size = kMax - 100; size < kMax; size += 9) {
    const std::string call = call_text(argument("s", std::string(size, 'x')));
    const Outcome result = both(call, true, true);
    EXPECT_EQ(result.begun.size(), call.size() <= kMax ? 1u : 0u);
    EXPECT_EQ(result.reasoning, call.size() <= kMax ? "" : call);
  }
}

TEST(OutputParser, RescuedAndRefusedCallsAreCounted) {
  const std::string call = call_text("");
  const auto counts = [&](const std::string& text, bool complete = true) {
    OutputParser parser(demo_tokenizer(), {true, kTools, "call_"});
    for (const TokenId id : tokens(text)) parser.feed(id);
    parser.finish(complete);
    return std::pair(parser.counts().rescued, parser.counts().text);
  };
  EXPECT_EQ(counts("a\n</think>\n\n" + call), std::pair(std::size_t{0}, std::size_t{0}));
  EXPECT_EQ(counts("a\n" + call + call), std::pair(std::size_t{2}, std::size_t{0}));
  EXPECT_EQ(counts("a\n" + call + "b\n" + call), std::pair(std::size_t{1}, std::size_t{1}));
  EXPECT_EQ(counts("a\n" + call, false), std::pair(std::size_t{0}, std::size_t{1}));
  EXPECT_EQ(counts("a " + call), std::pair(std::size_t{0}, std::size_t{0}));
}

TEST(OutputParser, LongNamesAreCutAtACharacter) {
  std::string name;
  for (int i = 0; i < 200; ++i) name += "é";
  for (const std::string extra : {"", "x"}) {
    const Outcome result = both("<tool_call><function=f><parameter=" + extra + name +
                                ">1</parameter></function></tool_call>");
    ASSERT_EQ(result.arguments.size(), 1u);
    const std::string key(result.message.tool_calls[0].arguments.as_object().begin()->key());
    EXPECT_EQ(key, (extra + name).substr(0, extra.empty() ? 256 : 255));
  }
  const std::string broken = "<tool_call><function=" + name + "></function></tool_call>";
  EXPECT_EQ(both(broken).content, broken);
}

// Of forms that were asked for every byte counts.
const char* const kExact[] = {
    "\n\nyes",
    "\n",
    "\n\n\n\n\n",
    "\r\n yes \r\n\n",
    " \t{\"a\":\n1} \n\n",
    "yes",
    "\n<think>a</think>\n\nb <tool_call><function=f></function></tool_call>\n",
    "</think>\n\nx",
    "<think>",
    "a<tool_ca",
    "<function=f>\n</function>",
};

TEST(OutputParser, ExactAnswersComeByteForByte) {
  ParserOptions options{.starts_in_thinking = true,
                        .tools = kTools,
                        .call_id_prefix = "call_",
                        .parse_calls = false,
                        .recover_calls = true,
                        .exact = true};
  for (const std::string text : kExact) {
    for (const bool thinking : {true, false}) {
      options.starts_in_thinking = thinking;
      std::vector<TokenId> ids = tokens(thinking ? "\nhm\n</think>" : "");
      for (const TokenId id :
           demo_tokenizer().encode((thinking ? "\n\n" : "") + text, Specials::none))
        ids.push_back(id);
      const Outcome result = parse(demo_tokenizer(), ids, options, true);
      EXPECT_EQ(result.content, text);
      EXPECT_EQ(result.reasoning, thinking ? "hm" : "");
      // A vocabulary without markers: their letters are text like all others.
      Pieces pieces(false);
      std::vector<std::vector<TokenId>> ways;
      for (std::size_t size : {1, 2, 5, 100}) ways.push_back(pieces.of_size(text, size));
      options.starts_in_thinking = false;
      for (const bool parse_calls : {false, true}) {
        options.parse_calls = parse_calls;
        for (const auto& way : ways)
          EXPECT_EQ(parse(pieces.tokenizer(), way, options, true).content, text);
      }
      options.parse_calls = false;
    }
  }
}

// The form or calls: what stands between and behind calls is dropped as ever.
TEST(OutputParser, CallsInThePlaceOfAnExactAnswer) {
  const std::string text = call_text("") + "\n" + call_text("") + "\n";
  const ParserOptions options{.starts_in_thinking = false, .tools = kTools, .exact = true};
  for (const bool markers : {true, false}) {
    Pieces pieces(markers);
    const auto ids = pieces.of_size(text, 3);
    const Outcome result = parse(pieces.tokenizer(), ids, options, true);
    EXPECT_EQ(result.message.tool_calls.size(), 2u);
    EXPECT_EQ(result.content, "");
  }
}

TEST(OutputParser, CallsAreTextWhenToldSo) {
  const std::string call =
      "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n"
      "</function>\n</tool_call>";
  const std::string text = "Look: " + call + "\n\n" + call + " done";
  for (const json::array& tools : {json::array(), kTools}) {
    OutputParser parser(demo_tokenizer(), {true, tools, "call_", false});
    std::string streamed;
    const auto take = [&](const std::vector<OutputEvent>& events) {
      for (const OutputEvent& event : events) {
        if (event.kind == Kind::content) streamed += event.text;
      }
    };
    for (const TokenId id :
         demo_tokenizer().encode("why\n" + call + "\n</think>\n\n" + text, Specials::all)) {
      take(parser.feed(id));
    }
    take(parser.finish(true));
    EXPECT_EQ(parser.message().reasoning_content, "why\n" + call);
    EXPECT_EQ(parser.message().content, text);
    EXPECT_EQ(streamed, text);
    EXPECT_TRUE(parser.message().tool_calls.empty());
  }
}

}  // namespace
}  // namespace strata::chat
