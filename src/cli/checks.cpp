#include "cli/checks.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <system_error>

namespace strata {
namespace {

template <class Number>
bool read_whole(std::string_view text, Number& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end;
}

}  // namespace

Check number_between(double least, double most) {
  return [=](const std::string& text) -> std::string {
    double value = 0;
    // NaN is neither inside nor outside: only this way round the comparison refuses it.
    if (read_whole(text, value) && value >= least && value <= most) return "";
    return fmt::format("'{}' is no number from {} to {}", text, least, most);
  };
}

Check whole_number_between(std::int64_t least, std::int64_t most) {
  return [=](const std::string& text) -> std::string {
    std::int64_t value = 0;
    if (read_whole(text, value) && value >= least && value <= most) return "";
    return fmt::format("'{}' is no whole number from {} to {}", text, least, most);
  };
}

Check context_size() {
  return [](const std::string& text) -> std::string {
    std::int64_t value = 0;
    if (read_whole(text, value) && (value == 0 || (value >= kLeastContext && value <= UINT32_MAX)))
      return "";
    return fmt::format(
        "'{}' is no size of a context: 0 is the model's own, and less than {} tokens "
        "hold no conversation",
        text, kLeastContext);
  };
}

Check not_empty(const std::string& what) {
  return [=](const std::string& text) {
    return text.empty() ? fmt::format("{} is empty", what) : std::string();
  };
}

Status check_not_an_input(const std::string& output, const std::vector<std::string>& inputs) {
  for (const std::string& written : {output, output + ".partial"}) {
    for (const std::string& input : inputs) {
      std::error_code error;  // one of them does not exist: they are not the same
      if (!std::filesystem::equivalent(written, input, error)) continue;
      return fail(ErrorCode::invalid_argument,
                  "writing '{}' would destroy '{}', which is read; choose another name", written,
                  input);
    }
  }
  return {};
}

Status check_room(const std::string& output, std::uint64_t bytes) {
  const std::filesystem::path folder = std::filesystem::path(output).parent_path();
  std::error_code error;  // a folder that is not there is refused when the file is made
  const auto space = std::filesystem::space(folder.empty() ? "." : folder, error);
  if (error || space.available >= bytes) return {};
  return fail(ErrorCode::exhausted, "'{}' needs {:.2f} GB of disk and {:.2f} GB are free", output,
              double(bytes) / 1e9, double(space.available) / 1e9);
}

}  // namespace strata
