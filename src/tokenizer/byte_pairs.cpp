#include "tokenizer/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace strata {

MergeTable::MergeTable(std::size_t merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(2 * merges, 16));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(size));
}

bool MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  std::size_t slot = first_slot(key);
  for (; slots_[slot].key != kEmpty; slot = (slot + 1) & mask_) {
    if (slots_[slot].key == key) return false;
  }
  slots_[slot] = {key, merge};
  return true;
}

void BytePairs::encode(std::string_view piece, std::vector<TokenId>& out) const {
  // Positions are 32-bit numbers; a piece of more than a gigabyte is cut.
  constexpr std::size_t kLongest = std::size_t{1} << 30;
  for (; piece.size() > kLongest; piece.remove_prefix(kLongest)) {
    encode_long(piece.substr(0, kLongest), out);
  }
  piece.size() <= kShort ? encode_short(piece, out) : encode_long(piece, out);
}

void BytePairs::encode_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::array<TokenId, kShort> ids;
  std::array<MergeTable::Merge, kShort> pairs;  // pairs[i] is the merge of ids[i] and ids[i + 1]
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i)
    ids[i] = byte_tokens_[static_cast<std::uint8_t>(piece[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = merges_.find(ids[i], ids[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == MergeTable::kNoRank) break;
    ids[best] = pairs[best].merged;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --count;
    if (best > 0) pairs[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = merges_.find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

// The symbols are a linked list; a heap holds every pair that could be merged, by rank and then by
// position. A pair that has changed since stays in the heap and is recognised by its rank: two
// different pairs never have the same one.
void BytePairs::encode_long(std::string_view piece, std::vector<TokenId>& out) const {
  constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Symbol {
    TokenId id;
    std::uint32_t previous;
    std::uint32_t next;
    MergeTable::Merge pair;  // with the next symbol; kNoRank in symbols merged away
  };
  const auto count = static_cast<std::uint32_t>(piece.size());
  std::vector<Symbol> symbols(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const TokenId id = byte_tokens_[static_cast<std::uint8_t>(piece[i])];
    symbols[i] = {id, i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, {}};
  }

  std::vector<std::uint64_t> heap;  // rank << 32 | position, the lowest on top
  const auto renew = [&](std::uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.pair = symbol.next == kNone ? MergeTable::Merge{}
                                       : merges_.find(symbol.id, symbols[symbol.next].id);
    if (symbol.pair.rank == MergeTable::kNoRank) return false;
    heap.push_back((std::uint64_t{symbol.pair.rank} << 32) | at);
    return true;
  };
  for (std::uint32_t i = 0; i < count; ++i) renew(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto at = static_cast<std::uint32_t>(heap.back());
    heap.pop_back();
    Symbol& symbol = symbols[at];
    if (symbol.pair.rank != rank) continue;
    Symbol& absorbed = symbols[symbol.next];
    symbol.id = symbol.pair.merged;
    symbol.next = absorbed.next;
    absorbed.pair = {};
    if (symbol.next != kNone) symbols[symbol.next].previous = at;
    if (renew(at)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (symbol.previous != kNone && renew(symbol.previous)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace strata
