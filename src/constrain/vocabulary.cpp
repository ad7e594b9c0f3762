#include <algorithm>
#include <limits>

#include "constrain/trie.h"

namespace strata::constrain {
namespace {

constexpr std::size_t kMaxTokenBytes = 4'096;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;  // of all tokens together

void build(Vocabulary::Trie& trie) {
  std::vector<std::uint32_t> path;  // the open nodes of the text before
  std::string_view before;
  const auto close_to = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      trie.nodes[path.back()].end = static_cast<std::uint32_t>(trie.nodes.size());
  };
  for (std::size_t i = 0; i < trie.tokens.size(); ++i) {
    const std::string_view text = trie.texts[static_cast<std::size_t>(trie.tokens[i])];
    const auto shared = static_cast<std::size_t>(
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    close_to(shared);
    for (std::size_t k = shared; k < text.size(); ++k) {
      path.push_back(static_cast<std::uint32_t>(trie.nodes.size()));
      trie.nodes.push_back({.end = 0,
                            .first_token = static_cast<std::uint32_t>(i),
                            .depth = static_cast<std::uint16_t>(k + 1),
                            .byte = static_cast<std::uint8_t>(text[k])});
    }
    before = text;
  }
  close_to(0);
  const auto last = static_cast<std::uint32_t>(trie.nodes.size());
  trie.nodes.push_back({last, static_cast<std::uint32_t>(trie.tokens.size()), 0, 0});
}

}  // namespace

Vocabulary::Vocabulary(std::unique_ptr<const Trie> trie) : trie_(std::move(trie)) {}
Vocabulary::~Vocabulary() = default;

std::size_t Vocabulary::size() const {
  return trie_->texts.size();
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::make(std::vector<std::string> texts) {
  if (texts.size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max()))
    return fail(ErrorCode::exhausted, "a vocabulary of {} tokens", texts.size());
  auto trie = std::make_unique<Trie>();
  trie->texts = std::move(texts);
  std::size_t bytes = 0;
  for (std::size_t id = 0; id < trie->texts.size(); ++id) {
    const std::string& text = trie->texts[id];
    if (text.size() > kMaxTokenBytes) {
      return fail(ErrorCode::exhausted, "token {} has {} bytes; constraints take at most {}", id,
                  text.size(), kMaxTokenBytes);
    }
    bytes += text.size();
    if (!text.empty()) trie->tokens.push_back(static_cast<TokenId>(id));
    trie->longest = std::max(trie->longest, static_cast<std::uint16_t>(text.size()));
  }
  if (bytes > kMaxTextBytes)
    return fail(ErrorCode::exhausted, "the texts of the vocabulary have {} bytes", bytes);
  std::sort(trie->tokens.begin(), trie->tokens.end(), [&](TokenId a, TokenId b) {
    const int order =
        trie->texts[static_cast<std::size_t>(a)].compare(trie->texts[static_cast<std::size_t>(b)]);
    return order != 0 ? order < 0 : a < b;
  });
  build(*trie);
  return std::make_shared<const Vocabulary>(std::move(trie));
}

}  // namespace strata::constrain
