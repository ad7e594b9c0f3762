// Encoders of the blocks with one half scale and a coarse grid: Q2_0 and IQ4_NL.
#include "quant/search.h"

namespace strata::quant {
namespace {

using Q2Grid = IntegerGrid<-1, 2>;

// The exact best scale of a Q2_0 block before rounding. For a scale d > 0 the code of x changes
// where d passes 2|x| (from 0 to 1 or -1) and, for positive x, 2x/3 (from 1 to 2). Walking d down
// through all of these visits every possible set of codes once; negative d is the same walk over
// -x.
class Q2Walk {
 public:
  explicit Q2Walk(const float* x) {
    std::copy(x, x + size, sorted_);
    std::sort(sorted_, sorted_ + size, [](float a, float b) {
      return std::abs(a) != std::abs(b) ? std::abs(a) > std::abs(b) : a > b;
    });
  }

  float best_scale() const {
    Best best;
    walk(1.0f, best);
    walk(-1.0f, best);
    return best.scale;
  }

 private:
  static constexpr int size = static_cast<int>(BlockQ2_0::values);
  struct Best {
    double gain = 0.0;
    float scale = 0.0f;
  };

  // sign = 1: positive scales; -1: negative ones.
  void walk(float sign, Best& best) const {
    double xq = 0.0;
    double qq = 0.0;
    int first = 0;   // next value to leave code 0
    int second = 0;  // next value of the sign to go from code 1 to 2
    while (true) {
      while (second < size && !(sorted_[second] * sign > 0.0f)) ++second;
      if (first == size && second == size) return;
      const float leave = first < size ? std::abs(sorted_[first]) : -1.0f;
      const float grow = second < size ? std::abs(sorted_[second]) / 3.0f : -1.0f;
      const bool leaves = leave >= grow;
      const float magnitude = std::abs(sorted_[leaves ? first : second]);
      xq += magnitude;
      qq += leaves ? 1.0 : 3.0;
      ++(leaves ? first : second);
      if (xq * xq > best.gain * qq) {
        best.gain = xq * xq / qq;
        best.scale = sign * static_cast<float>(xq / qq);
      }
    }
  }

  float sorted_[size];  // by descending magnitude
};

bool encode_q2_0(const float* values, BlockQ2_0& block) {
  constexpr int size = static_cast<int>(BlockQ2_0::values);
  const float largest = largest_magnitude<size>(values);
  if (largest > largest_searched_magnitude) return false;
  std::uint16_t half = 0;
  if (largest >= smallest_magnitude) {
    half = best_half<Q2Grid, size>(values, Q2Walk(values).best_scale());
    if (!is_finite_half(half)) return false;
  }
  store_u16(block.d, half);
  const float inverse_scale = inverse_or_zero(half_to_float(half));
  for (int j = 0; j < 16; ++j) {
    int packed = 0;
    for (int k = 0; k < 4; ++k) {
      packed |= Q2Grid::code(values[4 * j + k] * inverse_scale) << (2 * k);
    }
    block.qs[j] = static_cast<Byte>(packed);
  }
  return true;
}

// Places for a block's extreme value on the IQ4 grid: its negative end, its positive end, and the
// outer steps, overshot and undershot.
constexpr std::array<float, 24> iq4_nl_targets = {-141, -137, -133, -130, -127, -124, -121, -118,
                                                  -115, -111, -107, -103, 129,  125,  121,  118,
                                                  115,  113,  110,  107,  104,  100,  96,   92};

bool encode_iq4_nl(const float* values, BlockIQ4_NL& block) {
  constexpr int size = static_cast<int>(BlockIQ4_NL::values);
  const float largest = largest_magnitude<size>(values);
  if (largest > largest_searched_magnitude) return false;
  std::uint16_t half = 0;
  if (largest >= smallest_magnitude) {
    half = best_half<Iq4Grid, size>(values, search_scale<Iq4Grid, size>(values, iq4_nl_targets));
    if (!is_finite_half(half)) return false;
  }
  store_u16(block.d, half);
  const float inverse_scale = inverse_or_zero(half_to_float(half));
  for (int j = 0; j < 16; ++j) {
    block.qs[j] = static_cast<Byte>(Iq4Grid::code(values[j] * inverse_scale) |
                                    (Iq4Grid::code(values[j + 16] * inverse_scale) << 4));
  }
  return true;
}

}  // namespace

RowEncoder searched_encoder(TensorType type) {
  switch (type) {
    case TensorType::Q2_0:
      return encode_blocks<BlockQ2_0, encode_q2_0>;
    case TensorType::IQ4_NL:
      return encode_blocks<BlockIQ4_NL, encode_iq4_nl>;
    default:
      return nullptr;
  }
}

}  // namespace strata::quant
