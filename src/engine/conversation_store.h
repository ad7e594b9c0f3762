// Conversations that were read, in memory: checkpoints (copies of sequences at some positions) from
// which a later request goes on if its prompt begins with exactly their tokens. Tokens are
// compared, always; nothing is concluded from a hash. Checkpoints of the same beginnings share
// pages.
//
// Bounded in bytes and in number. What is of least use per byte goes first: tokens that would have
// to be read again, less with every checkpoint used since, and less where a longer one goes on.
//
// Internal to the engine; belongs to its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "model/forward.h"

namespace strata {

class ConversationStore {
 public:
  static constexpr std::size_t kMostCheckpoints = 256;

  ConversationStore(std::uint64_t limit_bytes, std::size_t page_bytes)
      : limit_(limit_bytes), page_bytes_(page_bytes) {}

  // Tokens of the longest checkpoint that leaves at least one token of the prompt to read; 0: none.
  std::uint32_t longest(std::span<const TokenId> prompt) const;
  // A sequence that goes on from it; it counts as used.
  Result<Sequence> start(Forward& forward, std::span<const TokenId> prompt);

  // Takes a settled sequence in (a fork, or one that has ended). One of the same tokens stays
  // instead. `saved`: the disk has it.
  void keep(Sequence sequence, bool saved);
  // Called with checkpoints that are worth it and that the disk does not have: before they go, and
  // by save_some(). Worth it are the ends of conversations and what stands right before them: the
  // opening of the last answer, for clients do not always send an answer back as it was.
  void on_evict(std::function<void(Sequence&)> save) { save_ = std::move(save); }

  // Drops the least useful ones until at least `bytes` are free; what it could free.
  std::uint64_t free(std::uint64_t bytes);
  // Saves at most `most` of them. False when there was none.
  bool save_some(std::size_t most);
  // Copies what it has of a conversation: the longest checkpoint that these tokens begin with, and
  // the one which that goes on from. None: it has nothing of it.
  Result<std::vector<SavedSequence>> copy(Forward& forward, std::span<const TokenId> tokens);
  // Drops a conversation: the longest checkpoint that these tokens begin with, and those before it,
  // up to one that another goes on from. Their tokens, the longest first.
  std::vector<std::vector<TokenId>> forget(std::span<const TokenId> tokens);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t limit() const { return limit_; }
  std::size_t checkpoints() const { return all_.size(); }
  std::uint64_t evicted() const { return evicted_; }

 private:
  struct Checkpoint {
    Sequence sequence;
    // What counts for it. Saving and forking a sequence may do what was put off, after which it has
    // other pages and another size.
    std::uint64_t own = 0;  // bytes, all but pages
    std::vector<SequenceState::Page> pages;
    std::uint64_t used = 0;        // the clock when it was used last
    Checkpoint* parent = nullptr;  // the longest one that it begins with
    std::uint32_t children = 0;
    bool saved = false;

    std::span<const TokenId> tokens() const { return sequence.history(); }
  };
  Checkpoint* find(std::span<const TokenId> prompt) const;  // leaves one token at least
  Checkpoint* find_whole(std::span<const TokenId> tokens) const;
  void link(Checkpoint& added);
  void count(Checkpoint& checkpoint);
  void uncount(Checkpoint& checkpoint);
  void save(Checkpoint& checkpoint);
  std::uint64_t own_bytes(const Checkpoint& checkpoint) const;
  double use(const Checkpoint& checkpoint) const;
  Checkpoint* least_useful() const;
  bool worth_saving(const Checkpoint& checkpoint) const;
  void evict(Checkpoint& checkpoint);
  void remove(Checkpoint& checkpoint);

  std::uint64_t limit_;
  std::size_t page_bytes_;
  std::vector<std::unique_ptr<Checkpoint>> all_;
  std::unordered_map<const std::byte*, std::uint32_t> pages_;  // how many checkpoints have it
  std::uint64_t bytes_ = 0, clock_ = 0, evicted_ = 0;
  std::function<void(Sequence&)> save_;
};

}  // namespace strata
