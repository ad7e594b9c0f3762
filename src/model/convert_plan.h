// What a conversion will write: every GGUF tensor with the runs of checkpoint values it is made of.
// Planning reads names, types and shapes only; the data follows in convert_data.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/safetensors.h"
#include "gguf/tensor_type.h"
#include "model/hyperparams.h"

namespace strata {

// How far a tensor may be compressed.
enum class TensorRole : std::uint8_t {
  exact,      // norms, biases, convolutions, ssm_a: always F32
  sensitive,  // router, gates, alpha, beta, indexer, inject: never a block type unasked
  residual,   // down and up of the gated residual (hc): a matrix that may have a type of its own
  matrix,     // everything large
};

// Applied to each value in float32.
enum class ValueTransform : std::uint8_t {
  none,
  plus_one,      // 1 + w: the gain of a norm that the checkpoint stores around zero
  negative_exp,  // -exp(w): the decay from A_log
};

// Consecutive values of one checkpoint tensor.
struct ValueRun {
  const SafetensorView* view = nullptr;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

struct PlannedTensor {
  std::string name = {};
  std::vector<std::uint64_t> ne = {};  // ggml's order: ne[0] is the contiguous dimension
  TensorRole role = TensorRole::matrix;
  ValueTransform transform = ValueTransform::none;
  // The checkpoint's type; F32 for F64 and where the runs' types differ; I8 for an FP8 table.
  TensorType own = TensorType::F32;
  std::vector<ValueRun> runs = {};  // one behind the other they are the tensor, row by row
  // Where not empty, block i of a written row is block column_order[i] of the row in `runs`.
  std::vector<std::uint32_t> column_order = {};
  std::uint64_t column_block = 0;  // values of such a block
  float scale = 1.0f;              // factor of FP8 values
};

struct ConversionPlan {
  std::vector<PlannedTensor> tensors;
  std::vector<std::string> notes;
};

// Plans the whole checkpoint. Sets draft_layers, and experts where the checkpoint was pruned, in
// `params`. Every checkpoint tensor must have its place: one that is missing, has another shape or
// is unknown is an error that names it.
Result<ConversionPlan> plan_conversion(const SafetensorCheckpoint& checkpoint, HyperParams& params);

}  // namespace strata
