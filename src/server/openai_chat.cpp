#include "server/openai_chat.h"

#include <boost/json.hpp>
#include <cmath>
#include <ctime>
#include <random>

#include "base/log.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using chat::OutputEvent;

constexpr std::string_view kKeepAlive = ": keep-alive\n\n";

// "chatcmpl-" and 24 hexadecimal digits.
std::string new_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("chatcmpl-{:016x}{:08x}", random(), random() & 0xFFFFFFFFu);
}

std::string_view finish_reason(ChatFinish finish) {
  switch (finish) {
    case ChatFinish::length:
      return "length";
    case ChatFinish::tool_calls:
      return "tool_calls";
    case ChatFinish::stop:
    case ChatFinish::cancelled:
    case ChatFinish::error:
      break;
  }
  return "stop";
}

json::object usage_of(const ChatResult& result) {
  return {{"prompt_tokens", result.prompt_tokens},
          {"completion_tokens", result.completion_tokens},
          {"total_tokens", std::uint64_t{result.prompt_tokens} + result.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", result.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", result.reasoning_tokens}}}};
}

double rounded(double value) {
  return std::round(value * 1000) / 1000;
}

json::value ratio(double numerator, double denominator) {
  return denominator > 0 ? json::value(rounded(numerator / denominator)) : json::value(nullptr);
}

// llama.cpp's names. `prompt_n` counts what was read, without what the cache held.
json::object timings_of(const ChatResult& result) {
  const double read = static_cast<double>(result.prompt_tokens) - result.cached_tokens;
  const double prompt_ms = result.prompt_seconds * 1000;
  const double predicted = result.completion_tokens;
  const double predicted_ms = result.decode_seconds * 1000;
  return {{"cache_n", result.cached_tokens},
          {"prompt_n", result.prompt_tokens - result.cached_tokens},
          {"prompt_ms", rounded(prompt_ms)},
          {"prompt_per_token_ms", ratio(prompt_ms, read)},
          {"prompt_per_second", ratio(read, result.prompt_seconds)},
          {"predicted_n", result.completion_tokens},
          {"predicted_ms", rounded(predicted_ms)},
          {"predicted_per_token_ms", ratio(predicted_ms, predicted)},
          {"predicted_per_second", ratio(predicted, result.decode_seconds)}};
}

json::array calls_of(const chat::Message& message) {
  json::array calls;
  for (const chat::ToolCall& call : message.tool_calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return calls;
}

json::object message_of(const chat::Message& message) {
  json::object object = {{"role", "assistant"}};
  object["content"] = message.content.empty() ? json::value(nullptr) : json::value(message.content);
  if (!message.reasoning_content.empty()) object["reasoning_content"] = message.reasoning_content;
  if (!message.tool_calls.empty()) object["tool_calls"] = calls_of(message);
  return object;
}

// Of an error that ended an answer.
ApiError failure_of(const ChatResult& result) {
  ApiError error = api_error(result.error);
  if (error.status < 500) error.status = 500;  // the request had been accepted
  return error;
}

// What both forms of the answer share.
class AnswerObserver : public ChatObserver {
 public:
  AnswerObserver(std::shared_ptr<ResponseWriter> writer, std::string model)
      : writer_(std::move(writer)), model_(std::move(model)), created_(std::time(nullptr)) {}

 protected:
  json::object head(std::string_view kind) const {
    return {{"id", id_},
            {"object", json::string_view(kind.data(), kind.size())},
            {"created", created_},
            {"model", model_}};
  }

  std::shared_ptr<ResponseWriter> writer_;

 private:
  std::string id_ = new_id();
  std::string model_;
  std::int64_t created_;
};

class WholeAnswer final : public AnswerObserver {
 public:
  using AnswerObserver::AnswerObserver;

  void event(const OutputEvent&) override {}
  void finished(const ChatResult& result) override {
    HttpResponse response;
    if (result.finish == ChatFinish::error) {
      const ApiError error = failure_of(result);
      response.status = error.status;
      if (error.status == 503) response.headers.emplace_back("Retry-After", "1");
      response.body = openai_error_body(error);
    } else {
      json::object body = head("chat.completion");
      const std::string_view reason = finish_reason(result.finish);
      body["choices"] = json::array{{{"index", 0},
                                     {"message", message_of(result.message)},
                                     {"logprobs", nullptr},
                                     {"finish_reason", std::string(reason)}}};
      body["usage"] = usage_of(result);
      body["timings"] = timings_of(result);
      response.body = json::serialize(body);
    }
    writer_->send(std::move(response));
  }
};

class StreamedAnswer final : public AnswerObserver {
 public:
  StreamedAnswer(std::shared_ptr<ResponseWriter> writer, std::string model, bool include_usage)
      : AnswerObserver(std::move(writer), std::move(model)), include_usage_(include_usage) {}

  // The head and the role, at once; then comments until the first token.
  void begin() {
    HttpResponse response;
    response.content_type = "text/event-stream";
    response.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    response.body = data(chunk({{"role", "assistant"}, {"content", ""}}, nullptr));
    writer_->begin_stream(std::move(response), std::string(kKeepAlive));
  }

  void event(const OutputEvent& event) override;
  void finished(const ChatResult& result) override;

 private:
  json::object chunk(json::object delta, json::value reason) const {
    json::object object = head("chat.completion.chunk");
    object["choices"] = json::array{
        {{"index", 0}, {"delta", std::move(delta)}, {"finish_reason", std::move(reason)}}};
    if (include_usage_) object["usage"] = nullptr;
    return object;
  }
  static std::string data(const json::object& object) {
    return fmt::format("data: {}\n\n", json::serialize(object));
  }
  void write_delta(json::object delta) { writer_->write(data(chunk(std::move(delta), nullptr))); }

  bool include_usage_;
};

void StreamedAnswer::event(const OutputEvent& event) {
  switch (event.kind) {
    case OutputEvent::Kind::reasoning:
      return write_delta({{"reasoning_content", event.text}});
    case OutputEvent::Kind::content:
      return write_delta({{"content", event.text}});
    case OutputEvent::Kind::tool_call_begin: {
      json::object function = {{"name", event.name}, {"arguments", ""}};
      return write_delta({{"tool_calls", json::array{{{"index", event.index},
                                                      {"id", event.id},
                                                      {"type", "function"},
                                                      {"function", std::move(function)}}}}});
    }
    case OutputEvent::Kind::tool_arguments: {
      json::object function = {{"arguments", event.text}};
      return write_delta({{"tool_calls", json::array{{{"index", event.index},
                                                      {"function", std::move(function)}}}}});
    }
    case OutputEvent::Kind::tool_call_end:
      return;
  }
}

void StreamedAnswer::finished(const ChatResult& result) {
  std::string text;
  if (result.finish == ChatFinish::error) {
    text = fmt::format("data: {}\n\n", openai_error_body(failure_of(result)));
  } else {
    const std::string_view reason = finish_reason(result.finish);
    json::object last = chunk({}, json::value(std::string(reason)));
    last["timings"] = timings_of(result);
    text = data(last);
    if (include_usage_) {
      json::object usage = head("chat.completion.chunk");
      usage["choices"] = json::array();
      usage["usage"] = usage_of(result);
      text += data(usage);
    }
  }
  writer_->write(text + "data: [DONE]\n\n");
  writer_->end_stream();
}

void send_error(ResponseWriter& writer, const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  if (error.status == 503) response.headers.emplace_back("Retry-After", "1");
  response.body = openai_error_body(error);
  writer.send(std::move(response));
}

}  // namespace

void serve_openai_chat(Service& service, const HttpRequest& request,
                       const std::shared_ptr<ResponseWriter>& writer) {
  auto parsed = parse_openai_chat(request.body, service.facts().default_sampling);
  if (!parsed) return send_error(*writer, parsed.error());

  const Executor executor = [writer](std::function<void()> function) {
    writer->post(std::move(function));
  };
  const std::string& model = service.facts().model_name;
  std::shared_ptr<StreamedAnswer> stream;
  std::shared_ptr<ChatObserver> observer;
  if (parsed->stream) {
    observer = stream = std::make_shared<StreamedAnswer>(writer, model, parsed->include_usage);
  } else {
    observer = std::make_shared<WholeAnswer>(writer, model);
  }
  auto id = service.chat(std::move(parsed->chat), executor, std::move(observer));
  if (!id) return send_error(*writer, id.error());
  writer->on_close([&service, id = *id] {
    log_info("answer {}: {}", id,
             service.closed() ? "its connection ended while the server stops" : "the client left");
    service.cancel(id);
  });
  // Before the first event: those wait on the strand until this function returns.
  if (stream) stream->begin();
}

}  // namespace strata::server
