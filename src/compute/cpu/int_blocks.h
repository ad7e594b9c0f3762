// Quantised weights and activations as the integer kernels see them. Every block format becomes one
// of two kinds, 256 values at a time:
//
//   group_integers (K and IQ formats):  value = d * scale[g] * (code - zero) - dmin * min[g]
//   group_floats (the 32 and 64 wide):  value = group_d[h] * (code - zero) + group_m[h]
//
// with g = index / 16 and h = index / 32; codes are unsigned bytes. A row of activations becomes
// signed bytes (or words) with the exact sum of each 16 and float scales: one for each 256 values
// beside formats with integer scales, one for each 32 beside the others (finer, and as cheap
// there).
//
// The product of a block with activations x (scales dx) is, in this order and no other:
//   group_integers:  I = sum over g of scale[g] * (code - zero) . x      exact in 32 bits
//                    M = sum over g of min[g] * sum(x of g)              exact in 32 bits
//                    acc = fma(float(I), d * dx, acc);  acc = fma(float(M), -(dmin * dx), acc)
//   group_floats:    for each h: acc = fma(float(I_h), group_d[h] * dx[h], acc), then with minima
//                    acc = fma(group_m[h], dx[h] * float(sum(x of h)), acc)
//   group_words:     as group_floats, with x of 16 bits
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/huge_memory.h"
#include "gguf/tensor_type.h"

namespace strata::cpu {

constexpr std::size_t kBlock = 256;  // values of a weight or activation block; a row's last may be
                                     // shorter, by whole groups of 32

// Matrices whose inputs must not be rounded to bytes (router, residual gates, alpha, beta, indexer)
// are multiplied as floats, or where they are Q8_0 as group_floats with activations of 16 bits
// (group_words).
enum class BlockKind : std::uint8_t { group_integers, group_floats, group_words };
constexpr std::size_t kBlockKinds = 3;

// What is fixed for a format.
struct IntFormat {
  TensorType type = TensorType::F32;
  BlockKind kind = BlockKind::group_floats;
  std::uint32_t group = 32;  // values that share an integer scale: 16 or 32
  std::uint8_t zero = 0;
  bool minima = false;
};
// nullptr for formats that are multiplied as floats.
const IntFormat* int_format(TensorType type);
// The same for inputs that must not be bytes.
const IntFormat* word_format(TensorType type);

// One block of one row, unpacked.
struct IntBlock {
  alignas(64) std::uint8_t codes[kBlock];
  alignas(64) std::int16_t scales[16];  // group_integers; groups of 32 use the first 8
  std::int16_t mins[16];                // behind the scales: both are transposed at once
  alignas(64) float group_d[8];         // group_floats
  float group_m[8];                     // behind group_d, likewise
  float d = 0, dmin = 0;
};

// Activations that share a scale, by the kind of the weights.
constexpr std::size_t scale_width(BlockKind kind) {
  return kind == BlockKind::group_integers ? kBlock : 32;
}

// A row of activations, padded with zeros to whole blocks: views of a QuantizedRows.
struct QuantizedRow {
  std::int8_t* values = nullptr;   // not of group_words
  std::uint8_t* biased = nullptr;  // values + 128, likewise
  std::int16_t* words = nullptr;   // of group_words
  float* scales = nullptr;         // one for each scale_width() values
  std::int16_t* sums16 = nullptr;  // one for each 16 values
  std::int16_t* sums32 = nullptr;  // one for each 32 values
  float* scaled_sums = nullptr;    // scale times sums32, where a scale belongs to 32 values
};

// Storage for the rows of a window. It only grows.
class QuantizedRows {
 public:
  void resize(std::size_t rows, std::size_t width, BlockKind kind);
  QuantizedRow row(std::size_t r) {
    const std::size_t groups = padded_ / 32;
    const bool words = kind_ == BlockKind::group_words;
    return {words ? nullptr : values_.data() + r * padded_,
            words ? nullptr : biased_.data() + r * padded_,
            words ? words_.data() + r * padded_ : nullptr,
            scales_.data() + r * (padded_ / scale_width(kind_)),
            sums_.data() + r * 3 * groups,
            sums_.data() + r * 3 * groups + 2 * groups,
            scaled_sums_.data() + r * groups};
  }

 private:
  std::size_t padded_ = 0;
  BlockKind kind_ = BlockKind::group_integers;
  template <class T>
  using Values = std::vector<T, HugeAllocator<T>>;
  Values<std::int8_t> values_;
  Values<std::uint8_t> biased_;
  Values<float> scales_, scaled_sums_;
  Values<std::int16_t> sums_, words_;
};

}  // namespace strata::cpu
