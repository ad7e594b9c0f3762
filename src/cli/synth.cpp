// strata synth: a model of random weights in the production shapes, to measure speed with.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output_options.h"
#include "model/synth.h"
#include "terminal/progress.h"

namespace strata {
namespace {

struct SynthArguments {
  SynthOptions options;
  std::string output, shape = "qwen4exp";
  std::vector<std::string> parts;  // PART=TYPE
  std::uint32_t threads = 0;
  bool json = false, progress = true;
};

constexpr std::uint64_t kHeaderRoom = 64 << 20;  // metadata with the largest vocabulary

Status choose_types(SynthArguments& arguments) {
  SynthOptions& options = arguments.options;
  STRATA_ASSIGN(options.types, SynthTypes::mix(options.mix));
  for (const std::string& text : arguments.parts) {
    const std::size_t equals = text.find('=');
    const auto type =
        equals == std::string::npos ? std::nullopt : type_from_name(text.substr(equals + 1));
    if (!type) {
      return fail(ErrorCode::invalid_argument,
                  "'{}' is not of the form PART=TYPE with a known type", text);
    }
    STRATA_TRY(options.types.set(text.substr(0, equals), *type));
    options.mix += " " + text;
  }
  return {};
}

Result<int> run_synth(SynthArguments& arguments) {
  STRATA_TRY(choose_types(arguments));
  STRATA_ASSIGN(SynthPlan plan, plan_synth(arguments.options));
  const std::size_t tensors = plan.tensors.size();
  const std::uint64_t bytes = plan.bytes;
  STRATA_TRY(check_room(arguments.output, bytes + kHeaderRoom));
  ThreadPool pool(arguments.threads);
  terminal::Progress progress(arguments.progress && !arguments.json, "writing random weights",
                              terminal::Unit::bytes);
  STRATA_TRY(write_synth(real_files(), arguments.output, std::move(plan), pool,
                         [&](std::uint64_t done, std::uint64_t all) {
                           progress.update(done, all, done == all ? "flushing" : "");
                         }));
  progress.clear();
  if (arguments.json) {
    const boost::json::object out = {
        {"file", arguments.output}, {"tensors", tensors}, {"tensor_bytes", bytes}};
    fmt::print("{}\n", boost::json::serialize(out));
    return 0;
  }
  fmt::print("{}: {} tensors, {} bytes of random weights\n", arguments.output, tensors, bytes);
  return 0;
}

}  // namespace

void register_synth(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<SynthArguments>();
  SynthOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "synth", "Write a model of random weights in the production shapes, to measure speed with");
  command->add_option("OUT.gguf", arguments->output, "The file to write")
      ->type_name("")
      ->required();
  command->add_option("--shape", arguments->shape, "Architecture and width (default qwen4exp)")
      ->check(CLI::IsMember({"qwen4exp"}));
  command->add_option("--layers", options.layers, "Layers; every fourth has attention (default 4)")
      ->check(CLI::Validator(whole_number_between(1, 1024), ""));
  command->add_option("--experts", options.experts, "Experts a layer (default 512)")
      ->check(CLI::Validator(whole_number_between(1, 65536), ""));
  CLI::Option* used =
      command->add_option("--used", options.used, "Experts a token (default 10, or all)")
          ->check(CLI::Validator(whole_number_between(1, 65536), ""));
  command
      ->add_option("--type", options.mix,
                   fmt::format("Mix of types: {} as published files have them (default q4_k); a "
                               "float type for everything; any block type for the experts",
                               fmt::join(SynthTypes::mix_names(), ", ")))
      ->type_name("MIX");
  command
      ->add_option(
          "--set", arguments->parts,
          fmt::format("PART=TYPE: type of a part; may be given several times. Parts are {}",
                      fmt::join(SynthTypes::part_names(), ", ")))
      ->allow_extra_args(false)
      ->type_name("PART=TYPE");
  command
      ->add_option("--ple-rows", options.ngram_rows,
                   "Rows of each of the 16 heads of the n-gram table (default 5000; 20000000 is "
                   "the production table)")
      ->check(CLI::Validator(whole_number_between(1, 130'000'000), ""));
  command->add_option("--vocabulary", options.vocabulary, "Tokens (default 8192)")
      ->check(CLI::Validator(whole_number_between(259, 1 << 22), ""));
  command->add_flag("--draft-block", options.draft_block,
                    "With a draft (MTP) block behind the layers");
  command->add_option("--seed", options.seed, "The same seed gives the same bytes (default 1)")
      ->check(CLI::Validator(whole_number_up_to(INT64_MAX), ""));
  command->add_option("--threads", arguments->threads, "Threads (default: usable CPUs)")
      ->check(CLI::Validator(whole_number_between(0, kMostThreads), ""));
  add_json_option(*command, arguments->json);
  add_progress_option(*command, arguments->progress);
  command->callback([arguments, used, &invocation] {
    SynthOptions& chosen = arguments->options;
    if (used->count() == 0) chosen.used = std::min(chosen.used, chosen.experts);
    invocation.run = [arguments] { return run_synth(*arguments); };
  });
}

}  // namespace strata
