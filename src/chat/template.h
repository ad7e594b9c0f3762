// A model's chat template: compiled once, rendered to segments that remember where their text
// comes from, so that a control token spelled out by a user never becomes one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/message.h"
#include "tokenizer/tokenizer.h"

namespace strata::chat {

// A run of the rendered prompt. `trusted` text was written by the template itself: its special
// literals become tokens. All other text came in through the conversation and stays plain.
struct Segment {
  std::string text;
  bool trusted = false;
  bool operator==(const Segment&) const = default;
};

// Literals of the model's special tokens that templates ask for by name. Trusted.
struct TemplateTokens {
  std::string bos_token;
  std::string eos_token;
};

class ChatTemplate {
 public:
  // `invalid_argument` with the line and the reason.
  static Result<ChatTemplate> compile(std::string_view source, TemplateTokens tokens = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Thread safe. Errors of the template itself (raise_exception) are `invalid_argument` with the
  // template's own message; limits (loops, depth, output size, steps) are `exhausted`.
  //
  // The template sees `messages`, `tools` (none if there are none), `add_generation_prompt`,
  // `bos_token`, `eos_token` and the template arguments; an argument with one of these names is
  // `invalid_argument`. Of a message it sees role and content, and reasoning_content, tool_calls
  // (OpenAI's form, arguments as an object) and tool_call_id where they are not empty. Neighbouring
  // segments differ in trust.
  //
  // An assistant's content that starts with a whole <think> block (and has no reasoning_content) is
  // thinking sent back in the only place some clients have for it: it becomes reasoning_content if
  // the template knows that word; else its two tags are trusted. All other text stays plain.
  Result<std::vector<Segment>> render(const Conversation& conversation) const;
  const std::string& source() const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// A rendered prompt in one piece, as encoders take it (tokenizer/prompt_encoder.h): special
// literals count in the trusted ranges, all other text stays plain. Ranges never touch, so a
// literal that the template put together is one.
struct Prompt {
  std::string text;
  std::vector<Tokenizer::Range> trusted;
};
Prompt join(std::span<const Segment> segments);

}  // namespace strata::chat
