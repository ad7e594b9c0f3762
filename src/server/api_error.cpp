#include "server/api_error.h"

#include <boost/json.hpp>

#include "tokenizer/utf8_stream.h"

namespace strata::server {
namespace {

constexpr std::size_t kMaxMessageBytes = 2048;  // messages quote what they were given

}  // namespace

// JSON must be UTF-8, and what messages quote (a header, say) need not be.
std::string presentable(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.feed(text.substr(0, kMaxMessageBytes));
  out += text.size() > kMaxMessageBytes ? "..." : stream.flush();
  return out;
}

ApiError api_error(const Error& error, std::string_view param) {
  ApiError result{500, error.message, std::string(param), {}};
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      result.status = 400;
      break;
    case ErrorCode::not_found:
      result.status = 404;
      break;
    case ErrorCode::exhausted:
    case ErrorCode::unavailable:
    case ErrorCode::cancelled:
      result.status = 503;
      break;
    case ErrorCode::io:
    case ErrorCode::corrupt:
    case ErrorCode::internal:
      break;
  }
  return result;
}

std::string_view error_type(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "forbidden";
    case 409:
      return "model_busy";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string openai_error_body(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? boost::json::value(nullptr) : boost::json::value(presentable(text));
  };
  boost::json::object object = {{"message", presentable(error.message)},
                                {"type", std::string(error_type(error.status))},
                                {"param", text_or_null(error.param)},
                                {"code", text_or_null(error.code)}};
  if (error.excess) {
    object["n_prompt_tokens"] = error.excess->prompt_tokens;
    object["n_ctx"] = error.excess->context;
  }
  return boost::json::serialize(boost::json::object{{"error", std::move(object)}});
}

namespace {

std::string_view anthropic_type(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// Its clients recognise these two sentences and shorten what they send.
std::string anthropic_message(const ApiError& error) {
  if (!error.excess) return error.message;
  const ContextExcess& excess = *error.excess;
  if (excess.max_tokens > 0 && excess.prompt_tokens < excess.context) {
    return fmt::format(
        "input length and `max_tokens` exceed context limit: {} + {} > {}, decrease input length "
        "or `max_tokens` and try again",
        excess.prompt_tokens, excess.max_tokens, excess.context);
  }
  return fmt::format("prompt is too long: {} tokens > {} maximum", excess.prompt_tokens,
                     excess.context);
}

}  // namespace

std::string anthropic_error_body(const ApiError& error) {
  const boost::json::object body = {{"type", "error"},
                                    {"error",
                                     {{"type", std::string(anthropic_type(error.status))},
                                      {"message", presentable(anthropic_message(error))}}}};
  return boost::json::serialize(body);
}

}  // namespace strata::server
