// docs/api.md is the promise; the tables of fields are what is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>

#include "server/anthropic.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_responses.h"

namespace strata::server {
namespace {

std::string file_text(const std::string& path) {
  std::ifstream in(fmt::format("{}/{}", STRATA_SOURCE_DIR, path));
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) cells.push_back(cell);
  return cells;
}

// The row of docs/api.md that names `field` in its first cell.
std::vector<std::string> row_of(const std::string& docs, std::string_view field) {
  std::istringstream in(docs);
  const std::string name = fmt::format("`{}`", field);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("|") || std::count(line.begin(), line.end(), '|') != 7) continue;
    const auto cells = cells_of(line);
    if (cells[0].find(name) != std::string::npos) return cells;
  }
  return {};
}

void expect_documented(std::span<const Field> fields, std::size_t column) {
  const std::string docs = file_text("docs/api.md");
  ASSERT_FALSE(docs.empty());
  for (const Field& field : fields) {
    // Second names stand in the text of the first one's row.
    if (field.name == "repeat_penalty" || field.name == "repeat_last_n") {
      EXPECT_NE(docs.find(fmt::format("`{}`", field.name)), std::string::npos);
      continue;
    }
    const auto row = row_of(docs, field.name);
    ASSERT_FALSE(row.empty()) << field.name << " is not in the table of docs/api.md";
    const std::string& cell = row.at(column);
    const char mark = field.use == Field::Use::honoured   ? '+'
                      : field.use == Field::Use::harmless ? '='
                      : field.use == Field::Use::refused  ? 'x'
                                                          : '(';
    EXPECT_NE(cell.find(mark), std::string::npos)
        << field.name << " should be marked " << mark << ", not '" << cell << "'";
  }
}

TEST(Docs, EveryFieldIsInTheTable) {
  expect_documented(openai_chat_fields(), 1);
  expect_documented(openai_completion_fields(), 2);
  expect_documented(openai_responses_fields(), 3);
  expect_documented(anthropic_fields(), 4);
}

// Names of metrics in a text, between these signs: `strata_requests_total`, without labels.
std::set<std::string> metrics_in(const std::string& text, char before, std::string_view after) {
  std::set<std::string> names;
  for (std::size_t at = text.find(before); at != text.npos; at = text.find(before, at + 1)) {
    const std::string_view rest = std::string_view(text).substr(at + 1);
    const std::size_t end = rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_:");
    const std::string_view name = rest.substr(0, end);
    const bool known = std::ranges::any_of(
        std::array<std::string_view, 3>{"strata_", "vllm:", "llamacpp:"},
        [&](std::string_view family) { return name.starts_with(family) && name != family; });
    if (known && end != rest.npos && after.find(rest[end]) != after.npos) names.emplace(name);
  }
  return names;
}

TEST(Docs, MetricsAreThoseOfTheSource) {
  const std::string docs = file_text("docs/api.md");
  const std::size_t begin = docs.find("\n## Metrics\n");
  ASSERT_NE(begin, docs.npos);
  const std::string part = docs.substr(begin, docs.find("\n## ", begin + 1) - begin);
  const std::set<std::string> made = metrics_in(file_text("src/server/metrics.cpp"), '"', "\"");
  EXPECT_GT(made.size(), 80u);
  // Families of the machine stand there as `strata_machine_...`.
  EXPECT_EQ(metrics_in(part, '`', "`{"), made);
}

}  // namespace
}  // namespace strata::server
