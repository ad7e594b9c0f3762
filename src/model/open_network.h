// Opening a model file as engines need it: weights in their places, experts in theirs.
#pragma once

#include <functional>
#include <string>

#include "model/memory_plan.h"
#include "model/network.h"

namespace strata {

struct OpenOptions {
  LoadOptions load;  // `files` and `in_memory` are set here
  // Where weights go; called with the network over the mapped file, whose n-gram tables are not to
  // be used, before anything is loaded. Null: as plan_memory() says for `wishes`.
  std::function<Result<MemoryPlan>(const Network& mapped)> plan;
  MemoryWishes wishes;
  // File that remembers which experts are used most; empty or "off": none; "auto": in the user's
  // cache folder.
  std::string expert_profile;
  bool lock_memory = false;  // keeps weights from being swapped out
  bool direct = true;        // experts are read past the page cache
  bool look_ahead = true;    // also those that the next layer will probably need
  // Bytes read and to be read, called now and then by the calling thread.
  LoadProgress progress;
};

// Everything but the n-gram tables, which have their own readers.
Result<Network> open_network(FileSystem& files, const std::string& path, OpenOptions options = {});

// The network over the mapped file: what a plan is made from.
Result<Network> open_mapped_network(FileSystem& files, const std::string& path);

// What the network's n-gram tables take when they are opened so; windows of `rows` rows.
Result<TableMemory> table_memory(const Network& mapped, const TableOptions& options,
                                 std::uint32_t rows);

// Of the weights; workspace, states and cells are the backend's to say.
ModelSizes weight_sizes(const Network& network);

}  // namespace strata
