#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "constrain/trie.h"
#include "tokenizer/utf8.h"

namespace strata::constrain {
namespace {

constexpr std::size_t kMaxTokenBytes = 4'096;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 26;  // of all tokens together

using Trie = Vocabulary::Trie;

// `tokens` in the order of their texts.
Trie::Tree make_tree(const std::vector<std::string>& texts, std::vector<TokenId> tokens) {
  Trie::Tree tree;
  std::vector<std::uint32_t> path;  // the open nodes of the text before
  std::string_view before;
  const auto close_to = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back())
      tree.nodes[path.back()].end = static_cast<std::uint32_t>(tree.nodes.size());
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = texts[static_cast<std::size_t>(tokens[i])];
    const auto shared = static_cast<std::size_t>(
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    close_to(shared);
    for (std::size_t k = shared; k < text.size(); ++k) {
      path.push_back(static_cast<std::uint32_t>(tree.nodes.size()));
      tree.nodes.push_back({.end = 0,
                            .first_token = static_cast<std::uint32_t>(i),
                            .depth = static_cast<std::uint16_t>(k + 1),
                            .byte = static_cast<std::uint8_t>(text[k])});
    }
    before = text;
  }
  close_to(0);
  const auto last = static_cast<std::uint32_t>(tree.nodes.size());
  tree.nodes.push_back({last, static_cast<std::uint32_t>(tokens.size()), 0, 0});
  tree.nodes.shrink_to_fit();
  tree.tokens = std::move(tokens);
  return tree;
}

struct Shape {
  LetterSet letters = 0;
  std::size_t length = 0;  // in characters
};

// Absent for a text that begins or ends inside a character.
std::optional<Shape> shape_of(std::string_view text) {
  Shape shape;
  for (std::size_t at = 0; at < text.size(); ++shape.length) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.status != Utf8Status::valid) return std::nullopt;
    const Letters kind =
        c.code < 0x80 ? letters_of(static_cast<std::uint8_t>(c.code)) : Letters::wide;
    shape.letters |= static_cast<LetterSet>(1U << static_cast<unsigned>(kind));
    at += c.length;
  }
  return shape;
}

void make_kinds(Trie& trie) {
  struct Member {
    std::size_t length;
    TokenId id;
  };
  std::map<LetterSet, std::vector<Member>> kinds;
  std::vector<TokenId> broken;
  for (const TokenId id : trie.all.tokens) {
    if (const auto shape = shape_of(trie.texts[static_cast<std::size_t>(id)]))
      kinds[shape->letters].push_back({shape->length, id});
    else
      broken.push_back(id);
  }
  for (auto& [letters, members] : kinds) {
    Trie::Kind& kind = trie.kinds.emplace_back();
    kind.letters = letters;
    std::vector<TokenId> ids;
    for (const Member& member : members) ids.push_back(member.id);
    kind.tree = make_tree(trie.texts, std::move(ids));
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.length < b.length; });
    kind.up_to.push_back(0);
    for (const Member& member : members) {
      kind.up_to.resize(member.length + 1, static_cast<std::uint32_t>(kind.by_length.size()));
      kind.by_length.push_back(member.id);
      kind.up_to.back() = static_cast<std::uint32_t>(kind.by_length.size());
    }
  }
  trie.broken = make_tree(trie.texts, std::move(broken));
}

}  // namespace

Letters letters_of(std::uint8_t ascii) {
  if (ascii >= 'a' && ascii <= 'z') return Letters::lower;
  if (ascii >= 'A' && ascii <= 'Z') return Letters::upper;
  if (ascii >= '0' && ascii <= '9') return Letters::digit;
  switch (ascii) {
    case ' ':
      return Letters::space;
    case '_':
    case '-':
      return Letters::joint;
    case '<':
      return Letters::less;
    case '"':
      return Letters::quote;
    case '\\':
      return Letters::backslash;
    case '\t':
    case '\n':
    case '\r':
      return Letters::line;
    default:
      return ascii < 0x20 || ascii == 0x7F ? Letters::control : Letters::punctuation;
  }
}

std::shared_ptr<const Trie::Words> Trie::cover(LetterSet letters, std::uint32_t length) const {
  const std::lock_guard guard(lock_);
  const auto known = covers_.find({letters, length});
  if (known != covers_.end()) return known->second;
  if (covers_.size() == kMostCovers) return nullptr;
  auto mask = std::make_shared<Words>((texts.size() + 63) / 64, 0);
  for (const Kind& kind : kinds) {
    if ((kind.letters & ~letters) != 0) continue;
    const std::uint32_t count = kind.up_to[std::min<std::size_t>(length, kind.up_to.size() - 1)];
    for (std::uint32_t k = 0; k < count; ++k) {
      const auto id = static_cast<std::size_t>(kind.by_length[k]);
      (*mask)[id / 64] |= std::uint64_t{1} << (id % 64);
    }
  }
  covers_.emplace(std::pair(letters, length), mask);
  return mask;
}

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
  std::vector<TokenId> tokens;
  for (std::size_t id = 0; id < trie->texts.size(); ++id) {
    const std::string& text = trie->texts[id];
    if (text.size() > kMaxTokenBytes) {
      return fail(ErrorCode::exhausted, "token {} has {} bytes; constraints take at most {}", id,
                  text.size(), kMaxTokenBytes);
    }
    bytes += text.size();
    if (!text.empty()) tokens.push_back(static_cast<TokenId>(id));
    trie->longest = std::max(trie->longest, static_cast<std::uint16_t>(text.size()));
  }
  if (bytes > kMaxTextBytes)
    return fail(ErrorCode::exhausted, "the texts of the vocabulary have {} bytes", bytes);
  std::sort(tokens.begin(), tokens.end(), [&](TokenId a, TokenId b) {
    const int order =
        trie->texts[static_cast<std::size_t>(a)].compare(trie->texts[static_cast<std::size_t>(b)]);
    return order != 0 ? order < 0 : a < b;
  });
  trie->all = make_tree(trie->texts, std::move(tokens));
  make_kinds(*trie);
  return std::make_shared<const Vocabulary>(std::move(trie));
}

}  // namespace strata::constrain
