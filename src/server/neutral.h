// The neutral form of what clients ask and of what they get: every dialect translates to it and
// from it, and none knows another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "chat/message.h"
#include "chat/output_event.h"
#include "engine/engine.h"

namespace strata::server {

// What conversations and plain texts have in common.
struct Generation {
  Sampling sampling;
  DryPenalty dry;
  std::vector<std::string> banned_strings;
  std::vector<LogitBias> logit_bias;
  LoopGuard loop_guard = LoopGuard::off;
  std::uint64_t max_tokens = 0;    // 0 = the room that is left in the context
  bool own_limit = false;          // the request named it; else it is shortened to the room
  std::vector<std::string> stops;  // cut the answer's text; thinking and calls are left alone
  std::string form;  // what the text must be, as an expression of constrain/gbnf.h; empty: anything
  std::optional<std::uint32_t> logprobs;  // alternatives of each token; absent: no probabilities
  std::uint32_t choices = 1;              // answers; the i-th is drawn with seed + i
  // What changes the speed only.
  bool one_shot = false;                // nothing of the prompt is kept for later ones
  std::optional<std::uint32_t> drafts;  // most tokens guessed at a time; absent: as started
  std::string client;                   // as HttpRequest::client
};

struct ChatRequest : Generation {
  chat::Conversation conversation;
  std::optional<std::int64_t> thinking_budget;  // tokens; 0 or less: none
  bool close_thinking = false;                  // that the model leaves without an answer
  bool recover_calls = false;                   // as chat::ParserOptions
  bool one_call = false;                        // the answer ends with its first tool call
  bool must_call = false;                       // the answer is at least one call
  std::vector<std::string> callable;            // tools that may be called; empty: all
};

// As text, in which special literals are tokens, or as ids.
using TextPrompt = std::variant<std::string, std::vector<TokenId>>;

struct TextRequest : Generation {
  TextPrompt prompt;
  bool prompt_logprobs = false;
};

enum class ChatFinish { stop, length, tool_calls, cancelled, error };

struct ChatResult {
  ChatFinish finish = ChatFinish::stop;
  Error error;                             // when finish is error
  std::optional<std::string> stop_string;  // the one that ended the answer
  // The pieces of the events joined, without calls that were cut off. In `tool_calls`, the
  // arguments are the text the events carried, as a JSON string.
  chat::Message message;
  std::vector<TokenId> ids;                  // all that were generated, up to what ended the answer
  std::vector<TokenChances> prompt_chances;  // of the prompt's tokens from the second on
  std::vector<TokenChances> chances;         // of all generated tokens, if asked for
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;       // of them not read again
  std::uint32_t cached_disk_tokens = 0;  // of these, from the disk
  std::uint32_t completion_tokens = 0;
  std::uint32_t reasoning_tokens = 0;  // of them, inside the thinking
  std::uint32_t rounds = 0;            // windows in which it was decoded
  std::uint32_t drafted = 0;           // tokens guessed in them
  std::uint32_t accepted = 0;          // of these, right
  ThinkingCut thinking_cut = ThinkingCut::none;
  StoppedBy stopped_by = StoppedBy::none;
  bool ended_in_thinking = false;  // and there is no answer and no call
  chat::CallCounts calls;
  double queue_seconds = 0;
  double prompt_seconds = 0;
  double decode_seconds = 0;
  double whole_seconds = 0;                   // from the request to its end, as the server saw it
  std::optional<double> first_token_seconds;  // to its first token
};

// Runs on the executor the request came with, in order, finished() once and last.
class ChatObserver {
 public:
  virtual ~ChatObserver() = default;
  // It waits, and `ahead` requests before it; then it runs, and `cached` tokens of its prompt need
  // not be read.
  virtual void queued(std::uint32_t ahead) { (void)ahead; }
  virtual void started(std::uint32_t cached) { (void)cached; }
  virtual void progress(std::uint32_t read, std::uint32_t total) { (void)read, (void)total; }
  // Of one more token, before the events it causes.
  virtual void chances(const TokenChances& chances) { (void)chances; }
  virtual void event(const chat::OutputEvent& event) = 0;
  virtual void finished(const ChatResult& result) = 0;
};

// Runs functions later, one at a time and in order; must not block (ResponseWriter::post).
using Executor = std::function<void(std::function<void()>)>;

}  // namespace strata::server
