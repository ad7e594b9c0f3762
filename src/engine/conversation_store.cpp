#include "engine/conversation_store.h"

#include <algorithm>

namespace strata {
namespace {

bool begins_with(std::span<const TokenId> tokens, std::span<const TokenId> beginning) {
  return beginning.size() <= tokens.size() &&
         std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

}  // namespace

ConversationStore::Checkpoint* ConversationStore::find_whole(
    std::span<const TokenId> tokens) const {
  Checkpoint* best = nullptr;
  for (const auto& checkpoint : all_) {
    if (best && checkpoint->tokens().size() <= best->tokens().size()) continue;
    if (begins_with(tokens, checkpoint->tokens())) best = checkpoint.get();
  }
  return best;
}

ConversationStore::Checkpoint* ConversationStore::find(std::span<const TokenId> prompt) const {
  return prompt.empty() ? nullptr : find_whole(prompt.first(prompt.size() - 1));
}

std::uint32_t ConversationStore::longest(std::span<const TokenId> prompt) const {
  const Checkpoint* best = find(prompt);
  return best ? static_cast<std::uint32_t>(best->tokens().size()) : 0;
}

Result<Sequence> ConversationStore::start(Forward& forward, std::span<const TokenId> prompt) {
  Checkpoint* best = find(prompt);
  if (!best) return forward.new_sequence();
  for (Checkpoint* used = best; used; used = used->parent) used->used = clock_;
  best->used = ++clock_;
  uncount(*best);
  auto copy = forward.fork(best->sequence);
  count(*best);
  return copy;
}

void ConversationStore::count(Checkpoint& checkpoint) {
  checkpoint.own = checkpoint.sequence.own_bytes();
  checkpoint.pages = checkpoint.sequence.pages();
  bytes_ += checkpoint.own;
  for (const SequenceState::Page& page : checkpoint.pages)
    if (++pages_[page.get()] == 1) bytes_ += page_bytes_;
}

// Also lets go of its pages, so that the sequence can write to those that nobody else has.
void ConversationStore::uncount(Checkpoint& checkpoint) {
  bytes_ -= checkpoint.own;
  for (const SequenceState::Page& page : checkpoint.pages) {
    const auto at = pages_.find(page.get());
    if (--at->second > 0) continue;
    bytes_ -= page_bytes_;
    pages_.erase(at);
  }
  checkpoint.pages.clear();
}

void ConversationStore::save(Checkpoint& checkpoint) {
  uncount(checkpoint);
  save_(checkpoint.sequence);
  count(checkpoint);
}

void ConversationStore::keep(Sequence sequence, bool saved) {
  const auto tokens = sequence.history();
  if (tokens.empty() || limit_ == 0) return;
  for (const auto& other : all_) {
    if (other->tokens().size() != tokens.size() || !begins_with(tokens, other->tokens())) continue;
    other->used = ++clock_;
    other->saved = other->saved || saved;
    return;
  }
  sequence.trim();
  auto added = std::make_unique<Checkpoint>();
  added->sequence = std::move(sequence);
  added->used = ++clock_;
  added->saved = saved;
  link(*added);
  count(*added);
  all_.push_back(std::move(added));
  while (bytes_ > limit_ || all_.size() > kMostCheckpoints) evict(*least_useful());
}

// Puts a checkpoint between the ones it begins with and the ones that go on from it.
void ConversationStore::link(Checkpoint& added) {
  const auto tokens = added.tokens();
  const auto longer = [](const Checkpoint* a, std::size_t size) {
    return !a || size > a->tokens().size();
  };
  for (const auto& other : all_) {
    if (begins_with(tokens, other->tokens()) && longer(added.parent, other->tokens().size()))
      added.parent = other.get();
  }
  for (const auto& other : all_) {
    if (!begins_with(other->tokens(), tokens) || !longer(other->parent, tokens.size())) continue;
    if (other->parent) --other->parent->children;
    other->parent = &added;
    ++added.children;
  }
  if (added.parent) ++added.parent->children;
}

// Bytes that nobody else in the store has.
std::uint64_t ConversationStore::own_bytes(const Checkpoint& checkpoint) const {
  std::uint64_t bytes = checkpoint.own;
  for (const SequenceState::Page& page : checkpoint.pages)
    if (pages_.at(page.get()) == 1) bytes += page_bytes_;
  return bytes;
}

// What keeping it may save, a byte.
double ConversationStore::use(const Checkpoint& checkpoint) const {
  const std::size_t before = checkpoint.parent ? checkpoint.parent->tokens().size() : 0;
  const auto saves = static_cast<double>(checkpoint.tokens().size() - before);
  const auto age = static_cast<double>(clock_ - checkpoint.used);
  // Where one thing goes on, the next request most likely goes on from there; where several do, it
  // is a common beginning.
  const double chance = checkpoint.children == 1 ? 0.25 : 1.0;
  return saves * chance / (1 + age) / static_cast<double>(own_bytes(checkpoint));
}

ConversationStore::Checkpoint* ConversationStore::least_useful() const {
  Checkpoint* least = nullptr;
  double least_use = 0;
  for (const auto& checkpoint : all_) {
    const double its_use = use(*checkpoint);
    if (least && its_use >= least_use) continue;
    least = checkpoint.get();
    least_use = its_use;
  }
  return least;
}

bool ConversationStore::worth_saving(const Checkpoint& checkpoint) const {
  if (!save_ || checkpoint.saved) return false;
  return checkpoint.children == 0 || std::any_of(all_.begin(), all_.end(), [&](const auto& other) {
           return other->parent == &checkpoint && other->children == 0;
         });
}

void ConversationStore::evict(Checkpoint& checkpoint) {
  if (worth_saving(checkpoint)) save(checkpoint);
  ++evicted_;
  remove(checkpoint);
}

void ConversationStore::remove(Checkpoint& checkpoint) {
  for (const auto& other : all_)
    if (other->parent == &checkpoint) other->parent = checkpoint.parent;
  if (checkpoint.parent) checkpoint.parent->children += checkpoint.children - 1;
  uncount(checkpoint);
  std::erase_if(all_, [&](const auto& held) { return held.get() == &checkpoint; });
}

std::uint64_t ConversationStore::free(std::uint64_t bytes) {
  const std::uint64_t before = bytes_;
  while (before - bytes_ < bytes && !all_.empty()) evict(*least_useful());
  return before - bytes_;
}

bool ConversationStore::save_some(std::size_t most) {
  bool some = false;
  for (const auto& checkpoint : all_) {
    if (most == 0) break;
    if (!worth_saving(*checkpoint)) continue;
    save(*checkpoint);
    checkpoint->saved = some = true;
    --most;
  }
  return some;
}

Result<std::vector<SavedSequence>> ConversationStore::copy(Forward& forward,
                                                           std::span<const TokenId> tokens) {
  std::vector<SavedSequence> copies;
  Checkpoint* next = find_whole(tokens);
  for (; next && copies.size() < 2; next = next->parent) {
    uncount(*next);
    auto saved = forward.save(next->sequence);
    count(*next);
    if (!saved) return tl::unexpected<Error>(std::move(saved).error());
    copies.push_back(std::move(*saved));
  }
  return copies;
}

std::vector<std::vector<TokenId>> ConversationStore::forget(std::span<const TokenId> tokens) {
  std::vector<std::vector<TokenId>> forgotten;
  Checkpoint* next = find_whole(tokens);
  while (next && next->children == 0) {
    Checkpoint& last = *next;
    next = last.parent;
    forgotten.emplace_back(last.tokens().begin(), last.tokens().end());
    remove(last);
  }
  return forgotten;
}

}  // namespace strata
