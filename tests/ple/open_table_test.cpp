// Tables as models have them: every row format in every mode, and what is chosen where a kernel or
// a file system cannot do what was asked.
#include "ple/open_table.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "base/latency_histogram.h"
#include "ple/row_cache.h"
#include "quant/quant.h"

namespace strata {
namespace {

using testing::HasSubstr;
using Operation = FaultyFileSystem::Operation;

constexpr std::uint64_t kWidth = 160, kRows = 700;
const std::string kTable = "per_layer_token_embd.weight";

// A model file that holds a table of random bytes behind another tensor.
void put_model(FileSystem& files, TensorType type, std::uint64_t width = kWidth) {
  auto writer = GgufWriter::create(files, "model.gguf");
  ASSERT_TRUE(writer);
  if (type == TensorType::I8) {
    writer->metadata().set("strata.ple.format", MetaValue::string("f8_e4m3"));
    writer->metadata().set("strata.ple.scale", MetaValue::f32(0.0625f));
  }
  ASSERT_TRUE(writer->declare("other", TensorType::F32, {33}));
  ASSERT_TRUE(writer->declare(kTable, type, {width, kRows}));
  ASSERT_TRUE(writer->write_data(Bytes(33 * sizeof(float))));
  std::mt19937_64 random(5);
  Bytes bytes(*bytes_of(type, width) * kRows);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  ASSERT_TRUE(writer->write_data(bytes));
  const Status status = writer->finish();
  ASSERT_TRUE(status) << status.error().message;
}

std::shared_ptr<const GgufModel> open_model(FileSystem& files) {
  auto model = open_gguf(files, "model.gguf");
  EXPECT_TRUE(model) << model.error().message;
  return model ? std::make_shared<const GgufModel>(std::move(*model)) : nullptr;
}

Result<std::shared_ptr<RowTable>> open_as(FileSystem& files, TableMode mode,
                                          TableOptions options = {}) {
  const auto model = open_model(files);
  options.mode = mode;
  return open_table(files, model, *model->find(kTable), options);
}

TEST(OpenTable, EveryFormatGivesTheSameValuesInEveryMode) {
  for (const TensorType type :
       {TensorType::IQ4_NL, TensorType::Q4_0, TensorType::Q4_1, TensorType::Q5_0, TensorType::Q5_1,
        TensorType::Q8_0, TensorType::I8, TensorType::BF16, TensorType::F16, TensorType::F32}) {
    SCOPED_TRACE(to_string(type));
    MemoryFileSystem files;
    put_model(files, type);
    const auto model = open_model(files);
    const std::span<const std::byte> data = model->find(kTable)->data;
    const std::size_t row_bytes = data.size() / kRows;
    std::vector<std::uint64_t> ids = {0, kRows - 1, 45, 45, 46, 0};
    std::mt19937_64 random(1);
    for (int i = 0; i < 200; ++i) ids.push_back(random() % kRows);
    std::vector<float> expected(ids.size() * kWidth);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row = data.subspan(ids[i] * row_bytes, row_bytes);
      const auto out = std::span(expected).subspan(i * kWidth, kWidth);
      if (type != TensorType::I8) {
        ASSERT_TRUE(decode(type, row, out));
        continue;
      }
      for (std::size_t d = 0; d < kWidth; ++d)
        out[d] = f8_e4m3_to_float(std::to_integer<std::uint8_t>(row[d])) * 0.0625f;
    }
    for (const TableMode mode : {TableMode::automatic, TableMode::direct, TableMode::threads,
                                 TableMode::mapped, TableMode::resident}) {
      const auto table = open_as(files, mode);
      ASSERT_TRUE(table) << table.error().message;
      EXPECT_EQ((*table)->rows(), kRows);
      EXPECT_EQ((*table)->width(), kWidth);
      std::vector<float> out(expected.size());
      const Status status = (*table)->gather(ids, out);
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
          << to_string(mode);
      const TableStats stats = (*table)->stats();
      EXPECT_EQ(stats.requests, 1u);
      const bool reads = mode == TableMode::direct || mode == TableMode::threads;
      EXPECT_EQ(stats.reads > 0, reads) << to_string(mode);
      EXPECT_FALSE(
          (*table)->gather(std::vector<std::uint64_t>{kRows}, std::span(out).first(kWidth)));
      EXPECT_FALSE((*table)->gather(ids, std::span(out).first(kWidth)));
      (*table)->reset();
      EXPECT_EQ((*table)->stats().requests, 0u);
    }
  }
}

TEST(OpenTable, ASmallTableIsMappedUnlessAskedOtherwise) {
  MemoryFileSystem files;
  put_model(files, TensorType::Q8_0);
  TableOptions options;
  EXPECT_EQ((*open_as(files, TableMode::automatic, options))->stats().how, "mapped");
  options.cache_bytes = 1000;
  EXPECT_EQ((*open_as(files, TableMode::automatic, options))->stats().how, "plain reads");
  EXPECT_EQ((*open_as(files, TableMode::mapped, options))->stats().how, "mapped");
}

// What the disk is asked for in turn when it refuses.
TEST(OpenTable, FallsBackAndStaysReadable) {
  MemoryFileSystem memory;
  put_model(memory, TensorType::Q8_0);
  using Method = ReadQueueOptions::Method;
  struct Refusal {
    bool ring, direct;
    Method method;
    bool chosen_direct;
  };
  for (const Refusal& refusal :
       {Refusal{false, false, Method::ring, true}, Refusal{true, false, Method::threads, true},
        Refusal{false, true, Method::ring, false}, Refusal{true, true, Method::threads, false}}) {
    ReadQueueOptions chosen;
    FaultyFileSystem files(memory, [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
      if (call.operation != Operation::queue) return call.size;
      if (refusal.ring && call.queue->method == Method::ring)
        return fail(ErrorCode::unsupported, "no ring here");
      if (refusal.direct && call.queue->direct)
        return fail(ErrorCode::unsupported, "no direct reads here");
      chosen = *call.queue;
      return call.size;
    });
    const auto table = open_as(files, TableMode::direct);
    ASSERT_TRUE(table) << table.error().message;
    EXPECT_EQ(chosen.method, refusal.method);
    EXPECT_EQ(chosen.direct, refusal.chosen_direct);
    std::vector<float> out(kWidth);
    EXPECT_TRUE((*table)->gather(std::vector<std::uint64_t>{9}, out));
  }
  // Refused only when it is read: EINVAL of the first direct read.
  bool direct = false;
  FaultyFileSystem late(
      memory,
      [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
        if (call.operation == Operation::queue) direct = call.queue->direct;
        return call.size;
      },
      [&](std::uint64_t, std::size_t) -> FaultyFileSystem::QueuedFault {
        return {.error = direct ? EINVAL : 0};
      });
  ASSERT_TRUE(open_as(late, TableMode::direct));
  EXPECT_FALSE(direct);
}

TEST(OpenTable, ErrorsNameWhatIsWrong) {
  MemoryFileSystem memory;
  put_model(memory, TensorType::Q8_0);
  FaultyFileSystem gone(memory, [](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
    if (call.operation == Operation::queue) return fail(ErrorCode::io, "the disk is gone");
    return call.size;
  });
  EXPECT_EQ(open_as(gone, TableMode::direct).error().message,
            "n-gram table 'per_layer_token_embd.weight': the disk is gone");
  TableOptions options;
  options.queue_depth = kMaxReadDepth + 1;
  EXPECT_THAT(open_as(memory, TableMode::direct, options).error().message,
              HasSubstr("1025 reads under way"));
  options = {};
  options.cache_bytes = UINT64_MAX;
  EXPECT_EQ(open_as(memory, TableMode::direct, options).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(table_mode_named("mmap").value(), TableMode::mapped);
  EXPECT_EQ(table_mode_named("ssd").error().message,
            "'ssd' is no way to read the n-gram table; there are auto, direct, threads, mmap and "
            "resident");
}

// What a plan counts is what an opened table takes.
TEST(OpenTable, TakesTheMemoryThatIsSaid) {
  MemoryFileSystem files;
  put_model(files, TensorType::Q8_0);
  const auto model = open_model(files);
  const TensorView& tensor = *model->find(kTable);
  for (const std::uint32_t depth : {1u, 64u}) {
    for (const std::uint64_t cache : {std::uint64_t{0}, std::uint64_t{1} << 18, kMaxTableCache}) {
      TableOptions options;
      options.queue_depth = depth;
      options.cache_bytes = cache;
      options.mode = TableMode::direct;
      const auto said = table_memory(model->metadata, tensor, options);
      const auto table = open_as(files, TableMode::direct, options);
      ASSERT_TRUE(said && table);
      EXPECT_EQ(said->bytes, (*table)->stats().memory_bytes) << depth << ' ' << cache;
      EXPECT_LE(said->buffers, said->bytes);
      EXPECT_LE(said->bytes - said->buffers, tensor.data.size() * 11 / 10 + 4096);
    }
  }
  TableOptions resident;
  resident.mode = TableMode::resident;
  EXPECT_EQ(table_memory(model->metadata, tensor, resident)->bytes, tensor.data.size());
  resident.queue_depth = 0;
  EXPECT_FALSE(table_memory(model->metadata, tensor, resident));
}

TEST(RowCache, HoldsItsBudgetAndGivesAskedRowsASecondChance) {
  auto cache = RowCache::create(100'000, 90, 1'000'000);
  ASSERT_TRUE(cache);
  EXPECT_LE(cache->bytes(), 100'000u);
  EXPECT_GT(cache->bytes(), 99'000u);
  const Bytes row(90, std::byte{7});
  for (std::uint64_t id = 0; id < 8; ++id) EXPECT_FALSE(cache->insert(id, row, true));
  EXPECT_TRUE(cache->contains(3));
  EXPECT_TRUE(cache->find(3).first_use);
  EXPECT_FALSE(cache->find(3).first_use);
  std::size_t lost = 0;
  for (std::uint64_t id = 8; id < 5000; ++id) {
    lost += cache->insert(id, row, false);
    (void)cache->find(3);
  }
  EXPECT_TRUE(cache->contains(3));
  EXPECT_EQ(lost, 7u);  // 0 to 7 without 3
  cache->clear();
  EXPECT_EQ(cache->find(3).bytes, nullptr);
  auto none = RowCache::create(10, 90, 1'000'000);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->capacity(), 0u);
  EXPECT_FALSE(none->contains(0));
  EXPECT_TRUE(none->insert(0, row, true));
}

// A cache that may be larger than its table is as large as the table.
TEST(RowCache, TakesNoMoreThanTheTable) {
  constexpr std::uint64_t kTebibyte = std::uint64_t{1} << 40;
  auto cache = RowCache::create(kTebibyte, 90, 10'000);
  ASSERT_TRUE(cache);
  EXPECT_GE(cache->capacity(), 10'000u);
  EXPECT_LE(cache->capacity(), 10'008u);
  EXPECT_EQ(RowCache::bytes_for(kTebibyte, 90, 10'000), cache->bytes());
}

TEST(LatencyHistogram, PercentilesAreNearAndNeverBelow) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.percentile(0.5), 0u);
  for (std::uint64_t v = 0; v < 10'000; ++v) histogram.add(v);
  for (const double share : {0.01, 0.5, 0.99, 1.0}) {
    const double right = share * 10'000 - 1;
    EXPECT_GE(histogram.percentile(share), right);
    EXPECT_LE(histogram.percentile(share), right * 1.07 + 1);
  }
  histogram.clear();
  histogram.add(UINT64_MAX);
  EXPECT_EQ(histogram.percentile(0.5), UINT64_MAX);
}

}  // namespace
}  // namespace strata
