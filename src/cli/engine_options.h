// Options of the subcommands that run a model.
#pragma once

#include "engine/engine.h"
#include "model/residence.h"
#include "ple/open_table.h"

namespace CLI {
class App;
}

namespace strata {

// --ngram-table
void add_table_mode(CLI::App& command, TableMode& mode);
// --ngram-table, --ngram-cache, --ngram-depth, --ngram-keep-alive
void add_table_options(CLI::App& command, TableOptions& options);

// --weights
void add_weights_option(CLI::App& command, Residence& residence);
// --expert-ram, --expert-profile, --expert-look-ahead
void add_expert_options(CLI::App& command, ExpertRam& ram, std::string& profile, bool& look_ahead);

// --kv-type
void add_kv_option(CLI::App& command, KvType& type);

// --ctx, --threads, --drafts, --draft-source, --draft-vocabulary, --cache-ram, --cache-dir,
// --cache-disk, --trace, --mlock, and the ones above
void add_engine_options(CLI::App& command, EngineOptions& options);

// Refuses a memory budget for experts of a mapped file: what the command line alone tells.
Status check_choices(Residence weights, const ExpertRam& experts);

// --plan and, if `json` is to be had, --json
struct PlanArguments {
  bool plan = false;
  bool json = false;
};
void add_plan_options(CLI::App& command, PlanArguments& arguments, bool json = true);
// Prints what would be put where, without loading anything; refused as a start would be.
Result<int> print_plan(const EngineOptions& options, bool json);

// "auto", "off" or a number of tokens.
Status set_drafts(DraftOptions& options, std::string_view text);
// "auto" or a size.
Status set_cache_ram(CacheOptions& options, std::string_view text);

}  // namespace strata
