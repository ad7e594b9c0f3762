#include "engine/scripted.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "engine/answer_watch.h"
#include "gguf/gguf.h"

namespace strata {
namespace {

namespace json = boost::json;

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::int64_t kLongestWait = 3'600'000;  // milliseconds
constexpr std::uint64_t kDefaultContext = 32768;

using Steps = std::vector<std::vector<TokenId>>;  // tokens that are reported together

struct Script {
  Steps steps;
  Steps answer;  // after thinking that the engine has ended
  std::string match;
  milliseconds wait{0}, pace{0};
  FinishReason finish = FinishReason::stop;
  std::string error;
  bool repeat = false, crash = false;
  std::uint32_t cached = 0, reads = 1;
};

// Specials stay whole; ordinary text is cut.
Steps steps_of(const std::string& text, std::uint64_t piece, const Tokenizer& tokenizer) {
  Steps steps;
  for (const TokenId id : tokenizer.encode(text, Specials::all)) steps.push_back({id});
  if (piece == 0) return steps;
  Steps cut;
  std::string run;
  const auto flush = [&] {
    for (std::size_t at = 0; at < run.size(); at += piece) {
      cut.push_back(tokenizer.encode(std::string_view(run).substr(at, piece), Specials::none));
    }
    run.clear();
  };
  for (const auto& step : steps) {
    if (tokenizer.kind(step[0]) == TokenKind::normal) {
      run += tokenizer.bytes(step[0]);
    } else {
      flush();
      cut.push_back(step);
    }
  }
  flush();
  return cut;
}

Result<Script> read_script(const json::value& value, const std::string& place,
                           const Tokenizer& tokenizer) {
  STRATA_ASSIGN(const json::object* object, json_object(value, place));
  constexpr std::string_view kMembers[] = {"text",    "match",  "piece", "wait_ms",
                                           "pace_ms", "finish", "error", "repeat",
                                           "cached",  "crash",  "reads", "answer"};
  for (const auto& [key, member] : *object) {
    if (std::find(std::begin(kMembers), std::end(kMembers), std::string_view(key)) ==
        std::end(kMembers)) {
      return fail(ErrorCode::invalid_argument, "{}: unknown member '{}'", place,
                  std::string_view(key));
    }
  }
  Script script;
  STRATA_ASSIGN(const auto text, find_string(*object, "text", place));
  STRATA_ASSIGN(const auto answer, find_string(*object, "answer", place));
  STRATA_ASSIGN(const auto match, find_string(*object, "match", place));
  STRATA_ASSIGN(const auto piece, find_uint(*object, "piece", place));
  STRATA_ASSIGN(const auto wait, find_uint(*object, "wait_ms", place));
  STRATA_ASSIGN(const auto pace, find_uint(*object, "pace_ms", place));
  STRATA_ASSIGN(const auto finish, find_string(*object, "finish", place));
  STRATA_ASSIGN(const auto error, find_string(*object, "error", place));
  STRATA_ASSIGN(const auto repeat, find_bool(*object, "repeat", place));
  STRATA_ASSIGN(const auto crash, find_bool(*object, "crash", place));
  STRATA_ASSIGN(const auto cached, find_uint(*object, "cached", place));
  STRATA_ASSIGN(const auto reads, find_uint(*object, "reads", place));
  if (std::max(wait.value_or(0), pace.value_or(0)) > kLongestWait ||
      cached.value_or(0) > UINT32_MAX) {
    return fail(ErrorCode::invalid_argument, "{}: a wait of more than an hour", place);
  }
  script.match = match.value_or("");
  script.wait = milliseconds(wait.value_or(0));
  script.pace = milliseconds(pace.value_or(0));
  script.error = error.value_or("the script says so");
  script.repeat = repeat.value_or(false);
  script.crash = crash.value_or(false);
  script.cached = static_cast<std::uint32_t>(cached.value_or(0));
  script.reads = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(reads.value_or(1), 1, 1000));
  const std::string reason = finish.value_or("stop");
  if (reason == "length") {
    script.finish = FinishReason::length;
  } else if (reason == "error") {
    script.finish = FinishReason::error;
  } else if (reason != "stop") {
    return fail(ErrorCode::invalid_argument, "{}: 'finish' must be stop, length or error", place);
  }
  script.steps = steps_of(text.value_or(""), piece.value_or(0), tokenizer);
  script.answer = steps_of(answer.value_or(""), piece.value_or(0), tokenizer);
  return script;
}

// A request while it is played.
struct Play {
  Request request;
  std::string prompt;  // as text
  std::shared_ptr<Listener> listener;
  const Script* script = nullptr;
  const Steps* steps = nullptr;  // of it
  std::size_t step = 0;
  AnswerWatch watch;
  std::uint32_t limit = 0;
  Completion done;
  Clock::time_point submitted, due;
  std::uint32_t reads = 0;  // parts of the prompt that were read
  bool cancelled = false;
};

class ScriptedEngine final : public Engine {
 public:
  ScriptedEngine(GgufModel model, Tokenizer tokenizer, EngineFacts facts,
                 const ScriptedOptions& options, std::vector<Script> scripts)
      : model_(std::move(model)),
        tokenizer_(std::move(tokenizer)),
        facts_(std::move(facts)),
        options_(options),
        scripts_(std::move(scripts)),
        worker_([this] { work(); }) {}
  ~ScriptedEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    worker_.join();
  }

  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) override {
    if (!listener) return fail(ErrorCode::invalid_argument, "a request needs a listener");
    STRATA_TRY(check_request(request, facts_));
    auto play = std::make_unique<Play>();
    const std::size_t size = request.prompt.size();
    play->limit = request.max_tokens > 0 ? request.max_tokens
                                         : facts_.context - static_cast<std::uint32_t>(size);
    play->prompt = tokenizer_.decode(request.prompt);
    play->done.prompt_tokens = static_cast<std::uint32_t>(size);
    play->watch = AnswerWatch(request, tokenizer_);
    play->request = std::move(request);
    play->listener = std::move(listener);
    play->submitted = Clock::now();
    RequestId id = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return fail(ErrorCode::unavailable, "the engine is stopping");
      if (waiting_.size() >= options_.queue_limit) {
        return fail(ErrorCode::exhausted, "{} requests wait already (queue limit); try again later",
                    waiting_.size());
      }
      play->script = choose(play->prompt);
      play->steps = &play->script->steps;
      id = ++last_id_;
      waiting_.emplace_back(id, std::move(play));
    }
    wake_.notify_all();
    return id;
  }
  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    if (const auto at = running_.find(id); at != running_.end()) {
      at->second->cancelled = true;
      at->second->due = Clock::now();
    }
    for (auto& [waiting, play] : waiting_) play->cancelled |= waiting == id;
    wake_.notify_all();
  }
  const EngineFacts& facts() const override { return facts_; }
  EngineCounters counters() const override {
    const std::lock_guard lock(mutex_);
    EngineCounters counters = counters_;
    counters.running = static_cast<std::uint32_t>(running_.size());
    counters.waiting = static_cast<std::uint32_t>(waiting_.size());
    return counters;
  }
  const Metadata& metadata() const override { return model_.metadata; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }

 private:
  const Script* choose(const std::string& prompt) {
    for (const Script& script : scripts_) {
      if (!script.match.empty() && prompt.find(script.match) != std::string::npos) return &script;
    }
    const Script* last = &scripts_.back();
    std::size_t index = 0;
    for (const Script& script : scripts_) {
      if (!script.match.empty()) continue;
      last = &script;
      if (index++ == turn_) {
        ++turn_;
        return last;
      }
    }
    return last;
  }
  void work();
  void admit();
  bool advance(Play& play);  // false: it is over
  static bool write(Play& play, TokenId id);
  bool write_forced(Play& play);

  GgufModel model_;
  Tokenizer tokenizer_;
  EngineFacts facts_;
  ScriptedOptions options_;
  std::vector<Script> scripts_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::pair<RequestId, std::unique_ptr<Play>>> waiting_;
  std::map<RequestId, std::unique_ptr<Play>> running_;
  EngineCounters counters_;
  RequestId last_id_ = 0;
  std::size_t turn_ = 0;
  bool stopping_ = false;
  std::thread worker_;
};

void ScriptedEngine::admit() {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const bool place = running_.size() < options_.parallel;
    if (!place && !at->second->cancelled) {
      ++at;
      continue;
    }
    Play& play = *at->second;
    play.due = Clock::now() + (play.cancelled ? milliseconds(0) : play.script->wait);
    play.done.queue_seconds = std::chrono::duration<double>(Clock::now() - play.submitted).count();
    running_[at->first] = std::move(at->second);
    at = waiting_.erase(at);
  }
}

void ScriptedEngine::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    admit();
    auto next = Clock::time_point::max();
    std::vector<std::pair<RequestId, Play*>> due;
    const auto now = Clock::now();
    for (auto& [id, play] : running_) {
      if (play->due <= now) {
        due.emplace_back(id, play.get());
      } else {
        next = std::min(next, play->due);
      }
    }
    if (due.empty()) {
      if (next == Clock::time_point::max()) {
        wake_.wait(lock);
      } else {
        wake_.wait_until(lock, next);
      }
      continue;
    }
    for (const auto& [id, play] : due) {
      lock.unlock();
      const bool more = advance(*play);
      lock.lock();
      if (more) continue;
      ++counters_.requests;
      counters_.prompt_tokens += play->done.prompt_tokens;
      counters_.generated_tokens += play->done.generated_tokens;
      const auto owned = running_.extract(id);
      lock.unlock();
      play->listener->finished(play->done);
      lock.lock();
    }
  }
  for (auto& [id, play] : waiting_) running_[id] = std::move(play);
  waiting_.clear();
  auto left = std::move(running_);
  lock.unlock();
  for (auto& [id, play] : left) {
    play->done.reason = FinishReason::cancelled;
    play->listener->finished(play->done);
  }
}

bool ScriptedEngine::advance(Play& play) {
  {
    const std::lock_guard lock(mutex_);
    if (play.cancelled) {
      play.done.reason = FinishReason::cancelled;
      return false;
    }
  }
  const Script& script = *play.script;
  if (play.reads < script.reads) {
    const std::uint32_t total = play.done.prompt_tokens;
    play.done.cached_tokens = std::min(script.cached, total - 1);
    if (play.reads++ == 0) play.listener->started(play.done.cached_tokens);
    play.listener->progress(
        static_cast<std::uint32_t>(std::uint64_t{total} * play.reads / script.reads), total);
    if (play.reads < script.reads) {
      play.due += script.wait;
      return true;
    }
  }
  if (script.crash && play.step == play.steps->size() / 2) std::_Exit(70);
  if (play.step < play.steps->size()) {
    for (const TokenId id : (*play.steps)[play.step]) {
      if (!write(play, id)) return false;
      if (!play.watch.forced().empty()) return write_forced(play);
    }
    ++play.step;
  }
  const bool again = script.repeat && play.steps == &script.steps && !script.steps.empty();
  if (again && play.step == play.steps->size()) play.step = 0;
  // From the time it was due, not from now: a pace does not drift.
  play.due = std::max(play.due + script.pace, script.pace.count() > 0 ? play.due : Clock::now());
  if (play.step < play.steps->size()) return true;
  play.done.reason = script.finish;
  if (script.finish == FinishReason::error) play.done.error = {ErrorCode::internal, script.error};
  const auto& stops = play.request.stop_ids;
  if (script.finish != FinishReason::stop || stops.empty()) return false;
  return write(play, stops.front()) && write_forced(play);
}

// What stands in the script, or what has to be written in its place; false at the answer's end.
bool ScriptedEngine::write(Play& play, TokenId id) {
  const auto step = play.watch.step([&] { return id; }, play.limit - play.done.generated_tokens);
  play.done.thinking_cut = play.watch.thinking_cut();
  play.done.stopped_by = play.watch.stopped_by();
  if (step.token) {
    if (play.request.logprobs)
      play.listener->chances({{*step.token, -0.5f}, {{*step.token, -0.5f}}});
    play.listener->token(*step.token);
    play.listener->window_over();
    ++play.done.generated_tokens;
  }
  if (step.end) play.done.reason = *step.end;
  return !step.end;
}

// The end of the thinking; then the script's answer.
bool ScriptedEngine::write_forced(Play& play) {
  while (!play.watch.forced().empty())
    if (!write(play, play.watch.forced().front())) return false;
  play.steps = &play.script->answer;
  play.step = 0;
  return true;
}

EngineFacts facts_of(const GgufModel& model, const Tokenizer& tokenizer,
                     const ScriptedOptions& options) {
  const Metadata& m = model.metadata;
  EngineFacts facts;
  facts.model_name = m.string("general.name").value_or("scripted");
  facts.architecture = m.string("general.architecture").value_or("qwen4exp");
  facts.model_path = options.model_path;
  const std::string key = facts.architecture + ".context_length";
  const auto own = static_cast<std::uint64_t>(
      std::max<std::int64_t>(16, m.integer(key).value_or(kDefaultContext)));
  facts.context = static_cast<std::uint32_t>(
      options.context > 0 ? options.context : std::min<std::uint64_t>(own, UINT32_MAX));
  facts.vocabulary = static_cast<std::uint32_t>(tokenizer.size());
  facts.parallel = options.parallel;
  facts.isa = "scripted";
  for (const char* literal : {"<|im_end|>", "<|endoftext|>"}) {
    if (const auto id = tokenizer.special(literal)) facts.stop_ids.push_back(*id);
  }
  return facts;
}

}  // namespace

Result<std::unique_ptr<Engine>> open_scripted_engine(FileSystem& files,
                                                     const ScriptedOptions& options,
                                                     std::string_view script) {
  STRATA_ASSIGN(GgufModel model, open_gguf(files, options.model_path));
  STRATA_ASSIGN(Tokenizer tokenizer, Tokenizer::from_gguf(model.metadata));
  STRATA_ASSIGN(const json::value root, parse_written_json(script, "the script"));
  STRATA_ASSIGN(const json::object* object, json_object(root, "the script"));
  STRATA_ASSIGN(const json::array* list,
                required(find_array(*object, "scripts", "the script"), "scripts", "the script"));
  if (list->empty()) return fail(ErrorCode::invalid_argument, "the script holds no scripts");
  std::vector<Script> scripts;
  for (std::size_t i = 0; i < list->size(); ++i) {
    STRATA_ASSIGN(Script one, read_script((*list)[i], fmt::format("'scripts[{}]' of the script", i),
                                          tokenizer));
    scripts.push_back(std::move(one));
  }
  EngineFacts facts = facts_of(model, tokenizer, options);
  return std::make_unique<ScriptedEngine>(std::move(model), std::move(tokenizer), std::move(facts),
                                          options, std::move(scripts));
}

}  // namespace strata
