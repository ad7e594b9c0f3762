// How long typical languages take to be compiled, and how large they are: the table "Automata" of
// docs/results/constrain.md.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <set>
#include <string>

#include "constrain/automaton.h"

namespace {

using namespace strata;
using namespace strata::constrain;

constexpr int kRounds = 9;

void measure(std::string_view what, const std::function<Result<Regular>()>& make) {
  std::array<double, kRounds> milliseconds{};
  Result<Regular> language = Regular();
  for (double& one : milliseconds) {
    const auto begin = std::chrono::steady_clock::now();
    language = make();
    one =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::sort(milliseconds);
  if (!language) {
    fmt::print("| {} | {:.2f} | {:.2f} | {} | |\n", what, milliseconds[kRounds / 2],
               milliseconds[kRounds - 1], language.error().message);
    return;
  }
  fmt::print("| {} | {:.2f} | {:.2f} | {} | {} |\n", what, milliseconds[kRounds / 2],
             milliseconds[kRounds - 1], language->states(), language->automaton().memory() / 1024);
}

Result<Regular> literal(const Result<Regular>& text) {
  return text.and_then([](const Regular& it) { return json_string(it); });
}

std::vector<Regular> words(std::size_t count) {
  std::mt19937 random(1);
  std::set<std::string> list;
  while (list.size() < count) {
    std::string word;
    for (auto i = 3 + random() % 12; i-- > 0;) word += static_cast<char>('a' + random() % 26);
    list.insert(word);
  }
  std::vector<Regular> parts;
  for (const std::string& word : list) parts.push_back(Regular::literal(word));
  return parts;
}

}  // namespace

int main() {
  fmt::print(
      "| language | median ms | most ms | states | KiB |\n| --- | ---: | ---: | ---: | ---: |\n");
  const auto lengths = [](unsigned least, unsigned most) {
    return repeat(Regular::any_character(), least, most);
  };
  measure("0 to 10,000 characters", [&] { return lengths(0, 10'000); });
  measure("the same as a JSON string", [&] { return literal(lengths(0, 10'000)); });
  measure("at least 10,000 characters, as a JSON string",
          [&] { return literal(repeat(Regular::any_character(), 10'000, {})); });
  const std::vector<Regular> list = words(1'000);
  measure("1,000 words", [&] { return either(list); });
  measure("the same as JSON strings, every spelling", [&] { return literal(either(list)); });
  for (const std::string_view pattern :
       {"^[A-Za-z_][A-Za-z0-9_]{0,63}$", "^[a-z0-9]+(-[a-z0-9]+)*$", "^(?!.*--)[a-z-]{1,40}$",
        "\\bfoo\\b", "^[\\p{L}' -]{1,50}$"}) {
    measure(fmt::format("`{}`", pattern), [&] { return regex(pattern, Match::anywhere); });
    measure("the same as a JSON string", [&] { return literal(regex(pattern, Match::anywhere)); });
  }
  measure("`(a\\|b)*a(a\\|b){60}`, refused",
          [&] { return regex("^(a|b)*a(a|b){60}$", Match::anywhere); });
  NumberBounds bounds;
  bounds.least = "-9007199254740991";
  bounds.most = "9007199254740991";
  bounds.integer = true;
  measure("integers of 53 bits", [&] { return json_number(bounds); });
  bounds.multiple_of = 25;
  measure("those of them that are multiples of 25", [&] { return json_number(bounds); });
  measure("`date-time` as a JSON string",
          [&] { return literal(Result<Regular>(*format_text("date-time"))); });
  measure("`uri` as a JSON string", [&] { return literal(Result<Regular>(*format_text("uri"))); });
}
