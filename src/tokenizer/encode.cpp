// Text to ids: on one thread, or on several with the same result.
#include <algorithm>
#include <atomic>
#include <deque>
#include <new>

#include "base/thread_pool.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/special_scan.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_state.h"

namespace strata {

namespace {

using State = Tokenizer::State;
using Range = Tokenizer::Range;

// Calls plain(text) for what lies between special tokens and special(id) for each of those, in
// order.
template <class Plain, class Special>
void divide(const State& state, std::string_view text, Specials specials, const Plain& plain,
            const Special& special) {
  std::size_t at = 0;
  while (specials != Specials::none) {
    const auto match = state.parts.specials.next(text, at, specials == Specials::all);
    if (!match) break;
    plain(text.substr(at, match->begin - at));
    special(match->id);
    at = match->begin + match->length;
  }
  plain(text.substr(at));
}

template <class Plain, class Special>
void divide(const State& state, std::string_view text, std::span<const Range> trusted,
            const Plain& plain, const Special& special) {
  SpecialScan scan(state.parts.specials, text, trusted, 0);
  std::size_t at = 0;
  while (const auto match = scan.next()) {
    plain(text.substr(at, match->begin - at));
    special(match->id);
    at = match->begin + match->length;
  }
  plain(text.substr(at));
}

// Appends the ids of text[begin, end); both are borders of pieces of `text`, which is normalised.
void encode_pieces(const State& state, std::string_view text, std::size_t begin, std::size_t end,
                   std::vector<TokenId>& out) {
  const PreTokenizer pre = state.vocabulary.rules.pre;
  while (begin < end) {
    const std::size_t next = piece_end(pre, text, begin);
    const std::string_view piece = text.substr(begin, next - begin);
    if (const TokenId id = state.whole.find(piece, state.parts.bytes); id >= 0) {
      out.push_back(id);
    } else {
      state.parts.pairs.encode(piece, out);
    }
    begin = next;
  }
}

// Appends the ids of a whole run between special tokens.
void encode_run(const State& state, std::string_view plain, std::string& storage,
                std::vector<TokenId>& out) {
  if (state.vocabulary.rules.nfc) plain = to_nfc(plain, storage);
  encode_pieces(state, plain, 0, plain.size(), out);
}

template <class Where>
std::vector<TokenId> encode_serially(const State& state, std::string_view text, Where where) {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 8);
  std::string storage;
  divide(
      state, text, where, [&](std::string_view plain) { encode_run(state, plain, storage, ids); },
      [&](TokenId id) { ids.push_back(id); });
  return ids;
}

// A text cut into parts that are encoded apart.
class Parts {
 public:
  // Bytes of a part: long enough to be worth a thread's while, short enough to spread evenly.
  static constexpr std::size_t kBytes = std::size_t{1} << 15;

  explicit Parts(const State& state) : state_(state) {}

  void add_plain(std::string_view text) {
    if (state_.vocabulary.rules.nfc) {
      std::string storage;
      if (to_nfc(text, storage).data() == storage.data())
        text = owned_.emplace_back(std::move(storage));
    }
    std::size_t begin = 0;
    while (text.size() - begin > kBytes - filled_) {
      const std::size_t cut = next_border(text, begin + kBytes - filled_);
      if (cut == std::string_view::npos) break;
      steps_.push_back({text, begin, cut, -1});
      begin = cut;
      close();
    }
    if (begin == text.size()) return;
    steps_.push_back({text, begin, text.size(), -1});
    filled_ = std::min(kBytes, filled_ + text.size() - begin);
  }
  void add_special(TokenId id) { steps_.push_back({{}, 0, 0, id}); }

  std::vector<TokenId> encode(ThreadPool& pool) {
    if (steps_.size() > ends_.back()) close();
    const std::size_t count = ends_.size() - 1;
    std::vector<std::vector<TokenId>> ids(count);
    std::atomic<bool> out_of_memory = false;
    pool.run(count, [&](std::size_t part) {
      try {
        for (std::size_t i = ends_[part]; i < ends_[part + 1]; ++i) run(steps_[i], ids[part]);
      } catch (const std::bad_alloc&) {
        out_of_memory = true;
      }
    });
    if (out_of_memory) throw std::bad_alloc();
    std::size_t total = 0;
    for (const auto& part : ids) total += part.size();
    std::vector<TokenId> joined;
    joined.reserve(total);
    for (const auto& part : ids) joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }

 private:
  struct Step {
    std::string_view text;
    std::size_t begin = 0, end = 0;
    TokenId special = -1;  // or plain text
  };

  static std::size_t next_border(std::string_view text, std::size_t from) {
    return certain_border(text, from, text.size());
  }

  void run(const Step& step, std::vector<TokenId>& out) const {
    if (step.special >= 0) {
      out.push_back(step.special);
    } else {
      encode_pieces(state_, step.text, step.begin, step.end, out);
    }
  }

  void close() {
    ends_.push_back(steps_.size());
    filled_ = 0;
  }

  const State& state_;
  std::deque<std::string> owned_;  // text that normalisation has changed
  std::vector<Step> steps_;
  std::vector<std::size_t> ends_ = {0};  // part p is steps_[ends_[p]] .. steps_[ends_[p + 1] - 1]
  std::size_t filled_ = 0;               // bytes of the part that is not closed
};

template <class Where>
std::vector<TokenId> encode_in_parallel(const State& state, std::string_view text, Where where,
                                        ThreadPool& pool) {
  if (pool.threads() == 1 || text.size() < 2 * Parts::kBytes) {
    return encode_serially(state, text, where);
  }
  Parts parts(state);
  divide(
      state, text, where, [&](std::string_view plain) { parts.add_plain(plain); },
      [&](TokenId id) { parts.add_special(id); });
  return parts.encode(pool);
}

}  // namespace

void encode_tail(const State& state, std::string_view text, std::span<const Range> trusted,
                 std::size_t from, std::vector<TokenId>& ids, std::vector<ResumePoint>& points) {
  SpecialScan scan(state.parts.specials, text, trusted, from);
  std::string storage;
  while (const auto match = scan.next()) {
    encode_run(state, text.substr(from, match->begin - from), storage, ids);
    ids.push_back(match->id);
    from = match->begin + match->length;
    points.push_back({from, ids.size()});
  }
  encode_run(state, text.substr(from), storage, ids);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, Specials specials) const {
  return encode_serially(*state_, text, specials);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text,
                                       std::span<const Range> trusted) const {
  return encode_serially(*state_, text, trusted);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, Specials specials,
                                       ThreadPool& pool) const {
  return encode_in_parallel(*state_, text, specials, pool);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, std::span<const Range> trusted,
                                       ThreadPool& pool) const {
  return encode_in_parallel(*state_, text, trusted, pool);
}

}  // namespace strata
