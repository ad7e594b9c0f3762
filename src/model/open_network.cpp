#include "model/open_network.h"

#include <cstdlib>

#include "base/hash.h"
#include "base/log.h"
#include "model/expert_store.h"

namespace strata {
namespace {

constexpr std::string_view kTable = "per_layer_token_embd.weight";

// Tells this model's experts from another's.
std::uint64_t identity_of_experts(const GgufModel& model) {
  constexpr std::size_t kSample = 4096;
  std::vector<std::uint64_t> parts;
  for (const TensorView& t : model.tensors) {
    if (!is_expert_tensor(t.name)) continue;
    parts.push_back(hash64(t.name));
    parts.push_back(static_cast<std::uint64_t>(t.type));
    parts.push_back(t.data.size());
    parts.push_back(hash64(t.data.first(std::min(kSample, t.data.size()))));
  }
  return hash64(std::as_bytes(std::span(parts)));
}

std::vector<const ExpertsWeights*> layers_of(const Network& network) {
  std::vector<const ExpertsWeights*> layers;
  for (const Block& block : network.blocks) layers.push_back(&block.experts);
  if (network.draft) layers.push_back(&network.draft->block.experts);
  return layers;
}

// Beside what else a user's programs remember.
std::string usual_profile(FileSystem& files, std::uint64_t model) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (cache && *cache == '/') {
    folder = cache;
  } else if (home && *home == '/') {
    folder = std::string(home) + "/.cache";
  } else {
    return {};
  }
  folder += "/strata";
  if (const Status made = files.make_private_folder(folder); !made) {
    log_warning("which experts are used most will not be remembered: {}", made.error().message);
    return {};
  }
  return fmt::format("{}/experts-{:016x}", folder, model);
}

Status keep_some_experts(FileSystem& files, Network& network, const OpenOptions& options,
                         std::uint64_t bytes) {
  ExpertStoreOptions store;
  store.bytes = bytes;
  store.direct = options.direct;
  store.look_ahead = options.look_ahead;
  store.lock = options.lock_memory;
  const std::uint64_t model = identity_of_experts(*network.file);
  if (options.expert_profile == "auto") {
    store.profile_path = usual_profile(files, model);
  } else if (options.expert_profile != "off") {
    store.profile_path = options.expert_profile;
  }
  store.progress = options.progress;
  STRATA_ASSIGN(auto source, ExpertStore::open(files, network.file->paths, layers_of(network),
                                               model, std::move(store)));
  log_info("{} MiB of {} MiB of experts are in memory, the others are read when they are needed",
           source->counters().resident_bytes >> 20, source->counters().total_bytes >> 20);
  network.take_experts_from(std::move(source));
  return {};
}

Result<Network> open_model(FileSystem& files, GgufModel model, OpenOptions& options) {
  const auto file = std::make_shared<GgufModel>(std::move(model));
  MemoryPlan plan;
  {
    LoadOptions mapped = options.load;
    mapped.files = nullptr;
    STRATA_ASSIGN(const Network network, load_network(file, mapped));
    STRATA_ASSIGN(plan, options.plan ? options.plan(network)
                                     : plan_memory(read_machine_memory(real_files()),
                                                   weight_sizes(network), options.wishes));
  }
  if (plan.experts != MemoryPlan::Place::memory) log_info("{}", plan.why);
  const bool some = plan.experts == MemoryPlan::Place::partly;
  if (plan.dense == MemoryPlan::Place::memory) {
    const LoadInto into{options.lock_memory, options.progress};
    STRATA_TRY(load_into_memory(files, *file, into, [&](const TensorView& tensor) {
      return !tensor.name.ends_with(kTable) && !(some && is_expert_tensor(tensor.name));
    }));
  }
  options.load.in_memory = plan.experts == MemoryPlan::Place::memory;
  STRATA_ASSIGN(Network network, load_network(file, options.load));
  if (some) STRATA_TRY(keep_some_experts(files, network, options, plan.expert_bytes));
  return network;
}

}  // namespace

ModelSizes weight_sizes(const Network& network) {
  ModelSizes sizes;
  for (const TensorView& t : network.file->tensors) {
    if (t.name.ends_with(kTable)) {
      sizes.table += t.data.size();
    } else {
      (is_expert_tensor(t.name) ? sizes.experts : sizes.dense) += t.data.size();
    }
  }
  const auto layers = layers_of(network);
  sizes.expert_slot = ExpertStore::slot_bytes(layers);
  sizes.expert_least = ExpertStore::least_bytes(layers);
  sizes.context = network.params.context;
  return sizes;
}

Result<TableMemory> table_memory(const Network& mapped, const TableOptions& options,
                                 std::uint32_t rows) {
  // Of each row that a window asks for, and of each that is read ahead of it: keys, places,
  // waiters.
  constexpr std::uint64_t kBookkeeping = 2 * 192;
  const HyperParams& p = mapped.params;
  TableMemory all;
  if (p.ngram_layers.empty()) return all;
  TableOptions share = options;
  share.cache_bytes /= p.ngram_layers.size();
  for (const TensorView& t : mapped.file->tensors) {
    if (!t.name.ends_with(kTable)) continue;
    STRATA_ASSIGN(TableMemory table, table_memory(mapped.file->metadata, t, share));
    if (table.buffers > 0 && options.mode != TableMode::resident) {
      const std::uint64_t window =
          std::uint64_t{rows} * p.ngram_heads() * (t.data.size() / t.ne[1] + kBookkeeping);
      table.bytes += window;
      table.buffers += window;
    }
    all.bytes += table.bytes;
    all.buffers += table.buffers;
  }
  return all;
}

Result<Network> open_mapped_network(FileSystem& files, const std::string& path) {
  STRATA_ASSIGN(GgufModel model, open_gguf(files, path));
  auto network = load_network(std::make_shared<const GgufModel>(std::move(model)));
  if (!network) return with_context(std::move(network).error(), fmt::format("model '{}'", path));
  return network;
}

Result<Network> open_network(FileSystem& files, const std::string& path, OpenOptions options) {
  options.load.files = &files;
  STRATA_ASSIGN(GgufModel model, open_gguf(files, path));
  auto network = open_model(files, std::move(model), options);
  if (!network) return with_context(std::move(network).error(), fmt::format("model '{}'", path));
  return network;
}

}  // namespace strata
