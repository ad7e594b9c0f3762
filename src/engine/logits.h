// Logits of every position of a token sequence: for oracles and for bisecting, outside the
// scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "compute/kv_type.h"

namespace strata {

struct LogitsOptions {
  std::string model_path;
  std::uint32_t threads = 0;  // 0 = usable CPUs
  std::uint32_t chunk = 0;    // tokens a window; 0 = 512
  bool reference = false;     // the slow float32 forward instead of the fast one
  bool cell_width = false;    // select cells by llama.cpp's rule (SelectionRule::cell_width)
  std::string isa;            // of the fast forward's kernels; empty = the best
  KvType kv_type = KvType::f32;
  std::function<void(std::uint64_t done, std::uint64_t total)> loading;  // bytes of weights
  // Gets the tokens that are done and all of them, zero first.
  std::function<void(std::size_t done, std::size_t all)> progress;
};

// Calls `rows` with one or more whole rows [n x vocabulary] at a time, in order.
Status compute_logits(FileSystem& files, const LogitsOptions& options,
                      std::span<const std::int32_t> ids,
                      const std::function<Status(std::span<const float>)>& rows);

}  // namespace strata
