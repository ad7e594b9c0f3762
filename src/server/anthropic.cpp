#include "server/anthropic.h"

#include "base/json_number.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using chat::OutputEvent;
using Kind = OutputEvent::Kind;

constexpr std::string_view kPing = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

std::string_view stop_reason(const ChatResult& result) {
  switch (result.finish) {
    case ChatFinish::length:
      return "max_tokens";
    case ChatFinish::tool_calls:
      return "tool_use";
    case ChatFinish::stop:
      return result.stop_string ? "stop_sequence" : "end_turn";
    case ChatFinish::cancelled:
    case ChatFinish::error:
      break;
  }
  return "end_turn";
}

json::value stop_sequence(const ChatResult& result) {
  return result.finish == ChatFinish::stop && result.stop_string ? json::value(*result.stop_string)
                                                                 : json::value(nullptr);
}

// Cached tokens are never all of the prompt: 0 of input counts as "not given" in some clients.
json::object usage_of(const ChatResult& result) {
  const std::uint32_t cached =
      std::min(result.cached_tokens, std::max(result.prompt_tokens, 1u) - 1);
  return {{"input_tokens", result.prompt_tokens - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", result.completion_tokens},
          {"output_tokens_details", {{"thinking_tokens", result.reasoning_tokens}}}};
}

class AnswerObserver : public ChatObserver {
 public:
  AnswerObserver(Writer writer, std::string model)
      : writer_(std::move(writer)), model_(std::move(model)) {}
  virtual void begin(std::uint32_t /*prompt_tokens*/, bool /*held*/) {}

 protected:
  json::object message_head() const {
    return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", model_}};
  }
  Writer writer_;

 private:
  std::string id_ = new_id("msg_");
  std::string model_;
};

class WholeAnswer final : public AnswerObserver {
 public:
  using AnswerObserver::AnswerObserver;
  void event(const OutputEvent& event) override;
  void finished(const ChatResult& result) override;

 private:
  json::array blocks_;
  std::vector<std::size_t> calls_;  // their blocks
};

void WholeAnswer::event(const OutputEvent& event) {
  const auto append = [&](std::string_view type, std::string_view member) {
    if (blocks_.empty() || view(blocks_.back().at("type").get_string()) != type) {
      json::object block = {{"type", std::string(type)}, {std::string(member), ""}};
      if (type == "thinking") block["signature"] = "";
      blocks_.push_back(std::move(block));
    }
    blocks_.back().at(std::string(member)).get_string() += event.text;
  };
  switch (event.kind) {
    case Kind::reasoning:
      return append("thinking", "thinking");
    case Kind::content:
      return append("text", "text");
    case Kind::tool_call_begin:
      calls_.push_back(blocks_.size());
      blocks_.push_back({{"type", "tool_use"},
                         {"id", event.id},
                         {"name", event.name},
                         {"input", json::string()}});
      return;
    case Kind::tool_arguments:
      if (event.index < calls_.size()) {
        blocks_[calls_[event.index]].at("input").as_string() += event.text;
      }
      return;
    case Kind::tool_call_end:
      return;
  }
}

void WholeAnswer::finished(const ChatResult& result) {
  if (result.finish == ChatFinish::error) {
    return send_anthropic_error(*writer_, failure_of(result));
  }
  json::array content;
  for (json::value& block : blocks_) {
    json::value* input = block.as_object().if_contains("input");
    if (input != nullptr) {
      // A call that was cut is not delivered.
      const auto& id = block.at("id").get_string();
      const auto& calls = result.message.tool_calls;
      const bool whole = std::any_of(calls.begin(), calls.end(), [&](const chat::ToolCall& call) {
        return call.id == view(id);
      });
      if (!whole) continue;
      auto parsed = parse_json_exact(view(input->get_string()), "the arguments");
      *input = parsed && object_of(*parsed) ? std::move(*parsed) : json::value(json::object());
    }
    content.push_back(std::move(block));
  }
  json::object body = message_head();
  body["content"] = std::move(content);
  body["stop_reason"] = std::string(stop_reason(result));
  body["stop_sequence"] = stop_sequence(result);
  body["usage"] = usage_of(result);
  body["timings"] = timings_json(result);
  add_guards(body, result);
  send_json(*writer_, body);
}

class StreamedAnswer final : public AnswerObserver {
 public:
  using AnswerObserver::AnswerObserver;

  void begin(std::uint32_t prompt_tokens, bool held) override {
    json::object message = message_head();
    message["content"] = json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = {{"input_tokens", prompt_tokens},
                        {"cache_creation_input_tokens", 0},
                        {"cache_read_input_tokens", 0},
                        {"output_tokens", 0}};
    std::string text =
        sse_event("message_start", {{"type", "message_start"}, {"message", std::move(message)}});
    text += kPing;
    open_stream(*writer_, std::move(text), place_, held, [place = place_] {
      return (place->ahead ? place->comment() : std::string()).append(kPing);
    });
  }
  void queued(std::uint32_t ahead) override {
    release_head(*writer_, *place_);
    place_->ahead = ahead;
  }
  void started(std::uint32_t) override {
    release_head(*writer_, *place_);
    place_->ahead.reset();
  }
  void event(const OutputEvent& event) override;
  void finished(const ChatResult& result) override;

 private:
  void open(std::string_view kind, json::object block) {
    close();
    open_ = kind;
    write(
        "content_block_start",
        {{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }
  void delta(json::object delta) {
    write("content_block_delta",
          {{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }
  void close() {
    if (open_.empty()) return;
    write("content_block_stop", {{"type", "content_block_stop"}, {"index", index_}});
    open_ = {};
    ++index_;
  }
  void write(std::string_view name, const json::object& object) {
    writer_->write(sse_event(name, object));
  }

  std::string_view open_;  // the kind of the open block, empty if none is
  std::size_t index_ = 0;
  std::shared_ptr<QueuePlace> place_ = std::make_shared<QueuePlace>();
};

void StreamedAnswer::event(const OutputEvent& event) {
  switch (event.kind) {
    case Kind::reasoning:
      if (open_ != "thinking") {
        open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      }
      return delta({{"type", "thinking_delta"}, {"thinking", event.text}});
    case Kind::content:
      if (open_ != "text") open("text", {{"type", "text"}, {"text", ""}});
      return delta({{"type", "text_delta"}, {"text", event.text}});
    case Kind::tool_call_begin:
      return open("tool_use", {{"type", "tool_use"},
                               {"id", event.id},
                               {"name", event.name},
                               {"input", json::object()}});
    case Kind::tool_arguments:
      if (event.text.empty()) return;
      return delta({{"type", "input_json_delta"}, {"partial_json", event.text}});
    case Kind::tool_call_end:
      return close();
  }
}

void StreamedAnswer::finished(const ChatResult& result) {
  if (result.finish == ChatFinish::error) {
    if (place_->held) return send_anthropic_error(*writer_, failure_of(result));
    writer_->write(
        fmt::format("event: error\ndata: {}\n\n", anthropic_error_body(failure_of(result))));
    return writer_->end_stream();
  }
  close();
  json::object delta = {{"type", "message_delta"},
                        {"delta",
                         {{"stop_reason", std::string(stop_reason(result))},
                          {"stop_sequence", stop_sequence(result)}}},
                        {"usage", usage_of(result)}};
  add_guards(delta, result);
  write("message_delta", delta);
  write("message_stop", {{"type", "message_stop"}, {"timings", timings_json(result)}});
  writer_->end_stream();
}

}  // namespace

void serve_anthropic_messages(const ServicePtr& service, const HttpRequest& request,
                              const Writer& writer) {
  auto parsed = parse_anthropic(request.body, service->defaults()->request);
  if (!parsed) return send_anthropic_error(*writer, parsed.error());
  parsed->chat.client = request.client;
  const std::string model = service->answer_name(parsed->model);
  std::shared_ptr<AnswerObserver> observer;
  if (parsed->stream) {
    observer = std::make_shared<StreamedAnswer>(writer, model);
  } else {
    observer = std::make_shared<WholeAnswer>(writer, model);
  }
  auto prepared = service->prepare(std::move(parsed->chat));
  if (!prepared) return send_anthropic_error(*writer, prepared.error());
  const auto prompt_tokens = static_cast<std::uint32_t>(prepared->work.prompt.size());
  const bool held = !prepared->work.grammar.empty();
  auto ids = service->start(std::move(*prepared), executor_of(writer), {observer});
  if (!ids) return send_anthropic_error(*writer, ids.error());
  cancel_on_close(service, writer, std::move(*ids));
  // Before the first event: those wait on the strand until this function returns.
  observer->begin(prompt_tokens, held);
}

void serve_anthropic_count(const ServicePtr& service, const HttpRequest& request,
                           const Writer& writer) {
  auto parsed = parse_anthropic(request.body, service->defaults()->request);
  if (!parsed) return send_anthropic_error(*writer, parsed.error());
  auto tokens = service->count(std::move(parsed->chat.conversation));
  if (!tokens) return send_anthropic_error(*writer, tokens.error());
  send_json(*writer, {{"input_tokens", *tokens}});
}

}  // namespace strata::server
