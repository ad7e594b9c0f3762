// A conversation on the terminal: one answer at a time from a service in this process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "chat/message.h"
#include "engine/engine.h"
#include "server/service.h"

namespace CLI {
class App;
}

namespace strata {

// What `run` and `chat` have in common on the command line.
struct TalkArguments {
  EngineOptions engine;
  std::string system;
  std::string effort;            // of thinking: none, low, medium, high; empty: the template's own
  std::uint32_t max_tokens = 0;  // 0 = the room that is left
  // Negative: the model file's own value.
  float temperature = -1, top_p = -1, min_p = -1;
  std::int32_t top_k = -1;
  std::int64_t seed = -1;  // negative: drawn anew for each answer
  bool show_thinking = false;
};

void add_talk_options(CLI::App& command, TalkArguments& arguments);

// The model file's defaults with what the command line says over them.
Sampling sampling_of(const TalkArguments& arguments, const EngineFacts& facts);

// True once after Ctrl-C, while a CatchInterrupt lives.
class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();
  static bool take();
};

class Talk {
 public:
  // Opens the model and its template.
  static Result<std::unique_ptr<Talk>> open(TalkArguments arguments);

  // Asks and waits; `print` gets every piece as it comes. Ctrl-C ends the answer early. The
  // question and the answer join the conversation.
  using Print = std::function<void(const chat::OutputEvent&)>;
  Result<server::ChatResult> ask(const std::string& text, const Print& print);
  void forget() { conversation_ = first_; }
  const EngineFacts& facts() const { return engine_->facts(); }

 private:
  TalkArguments arguments_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<server::Service> service_;
  chat::Conversation first_, conversation_;
};

}  // namespace strata
