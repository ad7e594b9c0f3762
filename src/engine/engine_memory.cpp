#include "engine/engine_memory.h"

#include "model/open_network.h"

namespace strata {

bool wants_draft_block(const Network& network, const DraftOptions& options) {
  return network.draft && options.depth != 0u && options.source != DraftSource::lookup;
}

NetworkShape engine_shape(const Network& network, const EngineOptions& options) {
  NetworkShape shape = network.shape(wants_draft_block(network, options.drafts));
  shape.kv_type = options.kv_type;
  return shape;
}

std::uint32_t most_rows(const EngineOptions& options) {
  return options.prompt_chunk + options.parallel * (kMaxTentative + 1);
}

Result<PlannedMemory> plan_engine_memory(const EngineOptions& options, const Network& mapped,
                                         Backend& backend) {
  ModelSizes sizes = weight_sizes(mapped);
  sizes.workspace = backend.workspace_bytes(most_rows(options)) +
                    std::uint64_t{options.parallel} * (kMaxTentative + 1) * mapped.head.rows *
                        sizeof(float);  // logits
  sizes.state = backend.state_bytes();
  sizes.token = backend.page_bytes() / backend.page_tokens();
  if (options.context > 0) sizes.context = options.context;
  MemoryWishes wishes;
  wishes.residence = options.residence;
  wishes.expert_ram = options.expert_ram;
  wishes.conversations = options.cache.ram_bytes;
  STRATA_ASSIGN(const TableMemory table,
                table_memory(mapped, options.ngram_table, most_rows(options)));
  wishes.ngram_cache = table.bytes;
  wishes.ngram_least = table.buffers;
  wishes.table_in_memory = options.ngram_table.mode == TableMode::resident;
  wishes.parallel = options.parallel;
  PlannedMemory planned;
  planned.machine = read_machine_memory(real_files());
  if (options.test_memory) {
    planned.machine.available = options.test_memory();
    planned.machine.group_limit.reset();
  }
  STRATA_ASSIGN(planned.plan, plan_memory(planned.machine, sizes, wishes));
  return planned;
}

}  // namespace strata
