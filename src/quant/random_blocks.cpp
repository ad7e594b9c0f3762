#include "quant/random_blocks.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "quant/blocks.h"
#include "quant/quant.h"

namespace strata {
namespace {

using quant::Byte;

// Number `i` of a seed's sequence: splitmix64, which can start anywhere.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed + 0x9E3779B97F4A7C15u * (i + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Mean 0, variance 1, nearly normal, never beyond 3.5: the sum of four uniform numbers.
float normal(std::uint64_t word) {
  std::int32_t sum = -2 * 65535;
  for (int i = 0; i < 4; ++i) sum += static_cast<std::int32_t>((word >> (16 * i)) & 0xffffu);
  return static_cast<float>(sum) * (1.7320508f / 65536.0f);
}

constexpr std::size_t kNone = SIZE_MAX;

// Where a block keeps its scale, and a second one that takes the mean away.
struct ScalePlaces {
  TensorType type;
  std::size_t scale;
  std::size_t offset = kNone;
  float ratio = 0;  // second to first: the mean of the codes, with the sign the format gives it
};

constexpr std::array kScalePlaces = {
    ScalePlaces{TensorType::Q4_0, offsetof(quant::BlockQ4_0, d)},
    ScalePlaces{TensorType::Q4_1, offsetof(quant::BlockQ4_1, d), offsetof(quant::BlockQ4_1, m),
                -7.5f},
    ScalePlaces{TensorType::Q5_0, offsetof(quant::BlockQ5_0, d)},
    ScalePlaces{TensorType::Q5_1, offsetof(quant::BlockQ5_1, d), offsetof(quant::BlockQ5_1, m),
                -15.5f},
    ScalePlaces{TensorType::Q8_0, offsetof(quant::BlockQ8_0, d)},
    ScalePlaces{TensorType::Q2_0, offsetof(quant::BlockQ2_0, d)},
    ScalePlaces{TensorType::Q2_K, offsetof(quant::BlockQ2_K, d), offsetof(quant::BlockQ2_K, dmin),
                1.5f},
    ScalePlaces{TensorType::Q3_K, offsetof(quant::BlockQ3_K, d)},
    ScalePlaces{TensorType::Q4_K, offsetof(quant::BlockQ4_K, d), offsetof(quant::BlockQ4_K, dmin),
                7.5f},
    ScalePlaces{TensorType::Q5_K, offsetof(quant::BlockQ5_K, d), offsetof(quant::BlockQ5_K, dmin),
                15.5f},
    ScalePlaces{TensorType::Q6_K, offsetof(quant::BlockQ6_K, d)},
    ScalePlaces{TensorType::IQ1_S, offsetof(quant::BlockIQ1_S, d)},
    ScalePlaces{TensorType::IQ2_XXS, offsetof(quant::BlockIQ2_XXS, d)},
    ScalePlaces{TensorType::IQ2_XS, offsetof(quant::BlockIQ2_XS, d)},
    ScalePlaces{TensorType::IQ2_S, offsetof(quant::BlockIQ2_S, d)},
    ScalePlaces{TensorType::IQ3_XXS, offsetof(quant::BlockIQ3_XXS, d)},
    ScalePlaces{TensorType::IQ3_S, offsetof(quant::BlockIQ3_S, d)},
    ScalePlaces{TensorType::IQ4_NL, offsetof(quant::BlockIQ4_NL, d)},
    ScalePlaces{TensorType::IQ4_XS, offsetof(quant::BlockIQ4_XS, d)},
};

const ScalePlaces* places_of(TensorType type) {
  for (const ScalePlaces& places : kScalePlaces)
    if (places.type == type) return &places;
  return nullptr;
}

// IQ1_M keeps its scale in the top four bits of each of its four scale words.
void set_iq1_m_scale(Byte* block, std::uint16_t half) {
  Byte* scales = block + offsetof(quant::BlockIQ1_M, scales);
  for (int k = 0; k < 4; ++k) {
    const unsigned nibble = (half >> (4 * k)) & 15u;
    const unsigned low = quant::load_u16(scales + 2 * k) & 0x0fffu;
    quant::store_u16(scales + 2 * k, static_cast<std::uint16_t>(low | (nibble << 12)));
  }
}

void set_scale(TensorType type, const ScalePlaces* places, Byte* block, float scale) {
  if (type == TensorType::IQ1_M) return set_iq1_m_scale(block, float_to_half(scale));
  quant::store_u16(block + places->scale, float_to_half(scale));
  if (places->offset != kNone)
    quant::store_u16(block + places->offset, float_to_half(scale * places->ratio));
}

bool is_plain(TensorType type) {
  return traits(type).block_values == 1;
}

}  // namespace

Result<RandomBlocks> RandomBlocks::create(TensorType type, float deviation, float mean) {
  if (!can_decode(type))
    return fail(ErrorCode::unsupported, "there are no random weights of type {}", to_string(type));
  RandomBlocks blocks(type, deviation, mean);
  if (is_plain(type)) return blocks;
  if (mean != 0)
    return fail(ErrorCode::invalid_argument, "random {} blocks have no mean", to_string(type));
  // What a scale of 1 gives is measured: the formats' small scales and tables all have a say.
  constexpr std::size_t sample = 1024;
  std::vector<std::byte> bytes(sample * traits(type).block_bytes);
  std::vector<float> values(sample * traits(type).block_values);
  blocks.scale_ = 1;
  blocks.fill(0, bytes);
  STRATA_TRY(decode(type, bytes, values));
  double squares = 0;
  for (const float v : values) squares += double{v} * v;
  blocks.scale_ = deviation / static_cast<float>(std::sqrt(squares / double(values.size())));
  return blocks;
}

void RandomBlocks::fill(std::uint64_t seed, std::span<std::byte> blocks) const {
  if (is_plain(type_))
    fill_plain(seed, blocks);
  else
    fill_blocks(seed, blocks);
}

void RandomBlocks::fill_plain(std::uint64_t seed, std::span<std::byte> values) const {
  Byte* out = reinterpret_cast<Byte*>(values.data());
  const std::size_t size = traits(type_).block_bytes;
  for (std::size_t i = 0; i < values.size() / size; ++i) {
    const float value = mean_ + scale_ * normal(random_word(seed, i));
    if (type_ == TensorType::F32)
      quant::store_u32(out + size * i, std::bit_cast<std::uint32_t>(value));
    else
      quant::store_u16(out + size * i,
                       type_ == TensorType::F16 ? float_to_half(value) : float_to_bf16(value));
  }
}

void RandomBlocks::fill_blocks(std::uint64_t seed, std::span<std::byte> blocks) const {
  const std::size_t size = traits(type_).block_bytes;
  const std::size_t words = (size + 7) / 8;
  const ScalePlaces* places = places_of(type_);
  std::uint64_t next = 0;
  for (std::size_t at = 0; at + size <= blocks.size(); at += size) {
    Byte* block = reinterpret_cast<Byte*>(blocks.data() + at);
    for (std::size_t w = 0; w < words; ++w) {
      const std::uint64_t word = random_word(seed, next++);
      std::memcpy(block + 8 * w, &word, std::min<std::size_t>(8, size - 8 * w));
    }
    // Blocks differ in size by up to three times, as real ones do.
    const auto spread = static_cast<float>(random_word(seed, next++) >> 40) * 0x1p-24f;
    set_scale(type_, places, block, scale_ * (0.5f + spread));
  }
}

}  // namespace strata
