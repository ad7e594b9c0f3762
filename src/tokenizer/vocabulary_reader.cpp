#include "tokenizer/vocabulary_reader.h"

#include <unordered_map>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/quoted.h"
#include "tokenizer/utf8.h"

namespace strata {

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
    const auto& [tokens, kinds, merges, rules] = vocabulary_;
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

Result<VocabularyParts> read_vocabulary(const Tokenizer::Vocabulary& vocabulary,
                                        const Tokenizer::VocabularyNames& names) {
  VocabularyParts parts;
  VocabularyReader reader(vocabulary, names);
  STRATA_TRY(reader.check_sizes());
  STRATA_TRY(reader.read_tokens(parts.bytes, parts.specials));
  STRATA_ASSIGN(const auto byte_tokens, reader.byte_tokens());
  STRATA_ASSIGN(MergeTable merges, reader.read_merges());
  parts.pairs = BytePairs(byte_tokens, std::move(merges));
  return parts;
}

}  // namespace strata
