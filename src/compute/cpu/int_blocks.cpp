#include "compute/cpu/int_blocks.h"

namespace strata::cpu {

const IntFormat* int_format(TensorType type) {
  using enum TensorType;
  using enum BlockKind;
  static constexpr IntFormat formats[] = {
      {Q4_0, group_floats, 32, 8, false},        {Q4_1, group_floats, 32, 0, true},
      {Q5_0, group_floats, 32, 16, false},       {Q5_1, group_floats, 32, 0, true},
      {Q8_0, group_floats, 32, 128, false},      {Q2_0, group_floats, 32, 1, false},
      {IQ4_NL, group_floats, 32, 128, false},    {Q2_K, group_integers, 16, 0, true},
      {Q3_K, group_integers, 16, 4, false},      {Q4_K, group_integers, 32, 0, true},
      {Q5_K, group_integers, 32, 0, true},       {Q6_K, group_integers, 16, 32, false},
      {IQ1_S, group_integers, 32, 16, false},    {IQ1_M, group_integers, 16, 16, false},
      {IQ2_XXS, group_integers, 32, 128, false}, {IQ2_XS, group_integers, 16, 128, false},
      {IQ2_S, group_integers, 16, 128, false},   {IQ3_XXS, group_integers, 32, 128, false},
      {IQ3_S, group_integers, 32, 128, false},   {IQ4_XS, group_integers, 32, 128, false},
  };
  for (const IntFormat& format : formats)
    if (format.type == type) return &format;
  return nullptr;
}

const IntFormat* word_format(TensorType type) {
  static constexpr IntFormat format{TensorType::Q8_0, BlockKind::group_words, 32, 0, false};
  return type == TensorType::Q8_0 ? &format : nullptr;
}

void QuantizedRows::resize(std::size_t rows, std::size_t width, BlockKind kind) {
  kind_ = kind;
  padded_ = (width + kBlock - 1) / kBlock * kBlock;
  const bool words = kind == BlockKind::group_words;
  const auto grow = [](auto& values, std::size_t size) {
    if (values.size() < size) values.resize(size);
  };
  grow(values_, words ? 0 : rows * padded_);
  grow(biased_, words ? 0 : rows * padded_);
  grow(words_, words ? rows * padded_ : 0);
  grow(scales_, rows * (padded_ / scale_width(kind)));
  grow(scaled_sums_, rows * (padded_ / 32));
  grow(sums_, rows * 3 * (padded_ / 32));
}

}  // namespace strata::cpu
