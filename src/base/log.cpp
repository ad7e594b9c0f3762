#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <iterator>
#include <memory>

namespace strata {
namespace {

constexpr LogLevel kLevels[] = {LogLevel::trace,   LogLevel::debug, LogLevel::info,
                                LogLevel::warning, LogLevel::error, LogLevel::off};

std::atomic<LogLevel> current_level{LogLevel::info};

// Lives until the process ends, so that threads and destructors may log at any time.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto* made = new spdlog::logger("strata", std::move(sink));
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%S.%eZ %-7l %v", spdlog::pattern_time_type::utc));
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum convert(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return "trace";
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
    case LogLevel::off:
      return "off";
  }
  return "off";
}

Status set_log_level(std::string_view name) {
  if (name == "warn") name = "warning";
  for (const LogLevel level : kLevels) {
    if (to_string(level) == name) {
      set_log_level(level);
      return {};
    }
  }
  return fail(ErrorCode::invalid_argument,
              "'{}' is no log level; use trace, debug, info, warning, error or off",
              escape_for_log(name));
}

void set_log_level(LogLevel level) {
  current_level.store(level, std::memory_order_relaxed);
}

LogLevel log_level() {
  return current_level.load(std::memory_order_relaxed);
}

void log_text(LogLevel level, std::string_view text) {
  if (level < log_level() || level == LogLevel::off) return;
  std::string line = escape_for_log(text.substr(0, kMaxLogBytes));
  if (text.size() > kMaxLogBytes) line += fmt::format(" ... ({} bytes)", text.size());
  logger().log(convert(level), spdlog::string_view_t(line.data(), line.size()));
}

std::string escape_for_log(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\r') {
      out += "\\r";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\\') {
      out += "\\\\";
    } else if (byte < 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    } else if (byte == 0xc2 && next >= 0x80 && next <= 0x9f) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace strata
