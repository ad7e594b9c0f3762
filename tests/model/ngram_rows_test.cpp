// How the forward pass asks for n-gram rows: early, collected where they are needed, and a row that
// cannot be read costs only the sequences that need it.
#include <set>

#include "model/forward.h"
#include "tests/model/golden.h"

namespace strata {
namespace {

// A table in front of the real one that notes what is asked and fails where it is told to.
class WatchedTable final : public RowTable {
 public:
  explicit WatchedTable(std::shared_ptr<RowTable> inner) : inner_(std::move(inner)) {}
  std::uint64_t rows() const override { return inner_->rows(); }
  std::uint32_t width() const override { return inner_->width(); }
  void prefetch(std::span<const std::uint64_t> ids) override {
    prefetched.insert(prefetched.end(), ids.begin(), ids.end());
  }
  Result<std::unique_ptr<RowRequest>> request(std::span<const std::uint64_t> ids) override {
    requested.insert(requested.end(), ids.begin(), ids.end());
    STRATA_ASSIGN(auto inner, inner_->request(ids));
    for (const std::uint64_t id : ids)
      if (broken.contains(id)) return std::make_unique<Request>(*this, std::move(inner), id);
    return std::make_unique<Request>(*this, std::move(inner), UINT64_MAX);
  }

  std::vector<std::uint64_t> prefetched, requested;
  std::set<std::uint64_t> broken;
  int collected = 0;

 private:
  struct Request final : RowRequest {
    Request(WatchedTable& table, std::unique_ptr<RowRequest> inner, std::uint64_t broken)
        : table_(table), inner_(std::move(inner)), broken_(broken) {}
    Status collect(std::span<float> out) override {
      ++table_.collected;
      if (broken_ != UINT64_MAX) return fail(ErrorCode::io, "row {} is broken", broken_);
      return inner_->collect(out);
    }
    const RowCounts& counts() const override { return inner_->counts(); }
    WatchedTable& table_;
    std::unique_ptr<RowRequest> inner_;
    std::uint64_t broken_;
  };
  std::shared_ptr<RowTable> inner_;
};

class NgramRows : public testing::Test {
 protected:
  void SetUp() override {
    converted_ = test::convert({test::golden_dir() + "/tiny-a"});
    ASSERT_NE(converted_, nullptr);
    for (std::uint32_t l = 0; l < network().blocks.size(); ++l) {
      Block& block = network().blocks[l];
      if (!block.ngram) continue;
      layer_ = l;
      table_ = std::make_shared<WatchedTable>(block.ngram_table);
      block.ngram_table = table_;
    }
    ASSERT_NE(table_, nullptr);
    ASSERT_GT(layer_, 0u);
    auto backend = make_cpu_backend(network().shape(), 2);
    ASSERT_TRUE(backend);
    backend_ = std::move(*backend);
    forward_ = std::make_unique<Forward>(network(), *backend_);
  }

  Network& network() { return converted_->network; }

  // Logits of the last row of each part.
  Status read(const std::vector<Forward::Rows>& window, std::vector<float>& logits) {
    std::vector<std::uint32_t> rows;
    std::uint32_t total = 0;
    for (const Forward::Rows& part : window) {
      total += static_cast<std::uint32_t>(part.tokens.size());
      rows.push_back(total - 1);
    }
    logits.resize(rows.size() * network().head.rows);
    return forward_->read(window, rows, logits);
  }

  std::unique_ptr<test::Converted> converted_;
  std::uint32_t layer_ = 0;
  std::shared_ptr<WatchedTable> table_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Forward> forward_;
};

const std::vector<std::int32_t> kFirst = {5, 6, 7, 8, 9, 10};
const std::vector<std::int32_t> kSecond = {105, 106, 107, 108};
const std::vector<std::int32_t> kThird = {200, 201, 202};

TEST_F(NgramRows, AreCollectedWhereTheLayerNeedsThem) {
  std::vector<std::pair<std::uint32_t, int>> seen;
  forward_->observe([&](std::uint32_t layer, std::span<const float>) {
    seen.emplace_back(layer, table_->collected);
  });
  auto sequence = forward_->new_sequence();
  std::vector<float> logits;
  ASSERT_TRUE(read({{&*sequence, kFirst}}, logits));
  for (const auto& [layer, collected] : seen) EXPECT_EQ(collected, layer > layer_ ? 1 : 0) << layer;
  EXPECT_EQ(sequence->row_counts().requested, table_->requested.size());
}

TEST_F(NgramRows, PrefetchAsksForWhatIsThenRead) {
  auto sequence = forward_->new_sequence();
  std::vector<float> logits;
  for (std::size_t known = 0; known < kFirst.size(); ++known) {
    table_->prefetched.clear();
    forward_->prefetch(*sequence, kFirst, known);
    auto other = forward_->new_sequence();
    std::vector<std::uint64_t> all;
    table_->requested.clear();
    ASSERT_TRUE(read({{&*other, kFirst}}, logits));
    const std::size_t heads = table_->requested.size() / kFirst.size();
    const auto from = table_->requested.begin() + static_cast<std::ptrdiff_t>(known * heads);
    EXPECT_EQ(table_->prefetched, std::vector<std::uint64_t>(from, table_->requested.end()));
  }
  // What follows tokens that were read, one by one.
  ASSERT_TRUE(read({{&*sequence, kFirst}}, logits));
  for (const std::int32_t& token : kSecond) {
    table_->prefetched.clear(), table_->requested.clear();
    forward_->prefetch(*sequence, {&token, 1});
    ASSERT_TRUE(read({{&*sequence, {&token, 1}}}, logits));
    EXPECT_EQ(table_->prefetched, table_->requested);
  }
}

TEST_F(NgramRows, ABrokenRowFailsItsSequenceAlone) {
  const std::size_t vocabulary = network().head.rows;
  std::vector<std::vector<float>> alone(3);
  std::vector<std::uint64_t> rows_of_second;
  for (const auto& [tokens, logits] :
       {std::pair{&kFirst, &alone[0]}, {&kSecond, &alone[1]}, {&kThird, &alone[2]}}) {
    table_->requested.clear();
    auto sequence = forward_->new_sequence();
    ASSERT_TRUE(read({{&*sequence, *tokens}}, *logits));
    if (tokens == &kSecond) rows_of_second = table_->requested;
  }
  auto first = forward_->new_sequence(), second = forward_->new_sequence(),
       third = forward_->new_sequence();
  table_->broken = {rows_of_second[3]};
  std::vector<float> logits;
  ASSERT_TRUE(read({{&*first, kFirst}, {&*second, kSecond}, {&*third, kThird}}, logits));
  EXPECT_TRUE(std::equal(alone[0].begin(), alone[0].end(), logits.begin()));
  EXPECT_TRUE(std::equal(alone[2].begin(), alone[2].end(),
                         logits.begin() + static_cast<std::ptrdiff_t>(2 * vocabulary)));
  EXPECT_TRUE(first->status() && third->status());
  ASSERT_FALSE(second->status());
  EXPECT_EQ(second->status().error().message, fmt::format("row {} is broken", rows_of_second[3]));

  // It cannot go on, nor be copied, nor take others with it.
  table_->broken.clear();
  EXPECT_EQ(read({{&*second, kThird}}, logits).error().message, second->status().error().message);
  EXPECT_FALSE(forward_->fork(*second));
  EXPECT_FALSE(forward_->save(*second));
  second = forward_->new_sequence();
  ASSERT_TRUE(read({{&*second, kSecond}}, logits));
  EXPECT_EQ(logits, alone[1]);
}

TEST_F(NgramRows, AWindowWhoseSequencesAllFailIsAnError) {
  table_->broken = {0};
  for (std::uint64_t row = 0; row < table_->rows(); ++row) table_->broken.insert(row);
  auto first = forward_->new_sequence(), second = forward_->new_sequence();
  std::vector<float> logits;
  const Status status = read({{&*first, kFirst}, {&*second, kSecond}}, logits);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_FALSE(first->status() || second->status());
}

}  // namespace
}  // namespace strata
