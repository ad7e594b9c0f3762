// What a model that knows nothing writes under the grammar of a request, and what the parser of its
// answers makes of it: the two must mean the same text.
#include "server/answer_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/json.h"
#include "base/json_number.h"
#include "constrain/gbnf.h"
#include "constrain/matcher.h"
#include "tests/chat/parse.h"

namespace strata::server {
namespace {

namespace json = boost::json;

// Markers, bytes, and pieces that texts about calls are made of.
class Writer {
 public:
  Writer() {
    for (const std::string_view piece :
         {"</parameter>", "</function>", "<parameter=", "</parameter></function>", "\n\n", "\n\n\n",
          "\n</parameter>\n", "[\"", "\"]", "\", \"", "\",\"", "yes", "\n y", " ", "{\"", "\":\""})
      (void)pieces_.of_size(piece, piece.size());
    tokenizer_ = std::make_unique<Tokenizer>(pieces_.tokenizer());
    end_ = static_cast<TokenId>(tokenizer_->size());
    std::vector<std::string> texts(tokenizer_->size() + 1);
    for (TokenId id = 0; id < end_; ++id)
      if (tokenizer_->kind(id) == TokenKind::normal)
        texts[static_cast<std::size_t>(id)] = std::string(tokenizer_->bytes(id));
    vocabulary_ = *constrain::Vocabulary::make(std::move(texts));
  }

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  std::shared_ptr<const constrain::CompiledGrammar> compile(const std::string& text) const {
    auto grammar = constrain::parse_gbnf(
        text, [this](std::string_view literal) { return tokenizer_->special(literal); });
    EXPECT_TRUE(grammar) << text << grammar.error().message;
    auto compiled = constrain::CompiledGrammar::compile(*grammar, vocabulary_);
    EXPECT_TRUE(compiled) << text << compiled.error().message;
    return *compiled;
  }

  // The tokens of an answer; at first of many kinds, later those that end something.
  std::vector<TokenId> write(std::shared_ptr<const constrain::CompiledGrammar> grammar,
                             std::mt19937_64& random) const {
    constexpr std::size_t kEnough = 60, kMost = 4000;
    constrain::Matcher matcher(std::move(grammar), {end_});
    std::vector<TokenId> ids;
    while (ids.size() < kMost) {
      const TokenId id = choose(matcher.mask(), ids.size() > kEnough, random);
      if (id == end_) return ids;
      if (id < 0 || !matcher.accept(id)) break;
      ids.push_back(id);
    }
    ADD_FAILURE() << "the answer does not end: " << tokenizer_->decode(ids);
    return ids;
  }

 private:
  TokenId choose(constrain::Mask mask, bool ends, std::mt19937_64& random) const {
    std::vector<TokenId> pieces, others, ending;
    for (TokenId id = 0; id <= end_; ++id) {
      if (!constrain::allows(mask, id)) continue;
      const std::string_view text = id == end_ ? "" : tokenizer_->bytes(id);
      const bool marker = id != end_ && tokenizer_->kind(id) != TokenKind::normal;
      (marker || text.size() > 1 || text == "\n" || id == end_ ? pieces : others).push_back(id);
      if (id == end_ || marker || text == "\"" || text == "]" || text == "}" || text == ">" ||
          text == "\n</parameter>\n")
        ending.push_back(id);
    }
    const std::vector<TokenId>& usual = pieces.empty() || random() % 8 == 0 ? others : pieces;
    const std::vector<TokenId>& some = ends && !ending.empty() ? ending : usual;
    const std::vector<TokenId>& any = some.empty() ? pieces : some;
    return any.empty() ? -1 : any[random() % any.size()];
  }

  chat::Pieces pieces_{true};
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId end_ = 0;
  std::shared_ptr<const constrain::Vocabulary> vocabulary_;
};

const Writer& writer() {
  static const Writer one;
  return one;
}

ChatRequest with_form(std::string_view field, const json::value& value) {
  ChatRequest request;
  const auto read = read_form({{json::string_view(field.data(), field.size()), value}}, request);
  EXPECT_TRUE(read) << read.error().message;
  return request;
}

TEST(AnswerForm, TextOfAFormComesByteForByte) {
  const std::pair<const char*, const char*> forms[] = {
      {"guided_regex", "[\\n ]{0,7}(yes|no)?\\s{0,4}"},
      {"grammar", "root ::= \"\\n\" \"\\n\" [\\n\\r\\t y]* \"no\" \"\\n\"*"},
      {"guided_regex", "\\n\\nyes"},
      {"guided_regex", "(.|\\n){0,20}"},
  };
  std::mt19937_64 random(7);
  const TokenId open = *writer().tokenizer().special("<think>");
  const TokenId close = *writer().tokenizer().special("</think>");
  std::size_t with_breaks = 0, thought_first = 0;
  for (const auto& [field, text] : forms) {
    for (const PromptEnd end : {PromptEnd::in_thinking, PromptEnd::thought, PromptEnd::open}) {
      const ChatRequest request = with_form(field, text);
      const auto grammar = writer().compile(answer_grammar(request, end, writer().tokenizer()));
      chat::ParserOptions options;
      options.starts_in_thinking = end == PromptEnd::in_thinking;
      options.parse_calls = false;
      options.exact = true;
      for (int i = 0; i < 60; ++i) {
        const std::vector<TokenId> ids = writer().write(grammar, random);
        const bool thinks = options.starts_in_thinking || (!ids.empty() && ids.front() == open);
        ASSERT_TRUE(!thinks || end != PromptEnd::thought);
        auto from = ids.begin();
        if (thinks) from = std::find(ids.begin(), ids.end(), close) + 1;
        std::string wanted = writer().tokenizer().decode(std::vector<TokenId>(from, ids.end()));
        if (thinks) {
          ASSERT_TRUE(wanted.starts_with("\n\n")) << wanted;
          wanted.erase(0, 2);
        }
        const auto answer = chat::parse(writer().tokenizer(), ids, options, true);
        EXPECT_EQ(answer.content, wanted);
        with_breaks += wanted.starts_with('\n');
        thought_first += thinks;
      }
    }
  }
  EXPECT_GT(with_breaks, 100u);
  EXPECT_GT(thought_first, 200u);
}

// Up to the first line of its own that closes the field: a line break stands in no string of JSON,
// and no text holds that line.
std::string field_of(const std::string& text, const std::string& name) {
  const std::string head = "<parameter=" + name + ">\n";
  const std::size_t from = text.find(head) + head.size();
  return text.substr(from, text.find("\n</parameter>", from) - from);
}

// Calls that a random model writes where tool f is forced, and as what they are read.
class ForcedCalls {
 public:
  struct Call {
    std::string text;
    json::object arguments;
  };
  ForcedCalls(std::string_view tool, std::uint64_t seed) : random_(seed) {
    ChatRequest request;
    request.conversation.tools = {json::parse(tool)};
    EXPECT_TRUE(force_call(request, "f"));
    grammar_ = writer().compile(answer_grammar(request, PromptEnd::thought, writer().tokenizer()));
    options_.tools = request.conversation.tools;
  }
  Call next() {
    const std::vector<TokenId> ids = writer().write(grammar_, random_);
    Call call{writer().tokenizer().decode(ids), {}};
    const auto answer = chat::parse(writer().tokenizer(), ids, options_, true);
    EXPECT_EQ(answer.content, "") << call.text;
    EXPECT_EQ(answer.message.tool_calls.size(), 1u) << call.text;
    if (!answer.message.tool_calls.empty())
      call.arguments = answer.message.tool_calls[0].arguments.as_object();
    return call;
  }

 private:
  decltype(writer().compile("")) grammar_;
  chat::ParserOptions options_;
  std::mt19937_64 random_;
};

TEST(AnswerForm, EnforcedArgumentsAreReadWhole) {
  ForcedCalls calls(R"({"type": "function", "function": {
    "name": "f", "strict": true, "parameters": {"type": "object", "additionalProperties": false,
    "properties": {
      "list": {"type": "array", "items": {"type": "string"}},
      "map": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string", "maxLength": 900}}},
      "either": {"type": ["array", "string"], "items": {"type": "string"}},
      "any": {}},
    "required": ["list", "map", "either", "any"]}}})",
                    11);
  std::size_t marks = 0;
  for (int i = 0; i < 300; ++i) {
    const auto [text, read] = calls.next();
    ASSERT_EQ(read.size(), 4u) << text;
    for (const char* name : {"list", "map"}) {
      const std::string value = field_of(text, name);
      EXPECT_EQ(read.at(name), *parse_json(value, name)) << text;
      marks += value.find("</parameter></function>") != value.npos;
      marks += value.find("</parameter><parameter=") != value.npos;
    }
    const std::string either = field_of(text, "either");
    const auto parsed = parse_json(either, "either");
    if (parsed && parsed->is_array()) {
      EXPECT_EQ(read.at("either"), *parsed) << text;
    } else if (!either.starts_with('[')) {
      EXPECT_EQ(read.at("either"), json::value(either)) << text;
    }
  }
  EXPECT_GT(marks, 50u);
}

// A value that may be of several types is delivered as the one that was enforced.
TEST(AnswerForm, EnforcedArgumentsAreReadAsTheTypeTheyWereWrittenAs) {
  ForcedCalls calls(R"({"type": "function", "function": {
    "name": "f", "strict": true, "parameters": {"type": "object", "additionalProperties": false,
    "properties": {
      "number": {"anyOf": [{"type": "integer", "maximum": -7}, {"type": "string", "pattern": "^[0-9.]{1,3}$"}]},
      "word": {"anyOf": [{"type": "string", "pattern": "^(true|tru|False|no)$"}, {"const": false}]},
      "list": {"anyOf": [{"type": "string", "pattern": "^.?[0-9]\\]$"}, {"type": "array", "items": {"const": "a"}}]}},
    "required": ["number", "word", "list"]}}})",
                    17);
  std::size_t others = 0;
  for (int i = 0; i < 300; ++i) {
    const auto [text, read] = calls.next();
    ASSERT_EQ(read.size(), 3u) << text;
    const json::value &number = read.at("number"), &word = read.at("word"), &list = read.at("list");
    if (is_number(number))
      EXPECT_EQ(number_text(number).front(), '-') << text;
    else
      EXPECT_TRUE(number.is_string()) << text;
    EXPECT_TRUE(word.is_string() || word == json::value(false)) << text;
    if (const json::array* items = list.if_array()) {
      for (const json::value& item : *items) EXPECT_EQ(item, json::value("a")) << text;
    }
    others += is_number(number) + word.is_bool() + list.is_array();
  }
  EXPECT_GT(others, 50u);
}

// A schema that cannot be enforced leaves the form of a call, which must be read whole, too.
TEST(AnswerForm, CallsWhoseSchemaCannotBeEnforcedAreReadWhole) {
  ForcedCalls calls(R"({"type": "function", "function": {"name": "f",
    "parameters": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(x)\\1"}}}}})",
                    13);
  for (int i = 0; i < 300; ++i) {
    const auto [text, read] = calls.next();
    std::set<std::string> names;
    for (std::size_t at = 0; (at = text.find("\n<parameter=", at)) != text.npos; ++at) {
      const std::size_t begin = at + 12, middle = text.find(">\n", begin);
      // Not of a value: those that come next are behind the line that closes it.
      names.insert(text.substr(begin, middle - begin));
      at = text.find("\n</parameter>", middle + 2);
    }
    EXPECT_EQ(read.size(), names.size()) << text;
  }
}

}  // namespace
}  // namespace strata::server
