#include "tokenizer/tokenizer.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/byte_pairs.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/quoted.h"
#include "tokenizer/special_matcher.h"
#include "tokenizer/utf8.h"

namespace strata {

namespace {

// The bytes of all tokens in one string.
class TokenBytes {
 public:
  std::size_t size() const { return ends_.size(); }
  void append(std::string_view bytes) {
    text_ += bytes;
    ends_.push_back(text_.size());
  }
  std::string_view operator[](std::size_t id) const {
    const std::size_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::string_view(text_).substr(begin, ends_[id] - begin);
  }

 private:
  std::string text_;
  std::vector<std::size_t> ends_;
};

// Most pieces of ordinary text are a token as they stand. This hash table knows the tokens that the
// merging of their own bytes would give, so that merging can be left out for them.
class WholePieces {
 public:
  static constexpr std::size_t kLongest = BytePairs::kShort;

  void build(const TokenBytes& bytes, const std::vector<TokenKind>& kinds, const BytePairs& pairs) {
    const std::size_t size = std::bit_ceil(2 * bytes.size() + 2);
    slots_.assign(size, {});
    std::vector<TokenId> ids;
    for (std::size_t id = 0; id < bytes.size(); ++id) {
      const std::string_view piece = bytes[id];
      if (kinds[id] != TokenKind::normal || piece.size() > kLongest) continue;
      ids.clear();
      pairs.encode(piece, ids);
      if (ids.size() != 1 || ids[0] != static_cast<TokenId>(id)) continue;
      const std::uint64_t hash = XXH3_64bits(piece.data(), piece.size());
      std::size_t slot = hash & (size - 1);
      while (slots_[slot].id >= 0) slot = (slot + 1) & (size - 1);
      slots_[slot] = {static_cast<std::uint32_t>(hash >> 32), static_cast<TokenId>(id)};
    }
  }

  // The token, or -1.
  TokenId find(std::string_view piece, const TokenBytes& bytes) const {
    if (piece.size() > kLongest) return -1;
    const std::uint64_t hash = XXH3_64bits(piece.data(), piece.size());
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t slot = hash & mask;; slot = (slot + 1) & mask) {
      const Slot& here = slots_[slot];
      if (here.id < 0) return -1;
      if (here.tag == tag && bytes[static_cast<std::size_t>(here.id)] == piece) return here.id;
    }
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;  // high bits of the hash: most other pieces are told apart without bytes
    TokenId id = -1;
  };
  std::vector<Slot> slots_;  // a power of two, at most half of them used
};

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  TokenBytes bytes;
  SpecialMatcher specials;
  BytePairs pairs;
  WholePieces whole;

  void encode_plain(std::string_view text, std::vector<TokenId>& out) const {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = piece_end(text, begin);
      const std::string_view piece = text.substr(begin, end - begin);
      if (const TokenId id = whole.find(piece, bytes); id >= 0) {
        out.push_back(id);
      } else {
        pairs.encode(piece, out);
      }
      begin = end;
    }
  }
};

namespace {

using IdsByText = std::unordered_map<std::string_view, TokenId>;

bool is_special(TokenKind kind) {
  return kind == TokenKind::control || kind == TokenKind::user_defined;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.status != Utf8Status::valid) return false;
    at += c.length;
  }
  return true;
}

// The checks on the texts of tokens, in the order of ids, and what follows from them.
class VocabularyReader {
 public:
  VocabularyReader(const Tokenizer::Vocabulary& vocabulary, const Tokenizer::VocabularyNames& names)
      : vocabulary_(vocabulary), names_(names) {}

  Status check_sizes() const {
    const auto& [tokens, kinds, merges] = vocabulary_;
    if (tokens.size() > Tokenizer::kMaxTokens) {
      return fail(ErrorCode::exhausted, "{} has {} tokens; the limit is {}", names_.tokens,
                  tokens.size(), Tokenizer::kMaxTokens);
    }
    if (merges.size() > Tokenizer::kMaxMerges) {
      return fail(ErrorCode::exhausted, "{} has {} merges; the limit is {}", names_.merges,
                  merges.size(), Tokenizer::kMaxMerges);
    }
    if (kinds.size() != tokens.size()) {
      return fail(ErrorCode::corrupt,
                  "{} has {} entries but {} has {}; they must be equal in number", names_.kinds,
                  kinds.size(), names_.tokens, tokens.size());
    }
    return {};
  }

  Status read_tokens(TokenBytes& bytes, SpecialMatcher& specials) {
    ids_.reserve(vocabulary_.tokens.size());
    for (std::size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      STRATA_TRY(read_token(i, bytes, specials));
    }
    return {};
  }

  Result<std::array<TokenId, 256>> byte_tokens() const {
    std::array<TokenId, 256> ids{};
    for (unsigned b = 0; b < 256; ++b) {
      const auto byte = static_cast<std::uint8_t>(b);
      const auto found = ids_.find(printable(byte));
      if (found == ids_.end() || kind(found->second) != TokenKind::normal) {
        return fail(ErrorCode::corrupt,
                    "{} has no normal token for the byte {:#04x} ('{}'), so text that holds it "
                    "could not be encoded",
                    names_.tokens, b, printable(byte));
      }
      ids[b] = found->second;
    }
    return ids;
  }

  Result<MergeTable> read_merges() const {
    MergeTable table(vocabulary_.merges.size());
    std::string merged_text;
    for (std::size_t i = 0; i < vocabulary_.merges.size(); ++i) {
      const std::string_view merge = vocabulary_.merges[i];
      const std::size_t space = merge.find(' ');
      if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
          merge.find(' ', space + 1) != std::string_view::npos) {
        return fail(ErrorCode::corrupt,
                    "{}[{}] is {}; a merge is two tokens with one space between", names_.merges, i,
                    quoted(merge));
      }
      merged_text = merge.substr(0, space);
      merged_text += merge.substr(space + 1);
      STRATA_ASSIGN(const TokenId left, merge_token(i, merge.substr(0, space)));
      STRATA_ASSIGN(const TokenId right, merge_token(i, merge.substr(space + 1)));
      STRATA_ASSIGN(const TokenId merged, merge_token(i, merged_text));
      if (!table.insert(left, right, {static_cast<std::uint32_t>(i), merged})) {
        return fail(ErrorCode::corrupt, "{}[{}] ({}) repeats [{}]; a pair has one rank",
                    names_.merges, i, quoted(merge), table.find(left, right).rank);
      }
    }
    return table;
  }

 private:
  TokenKind kind(TokenId id) const { return vocabulary_.kinds[static_cast<std::size_t>(id)]; }

  Status read_token(std::size_t i, TokenBytes& bytes, SpecialMatcher& specials) {
    const std::string& text = vocabulary_.tokens[i];
    const TokenKind token_kind = vocabulary_.kinds[i];
    const auto id = static_cast<TokenId>(i);
    if (token_kind < TokenKind::normal || token_kind > TokenKind::byte) {
      return fail(ErrorCode::corrupt, "{}[{}] is {}; token types are 1 to 6", names_.kinds, i,
                  static_cast<unsigned>(token_kind));
    }
    if (token_kind == TokenKind::byte) {
      return fail(ErrorCode::unsupported,
                  "{}[{}] is 6 (byte); byte tokens belong to SentencePiece vocabularies, which "
                  "this program does not read",
                  names_.kinds, i);
    }
    if (token_kind != TokenKind::normal && !is_utf8(text)) {
      return fail(ErrorCode::corrupt, "{}[{}] ({}) is not valid UTF-8", names_.tokens, i,
                  quoted(text));
    }
    if (token_kind != TokenKind::unused) {
      if (text.empty()) {
        return fail(ErrorCode::corrupt, "{}[{}] is empty", names_.tokens, i);
      }
      if (const auto [other, fresh] = ids_.emplace(text, id); !fresh) {
        return fail(ErrorCode::corrupt, "{}[{}] ({}) repeats [{}]; the texts of tokens must differ",
                    names_.tokens, i, quoted(text), other->second);
      }
    }
    if (token_kind == TokenKind::normal) {
      auto content = bytes_of_printable(text);
      if (!content) {
        return fail(content.error().code, "{}[{}] ({}): {}", names_.tokens, i, quoted(text),
                    content.error().message);
      }
      bytes.append(*content);
      return {};
    }
    bytes.append(text);
    if (!is_special(token_kind)) return {};
    if (text.size() > SpecialMatcher::kLongestLiteral) {
      return fail(ErrorCode::exhausted,
                  "{}[{}] ({}) is a special token of {} bytes; the limit is {}", names_.tokens, i,
                  quoted(text), text.size(), SpecialMatcher::kLongestLiteral);
    }
    specials.add(text, id, token_kind == TokenKind::control);
    return {};
  }

  Result<TokenId> merge_token(std::size_t merge, std::string_view text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end() || kind(found->second) != TokenKind::normal) {
      return fail(ErrorCode::corrupt, "{}[{}] ({}) needs {}, which is {} of {}", names_.merges,
                  merge, quoted(vocabulary_.merges[merge]), quoted(text),
                  found == ids_.end() ? "no token" : "no normal token", names_.tokens);
    }
    return found->second;
  }

  const Tokenizer::Vocabulary& vocabulary_;
  Tokenizer::VocabularyNames names_;
  IdsByText ids_;  // all but the unused tokens
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_vocabulary(Vocabulary vocabulary, const VocabularyNames& names) {
  auto state = std::make_unique<State>();
  state->vocabulary = std::move(vocabulary);
  VocabularyReader reader(state->vocabulary, names);
  STRATA_TRY(reader.check_sizes());
  STRATA_TRY(reader.read_tokens(state->bytes, state->specials));
  STRATA_ASSIGN(const auto byte_tokens, reader.byte_tokens());
  STRATA_ASSIGN(MergeTable merges, reader.read_merges());
  state->pairs = BytePairs(byte_tokens, std::move(merges));
  state->whole.build(state->bytes, state->vocabulary.kinds, state->pairs);
  return Tokenizer(std::unique_ptr<const State>(std::move(state)));
}

const Tokenizer::Vocabulary& Tokenizer::vocabulary() const {
  return state_->vocabulary;
}

std::size_t Tokenizer::size() const {
  return state_->bytes.size();
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, Specials specials) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 8);
  std::size_t at = 0;
  while (specials != Specials::none) {
    const auto match = state_->specials.next(text, at, specials == Specials::all);
    if (!match) break;
    state_->encode_plain(text.substr(at, match->begin - at), ids);
    ids.push_back(match->id);
    at = match->begin + match->length;
  }
  state_->encode_plain(text.substr(at), ids);
  return ids;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text,
                                       std::span<const Range> trusted) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 8);
  std::size_t plain = 0;  // where the text that is not encoded yet begins
  for (const Range& range : trusted) {
    const std::string_view window = text.substr(0, range.end);
    std::size_t at = std::max(range.begin, plain);
    while (const auto match = state_->specials.next(window, at, true)) {
      state_->encode_plain(text.substr(plain, match->begin - plain), ids);
      ids.push_back(match->id);
      plain = at = match->begin + match->length;
    }
  }
  state_->encode_plain(text.substr(plain), ids);
  return ids;
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= size()) return {};
  return state_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += bytes(id);
  return text;
}

TokenKind Tokenizer::kind(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= size()) return TokenKind::unknown;
  return state_->vocabulary.kinds[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::special(std::string_view literal) const {
  return state_->specials.find(literal);
}

}  // namespace strata
