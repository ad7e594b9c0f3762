// Made-up machines and models: what is decided for each, and that no plan takes what is the
// system's.
#include "model/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace strata {
namespace {

using testing::HasSubstr;
using Place = MemoryPlan::Place;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kGiB = std::uint64_t{1} << 30;

// Of the family's real sizes: 48 layers of 512 experts and a draft block.
ModelSizes model(std::uint64_t dense_gib, std::uint64_t experts_gib) {
  ModelSizes m;
  m.dense = dense_gib * kGiB;
  m.experts = experts_gib * kGiB;
  m.expert_slot = m.experts / (49 * 512) + 12288;
  m.expert_least = 32 * m.expert_slot;
  m.table = 29 * kGiB;
  m.workspace = 300 * kMiB;
  m.state = 118 * kMiB;
  m.token = 52 * 1024;
  m.context = 262'144;
  return m;
}
const ModelSizes kQ2 = model(4, 34), kQ4 = model(6, 72);
const ModelSizes kDemo{30 * kMiB, 25 * kMiB, 100'000, 3'200'000, 5 * kMiB,
                       20 * kMiB, 2 * kMiB,  2048,    8192};

MemoryWishes wishes(std::uint32_t parallel = 4) {
  MemoryWishes w;
  w.ngram_cache = 128 * kMiB;
  w.parallel = parallel;
  return w;
}
MemoryWishes ram() {
  MemoryWishes w = wishes();
  w.residence = Residence::ram;
  return w;
}
MemoryWishes map() {
  MemoryWishes w = wishes();
  w.residence = Residence::mapped;
  return w;
}
MemoryWishes experts(const char* text) {
  MemoryWishes w = wishes();
  w.expert_ram = *expert_ram_from(text);
  return w;
}
MemoryWishes conversations(std::uint64_t gib) {
  MemoryWishes w = wishes();
  w.conversations = gib * kGiB;
  return w;
}
MemoryWishes ngram_cache(std::uint64_t gib) {
  MemoryWishes w = wishes();
  w.ngram_cache = gib * kGiB;
  w.ngram_least = 20 * kMiB;
  return w;
}
MemoryWishes table_in_memory() {
  MemoryWishes w = wishes();
  w.table_in_memory = true;
  return w;
}

struct Case {
  const char* name;
  double total, free;  // GiB
  double limit, left;  // of a control group; 0: none
  const ModelSizes* model;
  MemoryWishes wishes;
  std::optional<Place> experts;  // none: refused
  const char* words;             // of the reason or the refusal
};

// The decisions that docs/results/memory.md documents.
const std::vector<Case> kCases = {
    {"server with plenty", 256, 240, 0, 0, &kQ2, wishes(), Place::memory, "all weights fit"},
    {"server, larger model", 256, 240, 0, 0, &kQ4, wishes(), Place::memory, "all weights fit"},
    {"PC of 64 GB", 64, 60, 0, 0, &kQ2, wishes(), Place::memory, "all weights fit"},
    {"PC of 64 GB, larger model", 64, 60, 0, 0, &kQ4, wishes(), Place::partly, "not all experts"},
    {"PC of 48 GB", 48, 43, 0, 0, &kQ2, wishes(), Place::partly, "not all experts"},
    {"PC of 32 GB", 32, 29, 0, 0, &kQ2, wishes(), Place::partly, "not all experts"},
    {"PC of 32 GB, larger model", 32, 29, 0, 0, &kQ4, wishes(), Place::partly, "not all experts"},
    {"PC of 16 GB", 16, 13, 0, 0, &kQ2, wishes(), Place::partly, "not all experts"},
    {"PC of 16 GB, larger model", 16, 13, 0, 0, &kQ4, wishes(), Place::file, "do not fit"},
    {"laptop of 8 GB", 8, 5.5, 0, 0, &kQ2, wishes(), Place::file, "do not fit"},
    {"board of 1 GB", 1, 0.6, 0, 0, &kQ2, wishes(), std::nullopt, "must be free"},
    {"board of 1 GB, demo model", 1, 0.7, 0, 0, &kDemo, wishes(), Place::memory, "all weights fit"},
    {"full PC of 64 GB", 64, 9, 0, 0, &kQ2, wishes(), Place::partly, "not all experts"},
    {"container of 24 GB", 256, 240, 24, 23, &kQ2, wishes(), Place::partly, "not all experts"},
    {"container of 64 GB, half used", 256, 240, 64, 32, &kQ2, wishes(), Place::partly,
     "not all experts"},
    {"container beyond the machine", 32, 29, 64, 60, &kQ2, wishes(), Place::partly,
     "not all experts"},
    {"all in memory, and it fits", 64, 60, 0, 0, &kQ2, ram(), Place::memory, "all weights fit"},
    {"all in memory, and it does not", 32, 29, 0, 0, &kQ2, ram(), std::nullopt, "--expert-ram 18"},
    {"all in memory, hopeless", 8, 5.5, 0, 0, &kQ2, ram(), std::nullopt, "--weights map"},
    {"mapped although it fits", 64, 60, 0, 0, &kQ2, map(), Place::file, "--weights map"},
    {"a budget that fits", 32, 29, 0, 0, &kQ2, experts("12G"), Place::partly, "--expert-ram says"},
    {"a budget as a part", 64, 60, 0, 0, &kQ4, experts("50%"), Place::partly, "--expert-ram says"},
    {"a budget that does not fit", 32, 29, 0, 0, &kQ2, experts("30G"), std::nullopt,
     "--expert-ram 18"},
    {"a budget that is too small", 32, 29, 0, 0, &kQ2, experts("20M"), std::nullopt,
     "is the least"},
    {"a budget beyond all experts", 64, 60, 0, 0, &kQ2, experts("50G"), Place::memory,
     "all weights fit"},
    {"large conversations", 64, 60, 0, 0, &kQ2, conversations(12), Place::memory,
     "all weights fit"},
    {"larger conversations", 64, 60, 0, 0, &kQ2, conversations(30), Place::partly,
     "not all experts"},
    {"too large conversations", 64, 60, 0, 0, &kQ2, conversations(59), std::nullopt, "--cache-ram"},
    {"a large cache of rows", 64, 60, 0, 0, &kQ2, ngram_cache(10), Place::memory, "all weights"},
    {"a larger cache of rows, fewer experts", 64, 60, 0, 0, &kQ2, ngram_cache(20), Place::partly,
     "not all experts"},
    {"a cache of rows beyond memory", 64, 60, 0, 0, &kQ2, ngram_cache(100), std::nullopt,
     "--ngram-cache 56"},
    {"all in memory, beside a large cache of rows", 64, 60, 0, 0, &kQ2,
     [] {
       MemoryWishes w = ngram_cache(20);
       w.residence = Residence::ram;
       return w;
     }(),
     std::nullopt, "n-gram rows"},
    {"the table in memory", 96, 90, 0, 0, &kQ2, table_in_memory(), Place::memory,
     "all weights fit"},
    {"the table in memory, less for experts", 64, 60, 0, 0, &kQ2, table_in_memory(), Place::partly,
     "not all experts"},
};

MachineMemory machine_of(const Case& c) {
  MachineMemory machine;
  const auto bytes = [](double gib) {
    return static_cast<std::uint64_t>(gib * static_cast<double>(kGiB));
  };
  machine.total = bytes(c.total);
  machine.available = bytes(c.free);
  if (c.limit > 0) {
    machine.group_limit = bytes(c.limit);
    machine.group_left = bytes(c.left);
  }
  return machine;
}

TEST(MemoryPlan, MadeUpMachines) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const MachineMemory machine = machine_of(c);
    const auto plan = plan_memory(machine, *c.model, c.wishes);
    ASSERT_EQ(plan.has_value(), c.experts.has_value())
        << (plan ? plan_table(*plan, machine) : plan.error().message);
    if (!plan) {
      EXPECT_THAT(plan.error().message, HasSubstr(c.words));
      continue;
    }
    EXPECT_EQ(plan->experts, *c.experts) << plan_table(*plan, machine);
    EXPECT_THAT(plan->why, HasSubstr(c.words));
    EXPECT_LE(plan->total() + plan->system, machine.left()) << plan_table(*plan, machine);
    EXPECT_GE(plan->system, std::min(machine.left() / 8, 4 * kGiB));
    EXPECT_GE(plan->requests, c.model->state);
    if (plan->experts == Place::partly) {
      EXPECT_GE(plan->expert_bytes, c.model->expert_least);
      EXPECT_LT(plan->expert_bytes, c.model->experts);
    }
  }
}

// Whatever a refusal proposes is taken, and a MiB more is not.
TEST(MemoryPlan, WhatIsProposedFits) {
  for (const Case& c : kCases) {
    const auto refused = plan_memory(machine_of(c), *c.model, c.wishes);
    if (refused) continue;
    const std::string& said = refused.error().message;
    SCOPED_TRACE(said);
    if (const std::size_t rows = said.find("--ngram-cache "); rows != said.npos) {
      MemoryWishes w = c.wishes;
      w.ngram_cache = std::stoull(said.substr(rows + 14)) * kMiB;
      EXPECT_TRUE(plan_memory(machine_of(c), *c.model, w));
      w.ngram_cache += kMiB;
      EXPECT_FALSE(plan_memory(machine_of(c), *c.model, w));
    }
    const std::size_t at = said.find("--expert-ram ");
    if (at == said.npos) continue;
    const std::string size = said.substr(at + 13, said.find_first_of(" ;", at + 13) - at - 13);
    MemoryWishes w = c.wishes;
    w.residence = Residence::automatic;
    w.expert_ram = *expert_ram_from(size);
    EXPECT_TRUE(plan_memory(machine_of(c), *c.model, w));
  }
}

// More memory never makes the place of experts worse, and the decision is the same each time.
TEST(MemoryPlan, MoreMemoryIsNeverWorse) {
  for (const ModelSizes* m : {&kQ2, &kQ4, &kDemo}) {
    int best = 3;
    std::uint64_t most = 0;
    for (std::uint64_t mib = 64; mib < 130'000; mib += 61) {
      MachineMemory machine;
      machine.total = machine.available = mib * kMiB;
      const auto plan = plan_memory(machine, *m, wishes());
      const int rank = plan ? static_cast<int>(plan->experts) : 3;
      EXPECT_LE(rank, best) << mib;
      best = std::min(best, rank);
      if (!plan) continue;
      EXPECT_LE(plan->total() + plan->system, machine.left()) << mib;
      EXPECT_GE(plan->expert_bytes, most) << mib;
      most = plan->expert_bytes;
    }
    EXPECT_EQ(best, 0);
  }
}

TEST(MemoryPlan, TableAndJson) {
  const Case& c = kCases[13];
  const MachineMemory machine = machine_of(c);
  const auto plan = plan_memory(machine, *c.model, c.wishes);
  ASSERT_TRUE(plan);
  const std::string table = plan_table(*plan, machine);
  for (const char* word : {"control group", "left to the system", "experts", "workspace",
                           "conversations", "the others are read"})
    EXPECT_THAT(table, HasSubstr(word));
  const auto json = boost::json::parse(plan_json(*plan, machine)).as_object();
  EXPECT_EQ(json.at("experts").at("bytes").to_number<std::uint64_t>(), plan->expert_bytes);
  EXPECT_EQ(json.at("group_limit_bytes").to_number<std::uint64_t>(), 24 * kGiB);
}

}  // namespace
}  // namespace strata
