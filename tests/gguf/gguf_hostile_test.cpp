// GGUF files made to harm, one test for each known class: E1 size arithmetic, E2 counts, E3
// alignment, E4 dimensions, E5 data ranges, E7 strings, E8 types, duplicates and versions. Each
// must be refused with a sentence, at once, and before memory is taken for what the file claims
// (expect_refused checks all three). The other classes: E6, tokens that are not there, and E11,
// files that shrink, in tests/engine; E7, vocabularies, in tests/tokenizer; E9, shapes, in
// tests/model; E10, split files, in gguf_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "gguf/gguf.h"
#include "tests/gguf/gguf_fixture.h"

namespace strata {
namespace {

using test::expect_refused;
using test::open_bytes;
using test::RawGguf;

constexpr std::uint64_t kHuge = 1ull << 60;

RawGguf with_key(MetaType type) {
  return RawGguf().start(0, 1).key("k", type);
}
RawGguf with_tensor(const std::vector<std::uint64_t>& ne, std::uint32_t type = 0,
                    std::uint64_t offset = 0) {
  return RawGguf().start(1, 0).tensor("t", ne, type, offset).data(64);
}

TEST(Hostile, E1SizeArithmeticOverflow) {
  const auto corrupt = ErrorCode::corrupt;
  expect_refused(with_tensor({1ull << 32, 1ull << 32}), corrupt, "tensor 't' has the shape");
  expect_refused(with_tensor({1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32}), corrupt,
                 "more than 2^63 values");
  expect_refused(with_tensor({UINT64_MAX, 1}), corrupt, "more than 2^63 values");
  // The product wraps to 2^63 + ...: small as a signed number.
  expect_refused(with_tensor({(1ull << 33) + 1, (1ull << 31)}), corrupt, "tensor 't'");
  // 2^62 values of 4 bytes: the count fits, the bytes do not.
  expect_refused(with_tensor({1ull << 62}), corrupt, "overflows 64 bits");
  // The size fits, the end of the data does not.
  expect_refused(with_tensor({1ull << 61}, 0, (1ull << 63)), corrupt, "needs");
  expect_refused(with_tensor({8}, 0, UINT64_MAX - 31), corrupt, "needs 32 bytes at offset");
  expect_refused(with_tensor({0}), corrupt, "a dimension of 0");
  expect_refused(with_tensor({4, 0, UINT64_MAX}), corrupt, "a dimension of 0");
}

TEST(Hostile, E2CountsFarAboveTheFile) {
  const auto corrupt = ErrorCode::corrupt;
  expect_refused(RawGguf().start(kHuge, 0), corrupt, "claims 1152921504606846976 tensors");
  expect_refused(RawGguf().start(0, kHuge), corrupt, "claims 1152921504606846976 keys");
  expect_refused(RawGguf().start(1'000'000, 0), corrupt, "has only 0 bytes left");
  expect_refused(RawGguf().start(0, 60'000).data(100), corrupt, "claims 60000 keys but has only");
  expect_refused(RawGguf().start(0, 1).number(kHuge).data(64), corrupt, "has a length of");
  expect_refused(with_key(MetaType::string).number(kHuge), corrupt, "key 'k' has a length of");
  expect_refused(with_key(MetaType::string).number(std::uint64_t{100}), corrupt,
                 "ends at byte 45, inside key 'k'");
  for (const MetaType element : {MetaType::u8, MetaType::f64, MetaType::string}) {
    expect_refused(
        with_key(MetaType::array).number(static_cast<std::uint32_t>(element)).number(kHuge),
        corrupt, "key 'k' claims 1152921504606846976 elements but only 0 bytes are left");
  }
  // 2^61 elements of 8 bytes wrap to 0 bytes.
  expect_refused(with_key(MetaType::array)
                     .number(static_cast<std::uint32_t>(MetaType::u64))
                     .number(1ull << 61)
                     .data(64),
                 corrupt, "elements but only");
}

TEST(Hostile, E2ArraysTogetherAreBounded) {
  RawGguf raw;
  raw.start(0, 2);
  for (const char* key : {"a", "b"}) {
    const std::uint64_t count = 9u << 20;
    raw.key(key, MetaType::array).number(static_cast<std::uint32_t>(MetaType::u8)).number(count);
    raw.bytes(std::string(count, 'x'));
  }
  expect_refused(raw, ErrorCode::corrupt, "all arrays together may have 16777216");
}

TEST(Hostile, E3AlignmentAbuse) {
  const auto aligned = [](std::uint32_t alignment) {
    return RawGguf().start(0, 1).key("general.alignment", MetaType::u32).number(alignment);
  };
  for (const std::uint32_t bad : {0u, 1u, 4u, 13u, 33u, 1u << 21, 1u << 31}) {
    expect_refused(aligned(bad), ErrorCode::corrupt,
                   fmt::format("general.alignment is {}; it must be a power of two", bad));
  }
  EXPECT_TRUE(open_bytes(aligned(8).take()));
  EXPECT_TRUE(open_bytes(aligned(1u << 20).take()));
  expect_refused(RawGguf().start(0, 1).key("general.alignment", MetaType::u64).number(1ull << 63),
                 ErrorCode::corrupt, "key 'general.alignment' holds u64 where u32 is needed");
  expect_refused(RawGguf().start(0, 1).key("general.alignment", MetaType::string).string("32"),
                 ErrorCode::corrupt, "holds string where u32 is needed");
  expect_refused(with_tensor({4}, 0, 16), ErrorCode::corrupt,
                 "tensor 't' has the offset 16, no multiple of the alignment 32");
}

TEST(Hostile, E4DimensionCount) {
  for (const std::uint32_t dims : {0u, 5u, 9u, 1u << 31, ~0u}) {
    RawGguf raw;
    raw.start(1, 0).string("t").number(dims).data(256);
    expect_refused(raw, ErrorCode::corrupt,
                   fmt::format("tensor 't' has {} dimensions; 1 to 4 are possible", dims));
  }
}

TEST(Hostile, E5DataOutsideTheFile) {
  const auto corrupt = ErrorCode::corrupt;
  EXPECT_TRUE(open_bytes(with_tensor({16}).take()));
  expect_refused(with_tensor({17}), corrupt, "tensor 't' needs 68 bytes at offset 0 of the data");
  expect_refused(with_tensor({16}, 0, 32), corrupt, "but the file has 128 bytes");
  expect_refused(with_tensor({1}, 0, kHuge), corrupt, "it was cut short or damaged");
  expect_refused(with_tensor({1}, 0, 8), corrupt, "no multiple of the alignment");
  // The data section itself is missing.
  expect_refused(RawGguf().start(1, 0).tensor("t", {1}, 0, 0), corrupt, "tensor 't' needs 4 bytes");
}

// 8 GiB of tensor as a file system without room makes it: all there is a hole that ends early.
TEST(Hostile, E5SparseTruncatedCopy) {
  const std::string path = fmt::format("{}strata-sparse-{}.gguf", testing::TempDir(), ::getpid());
  const std::uint64_t values = 1ull << 31;
  const Bytes header = RawGguf().start(1, 0).tensor("t", {values}, 0, 0).data(0).take();
  {
    auto file = real_files().create(path);
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->write(header));
    ASSERT_TRUE((*file)->finish());
  }
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(header.size() + 4 * values - 1)), 0);
  const auto cut = open_gguf(real_files(), path);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::corrupt);
  EXPECT_NE(cut.error().message.find("tensor 't' needs 8589934592 bytes"), std::string::npos)
      << cut.error().message;
  test::expect_cheap(header.size(), [&] { return !open_gguf(real_files(), path); });
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(header.size() + 4 * values)), 0);
  EXPECT_TRUE(open_gguf(real_files(), path));
  ::unlink(path.c_str());
}

TEST(Hostile, E5TensorsThatShareBytes) {
  RawGguf raw;
  raw.start(3, 0).tensor("a", {8}, 0, 64).tensor("b", {9}, 0, 0).tensor("c", {1}, 0, 32).data(128);
  expect_refused(raw, ErrorCode::corrupt, "tensors 'b' and 'c' share bytes at offset 32");
}

TEST(Hostile, E5RowsThatAreNoWholeBlocks) {
  expect_refused(with_tensor({16}, 2), ErrorCode::corrupt,
                 "tensor 't' of type Q4_0 has rows of 16 values, no whole number of blocks of 32");
  // 2 x 16 values would be one block, but no row is.
  expect_refused(with_tensor({16, 2}, 2), ErrorCode::corrupt, "rows of 16 values");
}

TEST(Hostile, E7Strings) {
  const auto corrupt = ErrorCode::corrupt;
  expect_refused(with_key(MetaType::string).number(0x80000000ull).data(64), corrupt,
                 "has a length of 2147483648 bytes, more than the 16777216 allowed");
  expect_refused(with_key(MetaType::string).number(UINT64_MAX).data(64), corrupt, "has a length");
  expect_refused(RawGguf().start(0, 1).key("", MetaType::u8).data(64), corrupt,
                 "key 0 has an empty name");
  expect_refused(RawGguf().start(0, 1).key("a\nb", MetaType::u8).data(64), corrupt,
                 "key 0 has the control character 0x0a in its name");
  expect_refused(RawGguf().start(0, 1).key(std::string(65536, 'k'), MetaType::u8).data(64), corrupt,
                 "name of 65536 bytes");
  expect_refused(RawGguf().start(1, 0).tensor(std::string(256, 't'), {1}, 0, 0).data(64), corrupt,
                 "name of 256 bytes, more than the 255 allowed");
  expect_refused(RawGguf().start(1, 0).tensor("\x1b[2J", {1}, 0, 0).data(64), corrupt,
                 "control character 0x1b");
  // What a token may hold is the tokenizer's business: the container passes bytes through.
  const auto model = open_bytes(with_key(MetaType::array)
                                    .number(static_cast<std::uint32_t>(MetaType::string))
                                    .number(std::uint64_t{3})
                                    .string("\xff")
                                    .string("")
                                    .string("\xff")
                                    .take());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(model->metadata.strings("k").value(), testing::ElementsAre("\xff", "", "\xff"));
}

TEST(Hostile, E8TypesThatDoNotExist) {
  for (const std::uint32_t type : {13u, 14u, 255u, ~0u}) {
    expect_refused(with_key(static_cast<MetaType>(type)).data(64), ErrorCode::corrupt,
                   fmt::format("key 'k' has the value type {}, which GGUF does not have", type));
    expect_refused(with_key(MetaType::array).number(type).number(1ull).data(64), ErrorCode::corrupt,
                   fmt::format("key 'k' has the value type {}", type));
  }
  for (const std::uint32_t type : {4u, 5u, 31u, 36u, 41u, 43u, ~0u}) {
    expect_refused(with_tensor({32}, type), ErrorCode::unsupported,
                   fmt::format("tensor 't' has the type id {}, which this program", type));
  }
  expect_refused(with_key(MetaType::boolean).number(std::uint8_t{2}), ErrorCode::corrupt,
                 "key 'k' is a bool with the byte 2");
}

TEST(Hostile, E8NestedArrays) {
  expect_refused(with_key(MetaType::array)
                     .number(static_cast<std::uint32_t>(MetaType::array))
                     .number(std::uint64_t{1})
                     .data(64),
                 ErrorCode::unsupported, "key 'k' is an array of arrays, which cannot be read");
}

TEST(Hostile, E8DuplicateNames) {
  RawGguf keys;
  keys.start(0, 2);
  for (int i = 0; i < 2; ++i) keys.key("k", MetaType::u8).number(std::uint8_t{1});
  expect_refused(keys, ErrorCode::corrupt, "key 'k' occurs twice");
  RawGguf tensors;
  tensors.start(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).data(64);
  expect_refused(tensors, ErrorCode::corrupt, "tensor 't' occurs twice");
}

TEST(Hostile, E8VersionsAndByteOrder) {
  const auto unsupported = ErrorCode::unsupported;
  expect_refused(RawGguf().start(0, 0, 1), unsupported, "is GGUF version 1");
  expect_refused(RawGguf().start(0, 0, 4), unsupported,
                 "is GGUF version 4; versions 2 and 3 can be read");
  expect_refused(RawGguf().start(0, 0, 0x03000000), unsupported, "is a big-endian GGUF file");
  expect_refused(RawGguf().start(0, 0, 0x02000000), unsupported, "is a big-endian GGUF file");
  expect_refused(RawGguf().start(0, 0, 0), ErrorCode::corrupt, "is GGUF version 0");
  expect_refused(RawGguf().bytes("GGML").number(3u), ErrorCode::corrupt, "is not a GGUF file");
  expect_refused(RawGguf().bytes("PK"), ErrorCode::corrupt, "inside the magic number");
  expect_refused(RawGguf(), ErrorCode::corrupt, "ends at byte 0");
}

// --- mutations -----------------------------------------------------------------------------

// A small file with every kind of record.
Bytes sample() {
  MemoryFileSystem files;
  auto writer = GgufWriter::create(files, "m.gguf");
  Metadata& m = writer->metadata();
  m.set("general.architecture", MetaValue::string("qwen4exp"));
  m.set("general.alignment", MetaValue::u32(32));
  m.set("a.u8", {MetaType::u8, {}, std::int64_t{3}});
  m.set("a.f64", {MetaType::f64, {}, 0.5});
  m.set("a.bool", MetaValue::boolean(true));
  m.set("a.integers", MetaValue::array(MetaType::i16, {1, -2, 3}));
  m.set("a.bools", MetaValue::array(MetaType::boolean, {1, 0}));
  m.set("a.floats", MetaValue::floats({0.5, 2}));
  m.set("tokens", MetaValue::strings({"", "a", "bc"}));
  EXPECT_TRUE(writer->declare("blk.0.weight", TensorType::Q4_0, {32, 3}));
  EXPECT_TRUE(writer->declare("norm", TensorType::F32, {5}));
  EXPECT_TRUE(writer->declare("cube", TensorType::F16, {2, 2, 2}));
  for (const std::size_t size : {54u, 20u, 16u}) {
    EXPECT_TRUE(writer->write_data(test::pattern(size, 1)));
  }
  EXPECT_TRUE(writer->finish());
  return files.get("m.gguf").value();
}

// Reads all that a model offers, so that a sanitizer sees a span that points outside.
std::uint64_t touch(const GgufModel& model) {
  std::uint64_t sum = 0;
  for (const TensorView& tensor : model.tensors) {
    for (const std::byte byte : tensor.data) sum += static_cast<unsigned>(byte);
    sum += shape_text(tensor).size() + tensor.values();
  }
  for (const auto& [key, value] : model.metadata.entries()) {
    sum += key.size() + value.value.index() + to_string(value.type).size();
    sum += model.metadata.number(key).has_value() + model.metadata.uint(key).has_value();
  }
  return sum;
}

TEST(Mutated, TruncationIsAlwaysAnError) {
  const Bytes whole = sample();
  const auto model = open_bytes(whole);
  ASSERT_TRUE(model) << model.error().message;
  // The last tensor's bytes are needed too; only the padding behind them is not.
  const std::uint64_t end = model->find("cube")->file_offset + 16;
  ASSERT_GT(end, 300u);
  for (std::size_t size = 0; size < end; ++size) {
    const auto cut = open_bytes(Bytes(whole.begin(), whole.begin() + static_cast<long>(size)));
    ASSERT_FALSE(cut) << "cut to " << size << " bytes";
    EXPECT_EQ(cut.error().code, ErrorCode::corrupt) << cut.error().message;
  }
  EXPECT_TRUE(open_bytes(Bytes(whole.begin(), whole.begin() + static_cast<long>(end))));
}

TEST(Mutated, FlippedBytesNeverCrash) {
  const Bytes whole = sample();
  std::mt19937 random(20260101);
  std::uint64_t accepted = 0;
  std::uint64_t sum = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = whole;
    const auto flips = 1 + random() % 4;
    for (auto i = flips; i > 0; --i) {
      // Half of the rounds use the values that counts and sizes like least.
      const auto choice = random();
      const std::byte value = choice % 2 == 0   ? static_cast<std::byte>(random())
                              : choice % 4 == 1 ? std::byte{0xff}
                                                : std::byte{0x80};
      bytes[random() % bytes.size()] = value;
    }
    const auto model = open_bytes(std::move(bytes));
    if (model) {
      ++accepted;
      sum += touch(*model);
    } else {
      EXPECT_FALSE(model.error().message.empty());
    }
  }
  // Many flips hit data or values, where any byte is right; many hit structure.
  EXPECT_GT(accepted, 1000u);
  EXPECT_LT(accepted, 19'000u);
  EXPECT_GT(sum, 0u);
}

TEST(Mutated, OverwrittenCountsNeverCrash) {
  const Bytes whole = sample();
  const std::uint64_t values[] = {0,          1,          0x7f,       0xffff,        0x7fffffff,
                                  0xffffffff, 1ull << 32, 1ull << 60, INT64_MAX - 7, UINT64_MAX};
  for (std::size_t at = 0; at + 8 <= whole.size(); ++at) {
    for (const std::uint64_t value : values) {
      Bytes bytes = whole;
      std::memcpy(bytes.data() + at, &value, sizeof(value));
      const auto model = open_bytes(std::move(bytes));
      if (model) touch(*model);
    }
  }
}

}  // namespace
}  // namespace strata
