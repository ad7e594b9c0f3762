// Weights copied to memory: the same bytes elsewhere, and errors that leave the model as it was.
#include "model/residence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "model/load_watch.h"

namespace strata {
namespace {

using testing::HasSubstr;

constexpr const char* kPath = "model.gguf";

void put_two_tensors(MemoryFileSystem& files) {
  auto writer = GgufWriter::create(files, kPath);
  EXPECT_TRUE(writer);
  EXPECT_TRUE(writer->declare("first", TensorType::F32, {1000}));
  EXPECT_TRUE(writer->declare("table", TensorType::F32, {500}));
  Bytes bytes(1500 * sizeof(float));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  EXPECT_TRUE(writer->write_data(std::span(bytes).first(4000)));
  EXPECT_TRUE(writer->write_data(std::span(bytes).subspan(4000)));
  EXPECT_TRUE(writer->finish());
}
bool not_the_table(const TensorView& tensor) {
  return tensor.name != "table";
}

TEST(Residence, AWatchIsToldAllBytes) {
  MemoryFileSystem files;
  put_two_tensors(files);
  auto model = open_gguf(files, kPath);
  ASSERT_TRUE(model);
  std::mutex mutex;
  std::vector<std::uint64_t> done;
  {
    const LoadWatch watch([&](std::uint64_t read, std::uint64_t all) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(all, 6000u);
      done.push_back(read);
    });
    const auto every = [](const TensorView&) { return true; };
    ASSERT_TRUE(load_into_memory(files, *model, Residence::ram, every));
  }
  EXPECT_EQ(*std::max_element(done.begin(), done.end()), 6000u);
  EXPECT_EQ(LoadWatch::current(), nullptr);
}

TEST(Residence, WantedTensorsAreCopiedAndOthersStay) {
  MemoryFileSystem files;
  put_two_tensors(files);
  for (const Residence residence : {Residence::ram, Residence::automatic}) {
    auto model = open_gguf(files, kPath);
    ASSERT_TRUE(model) << model.error().message;
    const auto first = model->find("first")->data, table = model->find("table")->data;
    ASSERT_TRUE(load_into_memory(files, *model, residence, not_the_table));
    const auto copy = model->find("first")->data;
    EXPECT_NE(copy.data(), first.data());
    ASSERT_EQ(copy.size(), first.size());
    EXPECT_EQ(std::memcmp(copy.data(), first.data(), copy.size()), 0);
    EXPECT_EQ(model->find("table")->data.data(), table.data());
  }
}

TEST(Residence, MappedLeavesTheModelAsItIs) {
  MemoryFileSystem files;
  put_two_tensors(files);
  auto model = open_gguf(files, kPath);
  ASSERT_TRUE(model);
  const auto* before = model->find("first")->data.data();
  ASSERT_TRUE(load_into_memory(files, *model, Residence::mapped, not_the_table));
  EXPECT_EQ(model->find("first")->data.data(), before);
}

TEST(Residence, AReadErrorNamesTheTensorAndChangesNothing) {
  MemoryFileSystem inner;
  put_two_tensors(inner);
  auto model = open_gguf(inner, kPath);
  ASSERT_TRUE(model);
  const auto* before = model->find("first")->data.data();
  FaultyFileSystem files(inner, [](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
    if (call.operation == FaultyFileSystem::Operation::read)
      return fail(ErrorCode::io, "the disk is gone");
    return call.size;
  });
  const Status status = load_into_memory(files, *model, Residence::ram, not_the_table);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("tensor 'first'"));
  EXPECT_THAT(status.error().message, HasSubstr("the disk is gone"));
  EXPECT_EQ(model->find("first")->data.data(), before);
}

TEST(Residence, NamesOfTheWays) {
  EXPECT_EQ(residence_from("auto").value(), Residence::automatic);
  EXPECT_EQ(residence_from("ram").value(), Residence::ram);
  EXPECT_EQ(residence_from("map").value(), Residence::mapped);
  EXPECT_EQ(residence_from("disk").error().message,
            "weights are kept 'auto', 'ram' or 'map', not 'disk'");
}

}  // namespace
}  // namespace strata
