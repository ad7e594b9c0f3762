// Anthropic's messages: the JSON request to the neutral form, the neutral events to Anthropic's
// JSON or event stream. docs/api.md lists every field.
#pragma once

#include <span>
#include <string_view>

#include "server/answer_json.h"
#include "server/request_fields.h"

namespace strata::server {

inline constexpr std::size_t kMaxStopSequences = 16;

struct AnthropicRequest {
  ChatRequest chat;
  std::string model;
  bool stream = false;
};

std::span<const Field> anthropic_fields();
Answer<AnthropicRequest> parse_anthropic(std::string_view body, const ChatRequest& defaults);

// POST /v1/messages and /v1/messages/count_tokens.
void serve_anthropic_messages(const ServicePtr& service, const HttpRequest& request,
                              const Writer& writer);
void serve_anthropic_count(const ServicePtr& service, const HttpRequest& request,
                           const Writer& writer);

}  // namespace strata::server
