// Any bytes as what a model writes: the text is cut into tokens in several ways, and every way must
// give the same message, streamed the same as whole, in valid UTF-8 and JSON.
//
// The first byte chooses how the parser is set up, the second how the text is cut. Markers are the
// bytes 0x10 to 0x13, so that text with their letters is ordinary text where they are tokens.
#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_number.h"
#include "chat/jinja/text.h"
#include "chat/output_parser.h"
#include "tokenizer/byte_alphabet.h"

namespace {

using namespace strata;
using namespace strata::chat;
namespace json = boost::json;

constexpr std::string_view kMarkers[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};
// Tokens of more than a byte: what a vocabulary may hold, and pieces of what matters here.
constexpr std::string_view kTokens[] = {
    "<function=", "<parameter=", "</parameter>", "</function>", "</",  ">\n",       "\n\n",
    "tool_call",  "f>",          "s>\n",         "```",         "  ",  "parameter", "\xC3\xA9",
    "\xF0\x9F",   "\x98\x80",    "think>",       "</param",     "=f>", "\n</"};
constexpr std::size_t kMarkerByte = 0x10;

Tokenizer make_tokenizer(bool marker_tokens) {
  Tokenizer::Vocabulary vocabulary;
  const auto add = [&](std::string_view bytes) {
    std::string text;
    for (const char c : bytes) text += printable(static_cast<std::uint8_t>(c));
    vocabulary.tokens.push_back(std::move(text));
    vocabulary.kinds.push_back(TokenKind::normal);
  };
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    add(std::string_view(&c, 1));
  }
  for (const std::string_view token : kTokens) add(token);
  for (const std::string_view marker : kMarkers) {
    vocabulary.tokens.emplace_back(marker_tokens ? marker : std::string("[") += marker);
    vocabulary.kinds.push_back(TokenKind::user_defined);
  }
  return Tokenizer::from_vocabulary(std::move(vocabulary), {}).value();
}

const Tokenizer& tokenizer(bool marker_tokens) {
  static const Tokenizer with = make_tokenizer(true);
  static const Tokenizer without = make_tokenizer(false);
  return marker_tokens ? with : without;
}

// Pieces of one byte, or greedily those of kTokens whose turn the seed says it is.
std::vector<TokenId> cut(std::string_view text, bool marker_tokens, std::uint32_t seed) {
  constexpr auto kFirstMarker = static_cast<TokenId>(256 + std::size(kTokens));
  std::vector<TokenId> ids;
  while (!text.empty()) {
    const auto byte = static_cast<std::uint8_t>(text[0]);
    if (byte >= kMarkerByte && byte < kMarkerByte + std::size(kMarkers)) {
      const std::size_t marker = byte - kMarkerByte;
      text.remove_prefix(1);
      if (marker_tokens) {
        ids.push_back(kFirstMarker + static_cast<TokenId>(marker));
      } else {
        for (const char c : kMarkers[marker]) ids.push_back(static_cast<std::uint8_t>(c));
      }
      continue;
    }
    std::size_t size = 1;
    TokenId id = byte;
    seed = seed == 0 ? 0 : seed * 1664525 + 1013904223;
    for (std::size_t i = 0; i < std::size(kTokens) && (seed >> 30) != 0; ++i) {
      if (!text.starts_with(kTokens[i]) || kTokens[i].size() <= size) continue;
      size = kTokens[i].size();
      id = static_cast<TokenId>(256 + i);
    }
    ids.push_back(id);
    text.remove_prefix(size);
  }
  return ids;
}

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void require_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t c = 0;
    at += jinja::decode_utf8(text, at, c);
    require(c < 0xDC00 || c >= 0xE000);
  }
}

struct Answer {
  std::string reasoning, content;
  std::vector<std::string> arguments;
  std::size_t ended = 0;
  bool operator==(const Answer&) const = default;
};

Answer parse(const std::vector<TokenId>& ids, const Tokenizer& tokens, const ParserOptions& options,
             bool complete) {
  OutputParser parser(tokens, options);
  Answer answer;
  const auto take = [&](const std::vector<OutputEvent>& events) {
    for (const OutputEvent& event : events) {
      require_utf8(event.text);
      switch (event.kind) {
        case OutputEvent::Kind::reasoning:
          answer.reasoning += event.text;
          break;
        case OutputEvent::Kind::content:
          answer.content += event.text;
          break;
        case OutputEvent::Kind::tool_call_begin:
          require(event.index == answer.arguments.size());
          require(answer.ended == answer.arguments.size());
          answer.arguments.emplace_back();
          break;
        case OutputEvent::Kind::tool_arguments:
          require(event.index + 1 == answer.arguments.size());
          answer.arguments.back() += event.text;
          break;
        case OutputEvent::Kind::tool_call_end:
          require(event.index == answer.ended);
          ++answer.ended;
      }
    }
  };
  for (const TokenId id : ids) take(parser.feed(id));
  take(parser.finish(complete));
  const Message& message = parser.message();
  require(message.reasoning_content == answer.reasoning);
  require(message.content == answer.content);
  require(message.tool_calls.size() == answer.ended);
  for (std::size_t i = 0; i < answer.ended; ++i) {
    require(write_json(message.tool_calls[i].arguments) == answer.arguments[i]);
    boost::system::error_code error;
    (void)json::parse(answer.arguments[i], error);
    require(!error);
  }
  return answer;
}

const json::array& tools() {
  static const json::array declared =
      json::parse(R"([{"function": {"name": "f", "parameters": {"properties": {
        "s": {"type": "string"}, "i": {"type": ["integer", "null"]}, "b": {"type": "boolean"},
        "a": {"type": "array", "items": {"type": "integer"}}, "o": {"$ref": "#"},
        "v": {"type": ["string", "number"]}, "e": {"enum": ["1", 2, null]}}}}}])")
          .as_array();
  return declared;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const bool marker_tokens = (data[0] & 8) == 0;
  ParserOptions options;
  options.starts_in_thinking = (data[0] & 1) != 0;
  if ((data[0] & 2) == 0) options.tools = tools();
  options.parse_calls = (data[0] & 16) == 0;
  options.recover_calls = (data[0] & 32) != 0;
  options.exact = (data[0] & 64) != 0;
  const bool complete = (data[0] & 4) == 0;
  const Tokenizer& tokens = tokenizer(marker_tokens);
  const Answer one = parse(cut(text, marker_tokens, 0), tokens, options, complete);
  require(parse(cut(text, marker_tokens, data[1] * 2u + 1u), tokens, options, complete) == one);
  return 0;
}
