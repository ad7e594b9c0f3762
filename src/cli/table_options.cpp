#include "cli/table_options.h"

#include <CLI/CLI.hpp>

namespace strata {

void add_table_options(CLI::App& command, TableOptions& options) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  command
      .add_option_function<std::string>(
          "--ngram-table",
          [&options](const std::string& name) { options.mode = table_mode_named(name).value(); },
          "How the n-gram table is read: auto (mmap if it fits the cache, else direct), direct "
          "(past "
          "the page cache), threads, mmap, resident (all of it in memory)")
      ->check(CLI::Validator(
          [](const std::string& name) {
            const auto mode = table_mode_named(name);
            return mode ? std::string() : mode.error().message;
          },
          ""));
  command
      .add_option_function<std::uint64_t>(
          "--ngram-cache",
          [&options, kMiB](const std::uint64_t& mib) { options.cache_bytes = mib * kMiB; },
          "MiB for rows of the table that were read (default 128)")
      ->check(CLI::Range(std::uint64_t{0}, kMaxTableCache / kMiB));
  command
      .add_option("--ngram-depth", options.queue_depth,
                  "Reads of the table under way at the same time (default 64)")
      ->check(CLI::Range(1u, kMaxReadDepth));
  command
      .add_option("--ngram-keep-alive", options.keep_alive_ms,
                  "Milliseconds after which a silent disk is read from so that it does not fall "
                  "asleep, 0 for never (default 0)")
      ->check(CLI::Range(0, 3'600'000));
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

}  // namespace strata
