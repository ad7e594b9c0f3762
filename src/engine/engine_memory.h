// The memory plan of an engine: the model's sizes with what windows and requests take.
#pragma once

#include "engine/engine.h"
#include "model/memory_plan.h"
#include "model/network.h"

namespace strata {

struct PlannedMemory {
  MachineMemory machine;
  MemoryPlan plan;
};

// What Engine::open() would put where, without loading anything; refused as it would be. In
// engine.cpp, beside the checks of a start.
Result<PlannedMemory> plan_engine_memory(FileSystem& files, const EngineOptions& options);

// The same for a network over the mapped file and the backend that will run it.
Result<PlannedMemory> plan_engine_memory(const EngineOptions& options, const Network& mapped,
                                         Backend& backend);

// Rows of the largest window.
std::uint32_t most_rows(const EngineOptions& options);

// The network as the engine runs it: with or without the draft block, and its kind of cells.
NetworkShape engine_shape(const Network& network, const EngineOptions& options);

// Whether the model's draft block is to be used.
bool wants_draft_block(const Network& network, const DraftOptions& options);

}  // namespace strata
