#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "quant/codebooks.h"
#include "tests/quant/golden.h"

namespace strata {
namespace {

using testing::must_decode;
using testing::read_golden;
using testing::read_golden_floats;
using testing::read_golden_json;

const TensorType decodable[] = {
    TensorType::F32,   TensorType::F16,     TensorType::BF16,   TensorType::Q4_0,
    TensorType::Q4_1,  TensorType::Q5_0,    TensorType::Q5_1,   TensorType::Q8_0,
    TensorType::Q2_0,  TensorType::Q2_K,    TensorType::Q3_K,   TensorType::Q4_K,
    TensorType::Q5_K,  TensorType::Q6_K,    TensorType::IQ1_S,  TensorType::IQ1_M,
    TensorType::IQ2_S, TensorType::IQ2_XXS, TensorType::IQ2_XS, TensorType::IQ3_XXS,
    TensorType::IQ3_S, TensorType::IQ4_NL,  TensorType::IQ4_XS};

void expect_same_bits(std::span<const float> a, std::span<const float> b, std::string_view what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
        << what << " value " << i << ": " << a[i] << " and " << b[i];
  }
}

TEST(Decode, GoldenBlocksToTheLastBit) {
  int formats = 0;
  for (const auto& [key, entry] : read_golden_json("index.json")) {
    const std::string name = key;
    if (name.front() == '_') continue;
    const auto type = type_from_name(name);
    ASSERT_TRUE(type) << name;
    EXPECT_EQ(static_cast<std::int64_t>(*type), entry.at("ggml_type").to_number<std::int64_t>());
    EXPECT_EQ(traits(*type).block_values, entry.at("block_values").to_number<std::uint32_t>());
    EXPECT_EQ(traits(*type).block_bytes, entry.at("block_bytes").to_number<std::uint32_t>());
    const auto expected = read_golden_floats(name + ".values.f32");
    ASSERT_FALSE(expected.empty()) << name;
    expect_same_bits(must_decode(*type, read_golden(name + ".blocks.bin"), expected.size()),
                     expected, name);
    ++formats;
  }
  EXPECT_EQ(formats, 20);
}

TEST(Decode, TypesWithoutGoldenFiles) {
  std::vector<std::byte> q2_0(18, std::byte{0xe4});  // codes 0, 1, 2, 3, 0, ...
  q2_0[0] = std::byte{0x00};
  q2_0[1] = std::byte{0x38};  // 0.5
  q2_0[17] = std::byte{0x1b};
  const auto values = must_decode(TensorType::Q2_0, q2_0, 64);
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(values[i], 0.5f * (static_cast<float>(i % 4) - 1.0f)) << i;
  }
  EXPECT_THAT(std::vector<float>(values.begin() + 60, values.end()),
              ::testing::ElementsAre(1.0f, 0.5f, 0.0f, -0.5f));

  std::vector<std::byte> all_halves(2 * 65536);
  std::vector<float> expected(65536);
  for (std::size_t i = 0; i < 65536; ++i) {
    all_halves[2 * i] = static_cast<std::byte>(i & 255);
    all_halves[2 * i + 1] = static_cast<std::byte>(i >> 8);
    expected[i] = half_to_float(static_cast<std::uint16_t>(i));
  }
  expect_same_bits(must_decode(TensorType::F16, all_halves, 65536), expected, "F16");

  const std::vector<float> plain = {1.5f, -0.0f, std::numeric_limits<float>::infinity(), 1e-42f};
  expect_same_bits(must_decode(TensorType::F32, std::as_bytes(std::span(plain)), 4), plain, "F32");
}

TEST(Decode, AnyBytesAtAnyAlignment) {
  std::mt19937 random(7);
  for (const TensorType type : decodable) {
    const std::size_t count = 3 * traits(type).block_values;
    const std::size_t size = testing::bytes_for(type, count);
    std::vector<std::byte> blocks(size);
    for (auto& byte : blocks) byte = static_cast<std::byte>(random());
    const auto values = must_decode(type, blocks, count);
    std::vector<std::byte> shifted(size + 1);
    std::copy(blocks.begin(), blocks.end(), shifted.begin() + 1);
    expect_same_bits(must_decode(type, std::span(shifted).subspan(1), count), values,
                     to_string(type));
  }
}

TEST(Decode, RowDecoderIsWhatDecodeUses) {
  const auto blocks = read_golden("Q4_K.blocks.bin");
  const auto expected = read_golden_floats("Q4_K.values.f32");
  std::vector<float> out(expected.size());
  row_decoder(TensorType::Q4_K)(blocks.data(), out.data(), expected.size() / 256);
  expect_same_bits(out, expected, "Q4_K");
}

TEST(Decode, KnowsWhatItCanDo) {
  for (const TypeTraits& type : all_types()) {
    const bool expected =
        std::find(std::begin(decodable), std::end(decodable), type.type) != std::end(decodable);
    EXPECT_EQ(can_decode(type.type), expected) << type.name;
    EXPECT_EQ(row_decoder(type.type) != nullptr, expected) << type.name;
  }
}

TEST(Decode, RefusesByName) {
  std::vector<float> out(32);
  std::vector<std::byte> blocks(36);
  Status status = decode(TensorType::Q8_1, blocks, out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_EQ(status.error().message, "there is no decoder for tensor type Q8_1");
  status = decode(static_cast<TensorType>(1234), blocks, out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_EQ(status.error().message, "there is no decoder for tensor type number 1234");
}

TEST(Decode, RefusesSizesThatDoNotMatch) {
  std::vector<std::byte> blocks(36);
  std::vector<float> out(64);
  EXPECT_TRUE(decode(TensorType::Q4_0, blocks, out));
  Status status = decode(TensorType::Q4_0, blocks, std::span(out).first(63));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(status.error().message, "63 values are no whole number of Q4_0 blocks of 32");
  status = decode(TensorType::Q4_0, std::span(blocks).first(35), out);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(status.error().message,
            "64 values of Q4_0 are 2 blocks of 18 bytes, but the block data has 35 bytes");
  EXPECT_FALSE(decode(TensorType::Q4_0, std::span(blocks).first(18), out));
  EXPECT_TRUE(decode(TensorType::Q4_0, {}, {}));
}

template <class Grid>
void expect_grid(const boost::json::object& books, const char* name, const Grid& grid) {
  const auto& entries = books.at(name).at("hex").as_array();
  ASSERT_EQ(entries.size(), grid.size()) << name;
  for (std::size_t i = 0; i < grid.size(); ++i) {
    const std::string text(entries[i].as_string());
    ASSERT_EQ(std::stoull(text, nullptr, 16), grid[i]) << name << " entry " << i;
  }
}

TEST(Codebooks, AreTheGoldenTables) {
  const auto books = read_golden_json("codebooks.json");
  expect_grid(books, "iq1s_grid", quant::iq1s_grid);
  expect_grid(books, "iq2xxs_grid", quant::iq2xxs_grid);
  expect_grid(books, "iq2xs_grid", quant::iq2xs_grid);
  expect_grid(books, "iq2s_grid", quant::iq2s_grid);
  expect_grid(books, "iq3xxs_grid", quant::iq3xxs_grid);
  expect_grid(books, "iq3s_grid", quant::iq3s_grid);
  std::vector<std::uint8_t> signs;
  for (std::uint32_t index = 0; index < 128; ++index) {
    signs.push_back(quant::signs_of_index(index));
  }
  expect_grid(books, "ksigns_iq2xs", signs);
}

TEST(Codebooks, HeaderIsWhatTheGeneratorWrites) {
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "no python3";
  EXPECT_EQ(std::system("python3 '" STRATA_SOURCE_DIR "/scripts/generate_codebooks.py' --check"),
            0);
}

}  // namespace
}  // namespace strata
