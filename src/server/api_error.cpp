#include "server/api_error.h"

#include <boost/json.hpp>

#include "tokenizer/utf8_stream.h"

namespace strata::server {
namespace {

constexpr std::size_t kMaxMessageBytes = 2048;  // messages quote what they were given

// JSON must be UTF-8, and what messages quote (a header, say) need not be.
std::string presentable(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.feed(text.substr(0, kMaxMessageBytes));
  out += text.size() > kMaxMessageBytes ? "..." : stream.flush();
  return out;
}

}  // namespace

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
  const boost::json::value body = {{"error",
                                    {{"message", presentable(error.message)},
                                     {"type", std::string(error_type(error.status))},
                                     {"param", text_or_null(error.param)},
                                     {"code", text_or_null(error.code)}}}};
  return boost::json::serialize(body);
}

}  // namespace strata::server
