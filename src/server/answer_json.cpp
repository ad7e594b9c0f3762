#include "server/answer_json.h"

#include <cmath>
#include <random>

#include "base/json_number.h"
#include "base/log.h"
#include "tokenizer/utf8_stream.h"

namespace strata::server {

namespace json = boost::json;

std::string new_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), random() & 0xFFFFFFFFu);
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

json::object usage_json(std::span<const ChatResult> choices) {
  std::uint64_t completion = 0, reasoning = 0;
  for (const ChatResult& choice : choices) {
    completion += choice.completion_tokens;
    reasoning += choice.reasoning_tokens;
  }
  const ChatResult& first = choices.front();
  return {{"prompt_tokens", first.prompt_tokens},
          {"completion_tokens", completion},
          {"total_tokens", first.prompt_tokens + completion},
          {"prompt_tokens_details", {{"cached_tokens", first.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

namespace {

double rounded(double value) {
  return std::round(value * 1000) / 1000;
}

json::value ratio(double numerator, double denominator) {
  return denominator > 0 ? json::value(rounded(numerator / denominator)) : json::value(nullptr);
}

}  // namespace

json::object timings_json(const ChatResult& result) {
  const double read = static_cast<double>(result.prompt_tokens) - result.cached_tokens;
  const double prompt_ms = result.prompt_seconds * 1000;
  const double predicted = result.completion_tokens;
  const double predicted_ms = result.decode_seconds * 1000;
  json::object timings = {{"cache_n", result.cached_tokens},
                          {"prompt_n", result.prompt_tokens - result.cached_tokens},
                          {"prompt_ms", rounded(prompt_ms)},
                          {"prompt_per_token_ms", ratio(prompt_ms, read)},
                          {"prompt_per_second", ratio(read, result.prompt_seconds)},
                          {"predicted_n", result.completion_tokens},
                          {"predicted_ms", rounded(predicted_ms)},
                          {"predicted_per_token_ms", ratio(predicted_ms, predicted)},
                          {"predicted_per_second", ratio(predicted, result.decode_seconds)}};
  if (result.cached_disk_tokens > 0) timings["cache_disk_n"] = result.cached_disk_tokens;
  if (result.drafted > 0) {
    timings["draft_n"] = result.drafted;
    timings["draft_n_accepted"] = result.accepted;
  }
  return timings;
}

void add_guards(json::object& object, const ChatResult& result) {
  if (result.thinking_cut != ThinkingCut::none)
    object["thinking_cut"] = std::string(to_string(result.thinking_cut));
  if (result.stopped_by != StoppedBy::none)
    object["stopped_by"] = std::string(to_string(result.stopped_by));
  if (result.ended_in_thinking) object["ended_inside_thinking"] = true;
}

std::string token_text(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.bytes(id);
  Utf8Stream stream;
  std::string text = stream.feed(bytes);
  text += stream.flush();
  if (text == bytes) return text;
  text = "bytes:";
  for (const char byte : bytes) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  return text;
}

json::object logprob_json(const Tokenizer& tokenizer, const TokenChances& chances) {
  const auto entry = [&](const TokenChances::Chance& chance) {
    json::array bytes;
    for (const char byte : tokenizer.bytes(chance.id)) {
      bytes.push_back(static_cast<unsigned char>(byte));
    }
    return json::object{{"token", token_text(tokenizer, chance.id)},
                        {"logprob", chance.logprob},
                        {"bytes", std::move(bytes)}};
  };
  json::object object = entry(chances.chosen);
  json::array top;
  for (const auto& chance : chances.top) top.push_back(entry(chance));
  object["top_logprobs"] = std::move(top);
  return object;
}

json::array tool_calls_json(const chat::Message& message) {
  json::array calls;
  for (const chat::ToolCall& call : message.tool_calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return calls;
}

ApiError failure_of(const ChatResult& result) {
  ApiError error = api_error(result.error);
  // Before anything was written it is still the request that cannot be (its constraint); later on
  // it is the server's failure.
  if (error.status < 500 && result.completion_tokens > 0) error.status = 500;
  return error;
}

void send_json(ResponseWriter& writer, const json::value& body, unsigned status) {
  HttpResponse response;
  response.status = status;
  response.body = write_json(body);
  writer.send(std::move(response));
}

namespace {

void send_error_body(ResponseWriter& writer, unsigned status, std::string body) {
  HttpResponse response;
  response.status = status;
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  response.body = std::move(body);
  writer.send(std::move(response));
}

}  // namespace

void send_openai_error(ResponseWriter& writer, const ApiError& error) {
  send_error_body(writer, error.status, openai_error_body(error));
}

void send_anthropic_error(ResponseWriter& writer, const ApiError& error) {
  send_error_body(writer, error.status, anthropic_error_body(error));
}

HttpResponse stream_head(std::string body) {
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  response.body = std::move(body);
  return response;
}

void open_stream(ResponseWriter& writer, std::string body, const std::shared_ptr<QueuePlace>& place,
                 bool held, KeepAlive keep_alive) {
  if (!held) return writer.begin_stream(stream_head(std::move(body)), std::move(keep_alive));
  place->held = true;
  writer.hold_stream(stream_head(std::move(body)), [place, keep_alive = std::move(keep_alive)] {
    place->held = false;
    return keep_alive();
  });
}

void release_head(ResponseWriter& writer, QueuePlace& place) {
  if (!std::exchange(place.held, false)) return;
  writer.write({});
}

std::string sse_data(const json::object& object) {
  return fmt::format("data: {}\n\n", write_json(object));
}

std::string sse_event(std::string_view name, const json::object& object) {
  return fmt::format("event: {}\ndata: {}\n\n", name, write_json(object));
}

void cancel_on_close(const ServicePtr& service, const Writer& writer, std::vector<RequestId> ids) {
  writer->on_close([service, ids = std::move(ids)] {
    log_info("answer {}: {}", ids.front(),
             service->closed() ? "its connection ended while the server stops" : "the client left");
    service->cancel(ids);
  });
}

}  // namespace strata::server
