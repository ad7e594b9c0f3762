// Splits what the model writes into thinking, answer text and tool calls, while it streams.
//
// Markers (<think>, </think>, <tool_call>, </tool_call>) count only as tokens of their own; the
// same letters inside ordinary tokens are text. (A vocabulary without such a token: then its
// letters count, and a </think> behind a quotation mark or backtick is a quotation unless a line
// break follows.) Inside a call the XML form of the family is read (call_reader.h); values are
// typed by the tool's schema (tool_types.h). Time is linear in the text. A broken call never fails:
// its text becomes content.
//
// What a reader may rely on:
// - The texts of the events, joined by kind, are those of message(); the argument pieces of a call
//   are write_json() of its arguments. All pieces are valid UTF-8.
// - Line breaks around thinking, in front of the answer and behind calls are dropped, and so is
//   white space before a call. Parts of the answer that a call or thinking separates are parted by
//   a blank line, and so are several blocks of thinking.
// - An exact answer (ParserOptions) comes out byte for byte. Of what stands behind thinking two
//   line breaks are the thinking's, not the answer's. Where a call comes instead, the above holds.
// - In the answer <tool_call> opens a call wherever it stands, but for code (code_tracker.h): there
//   it is text, and so is <think>. So is a block without a call: whatever does not go on with
//   <function=NAME> and <parameter= or </function>. The called tool need not be declared.
// - A call inside unclosed thinking counts if it starts a line outside of code, names a declared
//   tool, and only white space, further calls, the end of thinking or the end of the answer (not a
//   cut one) follow. Otherwise it is part of the thinking. Until that is decided it is held back,
//   up to 32,768 bytes; longer ones are thinking.
// - A call has a tool_call_end event if and only if it is in message(). One that was announced (its
//   first parameter has begun) and never finished has none; one that was not announced when the
//   answer ends is text. Control tokens give no text.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "chat/call_reader.h"
#include "chat/code_tracker.h"
#include "chat/message.h"
#include "chat/output_event.h"
#include "chat/tool_types.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8_stream.h"

namespace strata::chat {

struct ParserOptions {
  bool starts_in_thinking = false;  // the prompt ends inside an open <think> block
  boost::json::array tools;         // as in Conversation; types of arguments are taken from here
  std::string call_id_prefix = "call_";  // ids are prefix + 24 random letters and digits
  bool parse_calls = true;  // false: no tools were offered, so what looks like a call is text
  // Calls of declared tools count also in other shapes than the family's: those of call_reader.h,
  // and without <tool_call>, where <function=NAME> starts a line of the answer outside of code.
  bool recover_calls = false;
  // The answer has a form that it was asked for (a grammar, a schema): every byte of it counts.
  // Markers are tokens then; their letters only where a call stands in the answer's place.
  bool exact = false;
};

class OutputParser {
 public:
  // The tokenizer must outlive the parser.
  OutputParser(const Tokenizer& tokenizer, ParserOptions options);
  OutputParser(const OutputParser&) = delete;
  OutputParser& operator=(const OutputParser&) = delete;

  // Events of one more token. Text is held back only while it may still be a marker, white space
  // that a marker would drop, an undecided call, or an unfinished UTF-8 character: at most
  // CallReader::kMaxHeld bytes of each.
  std::vector<OutputEvent> feed(TokenId id);
  // The model is done; what was held back comes out. `complete` is false when the answer was cut
  // (length, cancel): calls inside unclosed thinking are then thinking.
  std::vector<OutputEvent> finish(bool complete);

  // The whole message so far (what a request that does not stream answers with).
  const Message& message() const { return message_; }
  bool in_thinking() const { return state_ == State::thinking || call_in_thinking_; }
  const CallCounts& counts() const { return counts_; }

 private:
  static constexpr std::size_t kMaxHeld = CallReader::kMaxHeld;

  enum class State { thinking, content, call };
  enum class Marker { think, think_end, call, call_end, function };
  static constexpr std::size_t kMarkers = 5;  // the last one only with recover_calls

  // Thinking or answer text on its way out: knows which white space to drop.
  struct Channel {
    OutputEvent::Kind kind;
    std::string& whole;
    bool started = false;  // since the last marker
    std::string held{};    // white space that a marker would drop
    CodeTracker code{};    // of all text since the last marker
  };

  void take_text(std::string_view text);
  void take_marker(Marker marker);
  void take_thinking_marker(Marker marker);
  void take_content_marker(Marker marker);
  void put(Channel& channel, std::string_view text);
  void put_exact(std::string_view text);
  void put_held(Channel& channel);
  void put_thinking(std::string_view text);
  void put_text(std::string_view text) {
    state_ == State::thinking ? put_thinking(text) : put(content_, text);
  }
  void restart(Channel& channel);
  bool at_line_start() const;
  void open_call(bool bare);
  void after_call_text();
  void break_call();
  std::string leave_call();
  void feed_call();
  void hold_call_in_thinking();
  void deliver_held_calls();
  void release_held_calls();
  bool may_stand(Marker marker, std::size_t at) const;
  std::optional<std::pair<std::size_t, Marker>> find_marker(std::string_view text) const;
  enum class Quoted { no, yes, undecided };
  Quoted quoted(std::size_t at, Marker marker) const;
  std::size_t unfinished_marker(std::string_view text) const;
  std::string new_id();

  const Tokenizer& tokenizer_;
  ParserOptions options_;
  ToolTypes types_;
  std::optional<TokenId> ids_[kMarkers];
  std::size_t markers_ = 0;    // that count
  bool text_markers_ = false;  // some marker is no token of the vocabulary
  bool exact_ = false;         // no call has come in the place of the exact answer
  std::size_t separator_ = 0;  // line breaks that may follow and are thinking's
  std::mt19937_64 random_;
  Message message_;
  State state_ = State::content;
  Utf8Stream utf8_;
  std::string pending_;  // text not looked at yet, or the beginning of a marker
  char last_ = 0;        // the character in front of pending_
  Channel thinking_{OutputEvent::Kind::reasoning, message_.reasoning_content};
  Channel content_{OutputEvent::Kind::content, message_.content};

  std::optional<CallReader> reader_;  // in state call
  bool bare_ = false;                 // it has no <tool_call>
  bool call_in_thinking_ = false;
  std::string held_text_;  // of calls inside thinking, as written
  std::vector<OutputEvent> held_events_;
  std::vector<ToolCall> held_calls_;
  CallCounts held_counts_;
  CallCounts counts_;
  std::vector<OutputEvent> events_;
};

}  // namespace strata::chat
