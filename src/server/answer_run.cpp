#include "server/answer_run.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "server/service.h"

namespace strata::server {

using chat::OutputEvent;
using Kind = chat::OutputEvent::Kind;

AnswerRun::AnswerRun(Engine& engine, RunOptions options, Executor executor,
                     std::shared_ptr<ChatObserver> observer)
    : engine_(engine),
      stops_(std::move(options.stops)),
      one_call_(options.one_call),
      take_place_(std::move(options.take_place)),
      on_end_(std::move(options.on_end)),
      times_(options.times != nullptr ? std::move(options.times) : std::make_shared<AnswerTimes>()),
      asked_(monotonic_seconds()),
      executor_(std::move(executor)),
      observer_(std::move(observer)) {
  if (options.parser) {
    seen_thinking_ = options.parser->starts_in_thinking;
    parser_.emplace(engine.tokenizer(), std::move(*options.parser));
  }
  result_.message.role = "assistant";
}

// The engine's thread ------------------------------------------------------------------------

void AnswerRun::queued(std::uint32_t ahead) {
  seen_ahead_ = ahead;
  seen_running_ = false;  // again, where an engine died
  executor_([self = shared_from_this(), ahead] {
    if (!self->over_) self->observer_->queued(ahead);
  });
}

void AnswerRun::started(std::uint32_t cached) {
  if (take_place_) {
    const std::lock_guard lock(place_mutex_);
    if (place_ == nullptr && !ended_) place_ = take_place_();
  }
  seen_cached_ = cached;
  seen_running_ = true;
  executor_([self = shared_from_this(), cached] {
    if (!self->over_) self->observer_->started(cached);
  });
}

void AnswerRun::progress(std::uint32_t read, std::uint32_t total) {
  const std::uint32_t before = std::max<std::uint32_t>(seen_read_, seen_cached_);
  if (read > before) times_->tokens_read += read - before;
  seen_read_ = read;
  seen_prompt_ = total;
  executor_([self = shared_from_this(), read, total] {
    self->begun_ = true;
    if (!self->over_) self->observer_->progress(read, total);
  });
}

void AnswerRun::prompt_chances(const TokenChances& chances) {
  executor_([self = shared_from_this(), chances] {
    if (!self->over_) self->result_.prompt_chances.push_back(chances);
  });
}

void AnswerRun::chances(const TokenChances& chances) {
  next_chances_ = chances;
}

void AnswerRun::token(TokenId id) {
  ++seen_generated_;
  ++times_->tokens_written;
  const double now = monotonic_seconds();
  if (last_token_ == 0) {
    first_token_ = now - asked_;
    times_->first_token.observe(now - asked_);
  } else {
    times_->between_tokens.observe(now - last_token_);
  }
  last_token_ = now;
  executor_([self = shared_from_this(), id, chances = std::exchange(next_chances_, {})]() mutable {
    self->take(id, std::move(chances));
  });
}

void AnswerRun::finished(const Completion& completion) {
  executor_([self = shared_from_this(), completion] { self->end(completion); });
}

// Any thread ---------------------------------------------------------------------------------

void AnswerRun::stop(bool waiting_only) {
  executor_([self = shared_from_this(), waiting_only] { self->end_by_server(waiting_only); });
}

AnswerRun::Sight AnswerRun::sight() const {
  const std::lock_guard lock(place_mutex_);
  return {id_,
          seen_prompt_,
          seen_read_,
          seen_generated_,
          seen_thinking_,
          seen_running_,
          seen_ahead_,
          seen_cached_,
          place_ == nullptr ? std::optional<std::size_t>() : place_->number()};
}

// The executor -------------------------------------------------------------------------------

void AnswerRun::mute() {
  over_ = true;
  (void)leave_place();
}

std::shared_ptr<const Slots::Place> AnswerRun::leave_place() {
  const std::lock_guard lock(place_mutex_);
  ended_ = true;
  return std::exchange(place_, nullptr);
}

std::vector<OutputEvent> AnswerRun::events_of(TokenId id) {
  if (parser_) return parser_->feed(id);
  const Tokenizer& tokenizer = engine_.tokenizer();
  if (tokenizer.kind(id) == TokenKind::control) return {};
  std::string text = plain_.feed(tokenizer.bytes(id));
  if (text.empty()) return {};
  return {OutputEvent{Kind::content, 0, {}, {}, std::move(text)}};
}

std::vector<OutputEvent> AnswerRun::last_events(bool complete) {
  if (parser_) return parser_->finish(complete);
  std::string text = plain_.flush();
  if (text.empty()) return {};
  return {OutputEvent{Kind::content, 0, {}, {}, std::move(text)}};
}

void AnswerRun::take(TokenId id, std::optional<TokenChances> chances) {
  begun_ = true;
  if (over_ || cut()) return;  // cut: tokens of the window in which the answer ended
  ++result_.completion_tokens;
  result_.ids.push_back(id);
  if (parser_ && parser_->in_thinking()) ++result_.reasoning_tokens;
  if (chances) {
    observer_->chances(*chances);
    result_.chances.push_back(std::move(*chances));
  }
  for (const OutputEvent& event : events_of(id)) filter(event);
  if (parser_) seen_thinking_ = parser_->in_thinking();
  if (cut()) engine_.cancel(id_);
}

void AnswerRun::filter(const OutputEvent& event) {
  if (cut()) return;
  if (event.kind == Kind::content) return emit_content(stops_.feed(event.text));
  emit_content(stops_.flush());
  emit(event);
}

void AnswerRun::emit_content(std::string text) {
  if (text.empty()) return;
  OutputEvent event;
  event.kind = Kind::content;
  event.text = std::move(text);
  emit(event);
}

void AnswerRun::emit(const OutputEvent& event) {
  chat::Message& message = result_.message;
  switch (event.kind) {
    case Kind::reasoning:
      message.reasoning_content += event.text;
      break;
    case Kind::content:
      message.content += event.text;
      break;
    case Kind::tool_call_begin:
      message.tool_calls.push_back({event.id, event.name, boost::json::string()});
      complete_.push_back(false);
      break;
    case Kind::tool_arguments:
      if (event.index < message.tool_calls.size()) {
        message.tool_calls[event.index].arguments.as_string() += event.text;
      }
      break;
    case Kind::tool_call_end:
      if (event.index < complete_.size()) complete_[event.index] = true;
      called_ = one_call_;
      break;
  }
  observer_->event(event);
}

void AnswerRun::drop_cut_calls() {
  auto& calls = result_.message.tool_calls;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!complete_[i]) continue;
    if (kept != i) calls[kept] = std::move(calls[i]);
    ++kept;
  }
  calls.resize(kept);
}

void AnswerRun::report() {
  over_ = true;
  result_.whole_seconds = monotonic_seconds() - asked_;
  if (const double first = first_token_; first > 0) result_.first_token_seconds = first;
  const auto place = leave_place();
  if (on_end_) on_end_(result_, place.get());
  observer_->finished(result_);
}

void AnswerRun::end_by_server(bool waiting_only) {
  if (over_ || (waiting_only && begun_)) return;
  engine_.cancel(id_);
  drop_cut_calls();
  result_.finish = ChatFinish::error;
  result_.error = {ErrorCode::unavailable, std::string(kStopping)};
  log_info("answer {}: {} because the server stops", id_.load(), begun_ ? "cut" : "not begun");
  report();
}

void AnswerRun::end(const Completion& completion) {
  if (over_) return;
  const bool natural = completion.reason == FinishReason::stop;
  if (!cut()) {
    for (const OutputEvent& event : last_events(natural)) filter(event);
    if (!cut()) emit_content(stops_.flush());
  }
  const bool all_calls_whole =
      std::find(complete_.begin(), complete_.end(), false) == complete_.end();
  const std::size_t announced = result_.message.tool_calls.size();
  drop_cut_calls();
  const chat::Message& message = result_.message;
  if (parser_) {
    result_.calls = parser_->counts();
    result_.calls.whole = message.tool_calls.size();
    result_.calls.cut = announced - message.tool_calls.size();
    result_.ended_in_thinking =
        parser_->in_thinking() && message.content.empty() && message.tool_calls.empty();
  }
  result_.thinking_cut = completion.thinking_cut;
  result_.stopped_by = completion.stopped_by;
  result_.stop_string = stops_.matched();
  result_.prompt_tokens = completion.prompt_tokens;
  result_.cached_tokens = completion.cached_tokens;
  result_.cached_disk_tokens = completion.cached_disk_tokens;
  result_.rounds = completion.rounds;
  result_.drafted = completion.drafted;
  result_.accepted = completion.accepted;
  result_.queue_seconds = completion.queue_seconds;
  result_.prompt_seconds = completion.prompt_seconds;
  result_.decode_seconds = completion.decode_seconds;
  if (called_) {
    result_.finish = ChatFinish::tool_calls;
  } else if (stops_.matched()) {
    result_.finish = ChatFinish::stop;
  } else if (completion.reason == FinishReason::error) {
    result_.finish = ChatFinish::error;
    result_.error = completion.error;
  } else if (completion.reason == FinishReason::cancelled) {
    result_.finish = ChatFinish::cancelled;
  } else if (completion.reason == FinishReason::length) {
    result_.finish = ChatFinish::length;
  } else {
    const bool calls = !result_.message.tool_calls.empty() && all_calls_whole;
    result_.finish = calls ? ChatFinish::tool_calls : ChatFinish::stop;
  }
  std::string guards;
  if (result_.thinking_cut != ThinkingCut::none)
    guards += fmt::format(", thinking ended ({})", to_string(result_.thinking_cut));
  if (result_.stopped_by != StoppedBy::none)
    guards += fmt::format(", stopped ({})", to_string(result_.stopped_by));
  if (result_.ended_in_thinking) guards += ", nothing but thinking";
  log_info(
      "answer {}: {} prompt tokens ({} cached) in {:.2f} s, {} generated in {:.2f} s ({} of {} "
      "drafts right), {}{}",
      id_.load(), result_.prompt_tokens, result_.cached_tokens, result_.prompt_seconds,
      result_.completion_tokens, result_.decode_seconds, result_.accepted, result_.drafted,
      to_string(completion.reason), guards);
  report();
}

}  // namespace strata::server
