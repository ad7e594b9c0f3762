// Parts of answers that several dialects share: ids, usage, timings, log-probabilities, streams.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"
#include "server/neutral.h"
#include "server/service.h"

namespace strata::server {

using ServicePtr = std::shared_ptr<Service>;
using Writer = std::shared_ptr<ResponseWriter>;

// Where a request stands, for the comments of its silent stream. Belongs to its strand.
struct QueuePlace {
  std::optional<std::uint32_t> ahead;  // requests before it, while it waits
  bool held = false;                   // the head of its stream waits for the engine's first word
  std::string comment() const {
    return ahead ? fmt::format(": queued, {} ahead\n\n", *ahead) : ": keep-alive\n\n";
  }
};

// The prefix and 24 random hexadecimal digits.
std::string new_id(std::string_view prefix);

// OpenAI's words: "stop", "length", "tool_calls".
std::string_view finish_reason(ChatFinish finish);

// Counts of all choices of a request; the prompt counts once.
boost::json::object usage_json(std::span<const ChatResult> choices);
// llama.cpp's timings. `prompt_n` counts what was read, without what the cache held; `draft_n` and
// `draft_n_accepted` are there where something was guessed.
boost::json::object timings_json(const ChatResult& result);

// What the guards did, where they did something: "thinking_cut", "stopped_by", and
// "ended_inside_thinking" of an answer that is nothing but thinking.
void add_guards(boost::json::object& object, const ChatResult& result);

// {"token","logprob","bytes","top_logprobs":[...]} as in OpenAI's chat.
boost::json::object logprob_json(const Tokenizer& tokenizer, const TokenChances& chances);
// The token's text; one that is no whole character as "bytes:\xNN..." (OpenAI's way).
std::string token_text(const Tokenizer& tokenizer, TokenId id);

boost::json::array tool_calls_json(const chat::Message& message);

// Of an error that ended an answer that had been accepted: never below 500.
ApiError failure_of(const ChatResult& result);

void send_json(ResponseWriter& writer, const boost::json::value& body, unsigned status = 200);
void send_openai_error(ResponseWriter& writer, const ApiError& error);
void send_anthropic_error(ResponseWriter& writer, const ApiError& error);

// The head of an event stream, with its first bytes.
HttpResponse stream_head(std::string body);
// Begins an event stream. `held`: not before release_head(), nor keep_alive_time, as the engine
// may still refuse the request; place->held says whether an error can be sent instead.
void open_stream(ResponseWriter& writer, std::string body, const std::shared_ptr<QueuePlace>& place,
                 bool held, KeepAlive keep_alive);
void release_head(ResponseWriter& writer, QueuePlace& place);
// "data: ...\n\n", and with "event: NAME\n" before it.
std::string sse_data(const boost::json::object& object);
std::string sse_event(std::string_view name, const boost::json::object& object);

// Cancels the answers when the client leaves.
void cancel_on_close(const ServicePtr& service, const Writer& writer, std::vector<RequestId> ids);

inline Executor executor_of(const Writer& writer) {
  return [writer](std::function<void()> function) { writer->post(std::move(function)); };
}

}  // namespace strata::server
