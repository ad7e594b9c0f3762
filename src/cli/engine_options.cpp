#include "cli/engine_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/sizes.h"
#include "cli/checks.h"
#include "engine/engine_memory.h"

namespace strata {
namespace {

// An option whose text `set` understands or refuses with a sentence.
template <class Set>
void add_text(CLI::App& command, const char* flag, const Set& set, const std::string& help) {
  command.add_option_function<std::string>(
      flag,
      [flag, set](const std::string& text) {
        if (const Status status = set(text); !status)
          throw CLI::ValidationError(flag, status.error().message);
      },
      help);
}

}  // namespace

void add_table_mode(CLI::App& command, TableMode& mode) {
  command
      .add_option_function<std::string>(
          "--ngram-table",
          [&mode](const std::string& name) { mode = table_mode_named(name).value(); },
          "How the n-gram table is read: auto (mmap if it fits the cache, else direct), direct "
          "(past "
          "the page cache), threads, mmap, resident (all of it in memory)")
      ->check(CLI::Validator(
          [](const std::string& name) {
            const auto named = table_mode_named(name);
            return named ? std::string() : named.error().message;
          },
          ""));
}

void add_table_options(CLI::App& command, TableOptions& options) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  add_table_mode(command, options.mode);
  command
      .add_option_function<std::uint64_t>(
          "--ngram-cache",
          [&options, kMiB](const std::uint64_t& mib) { options.cache_bytes = mib * kMiB; },
          "MiB for rows of the table that were read (default 128)")
      ->check(CLI::Validator(
          whole_number_between(0, static_cast<std::int64_t>(kMaxTableCache / kMiB)), ""));
  command
      .add_option("--ngram-depth", options.queue_depth,
                  "Reads of the table under way at the same time (default 64)")
      ->check(CLI::Validator(whole_number_between(1, kMaxReadDepth), ""));
  command
      .add_option("--ngram-keep-alive", options.keep_alive_ms,
                  "Milliseconds after which a silent disk is read from so that it does not fall "
                  "asleep, 0 for never (default 0)")
      ->check(CLI::Validator(whole_number_between(0, 3'600'000), ""));
}

void add_weights_option(CLI::App& command, Residence& residence) {
  command
      .add_option_function<std::string>(
          "--weights",
          [&residence](const std::string& name) { residence = residence_from(name).value(); },
          "Where they lie: in memory (ram), in the mapped file (map), or in memory if there is "
          "room "
          "(auto, the default)")
      ->check(CLI::IsMember({"auto", "ram", "map"}));
}

void add_kv_option(CLI::App& command, KvType& type) {
  command
      .add_option_function<std::string>(
          "--kv-type", [&type](const std::string& text) { type = kv_type_named(text).value(); },
          fmt::format("How keys and values are kept: f32, f16, int8, q4_0 or k8v4 (default {})",
                      to_string(type)))
      ->check(CLI::IsMember({"f32", "f16", "int8", "q4_0", "k8v4"}));
}

void add_expert_options(CLI::App& command, ExpertRam& ram, std::string& profile, bool& look_ahead) {
  add_text(
      command, "--expert-ram",
      [&ram](const std::string& text) -> Status {
        STRATA_ASSIGN(ram, expert_ram_from(text));
        return {};
      },
      "Memory for experts: all (the default), a size as 12G (MiB without a unit), or a part as "
      "25%; "
      "the others are read from the file when they are needed");
  profile = "auto";
  command.add_option("--expert-profile", profile,
                     "File that remembers which experts are used most, off, or auto: one in the "
                     "user's cache folder (the default)");
  command.add_option("--expert-look-ahead", look_ahead,
                     "Read also what the next layer will probably need, where that pays (default "
                     "true)");
}

void add_plan_options(CLI::App& command, PlanArguments& arguments, bool json) {
  CLI::Option* plan = command.add_flag("--plan", arguments.plan,
                                       "Print what would lie where in memory, and load nothing");
  if (!json) return;
  command.add_flag("--json", arguments.json, "The plan as JSON")->needs(plan);
}

Status check_choices(Residence weights, const ExpertRam& experts) {
  const bool budget = experts.kind == ExpertRam::Kind::bytes ||
                      (experts.kind == ExpertRam::Kind::share && experts.share < 1);
  if (weights != Residence::mapped || !budget) return {};
  return fail(ErrorCode::invalid_argument,
              "memory for experts is for weights in memory, not for those of a mapped file; leave "
              "out one of --expert-ram and --weights map");
}

Result<int> print_plan(const EngineOptions& options, bool json) {
  STRATA_ASSIGN(const PlannedMemory planned, plan_engine_memory(real_files(), options));
  if (json) {
    fmt::print("{}\n", plan_json(planned.plan, planned.machine));
  } else {
    fmt::print("{}", plan_table(planned.plan, planned.machine));
  }
  return 0;
}

Status set_drafts(DraftOptions& options, std::string_view text) {
  std::uint32_t depth = 0;
  if (text == "auto") {
    options.depth.reset();
    return {};
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), depth);
  const bool number = error == std::errc() && end == text.data() + text.size();
  if (text != "off" && (!number || depth > kMaxDrafts)) {
    return fail(ErrorCode::invalid_argument, "drafts '{}'; it must be auto, off or 1 to {}", text,
                kMaxDrafts);
  }
  options.depth = depth;
  return {};
}

Status set_cache_ram(CacheOptions& options, std::string_view text) {
  if (text == "auto") {
    options.ram_bytes.reset();
    return {};
  }
  STRATA_ASSIGN(options.ram_bytes, parse_size(text));
  return {};
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  command
      .add_option("--ctx", options.context,
                  "Tokens that a conversation may hold (default: the model's own)")
      ->check(CLI::Validator(context_size(), ""));
  command.add_option("--threads", options.threads, "Threads (default: usable CPUs)")
      ->check(CLI::Validator(whole_number_between(0, kMostThreads), ""));
  add_weights_option(command, options.residence);
  add_kv_option(command, options.kv_type);
  add_expert_options(command, options.expert_ram, options.expert_profile,
                     options.expert_look_ahead);
  command.add_flag("--mlock", options.lock_memory, "Keep weights from being swapped out");
  add_table_options(command, options.ngram_table);
  DraftOptions& drafts = options.drafts;
  add_text(
      command, "--drafts", [&drafts](const std::string& text) { return set_drafts(drafts, text); },
      "Tokens guessed each round: auto (as many as pay, the default), off, or 1 to 15");
  add_text(
      command, "--draft-source",
      [&drafts](const std::string& text) -> Status {
        STRATA_ASSIGN(drafts.source, parse_draft_source(text));
        return {};
      },
      "Where guesses come from: mtp (the model's draft block), lookup (earlier places of the "
      "text), both (the default)");
  command
      .add_option("--draft-vocabulary", drafts.vocabulary_path,
                  "File of 32-bit ids of the tokens that the draft block may guess")
      ->type_name("FILE");
  CacheOptions& cache = options.cache;
  add_text(
      command, "--cache-ram",
      [&cache](const std::string& text) { return set_cache_ram(cache, text); },
      "Memory for conversations to go on from: a size (MiB without a unit), 0 for none, auto (a "
      "tenth of what is free, "
      "the default)");
  command
      .add_option("--cache-dir", cache.folder,
                  "Folder where they survive a restart (default: nowhere)")
      ->type_name("DIR");
  add_text(
      command, "--cache-disk",
      [&cache](const std::string& text) -> Status {
        STRATA_ASSIGN(cache.disk_bytes, parse_size(text));
        return {};
      },
      "Most that they take there (default 16G)");
  command.add_option("--trace", options.trace_path, "Write what every round did, as JSON lines")
      ->type_name("FILE");
}

}  // namespace strata
