#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "quant/codebooks.h"
#include "tests/quant/golden.h"

namespace strata {
namespace {

using testing::gaussian;
using testing::heavy_tailed;
using testing::must_decode;
using testing::must_encode;
using testing::read_golden;
using testing::read_golden_floats;
using testing::relative_error;
using testing::round_trip;
using testing::squared_error;

const TensorType exact[] = {TensorType::F32,  TensorType::F16,  TensorType::BF16, TensorType::Q4_0,
                            TensorType::Q4_1, TensorType::Q5_0, TensorType::Q5_1, TensorType::Q8_0};
const TensorType searched[] = {TensorType::Q2_0, TensorType::IQ4_NL, TensorType::IQ4_XS,
                               TensorType::Q2_K, TensorType::Q3_K,   TensorType::Q4_K,
                               TensorType::Q5_K, TensorType::Q6_K};

std::vector<TensorType> encodable() {
  std::vector<TensorType> types(std::begin(exact), std::end(exact));
  types.insert(types.end(), std::begin(searched), std::end(searched));
  return types;
}

TEST(Encode, GoldenBlocksToTheLastBit) {
  const auto input = read_golden_floats("encode_input.f32");
  ASSERT_EQ(input.size(), 2304u);
  for (const char* name : {"BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"}) {
    const auto expected = read_golden(std::string(name) + ".encoded.bin");
    const auto encoded = must_encode(*type_from_name(name), input);
    ASSERT_EQ(encoded.size(), expected.size()) << name;
    const auto differs = std::mismatch(encoded.begin(), encoded.end(), expected.begin());
    EXPECT_EQ(differs.first - encoded.begin(), static_cast<std::ptrdiff_t>(encoded.size()))
        << name << " differs there first";
  }
}

TEST(Encode, KnowsWhatItCanDo) {
  const auto types = encodable();
  for (const TypeTraits& type : all_types()) {
    const bool expected = std::find(types.begin(), types.end(), type.type) != types.end();
    EXPECT_EQ(can_encode(type.type), expected) << type.name;
  }
}

// ---- Errors ----

TEST(Encode, RefusesByName) {
  std::vector<float> values(256);
  std::vector<std::byte> blocks(66);
  Status status = encode(TensorType::IQ2_XXS, values, blocks);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_EQ(status.error().message, "there is no encoder for tensor type IQ2_XXS");
  status = encode(TensorType::Q4_K, std::span(values).first(255), blocks);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(status.error().message, "255 values are no whole number of Q4_K blocks of 256");
  status = encode(TensorType::Q4_K, values, blocks);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "256 values of Q4_K are 1 blocks of 144 bytes, but the block data has 66 bytes");
}

TEST(Encode, NamesTheFirstValueThatIsNotFinite) {
  for (const TensorType type : encodable()) {
    std::vector<float> values(512, 0.5f);
    values[300] = -std::numeric_limits<float>::infinity();
    values[301] = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::byte> blocks(testing::bytes_for(type, 512));
    const Status status = encode(type, values, blocks);
    ASSERT_FALSE(status) << to_string(type);
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.error().message,
              "value 300 is -inf; " + std::string(to_string(type)) + " holds finite values only");
  }
}

TEST(Encode, NamesTheValueThatIsTooLarge) {
  for (const TensorType type : encodable()) {
    if (type == TensorType::F32) continue;
    std::vector<float> values(512, 1.0f);
    values[256 + 37] = -3.3e38f;
    std::vector<std::byte> blocks(testing::bytes_for(type, 512));
    const Status status = encode(type, values, blocks);
    if (type == TensorType::BF16) {
      EXPECT_TRUE(status);  // holds what float holds, nearly
      continue;
    }
    ASSERT_FALSE(status) << to_string(type);
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.error().message,
              "value 293 is -3.3e+38, which is too large for " + std::string(to_string(type)));
  }
  std::vector<std::byte> two(2);
  const float largest[] = {std::numeric_limits<float>::max()};
  EXPECT_FALSE(encode(TensorType::BF16, largest, two));
  const float above_half[] = {65520.0f};
  EXPECT_FALSE(encode(TensorType::F16, above_half, two));
  const float half[] = {65519.0f};
  EXPECT_TRUE(encode(TensorType::F16, half, two));
}

// Every finite pattern of bits either encodes to finite values or is refused.
TEST(Encode, AnyFiniteValues) {
  std::mt19937 engine(11);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (const TensorType type : encodable()) {
    int encoded = 0;
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<float> values(256);
      // From blocks of any magnitude to blocks of a narrow band of exponents.
      const std::uint32_t low = random() % 254;
      const std::uint32_t width = 1 + random() % (255 - low);
      for (float& value : values) {
        const std::uint32_t exponent = low + random() % width;
        value = std::bit_cast<float>((random() & 0x807fffffu) | (exponent << 23));
      }
      std::vector<std::byte> blocks(testing::bytes_for(type, values.size()));
      if (!encode(type, values, blocks)) continue;
      ++encoded;
      for (const float value : must_decode(type, blocks, values.size())) {
        ASSERT_TRUE(std::isfinite(value)) << to_string(type) << " trial " << trial;
      }
    }
    EXPECT_GT(encoded, 20) << to_string(type);
  }
}

// ---- Special blocks ----

TEST(Encode, ZerosStayZeros) {
  const std::vector<float> zeros(512);
  for (const TensorType type : encodable()) {
    for (const float value : round_trip(type, zeros)) {
      ASSERT_EQ(value, 0.0f) << to_string(type);
    }
  }
}

// The limit is what a subnormal half scale (that of 3e-3 in the K formats) can miss by.
TEST(Encode, ConstantBlocks) {
  for (const TensorType type : encodable()) {
    for (const float constant : {0.75f, -0.75f, 3e-3f, -120.0f}) {
      const std::vector<float> values(256, constant);
      EXPECT_LT(relative_error(values, round_trip(type, values)), 8e-3)
          << to_string(type) << " of " << constant;
    }
  }
}

// Values in a narrow band away from zero, groups that are zero, and one outlier.
TEST(Encode, LopsidedBlocks) {
  auto values = gaussian(256, 0.01f, 3);
  for (std::size_t i = 0; i < 64; ++i) values[i] += 1.0f;
  for (std::size_t i = 64; i < 128; ++i) values[i] -= 1.0f;
  for (std::size_t i = 128; i < 160; ++i) values[i] = 0.0f;
  values[200] = 5.0f;
  for (const TensorType type : encodable()) {
    const double limit = type == TensorType::Q2_K || type == TensorType::Q2_0 ? 0.2 : 0.1;
    EXPECT_LT(relative_error(values, round_trip(type, values)), limit) << to_string(type);
  }
}

// Scales that halves hold only as subnormals, where a scale rounded down would clip the block.
TEST(Encode, TinyValuesKeepTheirShape) {
  const auto values = gaussian(4096, 1e-5f, 5);
  EXPECT_LT(relative_error(values, round_trip(TensorType::Q6_K, values)), 0.03);
  EXPECT_LT(relative_error(values, round_trip(TensorType::Q5_K, values)), 0.05);
  EXPECT_LT(relative_error(values, round_trip(TensorType::Q4_K, values)), 0.09);
  EXPECT_LT(relative_error(values, round_trip(TensorType::IQ4_NL, values)), 0.2);
  EXPECT_LT(relative_error(values, round_trip(TensorType::IQ4_XS, values)), 0.2);
}

TEST(Encode, BlocksDoNotDependOnTheirNeighbours) {
  const auto values = heavy_tailed(1024, 0.02f, 9);
  for (const TensorType type : encodable()) {
    const auto together = must_encode(type, values);
    std::vector<std::byte> apart;
    for (std::size_t i = 0; i < values.size(); i += 256) {
      const auto part = must_encode(type, std::span(values).subspan(i, 256));
      apart.insert(apart.end(), part.begin(), part.end());
    }
    EXPECT_EQ(together, apart) << to_string(type);
  }
}

// ---- Error of the searched encoders ----

TEST(Encode, ErrorOnGaussianData) {
  const auto values = gaussian(1 << 16, 0.02f, 1);
  const auto error = [&](TensorType type) {
    return relative_error(values, round_trip(type, values));
  };
  EXPECT_LT(error(TensorType::Q2_0), 0.353);
  EXPECT_LT(error(TensorType::Q2_K), 0.264);
  EXPECT_LT(error(TensorType::Q3_K), 0.145);
  EXPECT_LT(error(TensorType::IQ4_XS), 0.0748);
  EXPECT_LT(error(TensorType::IQ4_NL), 0.0741);
  EXPECT_LT(error(TensorType::Q4_K), 0.0705);
  EXPECT_LT(error(TensorType::Q5_K), 0.0349);
  EXPECT_LT(error(TensorType::Q6_K), 0.0174);
}

TEST(Encode, MoreBitsAreBetterAndSearchBeatsTheRule) {
  for (const auto& values : {gaussian(8192, 1.0f, 2), heavy_tailed(8192, 0.02f, 2)}) {
    const auto error = [&](TensorType type) {
      return relative_error(values, round_trip(type, values));
    };
    EXPECT_LT(error(TensorType::Q6_K), error(TensorType::Q5_K));
    EXPECT_LT(error(TensorType::Q5_K), error(TensorType::Q4_K));
    EXPECT_LT(error(TensorType::Q4_K), error(TensorType::Q3_K));
    EXPECT_LT(error(TensorType::Q3_K), error(TensorType::Q2_K));
    EXPECT_LT(error(TensorType::Q2_K), error(TensorType::Q2_0));
    EXPECT_LT(error(TensorType::Q4_K), error(TensorType::Q4_1));
    EXPECT_LT(error(TensorType::IQ4_NL), error(TensorType::Q4_0));
    EXPECT_LT(error(TensorType::Q5_K), error(TensorType::Q5_1));
  }
}

// The squared error of a group whose values are scale * level with the nearest level each.
double group_error(std::span<const float> x, double scale, std::span<const double> levels) {
  double error = 0;
  for (const float value : x) {
    double nearest = std::numeric_limits<double>::infinity();
    for (const double level : levels) {
      nearest = std::min(nearest, std::abs(static_cast<double>(value) - scale * level));
    }
    error += nearest * nearest;
  }
  return error;
}

// The least group_error over a fine grid of scales of both signs.
double brute_error(std::span<const float> x, std::span<const double> levels, double largest_level,
                   int steps) {
  double largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(static_cast<double>(value)));
  double best = std::numeric_limits<double>::infinity();
  for (int step = -steps; step <= steps; ++step) {
    const double scale = 2.0 * largest / largest_level * step / steps;
    best = std::min(best, group_error(x, scale, levels));
  }
  return best;
}

TEST(Encode, NoScaleOfAFineGridBeatsQ2_0) {
  const std::array<double, 4> levels = {-1, 0, 1, 2};
  for (const auto& values : {gaussian(64 * 40, 0.02f, 21), heavy_tailed(64 * 40, 0.5f, 22)}) {
    const auto decoded = round_trip(TensorType::Q2_0, values);
    for (std::size_t i = 0; i < values.size(); i += 64) {
      const auto block = std::span(values).subspan(i, 64);
      const double ours = squared_error(block, std::span(decoded).subspan(i, 64));
      EXPECT_LT(ours, 1.01 * brute_error(block, levels, 2.0, 2000)) << "block " << i / 64;
    }
  }
}

TEST(Encode, Iq4NlIsNearTheBestScale) {
  std::array<double, 16> levels{};
  std::copy(quant::iq4_values.begin(), quant::iq4_values.end(), levels.begin());
  const auto values = gaussian(32 * 50, 0.02f, 23);
  const auto decoded = round_trip(TensorType::IQ4_NL, values);
  double brute = 0;
  for (std::size_t i = 0; i < values.size(); i += 32) {
    const auto block = std::span(values).subspan(i, 32);
    const double best = brute_error(block, levels, 127.0, 1500);
    EXPECT_LT(squared_error(block, std::span(decoded).subspan(i, 32)), 1.35 * best) << i / 32;
    brute += best;
  }
  EXPECT_LT(squared_error(values, decoded), 1.01 * brute);
}

// Q6_K against the best float scale for each group of 16: what integer scales may cost.
TEST(Encode, Q6KIsNearTheBestFloatScales) {
  std::array<double, 64> levels{};
  for (std::size_t i = 0; i < 64; ++i) levels[i] = static_cast<double>(i) - 32;
  const auto values = gaussian(256 * 3, 0.02f, 24);
  double brute = 0;
  for (std::size_t i = 0; i < values.size(); i += 16) {
    brute += brute_error(std::span(values).subspan(i, 16), levels, 32.0, 1500);
  }
  EXPECT_LT(squared_error(values, round_trip(TensorType::Q6_K, values)), 1.20 * brute);
}

// Q4_K against the best float scale and minimum for each group of 32, over a fine grid of both.
TEST(Encode, Q4KIsNearTheBestFloatScalesAndMinimums) {
  const auto values = gaussian(256 * 3, 0.02f, 25);
  double brute = 0;
  for (std::size_t i = 0; i < values.size(); i += 32) {
    const auto group = std::span(values).subspan(i, 32);
    const auto [low, high] = std::minmax_element(group.begin(), group.end());
    const double range = static_cast<double>(*high) - static_cast<double>(*low);
    double best = std::numeric_limits<double>::infinity();
    for (int a = 0; a <= 60; ++a) {
      const double min = std::max(0.0, -static_cast<double>(*low) - range * 0.15 * a / 60);
      for (int b = 0; b <= 60; ++b) {
        const double scale = range / 15 * (0.75 + 0.35 * b / 60);
        double error = 0;
        for (const float value : group) {
          const double code =
              std::clamp(std::nearbyint((static_cast<double>(value) + min) / scale), 0.0, 15.0);
          const double difference = static_cast<double>(value) - (scale * code - min);
          error += difference * difference;
        }
        best = std::min(best, error);
      }
    }
    brute += best;
  }
  EXPECT_LT(squared_error(values, round_trip(TensorType::Q4_K, values)), 1.06 * brute);
}

// ---- Encoding what was encoded ----

TEST(Encode, ExactFormatsAreStable) {
  const auto values = heavy_tailed(4096, 0.02f, 31);
  for (const TensorType type : exact) {
    const auto once = round_trip(type, values);
    EXPECT_EQ(round_trip(type, once), once) << to_string(type);
  }
}

TEST(Encode, SearchedFormatsFindTheirOwnValuesAgain) {
  const auto values = heavy_tailed(4096, 0.02f, 32);
  for (const TensorType type : searched) {
    const auto once = round_trip(type, values);
    const double first = relative_error(values, once);
    const auto twice = round_trip(type, once);
    EXPECT_LT(relative_error(once, twice), 0.35 * first) << to_string(type);
    if (type == TensorType::Q2_0) {
      EXPECT_EQ(twice, once);
    }
  }
}

}  // namespace
}  // namespace strata
