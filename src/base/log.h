// Lines for the operator, on stderr, in one format:
//
//   2026-01-31T12:00:00.000Z info  text
//
// Control characters of the text are escaped (CR, LF and ESC among them), so that nothing a request
// or a file carries can forge a line or reach the terminal; a text beyond kMaxLogBytes is cut and
// says so. May be used from any thread. Never put keys or the content of conversations into it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace strata {

enum class LogLevel { trace, debug, info, warning, error, off };
std::string_view to_string(LogLevel level);

inline constexpr std::size_t kMaxLogBytes = 8192;

// "trace", "debug", "info", "warning" (or "warn"), "error", "off". The level is info at the start.
Status set_log_level(std::string_view name);
void set_log_level(LogLevel level);
LogLevel log_level();

void log_text(LogLevel level, std::string_view text);

// The text as it appears in the log: \n, \r, \t, \xNN for other control characters (C1 in UTF-8
// too), \\ for a backslash.
std::string escape_for_log(std::string_view text);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (level >= log_level()) log_text(level, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::debug, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::info, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::warning, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::error, text, std::forward<Args>(args)...);
}

}  // namespace strata
