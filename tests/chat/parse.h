// Runs the output parser over tokens and checks on the way what it promises of its events.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json_number.h"
#include "chat/jinja/text.h"
#include "chat/output_parser.h"
#include "tokenizer/byte_alphabet.h"

namespace strata::chat {

struct Outcome {
  Message message;
  std::string reasoning;
  std::string content;
  std::vector<std::string> arguments;  // streamed, by index
  std::vector<std::string> begun;      // "id name"
  std::set<std::size_t> ended;
  std::vector<OutputEvent> events;
};

inline bool is_utf8(std::string_view text) {
  std::uint32_t c = 0;
  for (std::size_t at = 0; at < text.size(); at += jinja::decode_utf8(text, at, c)) {
    jinja::decode_utf8(text, at, c);
    if (c >= 0xDC00 && c < 0xE000) return false;
  }
  return true;
}

inline void take(Outcome& out, const std::vector<OutputEvent>& events) {
  using Kind = OutputEvent::Kind;
  for (const OutputEvent& event : events) {
    out.events.push_back(event);
    EXPECT_TRUE(is_utf8(event.text)) << event.text;
    switch (event.kind) {
      case Kind::reasoning:
        out.reasoning += event.text;
        break;
      case Kind::content:
        out.content += event.text;
        break;
      case Kind::tool_call_begin:
        EXPECT_EQ(event.index, out.begun.size());
        out.begun.push_back(event.id + " " + event.name);
        out.arguments.emplace_back();
        break;
      case Kind::tool_arguments:
        EXPECT_EQ(event.index + 1, out.arguments.size());
        out.arguments.back() += event.text;
        break;
      case Kind::tool_call_end:
        out.ended.insert(event.index);
    }
  }
}

// The streamed pieces are the whole message, after every token.
inline Outcome parse(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                     const ParserOptions& options, bool complete) {
  OutputParser parser(tokenizer, options);
  Outcome out;
  const auto same_as_message = [&] {
    EXPECT_EQ(out.reasoning, parser.message().reasoning_content);
    EXPECT_EQ(out.content, parser.message().content);
    EXPECT_EQ(out.ended.size(), parser.message().tool_calls.size());
  };
  for (const TokenId id : ids) {
    take(out, parser.feed(id));
    if (ids.size() < 1000) same_as_message();
  }
  take(out, parser.finish(complete));
  same_as_message();
  out.message = parser.message();
  for (std::size_t i = 0; i < out.message.tool_calls.size() && i < out.arguments.size(); ++i) {
    const ToolCall& call = out.message.tool_calls[i];
    EXPECT_EQ(out.arguments[i], write_json(call.arguments));
    EXPECT_EQ(out.begun[i], call.id + " " + call.name);
    EXPECT_EQ(parse_json_exact(out.arguments[i], "the arguments").value(), call.arguments);
  }
  return out;
}

// Text cut at will: every piece is a token of a vocabulary made for it. The think and call markers
// have tokens of their own, or (marker_tokens false) are letters like all others.
class Pieces {
 public:
  static constexpr std::string_view kMarkers[] = {"<think>", "</think>", "<tool_call>",
                                                  "</tool_call>"};

  explicit Pieces(bool marker_tokens) : marker_tokens_(marker_tokens) {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      id_of(std::string_view(&c, 1), TokenKind::normal);
    }
    if (!marker_tokens) return;
    for (const auto marker : kMarkers) id_of(marker, TokenKind::user_defined);
  }

  // The text's stretches between markers; each marker is one of its own.
  std::vector<std::string_view> stretches(std::string_view text) const {
    std::vector<std::string_view> out;
    while (!text.empty()) {
      std::size_t at = text.size();
      std::size_t size = 0;
      for (const auto marker : kMarkers) {
        const std::size_t found = marker_tokens_ ? text.find(marker) : std::string_view::npos;
        if (found < at) at = found, size = marker.size();
      }
      if (at > 0) out.push_back(text.substr(0, at));
      if (size > 0) out.push_back(text.substr(at, size));
      text.remove_prefix(at + size);
    }
    return out;
  }

  // In pieces of `size` bytes.
  std::vector<TokenId> of_size(std::string_view text, std::size_t size) {
    std::vector<TokenId> ids;
    for (std::string_view stretch : stretches(text)) {
      if (is_marker(stretch)) {
        ids.push_back(id_of(stretch, TokenKind::user_defined));
        continue;
      }
      for (std::size_t at = 0; at < stretch.size(); at += size) {
        ids.push_back(id_of(stretch.substr(at, size), TokenKind::normal));
      }
    }
    return ids;
  }

  // Whole stretches, but for one cut behind `cut` bytes.
  std::vector<TokenId> cut_at(std::string_view text, std::size_t cut) {
    std::vector<TokenId> ids;
    for (std::string_view stretch : stretches(text)) {
      const TokenKind kind = is_marker(stretch) ? TokenKind::user_defined : TokenKind::normal;
      const auto at = static_cast<std::size_t>(stretch.data() - text.data());
      if (kind == TokenKind::normal && cut > at && cut < at + stretch.size()) {
        ids.push_back(id_of(stretch.substr(0, cut - at), kind));
        stretch.remove_prefix(cut - at);
      }
      ids.push_back(id_of(stretch, kind));
    }
    return ids;
  }

  // Of all pieces so far.
  Tokenizer tokenizer() const { return Tokenizer::from_vocabulary(vocabulary_, {}).value(); }

 private:
  bool is_marker(std::string_view text) const {
    if (!marker_tokens_) return false;
    return std::ranges::find(kMarkers, text) != std::end(kMarkers);
  }

  TokenId id_of(std::string_view bytes, TokenKind kind) {
    const auto [found, is_new] =
        ids_.emplace(std::string(bytes), static_cast<TokenId>(vocabulary_.tokens.size()));
    if (!is_new) return found->second;
    std::string text(bytes);
    if (kind == TokenKind::normal) {
      text.clear();
      for (const char c : bytes) text += printable(static_cast<std::uint8_t>(c));
    }
    vocabulary_.tokens.push_back(std::move(text));
    vocabulary_.kinds.push_back(kind);
    return found->second;
  }

  bool marker_tokens_;
  Tokenizer::Vocabulary vocabulary_;
  std::map<std::string, TokenId, std::less<>> ids_;
};

}  // namespace strata::chat
