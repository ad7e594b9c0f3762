#include "engine/scheduler.h"

#include <algorithm>

namespace strata {

Job* Scheduler::next_waiting() {
  if (running_.size() >= parallel_) return nullptr;
  const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                  [](const auto& job) { return job->has_grammar(); });
  return first == waiting_.end() ? nullptr : first->get();
}

void Scheduler::start(const Job& job) {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const auto& other) { return other.get() == &job; });
  running_.push_back(std::move(*at));
  waiting_.erase(at);
}

Job* Scheduler::find(RequestId id) {
  for (const auto& job : running_)
    if (job->id == id) return job.get();
  for (const auto& job : waiting_)
    if (job->id == id) return job.get();
  return nullptr;
}

// Of a prompt, if the window has room for so many.
std::uint32_t Scheduler::rows_of(const Job& job, std::uint32_t room) const {
  if (job.request.prompt_logprobs) room = std::min(room, kScoredChunk);
  const auto cut = std::upper_bound(job.cuts.begin(), job.cuts.end(), job.read);
  const std::uint32_t end = cut == job.cuts.end() ? job.prompt : *cut;
  const std::uint32_t left = end - job.read;
  // The checkpoint before the tail is taken out of a window that begins before it.
  const bool splits_tail = end == job.prompt && left > room && left - room <= job.tail;
  if (splits_tail && left > job.tail + 1) room = left - job.tail - 1;
  return std::min(room, left);
}

std::vector<Scheduler::Slice> Scheduler::next_window() {
  std::vector<Slice> window;
  for (const auto& job : running_)
    if (!job->loading && job->decoding()) window.push_back({job.get(), 1, true});
  const std::size_t decoding = window.size();
  if (window.empty() || decode_credit_ <= 0) add_prompts(window);
  prompt_window_ = window.size() > decoding;
  return window;
}

void Scheduler::add_prompts(std::vector<Slice>& window) {
  std::vector<Job*> shorts;
  Job* turn = nullptr;  // the long one after the one that had the last turn, in order of id
  for (const auto& job : running_) {
    if (job->loading || job->decoding()) continue;
    if (!job->is_long) job->is_long = job->prompt - job->read > prompt_chunk_;
    if (!*job->is_long) {
      shorts.push_back(job.get());
    } else if (!turn || (turn->id <= last_long_ && job->id > last_long_)) {
      turn = job.get();
    }
  }
  std::uint32_t room = prompt_chunk_;
  const auto add = [&](Job* job) {
    const std::uint32_t rows = rows_of(*job, room);
    room -= rows;
    const bool last = job->read + rows == job->prompt;
    window.push_back({job, rows, false, last, last && rows > job->tail ? job->tail : 0});
  };
  if (turn && (long_turn_ || shorts.empty())) {
    last_long_ = turn->id;
    long_turn_ = false;
    add(turn);
  } else {
    long_turn_ = turn != nullptr;
  }
  for (Job* job : shorts)
    if (room > 0) add(job);
}

void Scheduler::took(double seconds) {
  const bool somebody_decodes = std::any_of(running_.begin(), running_.end(),
                                            [](const auto& job) { return job->decoding(); });
  if (prompt_window_) {
    decode_credit_ = somebody_decodes ? kDecodeShare * seconds : 0;
  } else {
    decode_credit_ -= seconds;
  }
}

std::unique_ptr<Job> Scheduler::remove(RequestId id) {
  const auto is = [&](const std::unique_ptr<Job>& job) { return job->id == id; };
  if (auto at = std::find_if(running_.begin(), running_.end(), is); at != running_.end()) {
    auto job = std::move(*at);
    running_.erase(at);
    return job;
  }
  if (auto at = std::find_if(waiting_.begin(), waiting_.end(), is); at != waiting_.end()) {
    auto job = std::move(*at);
    waiting_.erase(at);
    return job;
  }
  return nullptr;
}

std::vector<std::unique_ptr<Job>> Scheduler::remove_all() {
  std::vector<std::unique_ptr<Job>> all = std::move(running_);
  for (auto& job : waiting_) all.push_back(std::move(job));
  running_.clear();
  waiting_.clear();
  return all;
}

std::vector<RequestId> Scheduler::cancelled() const {
  std::vector<RequestId> ids;
  for (const auto& job : running_)
    if (job->cancelled) ids.push_back(job->id);
  for (const auto& job : waiting_)
    if (job->cancelled) ids.push_back(job->id);
  return ids;
}

}  // namespace strata
