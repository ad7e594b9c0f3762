// Where the weights of a model live: in the mapped file, or copied to memory of our own in huge
// pages, which saves the page walks of a sweep over gigabytes (measured in docs/results/cpu.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/file.h"
#include "gguf/gguf.h"

namespace strata {

enum class Residence : std::uint8_t {
  automatic,  // as much as fits in memory (memory_plan.h)
  ram,
  mapped,
};
Result<Residence> residence_from(std::string_view text);  // auto, ram, map

// How much memory experts may take. The others are read when they are needed (expert_store.h).
struct ExpertRam {
  enum class Kind : std::uint8_t { all, bytes, share };  // all: as Residence says
  Kind kind = Kind::all;
  std::uint64_t bytes = 0;
  double share = 1;  // of all experts' bytes
  std::uint64_t of(std::uint64_t expert_bytes) const;
};
Result<ExpertRam> expert_ram_from(std::string_view text);  // all, 12G, 25%

// "blk.3.ffn_down_exps.weight"
bool is_expert_tensor(std::string_view name);

// Bytes read and to be read, called now and then by the thread that loads.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct LoadInto {
  bool lock = false;  // keeps the copies from being swapped out
  LoadProgress progress;
};

// Reads every tensor for which `wanted` says so into memory and points the model at the copies; the
// model owns them. What the page cache has comes from there, with several threads; the rest comes
// from the disk, past the cache, with many reads under way. A read error names the file; the model
// is unchanged then. `exhausted` where there is no memory.
Status load_into_memory(FileSystem& files, GgufModel& model, const LoadInto& into,
                        const std::function<bool(const TensorView&)>& wanted);

}  // namespace strata
