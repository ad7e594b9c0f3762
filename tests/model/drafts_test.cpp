// Drafts in the fast forward pass: tentative rows and taking them back never change a bit; the
// draft block's cells equal the specification and depend on the tokens alone.
#include <gmock/gmock.h>

#include <random>

#include "model/forward.h"
#include "tests/model/golden.h"

namespace strata {
namespace {

using test::Golden;
using Logits = std::vector<float>;

bool equal(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// tiny-a with its draft block; the parameters are the types of weights, and of keys and values.
class Drafts : public testing::TestWithParam<std::pair<TensorType, KvType>> {
 protected:
  void SetUp() override {
    ConvertOptions options;
    options.type = GetParam().first;
    const std::string trunk = test::golden_dir() + "/tiny-a";
    converted_ = test::convert({trunk, trunk + "-mtp"}, options);
    ASSERT_NE(converted_, nullptr);
    const Golden golden(trunk + "/golden.safetensors");
    for (int i = 0; golden.has(fmt::format("ids.{}", i)); ++i)
      ids_ = golden.ids(fmt::format("ids.{}", i));  // the last is the longest
    vocabulary_ = DraftVocabulary::all(network());
    open("", 2);
    auto whole = forward_->new_sequence();
    expected_ = read_ids(*whole, 0, ids_.size());
  }
  std::span<const float> expected(std::size_t from, std::size_t to) const {
    const std::size_t width = network().head.rows;
    return std::span(expected_).subspan(from * width, (to - from) * width);
  }

  // False where this CPU lacks the instruction set.
  bool open(const std::string& isa, std::uint32_t threads) {
    NetworkShape shape = network().shape(true);
    shape.kv_type = GetParam().second;
    auto backend = make_cpu_backend(shape, threads, isa);
    if (!backend) return false;
    forward_.reset();
    backend_ = std::move(*backend);
    forward_.emplace(network(), *backend_, &*vocabulary_);
    return true;
  }

  const Network& network() const { return converted_->network; }

  // All rows' logits.
  Logits read(Sequence& sequence, std::span<const std::int32_t> tokens,
              std::uint32_t tentative = 0) {
    std::vector<std::uint32_t> rows(tokens.size());
    for (std::uint32_t r = 0; r < rows.size(); ++r) rows[r] = r;
    Logits logits(tokens.size() * network().head.rows);
    const auto status =
        forward_->read(std::vector<Forward::Rows>{{&sequence, tokens, tentative}}, rows, logits);
    EXPECT_TRUE(status) << status.error().message;
    return logits;
  }
  Logits read_ids(Sequence& sequence, std::size_t from, std::size_t to) {
    return read(sequence, std::span(ids_).subspan(from, to - from));
  }
  Logits draft(Sequence& sequence, std::int32_t token) {
    Logits logits(vocabulary_->size());
    const auto status =
        forward_->draft(std::vector<Forward::DraftStep>{{&sequence, token}}, logits);
    EXPECT_TRUE(status) << status.error().message;
    return logits;
  }
  // A chain of greedy drafts.
  std::vector<Logits> chain(Sequence& sequence, std::int32_t token, int steps) {
    std::vector<Logits> all;
    for (int i = 0; i < steps; ++i) {
      all.push_back(draft(sequence, token));
      token = test::argmax(all.back());
    }
    return all;
  }

  std::unique_ptr<test::Converted> converted_;
  std::vector<std::int32_t> ids_;
  std::optional<DraftVocabulary> vocabulary_;
  std::unique_ptr<Backend> backend_;
  std::optional<Forward> forward_;
  Logits expected_;
};

TEST_P(Drafts, RowsTakenBackLeaveNoTrace) {
  std::mt19937 random(11);
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    for (const std::uint32_t threads : {1u, 2u}) {
      if (!open(isa, threads)) continue;
      auto sequence = forward_->new_sequence();
      for (std::size_t at = 0; at < ids_.size();) {
        // Some rows for certain, some right guesses, some wrong ones.
        const std::size_t left = ids_.size() - at;
        const std::size_t certain = std::min<std::size_t>(left, 1 + random() % 3);
        const std::size_t right = std::min<std::size_t>(left - certain, random() % 9);
        const auto wrong = static_cast<std::uint32_t>(random() % 8);
        std::vector<std::int32_t> tokens(
            ids_.begin() + static_cast<std::ptrdiff_t>(at),
            ids_.begin() + static_cast<std::ptrdiff_t>(at + certain + right));
        for (std::uint32_t w = 0; w < wrong; ++w)
          tokens.push_back(static_cast<std::int32_t>(random() % network().embedding.rows));
        const auto tentative = static_cast<std::uint32_t>(right) + wrong;
        const Logits logits = read(*sequence, tokens, tentative);
        // Drafting in between must not matter either.
        forward_->take_back(*sequence, wrong);
        at += certain + right;
        ASSERT_EQ(sequence->tokens(), at);
        ASSERT_TRUE(equal(std::span(logits).first((certain + right) * network().head.rows),
                          expected(at - certain - right, at)))
            << isa << " up to " << at;
        if (random() % 3 == 0 && at < ids_.size()) chain(*sequence, ids_[at], 1 + random() % 4);
      }
    }
  }
}

TEST_P(Drafts, MostTentativeRowsManyTimesOver) {
  auto sequence = forward_->new_sequence();
  std::vector<std::int32_t> tokens(1 + kMaxTentative, 3);
  for (std::size_t at = 0; at < ids_.size(); ++at) {
    tokens[0] = ids_[at];
    const Logits logits = read(*sequence, tokens, kMaxTentative);
    forward_->take_back(*sequence, kMaxTentative);
    ASSERT_TRUE(equal(std::span(logits).first(network().head.rows), expected(at, at + 1))) << at;
  }
}

TEST_P(Drafts, SequencesOfAWindowAreTakenBackEachForItself) {
  std::mt19937 random(3);
  std::vector<Sequence> sequences;
  for (int s = 0; s < 3; ++s) sequences.push_back(*forward_->new_sequence());
  const std::size_t width = network().head.rows;
  for (bool open = true; open;) {
    open = false;
    std::vector<std::vector<std::int32_t>> tokens(3);
    std::vector<std::size_t> right(3);
    std::vector<Forward::Rows> window;
    std::vector<std::uint32_t> rows;
    for (std::size_t s = 0; s < 3; ++s) {
      const std::size_t at = sequences[s].tokens();
      if (at == ids_.size()) continue;
      open = true;
      right[s] = std::min<std::size_t>(ids_.size() - at, 1 + random() % 5);
      tokens[s].assign(ids_.begin() + static_cast<std::ptrdiff_t>(at),
                       ids_.begin() + static_cast<std::ptrdiff_t>(at + right[s]));
      for (std::size_t w = random() % 5; w > 0; --w) tokens[s].push_back(7);
      window.push_back(
          {&sequences[s], tokens[s], static_cast<std::uint32_t>(tokens[s].size()) - 1});
      for (std::size_t r = 0; r < tokens[s].size(); ++r)
        rows.push_back(static_cast<std::uint32_t>(rows.size()));
    }
    Logits logits(rows.size() * width);
    if (open) {
      ASSERT_TRUE(forward_->read(window, rows, logits));
    }
    std::size_t row = 0;
    for (std::size_t s = 0; s < 3; ++s) {
      if (tokens[s].empty()) continue;
      const std::size_t at = sequences[s].tokens() - tokens[s].size();
      ASSERT_TRUE(equal(std::span(logits).subspan(row * width, right[s] * width),
                        expected(at, at + right[s])));
      row += tokens[s].size();
      forward_->take_back(sequences[s], static_cast<std::uint32_t>(tokens[s].size() - right[s]));
    }
  }
}

TEST_P(Drafts, AForkAndItsOriginGoOnAlone) {
  std::mt19937 random(5);
  auto trunk = forward_->new_sequence();
  for (std::size_t cut = 0; cut < ids_.size(); cut += 1 + random() % 4) {
    const auto from = static_cast<std::size_t>(trunk->tokens());
    std::vector<std::int32_t> tokens(ids_.begin() + static_cast<std::ptrdiff_t>(from),
                                     ids_.begin() + static_cast<std::ptrdiff_t>(cut));
    if (!tokens.empty()) {
      // What waits from tentative rows must be in the copy.
      const auto kept = static_cast<std::uint32_t>(random() % tokens.size());
      tokens.push_back(9);
      read(*trunk, tokens, std::min(kMaxTentative, kept + 1));
      forward_->take_back(*trunk, 1);
    }
    auto fork = forward_->fork(*trunk);
    ASSERT_TRUE(fork) << fork.error().message;
    auto wrong = forward_->fork(*trunk);  // goes another way over the same pages
    std::vector<std::int32_t> other(40, 11);
    read(*wrong, other);
    ASSERT_TRUE(equal(read_ids(*fork, cut, ids_.size()), expected(cut, ids_.size()))) << cut;
  }
  const auto from = static_cast<std::size_t>(trunk->tokens());
  EXPECT_TRUE(equal(read_ids(*trunk, from, ids_.size()), expected(from, ids_.size())));
}

// A copy as it was before the last rows of the window that was just read.
TEST_P(Drafts, AForkFromBeforeTheTentativeRows) {
  for (std::uint32_t before = 1; before <= kMaxTentative; before += 2) {
    for (std::size_t cut = 1; cut + before < ids_.size(); cut += 13) {
      auto sequence = forward_->new_sequence();
      const auto tokens = std::span(ids_).first(cut + before);
      ASSERT_TRUE(equal(read(*sequence, tokens, before), expected(0, cut + before)));
      auto fork = forward_->fork(*sequence, before);
      ASSERT_TRUE(fork) << fork.error().message;
      ASSERT_EQ(fork->tokens(), cut);
      auto straight = forward_->new_sequence();
      read_ids(*straight, 0, cut);
      const auto a = chain(*fork, ids_[cut], 2), b = chain(*straight, ids_[cut], 2);
      ASSERT_TRUE(equal(a[0], b[0]) && equal(a[1], b[1])) << cut << " before " << before;
      ASSERT_TRUE(equal(read_ids(*fork, cut, ids_.size()), expected(cut, ids_.size())));
      ASSERT_TRUE(equal(read_ids(*sequence, cut + before, ids_.size()),
                        expected(cut + before, ids_.size())));
    }
  }
}

TEST_P(Drafts, SavedAtEveryPositionAndRestored) {
  auto sequence = forward_->new_sequence();
  auto straight = forward_->new_sequence();
  for (std::size_t cut = 0; cut < ids_.size(); ++cut) {
    auto saved = forward_->save(*sequence);
    ASSERT_TRUE(saved) << saved.error().message;
    EXPECT_EQ(saved->pages.size(), (cut + backend_->page_tokens() - 1) / backend_->page_tokens());
    auto restored = forward_->restore(*saved);
    ASSERT_TRUE(restored) << restored.error().message;
    // Drafts from what was restored equal those of a sequence that was never saved.
    if (cut > 0) {
      auto one = forward_->fork(*restored);
      auto two = forward_->fork(*straight);
      const auto a = chain(*one, ids_[cut], 3), b = chain(*two, ids_[cut], 3);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(equal(a[i], b[i])) << cut << ", step " << i;
    }
    ASSERT_TRUE(equal(read_ids(*restored, cut, ids_.size()), expected(cut, ids_.size()))) << cut;
    read_ids(*sequence, cut, cut + 1);
    read_ids(*straight, cut, cut + 1);
  }
}

// Full pages are the same bytes however the tokens were read: what disk caches stand on.
TEST_P(Drafts, FullPagesDependOnTheTokensAlone) {
  const std::size_t page_bytes = backend_->page_bytes(), page_tokens = backend_->page_tokens();
  ASSERT_GE(ids_.size(), 2 * page_tokens);
  auto whole = forward_->new_sequence();
  read_ids(*whole, 0, ids_.size());
  const auto expected_pages = forward_->save(*whole)->pages;
  std::mt19937 random(2);
  auto sequence = forward_->new_sequence();
  while (sequence->tokens() < ids_.size()) {
    const std::size_t at = sequence->tokens();
    if (at > 0) chain(*sequence, ids_[at], static_cast<int>(random() % 5));
    std::vector<std::int32_t> tokens = {ids_[at], 17, 18, 19};
    const auto kept =
        static_cast<std::uint32_t>(std::min<std::size_t>(ids_.size() - at - 1, random() % 3));
    for (std::uint32_t i = 1; i <= kept; ++i) tokens[i] = ids_[at + i];
    read(*sequence, tokens, 3);
    forward_->take_back(*sequence, 3 - kept);
    if (random() % 7 == 0) {
      ASSERT_TRUE(forward_->save(*sequence));
    }
  }
  const auto pages = forward_->save(*sequence)->pages;
  ASSERT_EQ(pages.size(), expected_pages.size());
  for (std::size_t p = 0; p < ids_.size() / page_tokens; ++p)
    EXPECT_EQ(std::memcmp(pages[p].get(), expected_pages[p].get(), page_bytes), 0) << "page " << p;
}

TEST_P(Drafts, DraftsDependOnTheTokensAlone) {
  constexpr int kSteps = 4;
  auto straight = forward_->new_sequence();
  read_ids(*straight, 0, ids_.size() - 1);
  const auto first = chain(*straight, ids_.back(), kSteps);
  std::mt19937 random(6);
  for (const char* isa : {"avx512", "avx2", "portable"}) {
    if (!open(isa, 2)) continue;
    for (int round = 0; round < 4; ++round) {
      auto sequence = forward_->new_sequence();
      auto beside = forward_->new_sequence();
      read_ids(*beside, 0, 5);
      while (sequence->tokens() + 1 < ids_.size()) {
        const std::size_t at = sequence->tokens(), left = ids_.size() - 1 - at;
        const std::size_t size = std::min<std::size_t>(left, 1 + random() % (round == 0 ? 1 : 40));
        if (round > 1 && at > 0) chain(*sequence, ids_[at], 1 + static_cast<int>(random() % 3));
        read_ids(*sequence, at, at + size);
      }
      std::int32_t token = ids_.back();
      for (int step = 0; step < kSteps; ++step) {
        // Beside another sequence in the same window.
        Logits logits(2 * vocabulary_->size());
        const std::vector<Forward::DraftStep> steps = {{&*beside, 4}, {&*sequence, token}};
        ASSERT_TRUE(forward_->draft(steps, logits));
        const auto own = std::span(logits).subspan(vocabulary_->size());
        ASSERT_TRUE(equal(own, first[static_cast<std::size_t>(step)])) << isa << ", step " << step;
        token = test::argmax(own);
      }
    }
  }
}

TEST_P(Drafts, APartOfTheVocabularyHasTheSameLogits) {
  auto sequence = forward_->new_sequence();
  read_ids(*sequence, 0, 20);
  auto other = forward_->fork(*sequence);
  const Logits all = draft(*sequence, ids_[20]);
  const std::vector<std::int32_t> ids = {511, 0, 17, 3, 256};
  auto some = DraftVocabulary::of(network(), ids);
  ASSERT_TRUE(some) << some.error().message;
  ASSERT_EQ(some->size(), ids.size());
  Forward forward(network(), *backend_, &*some);
  Logits logits(some->size());
  ASSERT_TRUE(forward.draft(std::vector<Forward::DraftStep>{{&*other, ids_[20]}}, logits));
  for (std::size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(logits[i], all[static_cast<std::size_t>(some->id(i))]) << i;

  EXPECT_FALSE(DraftVocabulary::of(network(), {}));
  EXPECT_FALSE(DraftVocabulary::of(network(), {1, 1}));
  EXPECT_FALSE(DraftVocabulary::of(network(), {-1, 1}));
  EXPECT_FALSE(DraftVocabulary::of(network(), {512}));
  const auto usual = DraftVocabulary::usual(network(), 200);
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->size(), 200u);
  EXPECT_EQ(DraftVocabulary::usual(network())->size(), network().head.rows);
}

TEST_P(Drafts, WrongSavedSequencesAreRefused) {
  auto sequence = forward_->new_sequence();
  read_ids(*sequence, 0, 70);
  const auto good = forward_->save(*sequence);
  ASSERT_TRUE(good);
  const auto refused = [&](const SavedSequence& saved) { return !forward_->restore(saved); };
  for (std::size_t i = 0; i < good->state->size(); i += 1 + good->state->size() / 300) {
    SavedSequence cut = *good;
    cut.state = std::make_shared<Bytes>(good->state->begin(),
                                        good->state->begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(refused(cut)) << "cut at " << i;
  }
  const std::size_t residual = network().residual.wide() * sizeof(float);
  for (std::size_t i = residual; i < good->state->size(); i += 1 + good->state->size() / 300) {
    auto flipped = std::make_shared<Bytes>(*good->state);
    (*flipped)[i] ^= std::byte{0x40};
    SavedSequence damaged = *good;
    damaged.state = flipped;
    EXPECT_TRUE(refused(damaged)) << "flipped at " << i;
  }
  SavedSequence fewer = *good;
  fewer.pages.pop_back();
  EXPECT_TRUE(refused(fewer));
  SavedSequence shorter = *good;
  shorter.tokens.pop_back();
  EXPECT_TRUE(refused(shorter));
  SavedSequence outside = *good;
  outside.tokens[5] = 100000;
  EXPECT_TRUE(refused(outside));
  SavedSequence none = *good;
  none.state = nullptr;
  EXPECT_TRUE(refused(none));
  EXPECT_FALSE(refused(*good));
}

TEST(SavedSequences, AreForTheirOwnTypeOfKeysAndValues) {
  const auto converted = test::convert({test::golden_dir() + "/tiny-a"});
  ASSERT_NE(converted, nullptr);
  for (const KvType one : kKvTypes) {
    NetworkShape shape = converted->network.shape();
    shape.kv_type = one;
    auto backend = make_cpu_backend(shape, 1);
    ASSERT_TRUE(backend);
    Forward forward(converted->network, **backend);
    auto sequence = forward.new_sequence();
    const std::vector<std::int32_t> tokens(70, 3);
    ASSERT_TRUE(forward.read(std::vector<Forward::Rows>{{&*sequence, tokens}}, {}, {}));
    const auto saved = forward.save(*sequence);
    ASSERT_TRUE(saved);
    for (const KvType other : kKvTypes) {
      shape.kv_type = other;
      auto second = make_cpu_backend(shape, 1);
      const auto restored = Forward(converted->network, **second).restore(*saved);
      EXPECT_EQ(restored.has_value(), one == other);
      if (one != other) {
        EXPECT_THAT(restored.error().message,
                    testing::HasSubstr(
                        fmt::format("or of other keys and values than {}", to_string(other))));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Drafts,
                         testing::Values(std::pair(TensorType::F32, KvType::f32),
                                         std::pair(TensorType::Q8_0, KvType::f32),
                                         std::pair(TensorType::Q8_0, KvType::f16),
                                         std::pair(TensorType::Q8_0, KvType::int8),
                                         std::pair(TensorType::Q8_0, KvType::q4_0),
                                         std::pair(TensorType::Q8_0, KvType::k8v4)),
                         [](const auto& tested) {
                           return fmt::format("{}_{}", to_string(tested.param.first),
                                              to_string(tested.param.second));
                         });

// Our reading of the specification, computed in float64 by an independent program.
TEST(FastDraftBlock, FirstDraftsAndChainsEqualTheSpecification) {
  const std::string trunk = test::golden_dir() + "/tiny-a", mtp = trunk + "-mtp";
  const auto converted = test::convert({trunk, mtp});
  ASSERT_NE(converted, nullptr);
  const Network& network = converted->network;
  const DraftVocabulary vocabulary = DraftVocabulary::all(network);
  auto backend = make_cpu_backend(network.shape(true), 2);
  ASSERT_TRUE(backend);
  Forward forward(network, **backend, &vocabulary);
  const Golden ids(trunk + "/golden.safetensors"), golden(mtp + "/golden.safetensors");
  for (int i = 2; i <= 4; ++i) {
    const auto tokens = ids.ids(fmt::format("ids.{}", i));
    const auto first = golden.floats(fmt::format("draft1.{}", i));
    const auto chain_logits = golden.floats(fmt::format("chain_logits.{}", i));
    const auto read = [&](Sequence& sequence, std::size_t from, std::size_t to) {
      const Forward::Rows rows{&sequence, std::span(tokens).subspan(from, to - from)};
      return forward.read({&rows, 1}, {}, {});
    };
    const auto draft = [&](Sequence& sequence, std::int32_t token) {
      Logits logits(vocabulary.size());
      EXPECT_TRUE(forward.draft(std::vector<Forward::DraftStep>{{&sequence, token}}, logits));
      return logits;
    };
    Sequence sequence = *forward.new_sequence();
    for (std::size_t c = 0; c + 1 < tokens.size(); ++c) {
      ASSERT_TRUE(read(sequence, c, c + 1));
      const Logits logits = draft(sequence, tokens[c + 1]);
      const auto expected = std::span(first).subspan(c * vocabulary.size(), vocabulary.size());
      EXPECT_LT(test::largest_difference(logits, expected), 4e-4) << i << ", cell " << c;
    }
    ASSERT_TRUE(read(sequence, tokens.size() - 1, tokens.size()));
    std::int32_t token = ids.ids(fmt::format("greedy.{}", i))[0];
    std::vector<std::int32_t> chain;
    for (std::size_t step = 0; step < 3; ++step) {
      const Logits logits = draft(sequence, token);
      EXPECT_LT(
          test::largest_difference(
              logits, std::span(chain_logits).subspan(step * vocabulary.size(), vocabulary.size())),
          4e-4);
      chain.push_back(token = test::argmax(logits));
    }
    EXPECT_EQ(chain, golden.ids(fmt::format("chain.{}", i)));
  }
}

}  // namespace
}  // namespace strata
