#include "model/memory_plan.h"

#include <algorithm>
#include <boost/json.hpp>

namespace strata {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kLeastSystem = 128 * kMiB;
constexpr std::uint64_t kMostSystem = 4096 * kMiB;
constexpr std::uint64_t kRequestTokens = 4096;  // that a request is given room for

std::uint64_t less(std::uint64_t a, std::uint64_t b) {
  return a - std::min(a, b);
}
std::uint64_t mib(std::uint64_t bytes) {
  return (bytes + kMiB - 1) / kMiB;
}

// What the setting would be that fits, as a flag takes it.
std::string nearest(std::uint64_t experts, std::uint64_t least) {
  if (experts >= least) return fmt::format("--expert-ram {}M fits", experts / kMiB);
  return "--weights map needs less";
}

class Planner {
 public:
  Planner(const MachineMemory& machine, const ModelSizes& model, const MemoryWishes& wishes)
      : model_(model), wishes_(wishes) {
    plan_.available = machine.left();
    plan_.system = std::clamp(plan_.available / 8, kLeastSystem, kMostSystem);
    plan_.sizes = model;
  }

  Result<MemoryPlan> plan() {
    plan_.workspace = model_.workspace;
    plan_.ngram_bytes = wishes_.table_in_memory ? model_.table : wishes_.ngram_cache;
    const std::uint64_t one = request(kRequestTokens);
    room_ = less(plan_.available, plan_.system + plan_.workspace + plan_.ngram_bytes);
    const std::uint64_t least = model_.state + model_.token * std::min(256u, model_.context);
    if (room_ < least) {
      return fail(
          ErrorCode::exhausted,
          "{} MiB of memory are free, of which {} MiB are left to the system; the workspace "
          "takes {} MiB, n-gram rows {} MiB, and the shortest conversation {} MiB: at least "
          "{} MiB must be free{}",
          plan_.available / kMiB, plan_.system / kMiB, mib(plan_.workspace), mib(plan_.ngram_bytes),
          mib(least), mib(plan_.system + plan_.workspace + plan_.ngram_bytes + least),
          smaller_ngram_cache(least));
    }
    // Requests have a quarter of the room at most, but one that is of some use where that can be.
    plan_.requests =
        std::clamp(std::min(one * wishes_.parallel, room_ / 4), std::min(one, room_), room_);
    if (wishes_.conversations) plan_.conversations = *wishes_.conversations;
    const bool budget = wishes_.expert_ram.kind != ExpertRam::Kind::all &&
                        wishes_.expert_ram.of(model_.experts) < model_.experts;
    if (wishes_.residence == Residence::mapped) {
      if (budget) {
        return fail(ErrorCode::invalid_argument,
                    "memory for experts is for weights in memory, not for those of a mapped file; "
                    "leave out one of --expert-ram and --weights map");
      }
      return mapped("as --weights map says");
    }
    if (budget) return with_budget(wishes_.expert_ram.of(model_.experts));
    const std::uint64_t all = model_.dense + model_.experts;
    if (all + plan_.conversations <= room_after_requests()) return in_memory();
    if (wishes_.residence == Residence::ram) return refuse_all();
    const std::uint64_t most = most_for_experts();
    // Too few would be read all the time; then the system's own cache does no worse.
    if (most >= std::max(model_.expert_least, model_.experts / 20))
      return some_experts(most, "not all experts fit beside the rest");
    return mapped("the dense weights and the least number of experts do not fit in memory");
  }

 private:
  std::uint64_t request(std::uint64_t tokens) const {
    return model_.state + model_.token * std::min<std::uint64_t>(tokens, model_.context);
  }
  // Whether n-gram rows are what takes too much, and what of them would not.
  std::string smaller_ngram_cache(std::uint64_t least) const {
    const std::uint64_t most = less(plan_.available, plan_.system + plan_.workspace + least);
    if (most < wishes_.ngram_least || most / kMiB == 0) return {};
    if (wishes_.table_in_memory) return "; --ngram-table direct needs less";
    return fmt::format("; --ngram-cache {} fits", most / kMiB);
  }
  std::uint64_t room_after_requests() const { return less(room_, plan_.requests); }
  // For experts, a tenth kept for conversations where nothing is said about them.
  std::uint64_t most_for_experts() const {
    const std::uint64_t rest = less(room_after_requests(), model_.dense + plan_.conversations);
    return (wishes_.conversations ? rest : rest - rest / 10) / kMiB * kMiB;
  }

  Result<MemoryPlan> finish(std::string why) {
    if (!wishes_.conversations)
      plan_.conversations =
          less(room_after_requests(), plan_.dense_bytes + plan_.expert_bytes) / 10;
    if (wishes_.conversations && plan_.conversations > 0 &&
        plan_.dense_bytes + plan_.expert_bytes + plan_.conversations > room_after_requests()) {
      return fail(ErrorCode::exhausted,
                  "conversations would take {} MiB (--cache-ram) and {} MiB are left for them; "
                  "--cache-ram {}M fits",
                  mib(plan_.conversations),
                  less(room_after_requests(), plan_.dense_bytes + plan_.expert_bytes) / kMiB,
                  less(room_after_requests(), plan_.dense_bytes + plan_.expert_bytes) / kMiB);
    }
    plan_.why = std::move(why);
    return plan_;
  }

  Result<MemoryPlan> in_memory() {
    plan_.dense_bytes = model_.dense;
    plan_.expert_bytes = model_.experts;
    return finish("all weights fit");
  }

  Result<MemoryPlan> mapped(std::string why) {
    plan_.dense = plan_.experts = MemoryPlan::Place::file;
    return finish("all weights stay in the mapped file: " + why);
  }

  Result<MemoryPlan> some_experts(std::uint64_t bytes, std::string why) {
    plan_.experts = MemoryPlan::Place::partly;
    plan_.dense_bytes = model_.dense;
    plan_.expert_bytes = bytes;
    return finish(std::move(why));
  }

  Result<MemoryPlan> with_budget(std::uint64_t bytes) {
    if (bytes < model_.expert_least) {
      return fail(ErrorCode::exhausted,
                  "{} MiB for experts are too few: {} MiB are on their way at a time; --expert-ram "
                  "{}M is the least",
                  bytes / kMiB, mib(model_.expert_least), mib(model_.expert_least));
    }
    const std::uint64_t most = most_for_experts();
    if (bytes <= less(room_after_requests(), model_.dense + plan_.conversations))
      return some_experts(bytes, "as --expert-ram says");
    return fail(ErrorCode::exhausted,
                "{} MiB for experts do not fit: {} MiB of memory are free, {} MiB of them are left "
                "to the system, dense weights take {} MiB, workspace, n-gram rows, requests and "
                "conversations {} MiB; {}",
                bytes / kMiB, plan_.available / kMiB, plan_.system / kMiB, mib(model_.dense),
                mib(others()), nearest(most, model_.expert_least));
  }

  Result<MemoryPlan> refuse_all() {
    return fail(
        ErrorCode::exhausted,
        "the weights take {} MiB and do not fit in memory: {} MiB are free, {} MiB of them "
        "are left to the system, workspace, n-gram rows, requests and conversations take {} "
        "MiB; {}",
        mib(model_.dense + model_.experts), plan_.available / kMiB, plan_.system / kMiB,
        mib(others()), nearest(most_for_experts(), model_.expert_least));
  }
  std::uint64_t others() const {
    return plan_.workspace + plan_.ngram_bytes + plan_.requests + plan_.conversations;
  }

  const ModelSizes& model_;
  const MemoryWishes& wishes_;
  MemoryPlan plan_;
  std::uint64_t room_ = 0;  // for weights, requests and conversations
};

const char* words(MemoryPlan::Place place) {
  switch (place) {
    case MemoryPlan::Place::memory:
      return "memory";
    case MemoryPlan::Place::partly:
      return "memory, the others are read";
    case MemoryPlan::Place::file:
      return "mapped file";
  }
  return "";
}

}  // namespace

Result<MemoryPlan> plan_memory(const MachineMemory& machine, const ModelSizes& model,
                               const MemoryWishes& wishes) {
  return Planner(machine, model, wishes).plan();
}

std::string plan_table(const MemoryPlan& plan, const MachineMemory& machine) {
  std::string text;
  const auto row = [&](std::string_view what, std::uint64_t bytes, std::string_view where) {
    text += fmt::format("{:<28}{:>10} MiB  {}\n", what, mib(bytes), where);
  };
  row("memory of the machine", machine.total, "");
  if (machine.group_limit) row("limit of its control group", *machine.group_limit, "");
  row("free", plan.available, "");
  row("left to the system", plan.system, "");
  const bool dense_mapped = plan.dense == MemoryPlan::Place::file;
  row("dense weights", dense_mapped ? plan.sizes.dense : plan.dense_bytes, words(plan.dense));
  row("experts", plan.experts == MemoryPlan::Place::file ? plan.sizes.experts : plan.expert_bytes,
      plan.experts == MemoryPlan::Place::partly
          ? fmt::format("memory, of {} MiB; the others are read", mib(plan.sizes.experts))
          : std::string(words(plan.experts)));
  row("n-gram rows and buffers", plan.ngram_bytes,
      fmt::format("memory, of {} MiB", mib(plan.sizes.table)));
  row("workspace", plan.workspace, "memory");
  row("requests", plan.requests, "memory, when they start");
  row("conversations", plan.conversations, "memory, at most");
  row("all of it in memory", plan.total(), plan.why);
  return text;
}

std::string plan_json(const MemoryPlan& plan, const MachineMemory& machine) {
  boost::json::object object = {
      {"machine_bytes", machine.total},
      {"free_bytes", plan.available},
      {"system_bytes", plan.system},
      {"dense",
       {{"bytes", plan.dense_bytes}, {"of", plan.sizes.dense}, {"place", words(plan.dense)}}},
      {"experts",
       {{"bytes", plan.expert_bytes}, {"of", plan.sizes.experts}, {"place", words(plan.experts)}}},
      {"ngram_rows", {{"bytes", plan.ngram_bytes}, {"of", plan.sizes.table}}},
      {"workspace_bytes", plan.workspace},
      {"request_bytes", plan.requests},
      {"conversation_bytes", plan.conversations},
      {"total_bytes", plan.total()},
      {"why", plan.why}};
  if (machine.group_limit) object["group_limit_bytes"] = *machine.group_limit;
  return boost::json::serialize(object);
}

}  // namespace strata
