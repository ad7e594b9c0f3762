#include "server/openai_chat.h"

#include <boost/json.hpp>
#include <ctime>

#include "base/clock.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using chat::OutputEvent;

json::object message_of(const chat::Message& message) {
  json::object object = {{"role", "assistant"}};
  object["content"] = message.content.empty() ? json::value(nullptr) : json::value(message.content);
  if (!message.reasoning_content.empty()) object["reasoning_content"] = message.reasoning_content;
  if (!message.tool_calls.empty()) object["tool_calls"] = tool_calls_json(message);
  return object;
}

// The answer to one request: all its choices.
class ChatAnswer {
 public:
  ChatAnswer(ServicePtr service, Writer writer, const OpenAiChatRequest& request)
      : service_(std::move(service)),
        writer_(std::move(writer)),
        model_(service_->answer_name(request.model)),
        created_(std::time(nullptr)),
        logprobs_(request.chat.logprobs.has_value()),
        results_(request.chat.choices),
        waiting_(request.chat.choices) {}
  virtual ~ChatAnswer() = default;

  void set_ids(std::vector<RequestId> ids) { ids_ = std::move(ids); }
  void set_prompt(std::uint32_t tokens) { prompt_tokens_ = tokens; }
  virtual void begin(bool /*held*/) {}
  virtual void queued(std::uint32_t) {}
  virtual void started(std::uint32_t) {}
  virtual void progress(std::uint32_t, std::uint32_t) {}
  virtual void chances(std::size_t, const TokenChances&) {}
  virtual void event(std::size_t choice, const OutputEvent& event) = 0;
  void finished(std::size_t choice, const ChatResult& result) {
    if (failed_) return;
    results_[choice] = result;
    if (result.finish == ChatFinish::error) {
      failed_ = true;
      if (waiting_ > 1) service_->cancel(ids_);
      return fail(failure_of(result));
    }
    end_choice(choice);
    if (--waiting_ == 0) end();
  }
  bool failed() const { return failed_; }

 protected:
  virtual void end_choice(std::size_t choice) = 0;
  virtual void end() = 0;
  virtual void fail(const ApiError& error) = 0;

  json::object head(std::string_view kind) const {
    return {{"id", id_},
            {"object", json::string_view(kind.data(), kind.size())},
            {"created", created_},
            {"model", model_},
            {"system_fingerprint", nullptr}};
  }

  ServicePtr service_;
  Writer writer_;
  std::string id_ = new_id("chatcmpl-");
  std::string model_;
  std::int64_t created_;
  bool logprobs_;
  std::vector<ChatResult> results_;
  std::uint32_t prompt_tokens_ = 0;

 private:
  std::vector<RequestId> ids_;
  std::size_t waiting_;
  bool failed_ = false;
};

class WholeAnswer final : public ChatAnswer {
 public:
  using ChatAnswer::ChatAnswer;
  void event(std::size_t, const OutputEvent&) override {}

 private:
  void end_choice(std::size_t) override {}
  void end() override {
    json::object body = head("chat.completion");
    json::array choices;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const ChatResult& result = results_[i];
      json::value logprobs;
      if (logprobs_) {
        json::array items;
        for (const TokenChances& chances : result.chances) {
          items.push_back(logprob_json(service_->tokenizer(), chances));
        }
        logprobs = {{"content", std::move(items)}, {"refusal", nullptr}};
      }
      json::object choice = {{"index", i},
                             {"message", message_of(result.message)},
                             {"logprobs", std::move(logprobs)},
                             {"finish_reason", std::string(finish_reason(result.finish))}};
      add_guards(choice, result);
      choices.push_back(std::move(choice));
    }
    body["choices"] = std::move(choices);
    body["usage"] = usage_json(results_);
    body["timings"] = timings_json(results_.front());
    send_json(*writer_, body);
  }
  void fail(const ApiError& error) override { send_openai_error(*writer_, error); }
};

class StreamedAnswer final : public ChatAnswer {
 public:
  StreamedAnswer(ServicePtr service, Writer writer, const OpenAiChatRequest& request)
      : ChatAnswer(std::move(service), std::move(writer), request),
        include_usage_(request.include_usage),
        progress_(request.progress),
        pending_(request.chat.choices) {}

  // The head and the roles; then comments until the first token.
  void begin(bool held) override {
    std::string roles;
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      roles += sse_data(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr));
    }
    open_stream(*writer_, std::move(roles), place_, held,
                [place = place_] { return place->comment(); });
  }
  void queued(std::uint32_t ahead) override {
    release_head(*writer_, *place_);
    place_->ahead = ahead;
    write_progress(0);
  }
  void started(std::uint32_t cached) override {
    release_head(*writer_, *place_);
    place_->ahead.reset();
    cached_ = cached;
  }
  void progress(std::uint32_t read, std::uint32_t) override { write_progress(read); }
  void chances(std::size_t choice, const TokenChances& chances) override {
    pending_[choice].push_back(logprob_json(service_->tokenizer(), chances));
  }
  void event(std::size_t choice, const OutputEvent& event) override;

 private:
  json::object chunk(std::size_t choice, json::object delta, json::value reason) {
    json::object object = head("chat.completion.chunk");
    json::object entry = {{"index", choice},
                          {"delta", std::move(delta)},
                          {"logprobs", nullptr},
                          {"finish_reason", std::move(reason)}};
    if (!pending_[choice].empty()) {
      entry["logprobs"] = {{"content", std::exchange(pending_[choice], {})}, {"refusal", nullptr}};
    }
    object["choices"] = json::array{std::move(entry)};
    if (include_usage_) object["usage"] = nullptr;
    return object;
  }
  void write_progress(std::uint32_t read) {
    if (!progress_ || failed()) return;
    json::object progress = {
        {"total", prompt_tokens_},
        {"cache", cached_},
        {"processed", read},
        {"time_ms", static_cast<std::int64_t>((monotonic_seconds() - begun_) * 1000)}};
    if (place_->ahead) progress["queued"] = *place_->ahead;
    json::object object = chunk(0, {}, nullptr);
    object["prompt_progress"] = std::move(progress);
    writer_->write(sse_data(object));
  }
  void write_delta(std::size_t choice, json::object delta) {
    writer_->write(sse_data(chunk(choice, std::move(delta), nullptr)));
  }
  void end_choice(std::size_t choice) override {
    const ChatResult& result = results_[choice];
    release_head(*writer_, *place_);
    json::object last = chunk(choice, {}, json::value(std::string(finish_reason(result.finish))));
    add_guards(last.at("choices").get_array().front().get_object(), result);
    last["timings"] = timings_json(result);
    writer_->write(sse_data(last));
  }
  void end() override {
    std::string text;
    if (include_usage_) {
      json::object usage = head("chat.completion.chunk");
      usage["choices"] = json::array();
      usage["usage"] = usage_json(results_);
      text = sse_data(usage);
    }
    writer_->write(text + "data: [DONE]\n\n");
    writer_->end_stream();
  }
  void fail(const ApiError& error) override {
    if (place_->held) return send_openai_error(*writer_, error);
    writer_->write(fmt::format("data: {}\n\ndata: [DONE]\n\n", openai_error_body(error)));
    writer_->end_stream();
  }

  bool include_usage_;
  bool progress_;
  double begun_ = monotonic_seconds();
  std::uint32_t cached_ = 0;  // tokens of the prompt
  std::shared_ptr<QueuePlace> place_ = std::make_shared<QueuePlace>();
  std::vector<json::array> pending_;  // log-probabilities that no chunk carried yet, by choice
};

void StreamedAnswer::event(std::size_t choice, const OutputEvent& event) {
  if (failed()) return;
  release_head(*writer_, *place_);
  switch (event.kind) {
    case OutputEvent::Kind::reasoning:
      return write_delta(choice, {{"reasoning_content", event.text}});
    case OutputEvent::Kind::content:
      return write_delta(choice, {{"content", event.text}});
    case OutputEvent::Kind::tool_call_begin: {
      json::object function = {{"name", event.name}, {"arguments", ""}};
      return write_delta(choice,
                         {{"tool_calls", json::array{{{"index", event.index},
                                                      {"id", event.id},
                                                      {"type", "function"},
                                                      {"function", std::move(function)}}}}});
    }
    case OutputEvent::Kind::tool_arguments: {
      json::object function = {{"arguments", event.text}};
      return write_delta(
          choice, {{"tool_calls",
                    json::array{{{"index", event.index}, {"function", std::move(function)}}}}});
    }
    case OutputEvent::Kind::tool_call_end:
      return;
  }
}

class Choice final : public ChatObserver {
 public:
  Choice(std::shared_ptr<ChatAnswer> answer, std::size_t index)
      : answer_(std::move(answer)), index_(index) {}
  void queued(std::uint32_t ahead) override {
    if (index_ == 0) answer_->queued(ahead);
  }
  void started(std::uint32_t cached) override {
    if (index_ == 0) answer_->started(cached);
  }
  void progress(std::uint32_t read, std::uint32_t total) override {
    if (index_ == 0) answer_->progress(read, total);
  }
  void chances(const TokenChances& chances) override { answer_->chances(index_, chances); }
  void event(const OutputEvent& event) override { answer_->event(index_, event); }
  void finished(const ChatResult& result) override { answer_->finished(index_, result); }

 private:
  std::shared_ptr<ChatAnswer> answer_;
  std::size_t index_;
};

}  // namespace

void serve_openai_chat(const ServicePtr& service, const HttpRequest& request,
                       const Writer& writer) {
  auto parsed = parse_openai_chat(request.body, service->defaults()->request);
  if (!parsed) return send_openai_error(*writer, parsed.error());
  parsed->chat.client = request.client;
  std::shared_ptr<ChatAnswer> answer;
  if (parsed->stream) {
    answer = std::make_shared<StreamedAnswer>(service, writer, *parsed);
  } else {
    answer = std::make_shared<WholeAnswer>(service, writer, *parsed);
  }
  std::vector<std::shared_ptr<ChatObserver>> observers;
  for (std::size_t i = 0; i < parsed->chat.choices; ++i) {
    observers.push_back(std::make_shared<Choice>(answer, i));
  }
  auto prepared = service->prepare(std::move(parsed->chat));
  if (!prepared) return send_openai_error(*writer, prepared.error());
  answer->set_prompt(static_cast<std::uint32_t>(prepared->work.prompt.size()));
  const bool held = !prepared->work.grammar.empty();
  auto ids = service->start(std::move(*prepared), executor_of(writer), observers);
  if (!ids) return send_openai_error(*writer, ids.error());
  answer->set_ids(*ids);
  cancel_on_close(service, writer, std::move(*ids));
  // Before the first event: those wait on the strand until this function returns.
  answer->begin(held);
}

}  // namespace strata::server
