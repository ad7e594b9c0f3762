// Conversations in memory: what is found, what goes first, and that every byte is counted.
#include "engine/conversation_store.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>
#include <set>

#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using Tokens = std::vector<TokenId>;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

class ConversationStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_draft_model();
    ASSERT_NE(model_, nullptr);
    auto backend = make_cpu_backend(model_->network.shape(true), 1);
    ASSERT_TRUE(backend) << backend.error().message;
    backend_ = std::move(*backend);
    vocabulary_ = DraftVocabulary::all(model_->network);
    forward_.emplace(model_->network, *backend_, &*vocabulary_);
    open(kPlenty);
  }
  void open(std::uint64_t limit) {
    store_.emplace(limit, backend_->page_bytes());
    store_->on_evict([this](Sequence& sequence) {
      const auto tokens = sequence.history();
      saved_.emplace_back(tokens.begin(), tokens.end());
    });
  }

  static Tokens counting(std::size_t count, TokenId first = 0) {
    Tokens tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  static Tokens with(Tokens tokens, const Tokens& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }
  void read(Sequence& sequence, std::span<const TokenId> tokens) {
    ASSERT_TRUE(sequence.reserve(sequence.tokens() + static_cast<std::uint32_t>(tokens.size())));
    ASSERT_TRUE(forward_->read(std::vector<Forward::Rows>{{&sequence, tokens}}, {}, {}));
    ASSERT_TRUE(forward_->settle(sequence));
  }
  // Keeps a sequence of these tokens that shares nothing.
  void keep(const Tokens& tokens, bool saved = false) {
    auto sequence = forward_->new_sequence();
    ASSERT_TRUE(sequence);
    read(*sequence, tokens);
    keep(std::move(*sequence), saved);
  }
  void keep(Sequence sequence, bool saved = false) {
    sequence.trim();
    const auto history = sequence.history();
    Kept kept;
    kept.bytes = sequence.own_bytes();
    for (const SequenceState::Page& page : sequence.pages()) kept.pages.push_back(page);
    kept_.try_emplace(Tokens(history.begin(), history.end()), std::move(kept));
    store_->keep(std::move(sequence), saved);
  }
  // A prompt that begins with these tokens would go on after all of them.
  bool stands(const Tokens& tokens) {
    return store_->longest(with(tokens, {511})) == tokens.size();
  }
  void use(const Tokens& tokens) { ASSERT_TRUE(store_->start(*forward_, with(tokens, {511}))); }

  // Drops what is of least use, one at a time, until nothing is left; the order.
  std::vector<std::size_t> order_of_eviction(const std::vector<Tokens>& all) {
    std::vector<std::size_t> order;
    while (store_->checkpoints() > 0) {
      std::vector<bool> before;
      for (const Tokens& tokens : all) before.push_back(stands(tokens));
      store_->free(1);
      for (std::size_t i = 0; i < all.size(); ++i)
        if (before[i] && !stands(all[i])) order.push_back(i);
    }
    return order;
  }

  // Everything that was kept and still stands, added up by hand; pages that several have, once.
  std::uint64_t bytes_by_hand() {
    std::uint64_t bytes = 0;
    std::set<const std::byte*> pages;
    for (const auto& [tokens, kept] : kept_) {
      if (!stands(tokens)) continue;
      bytes += kept.bytes;
      for (const SequenceState::Page& page : kept.pages) pages.insert(page.get());
    }
    return bytes + pages.size() * backend_->page_bytes();
  }
  std::size_t standing() {
    return static_cast<std::size_t>(std::count_if(
        kept_.begin(), kept_.end(), [&](const auto& kept) { return stands(kept.first); }));
  }

  struct Kept {
    std::uint64_t bytes = 0;
    std::vector<SequenceState::Page> pages;  // held, so that no other gets the address
  };
  std::unique_ptr<test::Converted> model_;
  std::unique_ptr<Backend> backend_;
  std::optional<DraftVocabulary> vocabulary_;
  std::optional<Forward> forward_;
  std::optional<ConversationStore> store_;
  std::map<Tokens, Kept> kept_;
  std::vector<Tokens> saved_;
};

TEST_F(ConversationStoreTest, FindsTheLongestThatLeavesATokenToRead) {
  const Tokens all = counting(100);
  const auto first = [&](std::size_t count) {
    return Tokens(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
  };
  for (const std::size_t size : {10u, 40u, 70u}) keep(first(size));
  EXPECT_EQ(store_->longest(all), 70u);
  EXPECT_EQ(store_->longest(first(70)), 40u);
  EXPECT_EQ(store_->longest(first(71)), 70u);
  EXPECT_EQ(store_->longest(first(10)), 0u);
  EXPECT_EQ(store_->longest({}), 0u);
  Tokens edited = all;
  edited[55] = 400;
  EXPECT_EQ(store_->longest(edited), 40u);
  const auto sequence = store_->start(*forward_, edited);
  ASSERT_TRUE(sequence);
  EXPECT_THAT(sequence->history(), testing::ElementsAreArray(first(40)));
  edited[0] = 400;
  const auto fresh = store_->start(*forward_, edited);
  ASSERT_TRUE(fresh);
  EXPECT_EQ(fresh->tokens(), 0u);
}

TEST_F(ConversationStoreTest, TheSameTokensStandOnce) {
  keep(counting(20));
  const std::uint64_t bytes = store_->bytes();
  keep(counting(20));
  EXPECT_EQ(store_->checkpoints(), 1u);
  EXPECT_EQ(store_->bytes(), bytes_by_hand());
  EXPECT_EQ(bytes, bytes_by_hand());
}

TEST_F(ConversationStoreTest, WithoutRoomNothingIsKept) {
  open(0);
  keep(counting(20));
  EXPECT_EQ(store_->checkpoints(), 0u);
  EXPECT_EQ(store_->bytes(), 0u);
  open(1);  // less than any checkpoint
  keep(counting(20));
  EXPECT_EQ(store_->checkpoints(), 0u);
  EXPECT_EQ(store_->bytes(), 0u);
  EXPECT_EQ(store_->evicted(), 1u);
}

// All of one page, so of the same bytes but for their token ids.
TEST_F(ConversationStoreTest, OfEqualsTheLeastRecentlyUsedGoesFirst) {
  const std::vector<Tokens> all = {counting(30, 0), counting(30, 100), counting(30, 200)};
  for (const Tokens& tokens : all) keep(tokens);
  use(all[0]);
  EXPECT_THAT(order_of_eviction(all), ElementsAre(1, 2, 0));
  EXPECT_EQ(store_->evicted(), 3u);
}

TEST_F(ConversationStoreTest, WhatSavesMoreReadingStaysLonger) {
  const std::vector<Tokens> all = {counting(60, 0), counting(12, 100)};
  for (const Tokens& tokens : all) keep(tokens);  // 60 / 2 against 12 / 1
  EXPECT_THAT(order_of_eviction(all), ElementsAre(1, 0));
}

TEST_F(ConversationStoreTest, WhatTakesMoreBytesForTheSameGoesFirst) {
  const std::uint32_t page = backend_->page_tokens();
  const Tokens often = counting(12, 400);
  const auto order = [&](std::uint32_t tokens) {
    open(kPlenty);
    const std::vector<Tokens> all = {counting(page, 0), counting(tokens, 200), often};
    for (const Tokens& one : all) keep(one);
    for (int i = 0; i < 40; ++i) use(often);  // the two others are all but equally old now
    return order_of_eviction(all);
  };
  EXPECT_THAT(order(page), ElementsAre(0, 1, 2));
  EXPECT_THAT(order(page + 1), ElementsAre(1, 0, 2));  // with a second page for one token
}

TEST_F(ConversationStoreTest, ACommonBeginningStaysAndAStepOnTheWayGoes) {
  const Tokens root = counting(20), left = with(root, counting(20, 100)),
               longer = with(left, counting(20, 200)), right = with(root, counting(20, 300));
  const std::vector<Tokens> all = {root, left, longer, right};
  for (const Tokens& tokens : all) keep(tokens);
  use(left), use(right), use(longer);  // each use counts for all before it on the way
  // `left` goes: only `longer` goes on from it. Then `longer` saves 40, `right` and `root` 20.
  EXPECT_EQ(order_of_eviction(all).front(), 1u);
}

TEST_F(ConversationStoreTest, LinksHoldWhateverTheOrder) {
  const Tokens root = counting(20), left = with(root, counting(20, 100)),
               longer = with(left, counting(20, 200)), right = with(root, counting(20, 300));
  const std::vector<Tokens> all = {root, left, longer, right};
  std::vector<std::size_t> order = {0, 1, 2, 3};
  do {
    open(kPlenty);
    for (const std::size_t i : order) keep(all[i]);
    use(left), use(right), use(longer);
    EXPECT_EQ(order_of_eviction(all).front(), 1u) << testing::PrintToString(order);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(ConversationStoreTest, WhatGoesIsSavedUnlessTheDiskHasIt) {
  const Tokens other = counting(30, 300);
  keep(other), keep(counting(30, 400), true);
  store_->free(kPlenty);
  EXPECT_EQ(store_->checkpoints(), 0u);
  EXPECT_EQ(store_->bytes(), 0u);
  EXPECT_THAT(saved_, ElementsAre(other));
}

TEST_F(ConversationStoreTest, SavesEndsAndWhatStandsBeforeThemOnceAndNoMoreThanAsked) {
  const Tokens root = counting(20), opening = with(root, counting(20, 100)),
               end = with(opening, counting(20, 200)), known = with(root, counting(20, 300));
  keep(root), keep(opening), keep(end), keep(with(known, counting(20, 400)));
  keep(known, true);
  EXPECT_TRUE(store_->save_some(1));
  EXPECT_EQ(saved_.size(), 1u);
  EXPECT_TRUE(store_->save_some(5));
  EXPECT_THAT(saved_, testing::UnorderedElementsAre(opening, end, with(known, counting(20, 400))));
  EXPECT_FALSE(store_->save_some(5));
}

TEST_F(ConversationStoreTest, ForgetsAConversationUpToWhatAnotherGoesOnFrom) {
  const Tokens root = counting(20), left = with(root, counting(20, 100)),
               leaf = with(left, counting(5, 200)), right = with(root, counting(9, 150)),
               other = counting(30, 300);
  keep(root), keep(left), keep(leaf), keep(right), keep(other);
  EXPECT_THAT(store_->forget(with(leaf, {7})), ElementsAre(leaf, left));
  EXPECT_TRUE(stands(root) && stands(right) && stands(other));
  EXPECT_THAT(store_->forget(counting(3, 400)), IsEmpty());
  EXPECT_THAT(store_->forget(root), IsEmpty()) << "another conversation begins with it";
  EXPECT_THAT(store_->forget(right), ElementsAre(right, root));
  EXPECT_THAT(store_->forget(other), ElementsAre(other));
  EXPECT_EQ(store_->bytes(), 0u);
  EXPECT_EQ(store_->evicted(), 0u);
  EXPECT_THAT(saved_, IsEmpty());
}

TEST_F(ConversationStoreTest, CopiesAConversationsEndAndWhatStandsBeforeIt) {
  const Tokens root = counting(20), left = with(root, counting(20, 100)),
               leaf = with(left, counting(5, 200));
  keep(root), keep(left), keep(leaf);
  const auto copies = store_->copy(*forward_, with(leaf, {7})).value();
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].tokens, leaf);
  EXPECT_EQ(copies[1].tokens, left);
  EXPECT_EQ(store_->copy(*forward_, root)->size(), 1u);
  EXPECT_EQ(store_->copy(*forward_, counting(3, 400))->size(), 0u);
  store_->free(kPlenty);
  EXPECT_EQ(store_->bytes(), 0u) << "what was copied is counted as before";
}

TEST_F(ConversationStoreTest, TheNumberIsBounded) {
  for (TokenId i = 0; i < TokenId{ConversationStore::kMostCheckpoints} + 40; ++i) keep({i, 1});
  EXPECT_EQ(store_->checkpoints(), ConversationStore::kMostCheckpoints);
  EXPECT_EQ(store_->evicted(), 40u);
  EXPECT_EQ(store_->bytes(), bytes_by_hand());
}

// Branches, repetitions, uses and evictions at random: the bytes are those of what stands, and the
// limit holds after every step.
TEST_F(ConversationStoreTest, CountsEveryByteAndKeepsToItsLimit) {
  std::mt19937 random(23);
  for (const bool tight : {false, true}) {
    kept_.clear();
    keep(counting(100));
    const std::uint64_t one = store_->bytes();
    open(tight ? 6 * one : kPlenty);
    kept_.clear();
    std::vector<Tokens> known = {{}};
    for (int step = 0; step < 120; ++step) {
      const Tokens before = known[random() % known.size()];
      auto sequence = store_->start(*forward_, with(before, {511}));
      ASSERT_TRUE(sequence);
      // What was evicted meanwhile is read again.
      const Tokens prompt =
          with(before, counting(1 + random() % 90, static_cast<TokenId>(random() % 400)));
      read(*sequence, std::span(prompt).subspan(sequence->tokens()));
      if (random() % 3 == 0) use(before);
      auto fork = forward_->fork(*sequence);
      ASSERT_TRUE(fork);
      keep(std::move(*fork));
      if (known.size() < 40 && prompt.size() < 400) known.push_back(prompt);
      if (random() % 16 == 0) store_->free(random() % (2 * one));
      ASSERT_LE(store_->bytes(), store_->limit()) << step;
      ASSERT_EQ(store_->bytes(), bytes_by_hand()) << step;
      ASSERT_EQ(store_->checkpoints(), standing()) << step;
    }
    EXPECT_EQ(store_->evicted() > 0, true);
    store_->free(kPlenty);
    EXPECT_EQ(store_->bytes(), 0u);
    EXPECT_EQ(store_->checkpoints(), 0u);
  }
}

}  // namespace
}  // namespace strata
