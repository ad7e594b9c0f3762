// strata drafts: what drafts are worth. The same prompts with different settings, in turn, in one
// run: tokens a second, guesses that were right, and whether all gave the same tokens.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>

#include "base/json.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "cli/output_options.h"
#include "server/openai_messages.h"
#include "server/service.h"
#include "terminal/progress.h"

namespace strata {
namespace {

struct DraftsArguments {
  EngineOptions engine;
  std::string prompts;
  std::vector<std::string> arms = {"off", "auto"};
  std::vector<double> oracle;
  std::uint32_t generate = 256, prompt_tokens = 64, repetitions = 3;
  std::uint32_t limit = 0;  // prompts; 0 = all
  std::uint64_t seed = 1;
  float temperature = 0;
  bool json = false, progress = true;
};

class Waiter final : public Listener {
 public:
  void token(TokenId id) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(id);
  }
  void finished(const Completion& completion) override {
    const std::lock_guard lock(mutex_);
    completion_ = completion;
    finished_ = true;
    changed_.notify_all();
  }
  Completion wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_; });
    return completion_;
  }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // after wait()

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  Completion completion_;
  bool finished_ = false;
};

// Guesses the tokens that are known to come, each depth with its chance; else a wrong one.
class Oracle {
 public:
  explicit Oracle(std::vector<double> chances) : chances_(std::move(chances)) {}
  void know(std::vector<TokenId> tokens) { known_ = std::move(tokens); }
  std::vector<TokenId> operator()(std::span<const TokenId> tokens, std::uint32_t most) {
    std::vector<TokenId> guesses;
    const std::size_t count = std::min<std::size_t>(most, chances_.size());
    for (std::size_t i = 0; i < count && tokens.size() + i < known_.size(); ++i) {
      random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
      const bool right = static_cast<double>(random_ >> 11) * 0x1.0p-53 < chances_[i];
      const TokenId token = known_[tokens.size() + i];
      guesses.push_back(right ? token : token == 0 ? 1 : token - 1);
    }
    return guesses;
  }

 private:
  std::vector<double> chances_;
  std::vector<TokenId> known_;
  std::uint64_t random_ = 42;
};

struct Arm {
  std::string name;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Oracle> oracle;
  std::vector<double> speeds;  // tokens a second of each run
  std::uint64_t tokens = 0, rounds = 0, drafted = 0, accepted = 0;
  double seconds = 0;
};

Result<std::vector<Arm>> open_arms(const DraftsArguments& arguments, terminal::Progress& progress) {
  std::vector<Arm> arms;
  for (const std::string& name : arguments.arms) {
    Arm arm;
    arm.name = name;
    progress.next("reading the weights", terminal::Unit::bytes);
    EngineOptions options = arguments.engine;
    options.progress = [&progress](std::uint64_t done, std::uint64_t all) {
      progress.update(done, all);
    };
    STRATA_TRY(set_drafts(options.drafts, name));
    if (!arguments.oracle.empty()) {
      arm.oracle = std::make_shared<Oracle>(arguments.oracle);
      options.drafts.source = DraftSource::mtp;
      options.drafts.test_guesses = [oracle = arm.oracle](std::span<const TokenId> tokens,
                                                          std::uint32_t most) {
        return (*oracle)(tokens, most);
      };
    }
    STRATA_ASSIGN(arm.engine, Engine::open(real_files(), options));
    arms.push_back(std::move(arm));
  }
  return arms;
}

// Prompts of conversations, one JSON object a line: messages, tools, enable_thinking,
// reasoning_effort.
Result<std::vector<std::vector<TokenId>>> read_prompts(const DraftsArguments& arguments,
                                                       Engine& engine) {
  constexpr std::uint64_t kMostBytes = 64 << 20;
  STRATA_ASSIGN(const std::string text, real_files().read_text(arguments.prompts, kMostBytes));
  // Only prompts are wanted of it, as an evaluation would have them.
  server::ServiceOptions options;
  options.parity = true;
  STRATA_ASSIGN(const auto service, server::Service::create(engine, std::move(options)));
  std::vector<std::vector<TokenId>> prompts;
  std::size_t at = 0;
  while (at < text.size() && (arguments.limit == 0 || prompts.size() < arguments.limit)) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    const std::string name = fmt::format("line {} of '{}'", prompts.size() + 1, arguments.prompts);
    STRATA_ASSIGN(const boost::json::value value, parse_written_json(line, name));
    STRATA_ASSIGN(const boost::json::object* object, json_object(value, name));
    server::ChatRequest request;
    chat::Conversation& conversation = request.conversation;
    const boost::json::value* messages = object->if_contains("messages");
    if (!messages) return fail(ErrorCode::invalid_argument, "{} has no messages", name);
    auto parsed = server::parse_openai_messages(*messages);
    if (!parsed) return fail(ErrorCode::invalid_argument, "{}: {}", name, parsed.error().message);
    conversation.messages = std::move(*parsed);
    if (const auto* tools = object->if_contains("tools"); tools && tools->is_array())
      conversation.tools = tools->get_array();
    for (const char* key : {"enable_thinking", "reasoning_effort"})
      if (const auto* argument = object->if_contains(key); argument && !argument->is_null())
        conversation.template_arguments[key] = *argument;
    auto prepared = service->prepare(std::move(request));
    if (!prepared)
      return fail(ErrorCode::invalid_argument, "{}: {}", name, prepared.error().message);
    prompts.push_back(std::move(prepared->work.prompt));
  }
  if (prompts.empty())
    return fail(ErrorCode::invalid_argument, "'{}' holds no prompts", arguments.prompts);
  return prompts;
}

std::vector<std::vector<TokenId>> random_prompts(const DraftsArguments& arguments,
                                                 const EngineFacts& facts) {
  std::vector<std::vector<TokenId>> prompts(arguments.limit == 0 ? 4 : arguments.limit);
  std::uint64_t random = arguments.seed;
  for (auto& prompt : prompts) {
    for (std::uint32_t i = 0; i < arguments.prompt_tokens; ++i) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      prompt.push_back(static_cast<TokenId>((random >> 33) % facts.vocabulary));
    }
  }
  return prompts;
}

// One answer; its tokens. It counts for the arm's figures if asked to.
Result<std::vector<TokenId>> answer(Arm& arm, const DraftsArguments& arguments,
                                    const std::vector<TokenId>& prompt, bool counts) {
  Request request;
  request.prompt = prompt;
  request.max_tokens = arguments.generate;
  request.sampling.temperature = arguments.temperature;
  request.sampling.seed = arguments.seed;
  if (!arguments.prompts.empty()) request.stop_ids = arm.engine->facts().stop_ids;
  const auto waiter = std::make_shared<Waiter>();
  STRATA_ASSIGN([[maybe_unused]] const RequestId id,
                arm.engine->submit(std::move(request), waiter));
  const Completion done = waiter->wait();
  if (done.reason == FinishReason::error) return tl::unexpected<Error>(done.error);
  if (counts && done.generated_tokens > 1) {
    arm.tokens += done.generated_tokens;
    arm.seconds += done.decode_seconds;
    arm.rounds += done.rounds;
    arm.drafted += done.drafted;
    arm.accepted += done.accepted;
  }
  return waiter->tokens();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void print(const std::vector<Arm>& arms) {
  fmt::print("{:<8} {:>10} {:>8} {:>8} {:>9} {:>9} {:>7}   {}\n", "drafts", "tokens/s", "ratio",
             "spread", "tok/round", "guessed", "right", "right by depth");
  const double first = median(arms.front().speeds);
  for (const Arm& arm : arms) {
    const auto [low, high] = std::minmax_element(arm.speeds.begin(), arm.speeds.end());
    const double middle = median(arm.speeds);
    std::string depths;
    const EngineCounters::Drafts counters = arm.engine->counters().drafts;
    for (std::size_t d = 0; d < kMaxDrafts && counters.drafted_at[d] > 0; ++d)
      depths +=
          fmt::format(" {:.2f}", double(counters.accepted_at[d]) / double(counters.drafted_at[d]));
    fmt::print("{:<8} {:>10.1f} {:>7.2f}x {:>7.1f}% {:>9.2f} {:>9} {:>6.1f}%  {}\n", arm.name,
               middle, middle / first, 100 * (*high - *low) / middle,
               double(arm.tokens) / double(std::max<std::uint64_t>(arm.rounds, 1)), arm.drafted,
               100.0 * double(arm.accepted) / double(std::max<std::uint64_t>(arm.drafted, 1)),
               depths);
  }
}

void print_json(const std::vector<Arm>& arms, std::size_t prompts, std::uint32_t runs,
                std::uint64_t different) {
  boost::json::array list;
  for (const Arm& arm : arms) {
    const EngineCounters::Drafts counters = arm.engine->counters().drafts;
    boost::json::array drafted, accepted;
    for (std::size_t d = 0; d < kMaxDrafts && counters.drafted_at[d] > 0; ++d) {
      drafted.push_back(counters.drafted_at[d]);
      accepted.push_back(counters.accepted_at[d]);
    }
    list.push_back({{"drafts", arm.name},
                    {"tokens_per_s", median(arm.speeds)},
                    {"runs_tokens_per_s", boost::json::array(arm.speeds.begin(), arm.speeds.end())},
                    {"tokens", arm.tokens},
                    {"rounds", arm.rounds},
                    {"drafted", arm.drafted},
                    {"accepted", arm.accepted},
                    {"drafted_at", std::move(drafted)},
                    {"accepted_at", std::move(accepted)}});
  }
  const boost::json::object out = {
      {"prompts", prompts}, {"runs", runs}, {"different", different}, {"arms", std::move(list)}};
  fmt::print("{}\n", boost::json::serialize(out));
}

Result<int> run_drafts(DraftsArguments& arguments) {
  STRATA_ASSIGN(arguments.engine.model_path, model_or_default(arguments.engine.model_path));
  arguments.engine.cache.ram_bytes = 0;  // every run reads its prompt
  terminal::Progress progress(arguments.progress && !arguments.json, "reading the weights",
                              terminal::Unit::bytes);
  auto opened = open_arms(arguments, progress);
  if (!opened) return refused(opened.error());
  std::vector<Arm> arms = *std::move(opened);
  std::vector<std::vector<TokenId>> prompts =
      random_prompts(arguments, arms.front().engine->facts());
  if (!arguments.prompts.empty()) {
    STRATA_ASSIGN(prompts, read_prompts(arguments, *arms.front().engine));
  }
  // What all arms must give; the oracles' knowledge. Also warms up.
  std::vector<std::vector<TokenId>> expected;
  progress.next("answers");
  const std::uint64_t answers = prompts.size() * (1 + arms.size() * arguments.repetitions);
  std::uint64_t made = 0;
  for (const auto& prompt : prompts) {
    STRATA_ASSIGN(auto tokens, answer(arms.front(), arguments, prompt, false));
    expected.push_back(std::move(tokens));
    progress.update(++made, answers);
  }
  std::uint64_t different = 0;
  for (std::uint32_t repetition = 0; repetition < arguments.repetitions; ++repetition) {
    std::vector<double> seconds(arms.size(), 0.0), tokens(arms.size(), 0.0);
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      // A B, then B A
      for (std::size_t i = 0; i < arms.size(); ++i) {
        const std::size_t a = (p + repetition) % 2 == 0 ? i : arms.size() - 1 - i;
        Arm& arm = arms[a];
        if (arm.oracle) {
          std::vector<TokenId> known = prompts[p];
          known.insert(known.end(), expected[p].begin(), expected[p].end());
          arm.oracle->know(std::move(known));
        }
        const double before = arm.seconds;
        const std::uint64_t count = arm.tokens;
        STRATA_ASSIGN(const auto given, answer(arm, arguments, prompts[p], true));
        progress.update(++made, answers);
        different += given != expected[p];
        seconds[a] += arm.seconds - before;
        tokens[a] += static_cast<double>(arm.tokens - count);
      }
    }
    for (std::size_t a = 0; a < arms.size(); ++a)
      if (seconds[a] > 0) arms[a].speeds.push_back(tokens[a] / seconds[a]);
  }
  for (const Arm& arm : arms) {
    if (arm.speeds.empty())
      return fail(ErrorCode::invalid_argument, "no answer has two tokens; nothing to measure");
  }
  progress.clear();
  if (arguments.json) {
    print_json(arms, prompts.size(), arguments.repetitions, different);
    return different == 0 ? 0 : 1;
  }
  print(arms);
  fmt::print("{} prompts, {} runs of each; {}\n", prompts.size(), arguments.repetitions,
             different == 0 ? std::string("all answers are equal")
                            : fmt::format("{} answers DIFFER", different));
  return different == 0 ? 0 : 1;
}

}  // namespace

void register_drafts(CLI::App& app, Invocation& invocation) {
  auto a = std::make_shared<DraftsArguments>();
  CLI::App* command = app.add_subcommand(
      "drafts", "What guessing tokens is worth: the same prompts with different settings, in turn");
  add_model_option(*command, a->engine.model_path);
  add_engine_options(*command, a->engine);
  command->add_option("--arms", a->arms, "Settings of --drafts to compare (default off,auto)")
      ->delimiter(',')
      ->check(CLI::Validator(
          [](const std::string& text) {
            DraftOptions options;
            const Status status = set_drafts(options, text);
            return status ? std::string() : status.error().message;
          },
          ""));
  command
      ->add_option("--prompts", a->prompts,
                   "File with a conversation as JSON in each line (default: random tokens)")
      ->type_name("FILE");
  command->add_option("--limit", a->limit, "The first prompts only; 0: all")
      ->check(CLI::Validator(whole_number_up_to(1 << 20), ""));
  command->add_option("-p,--prompt-tokens", a->prompt_tokens, "Of a random prompt (default 64)")
      ->check(CLI::Validator(whole_number_between(1, 1 << 20), ""));
  command->add_option("-n,--generate", a->generate, "Most tokens of an answer (default 256)")
      ->check(CLI::Validator(whole_number_between(2, 1 << 20), ""));
  command->add_option("-r,--repetitions", a->repetitions, "Runs of all prompts (default 3)")
      ->check(CLI::Validator(whole_number_between(1, 1000), ""));
  command->add_option("-t,--temperature", a->temperature, "0 takes the likeliest token")
      ->check(CLI::Validator(number_between(0, 100), ""));
  command->add_option("--seed", a->seed, "Of sampling and random prompts")
      ->check(CLI::Validator(whole_number_up_to(INT64_MAX), ""));
  command
      ->add_option("--oracle", a->oracle,
                   "Guess the tokens that are known to come, each depth with this chance, after "
                   "the work of the draft block (what a well-trained one would be worth)")
      ->delimiter(',')
      ->check(CLI::Validator(number_between(0, 1), ""));
  add_json_option(*command, a->json);
  add_progress_option(*command, a->progress);
  command->callback([a, &invocation] { invocation.run = [a] { return run_drafts(*a); }; });
}

}  // namespace strata
