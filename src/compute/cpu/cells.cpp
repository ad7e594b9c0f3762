#include "compute/cpu/cells.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/blocks.h"
#include "quant/quant.h"

namespace strata::cpu {
namespace {

void store_half(const float* values, std::size_t dim, std::byte* cell) {
  for (std::size_t i = 0; i < dim; ++i) {
    const std::uint16_t half = float_to_half(values[i]);
    std::memcpy(cell + i * sizeof half, &half, sizeof half);
  }
}

// The codes are made with the scale as it is stored, which may be a little too small: hence the
// clamp. x - x is 0 for what is finite.
void store_int8(const float* values, std::size_t count, CellBlock8& block) {
  float most = 0, wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    most = std::max(most, std::fabs(values[i]));
    wrong += values[i] - values[i];
  }
  const std::uint16_t half = float_to_half(most / 127.0f + wrong);
  const float scale = half_to_float(half);
  block = {};
  quant::store_u16(block.d, half);
  if (!std::isfinite(scale)) {
    quant::store_u16(block.d, 0x7e00);
  } else if (scale > 0) {
    for (std::size_t i = 0; i < count; ++i) {
      constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
      const float code = std::clamp(values[i] / scale, -127.0f, 127.0f) + magic - magic;
      block.codes[i] = static_cast<signed char>(code);
    }
  }
}

void store_q4_0(const float* values, std::size_t dim, std::byte* cell) {
  constexpr std::size_t width = quant::BlockQ4_0::values;
  for (std::size_t at = 0; at < dim; at += width) {
    float padded[width] = {};
    std::copy_n(values + at, std::min(width, dim - at), padded);
    const std::span<std::byte> block(cell + at / width * sizeof(quant::BlockQ4_0),
                                     sizeof(quant::BlockQ4_0));
    if (encode(TensorType::Q4_0, padded, block)) continue;
    quant::BlockQ4_0 poison{};
    quant::store_u16(poison.d, 0x7e00);
    std::memcpy(block.data(), &poison, sizeof poison);
  }
}

}  // namespace

void store_head(CellFormat format, const float* values, std::size_t dim, std::byte* cell) {
  switch (format) {
    case CellFormat::f32:
      std::memcpy(cell, values, dim * sizeof(float));
      return;
    case CellFormat::f16:
      return store_half(values, dim, cell);
    case CellFormat::int8:
      for (std::size_t at = 0; at < dim; at += CellBlock8::values) {
        CellBlock8 block;
        store_int8(values + at, std::min(CellBlock8::values, dim - at), block);
        std::memcpy(cell + at / CellBlock8::values * sizeof block, &block, sizeof block);
      }
      return;
    case CellFormat::q4_0:
      return store_q4_0(values, dim, cell);
  }
}

}  // namespace strata::cpu
