// OpenAI's chat completions: the JSON request to the neutral form, the neutral events to JSON or
// server-sent events. docs/api.md lists every field and what happens to it.
#pragma once

#include <span>
#include <string_view>

#include "server/answer_json.h"
#include "server/request_fields.h"

namespace strata::server {

struct OpenAiChatRequest {
  ChatRequest chat;
  std::string model;  // as asked
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  bool progress = false;       // return_progress
};

std::span<const Field> openai_chat_fields();
// Over `defaults`: a request before its own fields are read.
Answer<OpenAiChatRequest> parse_openai_chat(std::string_view body, const ChatRequest& defaults);

// POST /v1/chat/completions.
void serve_openai_chat(const ServicePtr& service, const HttpRequest& request, const Writer& writer);

// "stream" and "stream_options", which OpenAI's completions have too.
Answer<void> read_openai_stream(const boost::json::object& body, bool& stream, bool& include_usage);

}  // namespace strata::server
