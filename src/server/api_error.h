// What the API refuses or fails with, before a dialect gives it its shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "base/result.h"

namespace strata::server {

// The numbers of a request that does not fit the context.
struct ContextExcess {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t max_tokens = 0;  // asked for, 0 = none
  std::uint64_t context = 0;
};

struct ApiError {
  unsigned status = 400;
  std::string message;  // one sentence: what, the number, what to do
  std::string param;    // the request's field, may be empty
  std::string code;     // "context_length_exceeded", "model_not_found"; may be empty
  std::optional<ContextExcess> excess = {};
};

template <class T>
using Answer = tl::expected<T, ApiError>;

template <class... Args>
[[nodiscard]] tl::unexpected<ApiError> refuse(unsigned status, std::string_view param,
                                              fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected<ApiError>(
      ApiError{status, fmt::format(text, std::forward<Args>(args)...), std::string(param), {}});
}

// The status of an error that is not the request's own shape: invalid_argument and unsupported are
// 400, exhausted (a full queue) and unavailable 503, the rest 500.
ApiError api_error(const Error& error, std::string_view param = {});

// OpenAI's `type` for a status: "invalid_request_error", "authentication_error", "server_error"...
std::string_view error_type(unsigned status);

// OpenAI's error object as text; one about the context also has llama.cpp's n_prompt_tokens and
// n_ctx.
std::string openai_error_body(const ApiError& error);
// Anthropic's.
std::string anthropic_error_body(const ApiError& error);

// Valid UTF-8 of bounded length, for messages that quote what they were given.
std::string presentable(std::string_view text);

}  // namespace strata::server
