// The CPU kernels as a table of functions, one table for each instruction set. All tables give the
// same bits: every sum has one order that is written down here, whatever the vector width.
//
// - dot, scores of attention and sums of squares: 16 accumulators, element i goes to accumulator i
//   mod 16 by a fused multiply-add, then a tree (8, 4, 2, 1).
// - products of rows with float activations: the same within a run of kRun inputs; the runs' sums
//   are added in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "compute/cpu/int_blocks.h"
#include "compute/kv_type.h"

namespace strata::cpu {

constexpr std::size_t kPanelRows = 64;  // outputs of one gemm panel
constexpr std::size_t kLanes = 16;
constexpr std::size_t kRun = 1280;         // inputs of a run of float products: whole blocks of 256
constexpr std::size_t kFewTokens = 4;      // as many do without panels where there is a way
constexpr std::size_t kTurnedTokens = 16;  // as many do where rows are turned for them
constexpr std::size_t kInt8LoopProducts = 16 * 64;  // of one iteration of int8_loop

// What a product's activations are made of.
enum class Inputs : std::uint8_t { bytes, words, floats };
constexpr std::string_view to_string(Inputs inputs) {
  return inputs == Inputs::bytes ? "bytes" : inputs == Inputs::words ? "words" : "floats";
}

// One token of one head: state = decay * state + k (beta (v - k . decayed state)), out = q . state.
struct DeltaStep {
  const float *q = nullptr, *k = nullptr;  // [key_dim]
  const float* v = nullptr;                // [stride]
  float decay = 0, beta = 0;
  float* out = nullptr;  // [stride]
};

struct Kernels {
  std::string_view isa;
  std::size_t few_tokens = 0;  // as many do without panels where there is a way
  // How these tables multiply a format, for a few tokens or for more: "rows" (in registers),
  // "panels" (unpacked), "decoded rows" (floats); empty where the format has no such product.
  std::string_view (*way)(TensorType type, Inputs inputs, bool few);

  // y[t][r] = or += row r . x[t] for rows of floats or of Q8_0 as stored, `row_bytes` apart;
  // `first` is =. `after` is what the caller will read next (it is asked for, never read here).
  // False for other types: they are decoded first, at most kRun inputs at a time.
  bool (*float_gemm)(TensorType type, const std::byte* matrix, std::size_t row_bytes,
                     std::size_t row_count, std::size_t depth, const float* const* x,
                     float* const* y, std::size_t tokens, const std::byte* after, bool first);

  float (*dot)(const float* a, const float* b, std::size_t n);
  // y = x / sqrt(mean(x^2) + epsilon) * gain
  void (*rms_norm)(const float* x, const float* gain, std::size_t n, float epsilon, float* y);
  // The same of each of `streams` times n values side by side.
  void (*rms_norms)(const float* x, const float* gain, std::size_t streams, std::size_t n,
                    float epsilon, float* y);
  // y = x * factor / sqrt(sum(x^2) + 1e-6)
  void (*l2_norm)(const float* x, std::size_t n, float factor, float* y);
  float (*sigmoid)(float x);
  void (*exp_above)(float* x, std::size_t n, float top);              // x = exp(x - top)
  void (*open_gates)(float* w, std::size_t n, float divisor);         // w = 2 sigmoid(w / divisor)
  void (*silu_divided)(float* x, std::size_t n, float divisor);       // x = silu(x / divisor)
  void (*silu_product)(float* gate, const float* up, std::size_t n);  // gate = silu(gate) * up
  void (*sigmoid_product)(float* y, const float* z, std::size_t n);   // y = y * sigmoid(z)
  void (*add_scaled)(float* y, const float* x, float scale, std::size_t n);  // y = fma(x, scale, y)
  // out[d] = (1 / streams) sum over s of sigmoid(gate[s][d]) normed[s][d], d < count; the streams
  // lie gate_stride and normed_stride apart.
  void (*mix_streams)(const float* gate, std::size_t gate_stride, const float* normed,
                      std::size_t normed_stride, std::size_t streams, std::size_t count,
                      float* out);
  // out[c] = silu(sum over k of taps[c * kernel + k] * rows[k][c]), oldest row first
  void (*convolve)(const float* taps, std::size_t kernel, const float* const* rows,
                   std::size_t channels, float* out);
  // decay = exp(a * softplus(decay + bias)), open = sigmoid(open), of each head.
  void (*delta_gates)(const float* a, const float* bias, std::size_t heads, float* decay,
                      float* open);
  // Cosines, then sines of position * frequency, times factor.
  void (*rotation)(float position, const float* frequencies, std::size_t n, float factor,
                   float* cos_sin);
  // Steps of the delta rule, one after the other, on state [key_dim][stride], stride a multiple of
  // kLanes.
  void (*delta_steps)(float* state, std::size_t key_dim, std::size_t stride, const DeltaStep* steps,
                      std::size_t count);
  // weights[i] = exp(scores[i] - max) / sum
  void (*softmax)(float* scores, std::size_t n);

  // Attention. Cells are pointers to what store_head() wrote of one head (cells.h); their values
  // are exact as floats.
  // scores[q][i] = scale * (query q . cell i), the product summed as `dot` does; written up to a
  // multiple of kLanes.
  void (*score_cells)(CellFormat format, const std::byte* const* cells, std::size_t count,
                      std::size_t dim, const float* const* queries, std::size_t query_count,
                      float scale, float* const* scores);
  // out[h][d] = or += sum over i, in order, of weights[h][i] * value d of cell i; `first` is =.
  // Behind the `count` cells stand `following` ones that come next: they are asked for.
  void (*weigh_cells)(CellFormat format, const std::byte* const* cells, std::size_t count,
                      std::size_t following, std::size_t dim, const float* const* weights,
                      std::size_t heads, float* const* out, bool first);
  // The orthonormal Walsh-Hadamard transform of n values, a power of two: its own inverse.
  void (*turn_head)(float* x, std::size_t n);

  // Activations to bytes (int_blocks.h) with a scale for each `unit` values, 32 or 256.
  void (*quantize_row)(const float* x, std::size_t n, std::size_t unit, const QuantizedRow& into);
  // Activations to 16 bits with a scale for each 32.
  void (*quantize_words)(const float* x, std::size_t n, const QuantizedRow& into);
  // y[t][r] = row r . x[t] for rows of a block format that lie `row_bytes` apart; `width` values
  // a row. `streamed`: y is more than the caches hold, and read later.
  void (*int_gemm)(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                   std::size_t row_count, std::size_t width, const QuantizedRow* x, float* const* y,
                   std::size_t tokens, const std::byte* after, bool streamed);
  // Rows turned beforehand, for windows of few tokens whose weights lie in the caches, where
  // turning them costs as much as multiplying: how many bytes they take (0: no such thing for this
  // format or width), making them, and int_gemm() with at most kTurnedTokens tokens. Sixteen rows
  // follow the sixteen before; memory begins at a cache line.
  std::size_t (*turned_bytes)(const IntFormat& format, std::size_t row_count, std::size_t width);
  void (*turn_rows)(const IntFormat& format, const std::byte* matrix, std::size_t row_bytes,
                    std::size_t row_count, std::size_t width, std::byte* into);
  void (*turned_gemm)(const IntFormat& format, const std::byte* turned, std::size_t row_count,
                      std::size_t width, const QuantizedRow* x, float* const* y,
                      std::size_t tokens);
  // For probes: reads `bytes` (a multiple of 4096) as that many streams side by side; and
  // `iterations` of kInt8LoopProducts products of bytes in registers. The results mean nothing.
  std::uint64_t (*read_streams)(const std::byte* data, std::size_t bytes, std::size_t streams);
  std::uint64_t (*int8_loop)(std::size_t iterations);

  // One block of a format that has an int_format; for tests.
  void (*unpack)(TensorType type, const std::byte* source, std::size_t groups, IntBlock& block);
};

extern const Kernels kPortable;
extern const Kernels kAvx2;
extern const Kernels kAvx512;
extern const Kernels kAvx512Vbmi;
extern const Kernels kNeon;
extern const Kernels kNeonDotprod;
extern const Kernels kNeonI8mm;

// The tables this CPU can run, best first.
std::span<const Kernels* const> supported_kernels();
// The one of this name, or the best for an empty name; `unsupported` with the names there are.
Result<const Kernels*> kernels_of(std::string_view isa);

}  // namespace strata::cpu
