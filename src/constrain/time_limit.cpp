#include "constrain/time_limit.h"

namespace strata::constrain {
namespace {

using Clock = std::chrono::steady_clock;

thread_local TimeLimit* innermost = nullptr;
constexpr std::uint32_t kAskClock = 256;  // every so often

}  // namespace

TimeLimit::TimeLimit(double seconds)
    : end_(Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))),
      seconds_(seconds),
      outer_(innermost) {
  if (outer_ != nullptr && outer_->end_ < end_) {
    end_ = outer_->end_;
    seconds_ = outer_->seconds_;
    passed_ = outer_->passed_;
  }
  innermost = this;
}

TimeLimit::~TimeLimit() {
  innermost = outer_;
  if (outer_ != nullptr && passed_ && outer_->end_ == end_) outer_->passed_ = true;
}

TimeLimit::Exempt::Exempt() : limit_(innermost) {
  innermost = nullptr;
}

TimeLimit::Exempt::~Exempt() {
  innermost = limit_;
}

bool TimeLimit::over() {
  TimeLimit* const it = innermost;
  if (it == nullptr || it->passed_) return it != nullptr;
  if (++it->asked_ % kAskClock == 0) it->passed_ = Clock::now() >= it->end_;
  return it->passed_;
}

Status TimeLimit::check() {
  if (!over()) return {};
  return fail(ErrorCode::exhausted,
              "the constraint takes more than {} s to compile; make it smaller",
              innermost->seconds_);
}

}  // namespace strata::constrain
