// Errors as values. Every fallible function of Strata returns Result<T> (or Status); nothing throws
// across a module border. An error carries a class, for the program, and one sentence, for the
// person: what was wrong, the number, and what to do about it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace strata {

enum class ErrorCode {
  invalid_argument,  // the caller's value (a flag, a request field) is not usable
  not_found,         // a file, key, tensor or model that is not there
  io,                // the operating system refused; the message holds errno's text
  corrupt,           // a file's content contradicts its format or itself
  unsupported,       // well-formed, but this build or model cannot do it
  exhausted,         // a named limit or the machine's memory is reached
  cancelled,         // the caller took the request back
  unavailable,       // not now (starting, stopping, dead engine); later may work
  internal,          // a broken invariant of ours
};

// The class in lower case, as logs and HTTP errors print it: "invalid_argument", "io", ...
std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// fail(ErrorCode::corrupt, "tensor {} ends at {} but the file has {} bytes", ...) as a return
// value.
template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> text,
                                         Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(text, std::forward<Args>(args)...)});
}

// Puts the place in front of the sentence: "while loading 'x.gguf': ...".
[[nodiscard]] inline tl::unexpected<Error> with_context(Error error, std::string_view context) {
  error.message = fmt::format("{}: {}", context, error.message);
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace strata

// Early return needs a macro. STRATA_TRY(status) leaves the function on failure;
// STRATA_ASSIGN(auto x, result) also unpacks the value.
// A declaration cannot stand in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define STRATA_CONCAT_IMPL(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_IMPL(a, b)
#define STRATA_TRY(expression)                                                  \
  do {                                                                          \
    if (auto strata_status = (expression); !strata_status)                      \
      return tl::unexpected<::strata::Error>(std::move(strata_status).error()); \
  } while (false)
#define STRATA_ASSIGN_IMPL(temporary, declaration, expression)                          \
  auto temporary = (expression);                                                        \
  if (!temporary) return tl::unexpected<::strata::Error>(std::move(temporary).error()); \
  declaration = std::move(*temporary)
#define STRATA_ASSIGN(declaration, expression) \
  STRATA_ASSIGN_IMPL(STRATA_CONCAT(strata_result_, __LINE__), declaration, expression)
// NOLINTEND(bugprone-macro-parentheses)
