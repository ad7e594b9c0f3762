// Splits what the model writes into thinking, answer text and tool calls, while it streams.
//
// Markers (<think>, </think>, <tool_call>, </tool_call>) count only as tokens of their own; the
// same letters inside ordinary tokens are text. Inside a call the XML form of the family is read:
// <function=NAME> <parameter=P> VALUE </parameter> ... </function>. A parameter ends at the first
// </parameter> that is followed by another <parameter= or by </function>. Values are typed by the
// tool's schema. Time is linear in the text. A broken call never fails: its text becomes content.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chat/message.h"
#include "tokenizer/tokenizer.h"

namespace strata::chat {

struct OutputEvent {
  enum class Kind {
    reasoning,        // text
    content,          // text
    tool_call_begin,  // index, id, name
    tool_arguments,   // index, text: a piece of the JSON text of the arguments
    tool_call_end,    // index
  };
  Kind kind = Kind::content;
  std::size_t index = 0;
  std::string id;
  std::string name;
  std::string text;
};

struct ParserOptions {
  bool starts_in_thinking = false;  // the prompt ends inside an open <think> block
  boost::json::array tools;         // as in Conversation; types of arguments are taken from here
  std::string call_id_prefix = "call_";  // ids are prefix + 24 random letters and digits
};

class OutputParser {
 public:
  OutputParser(const Tokenizer& tokenizer, ParserOptions options);
  // Events of one more token. Text is held back only while it may still be a marker's white space
  // or an unfinished UTF-8 character.
  std::vector<OutputEvent> feed(TokenId id);
  // The model is done; what was held back comes out. `complete` is false when the answer was cut
  // (length, cancel): an unfinished call is then dropped from the whole message.
  std::vector<OutputEvent> finish(bool complete);

  // The whole message so far (what a request that does not stream answers with).
  const Message& message() const { return message_; }
  bool in_thinking() const { return state_ == State::thinking; }

 private:
  enum class State { thinking, content, call };
  const Tokenizer& tokenizer_;
  ParserOptions options_;
  Message message_;
  State state_ = State::content;
};

}  // namespace strata::chat
