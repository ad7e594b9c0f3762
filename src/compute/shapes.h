// Sizes of the network's operations, as data. A Backend and the weights it is given speak in these;
// nothing here knows of a model file.
#pragma once

#include <cstdint>
#include <vector>

namespace strata {

// Activation of the delta net's output gate: sigmoid(z), or z * sigmoid(z).
enum class GateActivation : std::uint8_t { sigmoid, silu };

// Which cells a sparse query attends to (beyond the dense bound budget + block - 1).
enum class SelectionRule : std::uint8_t {
  whole_blocks,  // HF: the best budget/block complete blocks and the tail
  cell_width,  // llama.cpp: the best min(n, budget + block - 1) cells by their blocks' scores, the
               // tail first; equal cells fall as libstdc++'s std::partial_sort orders them
};

struct ResidualShape {
  std::uint32_t streams = 0;  // copies of the residual (4)
  std::uint32_t hidden = 0;   // width of one (2560)
  float epsilon = 1e-6f;      // of every RMS norm
  std::uint32_t wide() const { return streams * hidden; }
};

struct DeltaNetShape {
  std::uint32_t key_heads = 0,
                value_heads = 0;             // (16, 48); value head h uses key head h % key_heads
  std::uint32_t key_dim = 0, value_dim = 0;  // (128, 128)
  std::uint32_t conv_kernel = 0;             // taps (4)
  GateActivation output_gate = GateActivation::sigmoid;
  std::uint32_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  std::uint32_t inner() const { return value_heads * value_dim; }
};

struct AttentionShape {
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0;  // (24, 2, 256)
  std::uint32_t rotary_dims = 0;                        // (64), even
  std::uint32_t indexer_heads = 0, indexer_dim = 0;     // (4, 128)
  std::uint32_t block = 0;   // cells a block of the indexer (4); 0 = always dense, no indexer
  std::uint32_t budget = 0;  // cells of selected blocks (2048)
  SelectionRule rule = SelectionRule::whole_blocks;
  std::vector<float> inverse_frequencies;  // rotary_dims / 2, radians a position
  float rotation_factor = 1;               // of cosine and sine
};

struct ExpertsShape {
  std::uint32_t used = 0;  // experts a token (10)
  bool normalize = true;   // routing weights divided by their sum
};

struct NgramShape {
  std::uint32_t conv_kernel = 0;                                          // taps (4)
  std::uint32_t dilation = 0;                                             // the n-gram size (3)
  std::uint32_t history() const { return (conv_kernel - 1) * dilation; }  // rows (9)
};

}  // namespace strata
