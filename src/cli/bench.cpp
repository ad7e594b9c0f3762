// strata bench: how fast prompts are read and tokens are made, beside what the machine gives.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_times.h"
#include "base/file.h"
#include "cli/bench_report.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "cli/output_options.h"
#include "compute/cpu/kernel_speed.h"
#include "compute/cpu/probe.h"
#include "engine/benchmark.h"
#include "model/open_network.h"
#include "terminal/progress.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

struct BenchArguments {
  BenchmarkOptions benchmark;
  std::vector<std::uint32_t> prompts = {512};
  std::vector<std::uint32_t> depths = {0};
  std::vector<std::uint32_t> batches = {1};
  std::uint32_t generate = 64;
  std::uint32_t repetitions = 5;
  std::uint32_t probe_mib = 1024;
  double quiet = 3;  // percent
  std::string text;
  bool parts = false, kernels = false, kernel_speed = false, csv = false, json = false;
  PlanArguments plan;
  bool progress = true;
};

constexpr std::uint32_t kMostAttempts = 3;  // times the repetitions, when runs are disturbed
constexpr std::uint32_t kMostBatch = 64;
constexpr std::uint32_t kWarmTokens = 2048;  // of the uncounted prompt before all tests, at most

std::vector<BenchTest> tests_of(const BenchArguments& arguments) {
  std::vector<BenchTest> tests;
  for (const std::uint32_t tokens : arguments.prompts)
    if (tokens > 0) tests.push_back({.prompt = true, .tokens = tokens});
  if (arguments.generate == 0) return tests;
  std::vector<std::uint32_t> depths = arguments.depths;
  std::sort(depths.begin(), depths.end());  // each one's context goes on from the last one's
  for (const std::uint32_t depth : depths)
    for (const std::uint32_t batch : arguments.batches)
      tests.push_back({.tokens = arguments.generate, .depth = depth, .batch = batch});
  return tests;
}

// Before anything is measured.
Status check_context(const std::vector<BenchTest>& tests, const HyperParams& params) {
  for (const BenchTest& test : tests) {
    const std::uint32_t most = scaled_context(params.context, params.rope_scale);
    if (std::uint64_t{test.depth} + test.tokens <= most) continue;
    return fail(ErrorCode::invalid_argument, "'{}' needs a context of {} tokens; the model has {}",
                name_of(test), std::uint64_t{test.depth} + test.tokens, most);
  }
  if (tests.empty())
    return fail(ErrorCode::invalid_argument,
                "there is nothing to measure: -p names no prompt and -n is 0");
  return {};
}

class Bench {
 public:
  Bench(const BenchArguments& arguments, Benchmark& benchmark, terminal::Progress& progress)
      : arguments_(arguments), benchmark_(benchmark), progress_(progress) {}

  Result<BenchOutcome> measure(const BenchTest& test) {
    progress_.next(name_of(test));
    progress_.update(0, arguments_.repetitions, "preparing");
    if (!test.prompt) STRATA_TRY(benchmark_.prepare(test.depth));
    const std::size_t first_probe = probes_.size();
    STRATA_TRY(probe());
    STRATA_ASSIGN(const std::vector<Attempt> attempts, attempt(test));
    STRATA_TRY(probe());
    BenchOutcome outcome = choose(test, attempts);
    for (std::size_t i = first_probe; i < probes_.size(); ++i) {
      MachineLimits& best = outcome.limits ? *outcome.limits : outcome.limits.emplace();
      best.read_gbps = std::max(best.read_gbps, probes_[i].read_gbps);
      best.int8_peak_gops = std::max(best.int8_peak_gops, probes_[i].int8_peak_gops);
    }
    progress_.clear();
    return outcome;
  }

  const std::vector<MachineLimits>& probes() const { return probes_; }

 private:
  struct Attempt {
    BenchmarkRun run;
    double others = 0;  // share of the CPUs
  };

  Status probe() {
    if (arguments_.probe_mib == 0) return {};
    STRATA_ASSIGN(const MachineLimits limits,
                  measure_machine(benchmark_.threads(), std::size_t{arguments_.probe_mib} << 20,
                                  benchmark_.isa()));
    probes_.push_back(limits);
    return {};
  }

  bool quiet(const Attempt& attempt) const { return 100 * attempt.others <= arguments_.quiet; }

  // Until there are enough undisturbed runs, or too many attempts.
  Result<std::vector<Attempt>> attempt(const BenchTest& test) {
    std::vector<Attempt> attempts;
    std::uint32_t good = 0;
    const std::uint32_t most = kMostAttempts * arguments_.repetitions;
    while (good < arguments_.repetitions && attempts.size() < most) {
      const std::size_t again = attempts.size() - good;
      progress_.update(good, arguments_.repetitions,
                       again == 0 ? std::string() : fmt::format("{} disturbed", again));
      const CpuWatch watch(real_files());
      STRATA_ASSIGN(const BenchmarkRun run, test.prompt
                                                ? benchmark_.read_prompt(test.tokens)
                                                : benchmark_.decode(test.tokens, test.batch));
      attempts.push_back({run, watch.others_share().value_or(0)});
      good += quiet(attempts.back()) ? 1 : 0;
    }
    return attempts;
  }

  // The least disturbed ones.
  BenchOutcome choose(const BenchTest& test, std::vector<Attempt> attempts) const {
    std::stable_sort(attempts.begin(), attempts.end(), [&](const Attempt& a, const Attempt& b) {
      if (quiet(a) && quiet(b)) return false;
      return a.others < b.others;
    });
    const std::size_t count = std::min<std::size_t>(arguments_.repetitions, attempts.size());
    BenchOutcome outcome;
    outcome.test = test;
    outcome.dropped = static_cast<std::uint32_t>(attempts.size() - count);
    attempts.resize(count);
    for (const Attempt& a : attempts) {
      outcome.rates.push_back(double(a.run.tokens) / a.run.seconds);
      outcome.seconds += a.run.seconds;
      outcome.tokens += a.run.tokens;
      outcome.ngram.insert(outcome.ngram.end(), a.run.ngram_tables.begin(),
                           a.run.ngram_tables.end());
      outcome.experts = a.run.experts + outcome.experts;
      outcome.disturbed += quiet(a) ? 0 : 1;
      outcome.others = std::max(outcome.others, a.others);
      for (std::size_t i = 0; i < kForwardParts; ++i) {
        outcome.parts[i].seconds += a.run.parts[i].seconds;
        outcome.parts[i].cost += a.run.parts[i].cost;
      }
    }
    return outcome;
  }

  const BenchArguments& arguments_;
  Benchmark& benchmark_;
  terminal::Progress& progress_;
  std::vector<MachineLimits> probes_;
};

// Every matrix product of this machine, and the work it had in this run.
void print_kernels(const std::vector<KernelUse>& kernels) {
  fmt::print("\n| format | inputs | tokens | instruction set | how | parts run |\n");
  fmt::print("| --- | --- | --- | --- | --- | ---: |\n");
  for (const KernelUse& k : kernels)
    fmt::print("| {} | {} | {} | {} | {} | {} |\n", k.format, k.inputs,
               k.few_tokens ? "few" : "many", k.isa, k.way, k.parts);
}

// The matrix products without a model, beside the machine's limits.
Result<int> run_kernel_speed(const BenchArguments& arguments) {
  const std::size_t bytes = std::size_t{std::max(arguments.probe_mib, 128u)} << 20;
  const std::string& isa = arguments.benchmark.isa;
  const std::uint32_t threads = arguments.benchmark.threads;
  terminal::Progress progress(arguments.progress, "measuring the machine");
  progress.update(0, 0);
  STRATA_ASSIGN(MachineLimits limits, measure_machine(threads, bytes, isa));
  progress.next("measuring the products");
  progress.update(0, 0);
  STRATA_ASSIGN(const std::vector<KernelSpeed> speeds, measure_kernels(threads, bytes / 4, isa));
  STRATA_ASSIGN(const MachineLimits after, measure_machine(threads, bytes, isa));
  limits.read_gbps = std::max(limits.read_gbps, after.read_gbps);
  limits.int8_peak_gops = std::max(limits.int8_peak_gops, after.int8_peak_gops);
  progress.clear();
  fmt::print("Read bandwidth {:.1f} GB/s, int8 peak {:.0f} GOP/s.\n\n", limits.read_gbps,
             limits.int8_peak_gops);
  fmt::print(
      "| format | inputs | one row, in cache, GB/s | from memory, GB/s | of read | "
      "{} rows, GOP/s | of int8 | {} rows, GOP/s | of int8 |\n",
      kFewSpeedRows, kManySpeedRows);
  fmt::print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const KernelSpeed& s : speeds) {
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} % |", s.format, s.inputs, s.cache_gbps,
               s.memory_gbps, 100 * s.memory_gbps / limits.read_gbps);
    for (const double gops : {s.few_rows_gops, s.many_rows_gops}) {
      if (gops > 0) {
        fmt::print(" {:.0f} | {:.1f} % |", gops, 100 * gops / limits.int8_peak_gops);
      } else {
        fmt::print(" - | - |");
      }
    }
    fmt::print("\n");
  }
  return 0;
}

// What would lie where, if what is to be measured can be.
Result<int> print_bench_plan(const BenchArguments& arguments) {
  STRATA_ASSIGN(const Network mapped,
                open_mapped_network(real_files(), arguments.benchmark.model_path));
  STRATA_TRY(check_context(tests_of(arguments), mapped.params));
  return print_plan(engine_options(arguments.benchmark), arguments.json);
}

Result<int> run_bench(BenchArguments& arguments) {
  if (arguments.kernel_speed) return run_kernel_speed(arguments);
  const BenchmarkOptions& chosen = arguments.benchmark;
  if (const Status fit = check_choices(chosen.residence, chosen.expert_ram); !fit)
    return usage_error(fit.error().message);
  STRATA_ASSIGN(arguments.benchmark.model_path, model_or_default(arguments.benchmark.model_path));
  if (arguments.plan.plan) {
    const Result<int> printed = print_bench_plan(arguments);
    return printed ? printed : refused(printed.error());
  }
  const std::vector<BenchTest> tests = tests_of(arguments);
  terminal::Progress progress(arguments.progress && !arguments.json, "reading the weights",
                              terminal::Unit::bytes);
  BenchmarkOptions options = arguments.benchmark;
  options.progress = [&](std::uint64_t done, std::uint64_t all) { progress.update(done, all); };
  auto opened = Benchmark::open(real_files(), options);
  if (!opened) return refused(opened.error());
  const std::unique_ptr<Benchmark> benchmark = *std::move(opened);
  if (const Status fit = check_context(tests, benchmark->network().params); !fit)
    return refused(fit.error());
  if (!arguments.text.empty()) {
    STRATA_ASSIGN(const std::string text, real_files().read_text(arguments.text));
    STRATA_ASSIGN(const Tokenizer tokenizer,
                  Tokenizer::from_gguf(benchmark->network().file->metadata));
    benchmark->use_tokens(tokenizer.encode(text, Specials::none));
  }
  const BenchFormat format = arguments.json  ? BenchFormat::json
                             : arguments.csv ? BenchFormat::csv
                                             : BenchFormat::table;
  const auto report = make_report(format, arguments.parts, arguments.probe_mib > 0);
  progress.next("warming up");
  progress.update(0, 0);
  std::uint32_t longest = 0;
  for (const std::uint32_t prompt : arguments.prompts) longest = std::max(longest, prompt);
  STRATA_TRY(benchmark->warm_up(std::min(longest, kWarmTokens)));
  progress.clear();
  report->start(*benchmark);
  Bench bench(arguments, *benchmark, progress);
  for (const BenchTest& test : tests) {
    STRATA_ASSIGN(const BenchOutcome outcome, bench.measure(test));
    report->outcome(outcome);
  }
  report->finish(bench.probes());
  if (arguments.kernels) print_kernels(benchmark->kernels());
  return 0;
}

// A list of whole numbers, "512,2048". Nothing between two commas is no number.
void add_list(CLI::App& command, const std::string& flags, std::vector<std::uint32_t>& values,
              const Check& check, const std::string& text) {
  command
      .add_option_function<std::string>(
          flags,
          [flags, check, &values](const std::string& list) {
            values.clear();
            for (std::size_t at = 0; at <= list.size();) {
              const std::size_t comma = std::min(list.find(',', at), list.size());
              const std::string one = list.substr(at, comma - at);
              if (const std::string wrong = check(one); !wrong.empty())
                throw CLI::ValidationError(flags.substr(flags.find("--")), wrong);
              values.push_back(static_cast<std::uint32_t>(std::stoul(one)));
              at = comma + 1;
            }
          },
          text)
      ->type_name("N,...");
}

void add_options(CLI::App& command, BenchArguments& a) {
  add_model_option(command, a.benchmark.model_path);
  add_list(command, "-p,--prompt", a.prompts, whole_number_between(0, 1 << 20),
           "Prompt lengths in tokens, as 512,2048; 0 for none (default 512)");
  command.add_option("-n,--generate", a.generate, "Tokens to decode, 0 for none (default 64)")
      ->check(CLI::Validator(whole_number_between(0, 1 << 20), ""));
  add_list(command, "-d,--depth", a.depths, whole_number_between(0, 1 << 20),
           "Tokens in the context before decoding, as 0,4096 (default 0)");
  add_list(command, "-b,--batch", a.batches, whole_number_between(1, kMostBatch),
           "Sequences that decode together, as 1,8 (default 1)");
  command.add_option("-r,--repetitions", a.repetitions, "Counted runs of a test (default 5)")
      ->check(CLI::Validator(whole_number_between(1, 100), ""));
  command.add_option("--threads", a.benchmark.threads, "Threads (default: usable CPUs)")
      ->check(CLI::Validator(whole_number_between(0, kMostThreads), ""));
  command.add_option("--isa", a.benchmark.isa,
                     "Instruction set of the kernels (default: the best)");
  add_weights_option(command, a.benchmark.residence);
  add_kv_option(command, a.benchmark.kv_type);
  add_expert_options(command, a.benchmark.expert_ram, a.benchmark.expert_profile,
                     a.benchmark.look_ahead);
  command
      .add_option("--chunk", a.benchmark.chunk,
                  "Prompt tokens a window (default: what the engine takes)")
      ->check(CLI::Validator(whole_number_between(1, 2048), ""));
  command
      .add_option("--probe", a.probe_mib,
                  "MiB of memory to measure its speed with, 0 for no probe (default 1024)")
      ->check(CLI::Validator(whole_number_between(0, 1 << 16), ""));
  command
      .add_option("--quiet", a.quiet,
                  "Percent of the CPUs that others may have during a run; runs with more are made "
                  "again, up to three times as many as asked (default 3, 100 counts all)")
      ->check(CLI::Validator(number_between(0, 100), ""));
  command.add_option("--text", a.text, "A file whose tokens are read instead of random ones")
      ->type_name("FILE");
  add_table_options(command, a.benchmark.ngram_table);
  add_plan_options(command, a.plan, false);
  command.add_flag("--parts", a.parts, "Also time and bytes of each part of the network");
  CLI::Option* kernels = command.add_flag(
      "--kernels", a.kernels, "Also every matrix product there is, and which ones this run used");
  command.add_flag("--kernel-speed", a.kernel_speed,
                   "Instead of a model, each matrix product alone: one row from memory, and as "
                   "many rows as prompts have; only --isa, --threads and --probe go with it");
  CLI::Option* json = add_json_option(command, a.json, "One JSON object instead of a table");
  command.add_flag("--csv", a.csv, "CSV instead of a table")->excludes(json)->excludes(kernels);
  kernels->excludes(json);
  add_progress_option(command, a.progress);
}

// Nothing is ignored silently: there is no model then, and no test.
void check_kernel_speed(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool fits = name == "--kernel-speed" || name == "--isa" || name == "--threads" ||
                      name == "--probe" || name == "--no-progress";
    if (option->count() > 0 && !fits) throw CLI::ExcludesError("--kernel-speed", name);
  }
}

}  // namespace

void register_bench(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure prompt reading and decoding beside the machine's limits");
  add_options(*command, *arguments);
  command->callback([arguments, command, &invocation] {
    if (arguments->kernel_speed) check_kernel_speed(*command);
    invocation.run = [arguments] { return run_bench(*arguments); };
  });
}

}  // namespace strata
