// OpenAI's chat completions: the JSON request to the neutral form, the neutral events to JSON or
// server-sent events. docs/api.md lists every field and what happens to it; a field that is not
// listed there is refused by name.
#pragma once

#include <memory>
#include <string_view>

#include "server/http.h"
#include "server/service.h"

namespace strata::server {

struct OpenAiChatRequest {
  ChatRequest chat;
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
};

// `defaults` fills the sampling that the request leaves open. A request that samples without a
// seed gets a fresh one.
Answer<OpenAiChatRequest> parse_openai_chat(std::string_view body, const Sampling& defaults);

// POST /v1/chat/completions.
void serve_openai_chat(Service& service, const HttpRequest& request,
                       const std::shared_ptr<ResponseWriter>& writer);

}  // namespace strata::server
