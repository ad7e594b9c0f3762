// Names that stand twice in one object of JSON that people write.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace strata {
namespace {

namespace json = boost::json;

std::string place_of(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", lines + 1, at - line_start + 1);
}

// Behind the closing quote of the string literal that begins there.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// `text` is valid JSON; so a string is a name where one is due, and brackets match.
Status check_names(std::string_view text, const JsonSource& source) {
  struct Open {
    bool object = false;
    bool name_due = false;
    std::map<std::string, std::size_t> names = {};  // and where they stand
  };
  std::vector<Open> open;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{' || c == '[') {
      open.push_back({c == '{', c == '{'});
    } else if (c == '}' || c == ']') {
      open.pop_back();
    } else if (c == ',') {
      open.back().name_due = open.back().object;
    } else if (c == '"') {
      const std::size_t end = string_end(text, at);
      if (!open.empty() && std::exchange(open.back().name_due, false)) {
        STRATA_ASSIGN(const json::value name, parse_json(text.substr(at, end - at), source));
        const auto [known, fresh] =
            open.back().names.try_emplace(std::string(name.as_string()), at);
        if (!fresh) {
          return fail(source.code, "{} has '{}' twice in one object: at {} and at {}", source.name,
                      known->first, place_of(text, known->second), place_of(text, at));
        }
      }
      at = end - 1;
    }
  }
  return {};
}

}  // namespace

Result<json::value> parse_written_json(std::string_view text, JsonSource source,
                                       std::size_t depth) {
  STRATA_ASSIGN(json::value value, parse_json(text, source, depth));
  STRATA_TRY(check_names(text, source));
  return value;
}

}  // namespace strata
