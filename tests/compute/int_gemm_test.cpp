// The integer kernels of every format, shape and instruction set against the plainest arithmetic
// with the same activation quantiser.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/huge_memory.h"
#include "compute/cpu/registry.h"
#include "quant/quant.h"

namespace strata::cpu {
namespace {

std::vector<TensorType> int_types() {
  std::vector<TensorType> types;
  for (const TypeTraits& t : all_types())
    if (int_format(t.type)) types.push_back(t.type);
  return types;
}

// Random bytes are valid codes in every format; only the half-precision scales must be tamed.
std::vector<std::byte> random_rows(TensorType type, std::size_t values, std::mt19937& random) {
  std::vector<std::byte> bytes(*bytes_of(type, values));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  const TypeTraits& t = traits(type);
  const auto put_half = [&](std::size_t block, std::size_t offset) {
    const float scale = 0.001f * static_cast<float>(1 + random() % 100);
    const std::uint16_t half = float_to_half(random() % 4 == 0 ? -scale : scale);
    std::memcpy(bytes.data() + block * t.block_bytes + offset, &half, 2);
  };
  for (std::size_t block = 0; block < bytes.size() / t.block_bytes; ++block) {
    switch (type) {
      case TensorType::Q4_1:
      case TensorType::Q5_1:
      case TensorType::Q4_K:
      case TensorType::Q5_K:
        put_half(block, 0);
        put_half(block, 2);
        break;
      case TensorType::Q2_K:
        put_half(block, 80);
        put_half(block, 82);
        break;
      case TensorType::Q3_K:
        put_half(block, 108);
        break;
      case TensorType::Q6_K:
        put_half(block, 208);
        break;
      case TensorType::IQ1_M:  // the scale is spread over the top nibbles: keep it small
        for (std::size_t k = 0; k < 4; ++k) {
          std::byte& top = bytes[block * t.block_bytes + 48 + 2 * k + 1];
          constexpr int half[4] = {0x0, 0x0, 0x4, 0x2};  // 0x2400
          top = static_cast<std::byte>((std::to_integer<int>(top) & 15) | (half[k] << 4));
        }
        break;
      default:
        put_half(block, 0);
        break;
    }
  }
  return bytes;
}

struct Activations {
  QuantizedRows rows;
  std::vector<QuantizedRow> views;
};

Activations quantize(const Kernels& kernels, const std::vector<float>& x, std::size_t width,
                     BlockKind kind) {
  Activations a;
  const std::size_t count = x.size() / width;
  a.rows.resize(count, width, kind);
  for (std::size_t r = 0; r < count; ++r) {
    a.views.push_back(a.rows.row(r));
    if (kind == BlockKind::group_words) {
      kernels.quantize_words(x.data() + r * width, width, a.views.back());
    } else {
      kernels.quantize_row(x.data() + r * width, width, scale_width(kind), a.views.back());
    }
  }
  return a;
}

std::vector<float> random_activations(std::size_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

class IntGemm : public testing::TestWithParam<TensorType> {};

TEST_P(IntGemm, UnpackedBlocksHaveTheDecodedValues) {
  const TensorType type = GetParam();
  const IntFormat& format = *int_format(type);
  std::mt19937 random(1);
  for (const Kernels* kernels : supported_kernels()) {
    for (int round = 0; round < 50; ++round) {
      const auto bytes = random_rows(type, kBlock, random);
      std::vector<float> values(kBlock);
      ASSERT_TRUE(decode(type, bytes, values));
      IntBlock block;
      kernels->unpack(type, bytes.data(), 8, block);
      for (std::size_t i = 0; i < kBlock; ++i) {
        const double code = double{static_cast<double>(block.codes[i])} - format.zero;
        double value = 0;
        if (format.kind == BlockKind::group_floats) {
          value = block.group_d[i / 32] * code + (format.minima ? block.group_m[i / 32] : 0.0f);
        } else {
          const std::size_t g = i / format.group;
          value = double{block.d} * block.scales[g] * code;
          if (format.minima) value -= double{block.dmin} * block.mins[g];
        }
        ASSERT_NEAR(values[i], value, 1e-5 * (std::fabs(value) + 0.01))
            << to_string(type) << " " << kernels->isa << " value " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, IntGemm, testing::ValuesIn(int_types()),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

std::vector<KernelEntry> integer_products() {
  std::vector<KernelEntry> entries = kernel_registry(supported_kernels());
  std::erase_if(entries, [](const KernelEntry& e) { return e.inputs == Inputs::floats; });
  return entries;
}

// Every integer product of the registry.
class IntegerProduct : public testing::TestWithParam<KernelEntry> {};

TEST_P(IntegerProduct, EqualsTheSlowProductAndTheOtherInstructionSets) {
  const KernelEntry& entry = GetParam();
  const TensorType type = entry.type;
  const IntFormat& format = *format_for(type, entry.inputs);
  const std::size_t unit = traits(type).block_values;
  std::vector<std::size_t> window = {1, 2, 3, 4, 7, 16, 17, 29};
  std::erase_if(window,
                [&](std::size_t t) { return (t <= entry.kernels->few_tokens) != entry.few; });
  std::mt19937 random(2);
  for (const std::size_t blocks : {1u, 2u, 3u, 4u, 5u, 12u, 20u}) {
    const std::size_t width = blocks * std::max<std::size_t>(unit, 32);
    for (const std::size_t rows : {1u, 3u, 16u, 27u, 37u, 70u}) {
      const auto weights = random_rows(type, rows * width, random);
      std::vector<float> decoded(rows * width);
      ASSERT_TRUE(decode(type, weights, decoded));
      for (const std::size_t tokens : window) {
        std::vector<float> x = random_activations(tokens * width, random);
        if (tokens == 2 || tokens == 7 ||
            tokens == 17)  // extremes: every input at the ends of its range
          for (float& v : x) v = random() % 2 ? 1.0f : -1.0f;
        const auto multiply = [&](const Kernels& kernels, bool streamed) {
          const Activations a = quantize(kernels, x, width, format.kind);
          // Rows at cache lines, so that what can be written past the caches is.
          const std::size_t pitch = (rows + kLanes - 1) / kLanes * kLanes;
          std::vector<float, HugeAllocator<float>> wide(tokens * pitch, NAN);
          std::vector<float*> out(tokens);
          for (std::size_t t = 0; t < tokens; ++t) out[t] = wide.data() + t * pitch;
          kernels.int_gemm(format, weights.data(), weights.size() / rows, rows, width,
                           a.views.data(), out.data(), tokens, weights.data(), streamed);
          std::vector<float> y;
          for (const float* row : out) y.insert(y.end(), row, row + rows);
          return y;
        };
        const std::vector<float> y = multiply(*entry.kernels, tokens > 1);
        ASSERT_EQ(y, multiply(kPortable, false)) << "not what the portable kernels give";
        const Activations a = quantize(*entry.kernels, x, width, format.kind);
        for (std::size_t t = 0; t < tokens; ++t)
          for (std::size_t r = 0; r < rows; ++r) {
            double sum = 0, magnitude = 0;
            for (std::size_t k = 0; k < width; ++k) {
              const double input =
                  entry.inputs == Inputs::words ? a.views[t].words[k] : a.views[t].values[k];
              const double product = double{decoded[r * width + k]} * input *
                                     a.views[t].scales[k / scale_width(format.kind)];
              sum += product;
              magnitude += std::fabs(product);
            }
            ASSERT_NEAR(y[t * rows + r], sum, 1e-5 * magnitude + 1e-7)
                << "width " << width << " token " << t;
          }
      }
    }
  }
}

// Tokens are taken some hundreds at a time, and in tiles: where one lies makes no difference.
TEST_P(IntegerProduct, GivesATokenTheSameWhereverItLies) {
  const KernelEntry& entry = GetParam();
  if (entry.few) return;
  const IntFormat& format = *format_for(entry.type, entry.inputs);
  const std::size_t width = 256, rows = 20, tokens = 801, piece = 17;
  std::mt19937 random(4);
  const auto weights = random_rows(entry.type, rows * width, random);
  const std::vector<float> x = random_activations(tokens * width, random);
  const Activations a = quantize(*entry.kernels, x, width, format.kind);
  const auto multiply = [&](std::size_t first, std::size_t count, std::vector<float>& y) {
    std::vector<float*> out(count);
    for (std::size_t t = 0; t < count; ++t) out[t] = y.data() + (first + t) * rows;
    entry.kernels->int_gemm(format, weights.data(), weights.size() / rows, rows, width,
                            a.views.data() + first, out.data(), count, weights.data(), false);
  };
  std::vector<float> together(tokens * rows, NAN), apart(tokens * rows, NAN);
  multiply(0, tokens, together);
  for (std::size_t t = 0; t < tokens; t += piece) multiply(t, std::min(piece, tokens - t), apart);
  EXPECT_EQ(together, apart);
}

INSTANTIATE_TEST_SUITE_P(Registry, IntegerProduct, testing::ValuesIn(integer_products()),
                         [](const auto& tested) {
                           const KernelEntry& e = tested.param;
                           return fmt::format("{}_{}_{}_{}", e.kernels->isa, to_string(e.type),
                                              to_string(e.inputs), e.few ? "few" : "many");
                         });

TEST(KernelRegistry, HasAProductForEveryFormatAndInput) {
  for (const Kernels* kernels : supported_kernels()) {
    for (const TypeTraits& type : all_types()) {
      if (!can_decode(type.type)) continue;
      for (const bool few : {true, false}) {
        EXPECT_NE(kernels->way(type.type, Inputs::floats, few), "") << to_string(type.type);
        EXPECT_EQ(kernels->way(type.type, Inputs::bytes, few).empty(), !int_format(type.type));
        EXPECT_EQ(kernels->way(type.type, Inputs::words, few).empty(), !word_format(type.type));
      }
    }
  }
}

TEST(QuantizeRow, RoundsSumsAndPoisons) {
  std::mt19937 random(3);
  for (const Kernels* kernels : supported_kernels()) {
    for (const BlockKind kind : {BlockKind::group_integers, BlockKind::group_floats}) {
      const std::size_t unit = scale_width(kind);
      for (const std::size_t width : {32u, 64u, 256u, 640u, 1000u}) {
        std::vector<float> x = random_activations(width, random);
        Activations a = quantize(*kernels, x, width, kind);
        for (std::size_t k = 0; k < width; ++k) {
          const float scale = a.views[0].scales[k / unit];
          EXPECT_LE(std::fabs(a.views[0].values[k] * scale - x[k]), scale * 0.5001f);
        }
        const std::size_t padded = (width + kBlock - 1) / kBlock * kBlock;
        for (std::size_t g = 0; g < padded / 16; ++g) {
          int sum = 0;
          for (std::size_t k = 0; k < 16; ++k) sum += a.views[0].values[16 * g + k];
          EXPECT_EQ(a.views[0].sums16[g], sum);
        }
        for (const float bad : {NAN, INFINITY}) {
          std::vector<float> poisoned = x;
          poisoned[width - 1] = bad;
          EXPECT_FALSE(std::isfinite(
              quantize(*kernels, poisoned, width, kind).views[0].scales[(width - 1) / unit]));
        }
        std::fill(x.begin(), x.end(), 0.0f);
        EXPECT_EQ(quantize(*kernels, x, width, kind).views[0].scales[0], 0.0f);
      }
    }
  }
}

// Rows turned beforehand give the bits of rows as they are stored.
TEST(RowsTurnedBeforehand, GiveTheSameBits) {
  std::mt19937 random(11);
  for (const Kernels* kernels : supported_kernels()) {
    for (const Inputs inputs : {Inputs::bytes, Inputs::words}) {
      const IntFormat& format = *format_for(TensorType::Q8_0, inputs);
      for (const std::size_t width : {32u, 64u, 96u, 256u, 320u, 1024u})
        for (const std::size_t rows : {1u, 4u, 16u, 40u, 130u}) {
          const std::size_t bytes = kernels->turned_bytes(format, rows, width);
          if (bytes == 0) continue;
          const auto stored = random_rows(TensorType::Q8_0, rows * width, random);
          const std::size_t row_bytes = stored.size() / rows;
          std::vector<std::byte, HugeAllocator<std::byte>> turned(bytes);
          kernels->turn_rows(format, stored.data(), row_bytes, rows, width, turned.data());
          for (std::size_t tokens = 1; tokens <= kTurnedTokens; ++tokens) {
            const auto x = random_activations(tokens * width, random);
            const Activations a = quantize(*kernels, x, width, format.kind);
            std::vector<float> got(tokens * rows), expected(tokens * rows);
            std::vector<float*> y, wanted;
            for (std::size_t t = 0; t < tokens; ++t) {
              y.push_back(got.data() + t * rows);
              wanted.push_back(expected.data() + t * rows);
            }
            kernels->turned_gemm(format, turned.data(), rows, width, a.views.data(), y.data(),
                                 tokens);
            kernels->int_gemm(format, stored.data(), row_bytes, rows, width, a.views.data(),
                              wanted.data(), tokens, stored.data(), false);
            ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
                << kernels->isa << ' ' << to_string(inputs) << ' ' << rows << " x " << width << ", "
                << tokens << " tokens";
          }
        }
    }
  }
}

}  // namespace
}  // namespace strata::cpu
