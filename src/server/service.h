// Conversations over an engine: what all dialects share. A dialect hands in the neutral form and
// gets the neutral events back; it knows nothing of templates, tokens or the engine's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chat/message.h"
#include "chat/output_parser.h"
#include "chat/template.h"
#include "engine/engine.h"
#include "server/api_error.h"

namespace strata::server {

inline constexpr std::size_t kMaxStops = 4;
inline constexpr std::size_t kMaxStopBytes = 1024;  // of one stop string

struct ChatRequest {
  chat::Conversation conversation;
  Sampling sampling;
  std::uint64_t max_tokens = 0;    // 0 = the room that is left in the context
  std::vector<std::string> stops;  // cut the answer's text; thinking and calls are left alone
};

enum class ChatFinish { stop, length, tool_calls, cancelled, error };

struct ChatResult {
  ChatFinish finish = ChatFinish::stop;
  Error error;                             // when finish is error
  std::optional<std::string> stop_string;  // the one that ended the answer
  // The pieces of the events joined, without calls that were cut off. In `tool_calls`, the
  // arguments are the text the events carried, as a JSON string.
  chat::Message message;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::uint32_t reasoning_tokens = 0;  // of them, inside the thinking
  double queue_seconds = 0;
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

// Runs on the executor the request came with, in order, finished() once and last.
class ChatObserver {
 public:
  virtual ~ChatObserver() = default;
  virtual void progress(std::uint32_t read, std::uint32_t total) { (void)read, (void)total; }
  virtual void event(const chat::OutputEvent& event) = 0;
  virtual void finished(const ChatResult& result) = 0;
};

// Runs functions later, one at a time and in order; must not block (ResponseWriter::post).
using Executor = std::function<void(std::function<void()>)>;

class ChatRun;

class Service {
 public:
  // Compiles the model's chat template (`tokenizer.chat_template`). The engine must outlive the
  // service. A model without a template is `unsupported`.
  static Result<std::unique_ptr<Service>> create(Engine& engine);

  // Starts an answer. Must be called on the executor, so that no event overtakes the returned id.
  // Refusals are complete sentences; one that does not fit the context has the code
  // "context_length_exceeded".
  Answer<RequestId> chat(ChatRequest request, Executor executor,
                         std::shared_ptr<ChatObserver> observer);
  void cancel(RequestId id) { engine_.cancel(id); }

  // The server is about to stop: from now on chat() refuses with 503, and answers of whose prompt
  // nothing was read yet end at once with an error. The others go on. From any thread.
  void close();
  // Then: every answer that still runs ends with an error. From any thread.
  void cut();
  bool closed() const { return closed_; }

  const EngineFacts& facts() const { return engine_.facts(); }
  EngineCounters counters() const { return engine_.counters(); }
  std::int64_t started() const { return started_; }  // seconds since 1970

 private:
  Service(Engine& engine, chat::ChatTemplate chat_template);
  bool ends_in_thinking(const std::vector<TokenId>& prompt) const;
  ApiError render_error(const chat::Conversation& conversation, const Error& error) const;
  std::vector<std::shared_ptr<ChatRun>> running();

  Engine& engine_;
  chat::ChatTemplate template_;
  std::optional<TokenId> think_open_;
  std::optional<TokenId> think_close_;
  std::int64_t started_ = 0;

  std::mutex mutex_;
  std::atomic<bool> closed_{false};  // set under the mutex
  std::vector<std::weak_ptr<ChatRun>> runs_;
};

// What every dialect's conversation goes through: developer becomes system; a system message that
// is not the first becomes a user message in place (moving it up would change the prompt's
// beginning and lose the cache); empty assistant turns are dropped unless last.
void normalise(chat::Conversation& conversation);

}  // namespace strata::server
