#include "engine/scheduler.h"

#include <algorithm>

namespace strata {

Job* Scheduler::find(RequestId id) {
  for (const auto& job : running_)
    if (job->id == id) return job.get();
  for (const auto& job : waiting_)
    if (job->id == id) return job.get();
  return nullptr;
}

Job* Scheduler::admit() {
  if (waiting_.empty() || running_.size() >= parallel_) return nullptr;
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return running_.back().get();
}

std::vector<Scheduler::Slice> Scheduler::next_window() {
  std::vector<Slice> window;
  Job* prompt = nullptr;  // the first after the one that had the last turn, in cyclic order of id
  for (const auto& job : running_) {
    if (job->decoding()) {
      window.push_back({job.get(), 1});
    } else if (!prompt || (prompt->id <= last_prompt_ && job->id > last_prompt_)) {
      prompt = job.get();
    }
  }
  if (prompt) {
    last_prompt_ = prompt->id;
    const auto left = static_cast<std::uint32_t>(prompt->request.prompt.size()) - prompt->read;
    const std::uint32_t most =
        prompt->request.prompt_logprobs ? std::min(kScoredChunk, prompt_chunk_) : prompt_chunk_;
    window.push_back({prompt, std::min(left, most)});
  }
  return window;
}

std::uint32_t Scheduler::logit_rows(const Slice& slice) {
  const Job& job = *slice.job;
  if (job.decoding()) return 1;
  if (job.request.prompt_logprobs) return slice.tokens;
  return job.read + slice.tokens == job.request.prompt.size() ? 1 : 0;
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
