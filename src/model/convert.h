// HF checkpoint -> one GGUF file of llama.cpp's form (names, keys, V-head order, folded norms).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "gguf/tensor_type.h"

namespace strata {

struct ConvertOptions {
  // Type of the matrices; absent: each keeps the checkpoint's own (F32, F16, BF16). Norms, biases,
  // convolutions and ssm_a are always F32; with a quantised type, router, gates, alpha, beta,
  // indexer and inject matrices stay at the checkpoint's own type.
  std::optional<TensorType> type;
  // Type of the gated residual's down and up matrices (hc_*), up to a third of the dense bytes;
  // absent: as `type` says.
  std::optional<TensorType> residual;
  // (ECMAScript regex over the GGUF tensor name, type), first match wins over both.
  std::vector<std::pair<std::string, TensorType>> tensor_types;
  // Tensor name, tensors done, tensors in all.
  std::function<void(const std::string&, std::size_t, std::size_t)> progress;
};

struct ConvertReport {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  // of the file
  // Things the person should know: files left out, a row width that a block type does not divide
  // (and which type was taken instead), a checkpoint without tokenizer, ...
  std::vector<std::string> notes;
};

Result<ConvertReport> convert_hf(FileSystem& files, const std::string& folder,
                                 const std::string& output, const ConvertOptions& options);

}  // namespace strata
