// The data of a planned tensor: gathered from the checkpoint, put in order, transformed and encoded
// slice by slice, so that memory stays bounded whatever the tensor's size.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "gguf/tensor_type.h"
#include "model/convert_plan.h"

namespace strata {

using ByteSink = std::function<Status(std::span<const std::byte>)>;

// Gives the tensor's bytes in `type` to `sink`, in order. A type that is the tensor's own keeps its
// bits; otherwise values pass through float32 and encode().
Status stream_tensor(const PlannedTensor& tensor, TensorType type, ThreadPool& pool,
                     const ByteSink& sink);

}  // namespace strata
