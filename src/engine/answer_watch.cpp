#include "engine/answer_watch.h"

#include <algorithm>

namespace strata {
namespace {

// Bytes that a character whose first byte this is still needs; 0 for what begins none.
std::uint32_t needed_after(unsigned char byte) {
  if (byte >= 0xF0) return 3;
  if (byte >= 0xE0) return 2;
  return byte >= 0xC0 ? 1 : 0;
}

bool all_spaces(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

AnswerWatch::AnswerWatch(const Request& request, const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer),
      stop_ids_(request.stop_ids),
      limit_(request.thinking.value_or(ThinkingLimit())),
      repeat_limit_(request.repeat_limit),
      loop_guard_(request.loop_guard),
      inside_(limit_.begun) {}

std::span<const TokenId> AnswerWatch::forced() const {
  return std::span(forced_).subspan(written_);
}

bool AnswerWatch::stops(TokenId id) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end();
}

// A call at the end of the thinking is an answer; so is whatever stands outside of it.
bool AnswerWatch::may_stop() const {
  return limit_.closing.empty() || !inside_ || called_ || answered_ || cut_ != ThinkingCut::none;
}

AnswerWatch::Step AnswerWatch::step(const std::function<TokenId()>& pick, std::uint32_t room) {
  std::optional<TokenId> picked;
  if (forced().empty()) {
    picked = pick();
    if (stops(*picked)) {
      if (may_stop()) return {{}, FinishReason::stop};
      cut_ = ThinkingCut::stop;
      forced_ = limit_.closing;
    }
  }
  if (!forced().empty() && !asked_for_room_) {
    asked_for_room_ = true;
    // Without room for an answer behind it the wrap-up is of no use.
    if (room <= forced_.size()) return {{}, FinishReason::length};
  }
  const TokenId id = forced().empty() ? *picked : forced().front();
  wrote(id);
  Step step{id, {}};
  if (room == 1 || stopped_ != StoppedBy::none) step.end = FinishReason::length;
  return step;
}

void AnswerWatch::wrote(TokenId id) {
  repeated_ = id == last_ ? repeated_ + 1 : 1;
  last_ = id;
  if (repeat_limit_ > 0 && repeated_ >= repeat_limit_) stopped_ = StoppedBy::repeat;
  const bool was_inside = inside_;
  if (id == limit_.open) inside_ = true;
  if (id == limit_.close) inside_ = false;
  if (id == limit_.call_open) in_call_ = true;
  const std::string_view bytes = tokenizer_->bytes(id);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = (byte & 0xC0) == 0x80;
    missing_ = continues ? missing_ - std::min(missing_, 1u) : needed_after(byte);
  }
  if (!inside_ && !was_inside && !all_spaces(bytes)) answered_ = true;
  if (written_ < forced_.size()) {
    ++written_;
  } else if (inside_) {
    count_thinking(id);
  }
  if (inside_ != was_inside) loops_.restart();
  look_for_loops(id);
  if (id == limit_.call_close) in_call_ = false;
}

void AnswerWatch::count_thinking(TokenId id) {
  ++tokens_;
  if (id == limit_.call_close) {
    called_ = true;
    in_call_ = false;
  } else if (!all_spaces(tokenizer_->bytes(id))) {
    called_ = false;
  }
  const bool clean = !in_call_ && missing_ == 0;
  if (limit_.budget == 0 || tokens_ < limit_.budget || !clean || cut_ != ThinkingCut::none) return;
  cut_ = ThinkingCut::budget;
  forced_ = limit_.wrap_up;
}

// Thinking and answer each for themselves; calls may repeat what they like.
void AnswerWatch::look_for_loops(TokenId id) {
  if (loop_guard_ == LoopGuard::off || written_ < forced_.size()) return;
  if (in_call_ || id == limit_.call_close) return;
  loops_.add(tokenizer_->bytes(id));
  if (missing_ > 0 || !loops_.looping()) return;
  loops_.restart();
  const bool recovers = loop_guard_ == LoopGuard::recover && inside_ && cut_ == ThinkingCut::none &&
                        !limit_.wrap_up.empty();
  if (!recovers) {
    stopped_ = StoppedBy::loop;
    return;
  }
  cut_ = ThinkingCut::loop;
  forced_ = limit_.wrap_up;
}

}  // namespace strata
