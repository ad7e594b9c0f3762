#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <random>

namespace strata {
namespace {

std::unique_ptr<Job> job(RequestId id, std::uint32_t prompt) {
  auto made = std::make_unique<Job>();
  made->id = id;
  made->prompt = prompt;
  return made;
}

using Window = std::vector<std::pair<RequestId, std::uint32_t>>;

// What the engine does to the jobs of a window.
Window step(Scheduler& scheduler, double seconds = 0) {
  Window ids;
  for (const Scheduler::Slice& slice : scheduler.next_window()) {
    ids.emplace_back(slice.job->id, slice.tokens);
    EXPECT_EQ(slice.decodes, slice.job->decoding());
    slice.job->read += slice.tokens;
    EXPECT_EQ(slice.ends_prompt, !slice.decodes && slice.job->decoding());
  }
  scheduler.took(seconds);
  return ids;
}

void start_all(Scheduler& scheduler) {
  while (const Job* job = scheduler.next_waiting()) scheduler.start(*job);
}

TEST(Scheduler, AdmitsInOrderUpToTheLimit) {
  Scheduler scheduler(2, 10);
  for (RequestId id = 1; id <= 4; ++id) scheduler.add(job(id, 5));
  EXPECT_EQ(scheduler.next_waiting()->id, 1u);
  EXPECT_EQ(scheduler.next_waiting()->id, 1u);  // until it is started
  start_all(scheduler);
  EXPECT_EQ(scheduler.running().size(), 2u);
  EXPECT_EQ(scheduler.next_waiting(), nullptr);
  scheduler.remove(2);
  EXPECT_EQ(scheduler.next_waiting()->id, 3u);
  scheduler.start(*scheduler.next_waiting());
  EXPECT_EQ(scheduler.waiting().size(), 1u);
  EXPECT_EQ(scheduler.running().size(), 2u);
}

TEST(Scheduler, ShortAndLongPromptsTakeTurnsAndDecodingNeverWaits) {
  Scheduler scheduler(5, 10);
  scheduler.add(job(1, 3));
  scheduler.add(job(2, 1000));
  scheduler.add(job(3, 45));
  start_all(scheduler);
  EXPECT_EQ(step(scheduler), (Window{{1, 3}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {2, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {3, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {2, 10}}));
  // Short prompts that arrive now: after one long chunk at most, as many as fit a chunk.
  scheduler.add(job(4, 4));
  scheduler.add(job(5, 7));
  start_all(scheduler);
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {4, 4}, {5, 6}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {4, 1}, {3, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {4, 1}, {5, 1}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {4, 1}, {5, 1}, {2, 10}}));
}

TEST(Scheduler, WindowsEndAtCutsAndBeginBeforeTails) {
  Scheduler scheduler(1, 10);
  auto cut = job(1, 33);
  cut->cuts = {4, 20};
  cut->tail = 3;
  scheduler.add(std::move(cut));
  start_all(scheduler);
  EXPECT_EQ(step(scheduler), (Window{{1, 4}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 6}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 9}}));  // 13 are left: the last window must hold 4
  const auto last = scheduler.next_window();
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].tokens, 4u);
  EXPECT_EQ(last[0].tail, 3u);
}

TEST(Scheduler, WhoDecodesGetsItsShareBetweenChunks) {
  Scheduler scheduler(2, 10);
  scheduler.add(job(1, 1));
  scheduler.add(job(2, 100));
  start_all(scheduler);
  step(scheduler);
  EXPECT_EQ(step(scheduler, 1.0), (Window{{1, 1}, {2, 10}}));
  // A quarter of that second, in windows of 0.1.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(scheduler, 0.1), (Window{{1, 1}})) << i;
  EXPECT_EQ(step(scheduler, 1.0), (Window{{1, 1}, {2, 10}}));
  scheduler.remove(1);  // nobody decodes any more
  EXPECT_EQ(step(scheduler, 1.0), (Window{{2, 10}}));
  EXPECT_EQ(step(scheduler, 1.0), (Window{{2, 10}}));
}

TEST(Scheduler, WhatWaitsForTheDiskIsLeftOut) {
  Scheduler scheduler(2, 10);
  scheduler.add(job(1, 5));
  start_all(scheduler);
  scheduler.running().front()->loading = true;
  EXPECT_TRUE(scheduler.next_window().empty());
  scheduler.running().front()->loading = false;
  EXPECT_EQ(step(scheduler), (Window{{1, 5}}));
}

// The bounds that the header states, under random arrivals.
TEST(Scheduler, ShortPromptsWaitTwoChunksAndLongOnesProgress) {
  std::mt19937 source(1);
  const auto random = [&] { return static_cast<std::uint32_t>(source()); };
  for (int round = 0; round < 50; ++round) {
    const std::uint32_t chunk = 5 + random() % 20;
    Scheduler scheduler(6, chunk);
    RequestId last = 0;
    std::map<RequestId, std::uint32_t> others;      // chunks read since a short one was admitted
    std::map<RequestId, std::uint32_t> since_long;  // windows since a long one had its turn
    for (int window = 0; window < 400; ++window) {
      if (random() % 4 == 0) {
        const bool is_long = random() % 3 == 0;
        scheduler.add(job(++last, is_long ? chunk * (2 + random() % 5) : 1 + random() % chunk));
      }
      std::uint32_t shorts_ahead = 0;
      for (const auto& running : scheduler.running())
        if (!running->decoding() && running->prompt <= chunk) ++shorts_ahead;
      while (Job* next = scheduler.next_waiting()) {
        const bool alone = shorts_ahead == 0;
        if (next->prompt <= chunk && alone) others[next->id] = 0;
        if (next->prompt <= chunk) ++shorts_ahead;
        scheduler.start(*next);
      }
      const auto slices = scheduler.next_window();
      for (const auto& running : scheduler.running()) {
        const bool is_long = !running->decoding() && running->prompt > chunk;
        const bool served = std::any_of(slices.begin(), slices.end(), [&](const auto& slice) {
          return slice.job == running.get() && slice.tokens > 1;
        });
        if (!is_long || served) {
          since_long[running->id] = 0;
        } else {
          EXPECT_LE(++since_long[running->id], 2 * 6) << "request " << running->id;
        }
      }
      std::vector<RequestId> done;
      for (const Scheduler::Slice& slice : slices) {
        slice.job->read += slice.tokens;
        if (slice.decodes && random() % 3 == 0) done.push_back(slice.job->id);
        if (slice.ends_prompt) others.erase(slice.job->id);
      }
      for (auto& [id, count] : others)
        if (!slices.empty()) {
          EXPECT_LE(++count, 2u) << "request " << id;
        }
      for (const RequestId id : done) scheduler.remove(id);
      scheduler.took(0);
    }
  }
}

}  // namespace
}  // namespace strata
