#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace strata {
namespace {

constexpr std::size_t kMaxName = 128;  // longer ones are no typing mistakes

std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string_view> nearest(std::string_view given,
                                        std::span<const std::string_view> names) {
  std::optional<std::string_view> best;
  if (given.size() > kMaxName) return best;
  std::size_t least = std::max<std::size_t>(2, given.size() / 3) + 1;
  for (const std::string_view name : names) {
    const std::size_t edits = edits_between(given, name);
    if (edits < least && edits < name.size()) {
      least = edits;
      best = name;
    }
  }
  return best;
}

}  // namespace strata
