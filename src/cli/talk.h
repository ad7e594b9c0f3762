// A conversation with a model in this process: one answer at a time, settings, and what was said.
// `run` and `chat` are made of it.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
  std::string script;  // an engine that plays it in the model's place (engine/scripted.h)
  std::string system;
  boost::json::object settings;  // of requests, by their names: {"temperature": 0.7}
  bool show_thinking = false;
  bool progress = true;  // shown where standard error is a terminal
  bool json = false;
};

void add_talk_options(CLI::App& command, TalkArguments& arguments);

// Counts Ctrl-C while it lives; the third ends the program.
class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();
  static int count();
};

// Gets what happens while an answer is made, on the thread that waits for it.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // `read` of the prompt's tokens stand in the caches.
  virtual void reading(std::uint32_t read, std::uint32_t total) { (void)read, (void)total; }
  virtual void event(const chat::OutputEvent& event) = 0;
};

struct TalkAnswer {
  server::ChatResult result;
  double first_seconds = 0;  // until the first piece of the answer
  double seconds = 0;        // in all
  bool quit = false;         // Ctrl-C came twice
};
// For scripts: texts, why it ended, tokens and times.
boost::json::object to_json(const TalkAnswer& answer);

class Talk {
 public:
  // Opens the model and its template.
  static Result<std::unique_ptr<Talk>> open(TalkArguments arguments);

  // Asks and waits. Ctrl-C ends the answer early. The question and the answer, also one that was
  // ended early, join the conversation; after an error it is what it was before.
  Result<TalkAnswer> ask(const std::string& text, Watcher& watcher);
  // Another answer to the last question. Without one: `not_found`.
  Result<TalkAnswer> ask_again(Watcher& watcher);
  // A text as it stands, without template and conversation, goes on.
  Result<TalkAnswer> go_on(const std::string& text, Watcher& watcher);

  // Takes the last question back, with what came after it; gives its text.
  std::optional<std::string> undo();
  void forget();  // everything but the system prompt
  const std::vector<chat::Message>& messages() const { return messages_; }
  void set_messages(std::vector<chat::Message> messages) { messages_ = std::move(messages); }
  std::string system() const;
  void set_system(const std::string& text);  // empty: none

  // A setting of requests, from the next answer on; null: the model's own again. Names and ranges
  // are those of the API.
  Status set(std::string_view name, boost::json::value value);
  const boost::json::object& own_settings() const { return settings_; }
  Status set_all(boost::json::object settings);
  std::vector<server::Setting> settings() const { return service_->defaults()->settings; }

  const EngineFacts& facts() const { return engine_->facts(); }
  const server::Service& service() const { return *service_; }

 private:
  Result<TalkAnswer> answer(Watcher& watcher);
  Result<TalkAnswer> wait(server::Answer<server::Prepared> prepared, Watcher& watcher);

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<server::Service> service_;
  std::vector<chat::Message> messages_;
  boost::json::object settings_;  // that were set since the start
};

}  // namespace strata
