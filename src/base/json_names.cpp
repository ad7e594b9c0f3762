#include "base/json_names.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

namespace strata {
namespace {

namespace json = boost::json;

// Behind the closing quote of the string literal that begins there.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// What a message quotes of a name.
std::string_view beginning(std::string_view name) {
  constexpr std::size_t kMostBytes = 100;
  if (name.size() <= kMostBytes) return name;
  std::size_t size = kMostBytes;
  while (size > 0 && (static_cast<unsigned char>(name[size]) & 0xC0u) == 0x80u) --size;
  return name.substr(0, size);
}

}  // namespace

std::string json_place(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", lines + 1, at - line_start + 1);
}

// In valid JSON a string is a name where one is due, and brackets match. Names are sorted, so that
// no choice of them is slow.
Status check_names(std::string_view text, const JsonSource& source) {
  struct Name {
    std::string_view name;
    std::size_t at = 0;
    auto operator<=>(const Name&) const = default;
  };
  struct Open {
    bool object = false;
    bool name_due = false;
    std::vector<Name> names = {};
  };
  std::vector<Open> open;
  std::deque<std::string> decoded;  // names that are written with escapes
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{' || c == '[') {
      open.push_back({c == '{', c == '{'});
    } else if (c == '}' || c == ']') {
      std::vector<Name>& names = open.back().names;
      std::sort(names.begin(), names.end());
      const auto twice =
          std::adjacent_find(names.begin(), names.end(),
                             [](const Name& a, const Name& b) { return a.name == b.name; });
      if (twice != names.end()) {
        const std::string_view quoted = beginning(twice->name);
        return fail(source.code, "{} has '{}{}' twice in one object: at {} and at {}", source.name,
                    quoted, quoted.size() < twice->name.size() ? "..." : "",
                    json_place(text, twice->at), json_place(text, std::next(twice)->at));
      }
      open.pop_back();
    } else if (c == ',') {
      open.back().name_due = open.back().object;
    } else if (c == '"') {
      const std::size_t end = string_end(text, at);
      if (!open.empty() && std::exchange(open.back().name_due, false)) {
        std::string_view name = text.substr(at + 1, end - at - 2);
        if (name.find('\\') != name.npos) {
          STRATA_ASSIGN(const json::value value, parse_json(text.substr(at, end - at), source));
          name = decoded.emplace_back(value.as_string());
        }
        open.back().names.push_back({name, at});
      }
      at = end - 1;
    }
  }
  return {};
}

}  // namespace strata
