// Weights copied to memory: the same bytes elsewhere, and errors that leave the model as it was.
#include "model/residence.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include <vector>
#include "base/large_memory.h"

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

TEST(Residence, WantedTensorsAreCopiedAndOthersStay) {
  MemoryFileSystem files;
  put_two_tensors(files);
  auto model = open_gguf(files, kPath);
  ASSERT_TRUE(model) << model.error().message;
  const auto first = model->find("first")->data, table = model->find("table")->data;
  std::uint64_t done = 0, total = 0;
  const auto progress = [&](std::uint64_t now, std::uint64_t all) {
    EXPECT_GE(now, done);
    done = now;
    total = all;
  };
  ASSERT_TRUE(load_into_memory(files, *model, {false, progress}, not_the_table));
  const auto copy = model->find("first")->data;
  EXPECT_NE(copy.data(), first.data());
  ASSERT_EQ(copy.size(), first.size());
  EXPECT_EQ(std::memcmp(copy.data(), first.data(), copy.size()), 0);
  EXPECT_EQ(model->find("table")->data.data(), table.data());
  EXPECT_EQ(done, total);
  EXPECT_GE(total, copy.size());
}

// A real file that the page cache does not have, in pieces and with a hole for what is not wanted.
TEST(Residence, FromADisk) {
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("strata-residence-{}.gguf", ::getpid());
  {
    auto writer = GgufWriter::create(real_files(), path);
    ASSERT_TRUE(writer);
    std::mt19937 random(1);
    for (const char* name : {"a", "b", "table", "c"})
      ASSERT_TRUE(writer->declare(name, TensorType::F32, {1'500'000}));
    for (int tensor = 0; tensor < 4; ++tensor) {
      std::vector<std::uint32_t> values(1'500'000);
      for (std::uint32_t& value : values) value = static_cast<std::uint32_t>(random());
      ASSERT_TRUE(writer->write_data(std::as_bytes(std::span(values))));
    }
    ASSERT_TRUE(writer->finish());
  }
  const int file = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(file, 0);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
  auto mapped = open_gguf(real_files(), path), model = open_gguf(real_files(), path);
  ASSERT_TRUE(mapped);
  ASSERT_TRUE(model);
  const Status loaded = load_into_memory(real_files(), *model, {}, not_the_table);
  ASSERT_TRUE(loaded) << loaded.error().message;
  for (const char* name : {"a", "b", "c"}) {
    const auto before = mapped->find(name)->data, after = model->find(name)->data;
    ASSERT_EQ(before.size(), after.size());
    EXPECT_EQ(std::memcmp(before.data(), after.data(), after.size()), 0) << name;
  }
  std::filesystem::remove(path);
}

TEST(Residence, NoMemoryIsASentence) {
  MemoryFileSystem files;
  put_two_tensors(files);
  auto model = open_gguf(files, kPath);
  ASSERT_TRUE(model);
  refuse_large_memory([](std::size_t) { return true; });
  const Status status = load_into_memory(files, *model, {}, not_the_table);
  refuse_large_memory({});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::exhausted);
  EXPECT_THAT(status.error().message, HasSubstr("memory for the weights"));
}

TEST(Residence, AReadErrorChangesNothing) {
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
  const Status status = load_into_memory(files, *model, {}, not_the_table);
  ASSERT_FALSE(status);
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
