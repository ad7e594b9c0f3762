// A grammar text, a zero byte, and bytes to write under it: whatever is allowed can be accepted,
// what is not cannot, taking back restores the mask, and no answer runs into a dead end.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/gbnf.h"
#include "constrain/matcher.h"

using namespace strata;
using namespace strata::constrain;

namespace {

constexpr TokenId kEnd = 256;

void check(bool right) {
  if (!right) __builtin_trap();
}

std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto kVocabulary = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.resize(260);
    for (const char* text :
         {"ab", "aba", "\":", "{\"", "\xc3\xa4", "\xe2\x82", "  ", "\n  ", "the", "10"})
      texts.emplace_back(text);
    return *Vocabulary::make(std::move(texts));
  }();
  return kVocabulary;
}

std::optional<TokenId> name(std::string_view literal) {
  if (literal == "<end>") return kEnd;
  if (literal == "<x>") return 257;
  return std::nullopt;
}

using Verdict = Matcher::Verdict;

void write(const std::shared_ptr<const CompiledGrammar>& compiled, std::string_view bytes) {
  Matcher matcher(compiled, {kEnd});
  const auto size = static_cast<TokenId>(vocabulary()->size());
  for (const char c : bytes.substr(0, 64)) {
    const Mask mask = matcher.mask();
    const std::vector<std::uint64_t> before(mask.begin(), mask.end());
    bool any = false;
    for (const std::uint64_t word : before) any = any || word != 0;
    check(any);
    check(matcher.stuck() || allows(mask, kEnd) == matcher.can_end());
    // The mask has every token that can be taken, and no other if it is exact.
    const bool exact = matcher.mask_is_exact();
    for (TokenId id = 0; id < size; ++id) {
      const bool can = matcher.verdict(id) != Verdict::forbidden;
      check(exact ? can == allows(before, id) : !can || allows(before, id));
    }
    // The token that is meant, or the next one that is allowed.
    TokenId id = static_cast<unsigned char>(c);
    const bool allowed = matcher.verdict(id) == Verdict::allowed;
    check(matcher.accept(id) == allowed);
    if (allowed) matcher.rollback(1);
    bool unknown = false;
    for (TokenId k = 0; k < size && matcher.verdict(id) != Verdict::allowed; ++k) {
      unknown = unknown || matcher.verdict(id) == Verdict::unknown;
      id = (id + 1) % size;
    }
    // All that could follow is at the limit of readings: there a request ends with a sentence.
    if (matcher.verdict(id) != Verdict::allowed) return check(unknown);
    check(matcher.accept(id));
    Matcher copy = matcher;
    copy.rollback(1);
    const Mask again = copy.mask();
    check(std::equal(before.begin(), before.end(), again.begin()));
    if (id == kEnd) break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t middle = std::min(all.find('\0'), all.size());
  const auto grammar = parse_gbnf(all.substr(0, middle), name);
  if (!grammar) {
    check(!grammar.error().message.empty());
    return 0;
  }
  CompileLimits limits;
  limits.states = 5'000;
  limits.parallel = 64;
  limits.depth = 32;
  const auto compiled = CompiledGrammar::compile(*grammar, vocabulary(), limits);
  if (!compiled) {
    check(compiled.error().code != ErrorCode::internal);
    return 0;
  }
  write(*compiled, all.substr(std::min(middle + 1, all.size())));
  return 0;
}
