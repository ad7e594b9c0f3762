// strata bench: how fast prompts are read and tokens are made.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/version.h"
#include "compute/cpu/probe.h"
#include "engine/engine.h"

namespace strata {
namespace {

struct BenchArguments {
  EngineOptions engine;
  std::vector<std::uint32_t> prompts = {512};
  std::uint32_t generate = 128;
  std::uint32_t repetitions = 5;
  std::uint32_t probe_mib = 1024;
  bool json = false;
};

class Waiter final : public Listener {
 public:
  void token(TokenId) override {}
  void finished(const Completion& completion) override {
    const std::lock_guard lock(mutex_);
    completion_ = completion;
    done_ = true;
    changed_.notify_all();
  }
  Completion wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return completion_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Completion completion_;
  bool done_ = false;
};

Result<Completion> run_once(Engine& engine, std::uint32_t prompt, std::uint32_t generate,
                            unsigned seed) {
  std::mt19937 random(seed);
  Request request;
  request.prompt.resize(prompt);
  for (TokenId& id : request.prompt)
    id = static_cast<TokenId>(random() % engine.facts().vocabulary);
  request.max_tokens = generate;
  auto waiter = std::make_shared<Waiter>();
  STRATA_ASSIGN([[maybe_unused]] const RequestId id, engine.submit(std::move(request), waiter));
  Completion done = waiter->wait();
  if (done.reason == FinishReason::error) return tl::unexpected(done.error);
  return done;
}

struct Spread {
  double median = 0, least = 0, most = 0;
};

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

boost::json::value or_null(std::optional<double> number) {
  return number ? boost::json::value(*number) : boost::json::value(nullptr);
}

void print_head(const EngineFacts& facts, const std::optional<MachineLimits>& limits) {
  fmt::print("{} ({:.1f} M parameters, {:.1f} MB; a token reads {:.1f} MB), {} threads, {}\n",
             facts.model_name, double(facts.parameters) / 1e6, double(facts.weight_bytes) / 1e6,
             double(facts.bytes_per_token) / 1e6, facts.threads, facts.isa);
  if (limits) {
    fmt::print("this machine, now: {:.1f} GB/s read, {:.0f} GOP/s int8\n", limits->read_gbps,
               limits->int8_peak_gops);
  }
  fmt::print(
      "\n| test | tokens/s (median) | least | most | achieved |{} runs |\n"
      "| --- | ---: | ---: | ---: | ---: |{} ---: |\n",
      limits ? " share |" : "", limits ? " ---: |" : "");
}

Result<int> run_bench(BenchArguments& arguments) {
  STRATA_ASSIGN(arguments.engine.model_path, model_or_default(arguments.engine.model_path));
  STRATA_ASSIGN(const auto engine, Engine::open(real_files(), arguments.engine));
  const EngineFacts& facts = engine->facts();
  std::optional<MachineLimits> limits;  // none without a probe
  if (arguments.probe_mib > 0) {
    STRATA_ASSIGN(
        limits, measure_machine(facts.threads, std::size_t{arguments.probe_mib} << 20, facts.isa));
  }
  if (!arguments.json) print_head(facts, limits);
  boost::json::array tests;
  const auto report = [&](const std::string& name, std::uint32_t tokens, bool prompt,
                          const Spread& s) {
    // Decoding is held against the memory, reading a prompt against the arithmetic.
    const double gbps = s.median * double(facts.bytes_per_token) / 1e9;
    const double gops = s.median * 2.0 * double(facts.macs_per_token) / 1e9;
    std::optional<double> share;
    if (limits) share = prompt ? gops / limits->int8_peak_gops : gbps / limits->read_gbps;
    if (!arguments.json) {
      fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} {} |{} {} |\n", name, s.median, s.least,
                 s.most, prompt ? gops : gbps, prompt ? "GOP/s" : "GB/s",
                 share ? fmt::format(" {:.0f} % |", 100 * *share) : "", arguments.repetitions);
      std::fflush(stdout);
    }
    tests.push_back({{"test", name},
                     {"tokens", tokens},
                     {"tokens_per_s", s.median},
                     {"tokens_per_s_least", s.least},
                     {"tokens_per_s_most", s.most},
                     {"bytes_per_token", facts.bytes_per_token},
                     {prompt ? "share_of_int8_peak" : "share_of_read_bandwidth", or_null(share)},
                     {"runs", arguments.repetitions}});
  };
  STRATA_ASSIGN([[maybe_unused]] const Completion warm, run_once(*engine, 16, 4, 0));
  for (const std::uint32_t prompt : arguments.prompts) {
    std::vector<double> reading, decoding;
    for (std::uint32_t i = 0; i < arguments.repetitions; ++i) {
      STRATA_ASSIGN(const Completion done,
                    run_once(*engine, prompt, std::max(arguments.generate, 1u), i + 1));
      reading.push_back(prompt / done.prompt_seconds);
      // The first token comes with the prompt's last window.
      if (done.generated_tokens > 1)
        decoding.push_back((done.generated_tokens - 1) / done.decode_seconds);
    }
    report(fmt::format("prompt {}", prompt), prompt, true, spread(reading));
    if (!decoding.empty()) {
      report(fmt::format("decode {} after {}", arguments.generate, prompt), arguments.generate,
             false, spread(decoding));
    }
  }
  if (arguments.json) {
    const boost::json::object out = {
        {"model", facts.model_name},
        {"model_path", facts.model_path},
        {"parameters", facts.parameters},
        {"weight_bytes", facts.weight_bytes},
        {"threads", facts.threads},
        {"isa", facts.isa},
        {"version", version_text()},
        {"read_gbps", or_null(limits ? std::optional(limits->read_gbps) : std::nullopt)},
        {"int8_peak_gops", or_null(limits ? std::optional(limits->int8_peak_gops) : std::nullopt)},
        {"tests", tests}};
    fmt::print("{}\n", boost::json::serialize(out));
  }
  return 0;
}

}  // namespace

void register_bench(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure prompt reading and decoding, one request at a time");
  add_model_option(*command, arguments->engine.model_path);
  command->add_option("-p,--prompt", arguments->prompts, "Prompt lengths in tokens (default 512)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("-n,--generate", arguments->generate, "Tokens to make (default 128)")
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("-r,--repetitions", arguments->repetitions, "Counted runs (default 5)")
      ->check(CLI::Range(1, 100));
  command->add_option("--threads", arguments->engine.threads, "Threads (default: usable CPUs)");
  command
      ->add_option("--chunk", arguments->engine.prompt_chunk,
                   "Prompt tokens a window (default 512)")
      ->check(CLI::Range(1, 2048));
  command
      ->add_option("--probe", arguments->probe_mib,
                   "MiB of memory to measure its speed with, 0 for no probe (default 1024)")
      ->check(CLI::Range(0, 1 << 16));
  command->add_flag("--json", arguments->json, "One JSON object instead of a table");
  command->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return run_bench(*arguments); }; });
}

}  // namespace strata
