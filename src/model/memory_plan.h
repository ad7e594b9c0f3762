// What goes where, decided before anything is loaded. Pure arithmetic: the machine's memory and the
// model's sizes come in, a plan or a refusal with the numbers comes out.
//
// The rules, in order. R is what is left to the system: an eighth of what is free, at least 128 MiB
// and at most 4 GiB; what requests take later does not touch it either.
// - Always in memory: workspace of the largest window, the cache of n-gram rows with the buffers of
//   their reads, the states of requests with a few thousand tokens each (fewer where memory is
//   short, but one).
// - All weights, if they fit beside that.
// - Else the dense ones, and as many experts as fit (a tenth of the room goes to conversations): if
//   that is enough for what is on its way between disk and kernels.
// - Else everything stays in the mapped file.
// A wish (--weights, --expert-ram, --cache-ram, --ngram-cache) takes the place of a rule, and is
// refused where it does not fit, with the setting nearest to it that does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "model/residence.h"

namespace strata {

// Bytes.
struct ModelSizes {
  std::uint64_t dense = 0;         // all weights but experts and n-gram tables
  std::uint64_t experts = 0;       // as stored
  std::uint64_t expert_slot = 0;   // of one in a memory budget
  std::uint64_t expert_least = 0;  // a memory budget has at least this
  std::uint64_t table = 0;         // n-gram tables
  std::uint64_t workspace = 0;     // of the largest window
  std::uint64_t state = 0;         // of a sequence, beside its cells
  std::uint64_t token = 0;         // cells of one token
  std::uint32_t context = 0;       // tokens of the longest sequence
};

struct MemoryWishes {
  Residence residence = Residence::automatic;
  ExpertRam expert_ram;
  std::optional<std::uint64_t> conversations;  // bytes; absent: a tenth of what is left
  // What n-gram tables take, cache and buffers (ple/open_table.h), and the least that they would.
  std::uint64_t ngram_cache = 0, ngram_least = 0;
  bool table_in_memory = false;
  std::uint32_t parallel = 1;
};

struct MemoryPlan {
  enum class Place : std::uint8_t { memory, partly, file };
  Place dense = Place::memory;
  Place experts = Place::memory;
  std::uint64_t available = 0;    // when it was made
  std::uint64_t dense_bytes = 0;  // in memory, as all that follow
  std::uint64_t expert_bytes = 0;
  std::uint64_t ngram_bytes = 0;  // cache, or the whole table
  std::uint64_t workspace = 0;
  std::uint64_t requests = 0;       // room for those that run, which is taken when they start
  std::uint64_t conversations = 0;  // most that may be kept
  std::uint64_t system = 0;         // R
  ModelSizes sizes;
  std::string why;  // one sentence

  std::uint64_t total() const {
    return dense_bytes + expert_bytes + ngram_bytes + workspace + requests + conversations;
  }
};

Result<MemoryPlan> plan_memory(const MachineMemory& machine, const ModelSizes& model,
                               const MemoryWishes& wishes);

// A table for people: what, how much, where.
std::string plan_table(const MemoryPlan& plan, const MachineMemory& machine);
// The same as JSON.
std::string plan_json(const MemoryPlan& plan, const MachineMemory& machine);

}  // namespace strata
