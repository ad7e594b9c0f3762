#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

std::unique_ptr<Job> job(RequestId id, std::size_t prompt) {
  auto made = std::make_unique<Job>();
  made->id = id;
  made->request.prompt.assign(prompt, 1);
  return made;
}

// What run_window does to the jobs of a window.
std::vector<std::pair<RequestId, std::uint32_t>> step(Scheduler& scheduler) {
  std::vector<std::pair<RequestId, std::uint32_t>> ids;
  for (const Scheduler::Slice& slice : scheduler.next_window()) {
    ids.emplace_back(slice.job->id, slice.tokens);
    if (!slice.job->decoding()) slice.job->read += slice.tokens;
  }
  return ids;
}

using Window = std::vector<std::pair<RequestId, std::uint32_t>>;

TEST(Scheduler, AdmitsInOrderUpToTheLimit) {
  Scheduler scheduler(2, 10);
  for (RequestId id = 1; id <= 4; ++id) scheduler.add(job(id, 5));
  EXPECT_EQ(scheduler.admit()->id, 1u);
  EXPECT_EQ(scheduler.admit()->id, 2u);
  EXPECT_EQ(scheduler.admit(), nullptr);
  scheduler.remove(2);
  EXPECT_EQ(scheduler.admit()->id, 3u);
  EXPECT_EQ(scheduler.waiting(), 1u);
  EXPECT_EQ(scheduler.running(), 2u);
}

TEST(Scheduler, PromptsTakeTurnsAndDecodingNeverWaits) {
  Scheduler scheduler(4, 10);
  scheduler.add(job(1, 3));
  scheduler.add(job(2, 1000));
  scheduler.add(job(3, 25));
  while (scheduler.admit()) {
  }
  EXPECT_EQ(step(scheduler), (Window{{1, 3}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {2, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {3, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {2, 10}}));
  // A short prompt that arrives now is read within the next two chunks.
  scheduler.add(job(4, 4));
  ASSERT_TRUE(scheduler.admit());
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {3, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {4, 4}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {4, 1}, {2, 10}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {4, 1}, {3, 5}}));
  EXPECT_EQ(step(scheduler), (Window{{1, 1}, {3, 1}, {4, 1}, {2, 10}}));
}

}  // namespace
}  // namespace strata
