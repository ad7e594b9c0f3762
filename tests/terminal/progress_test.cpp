// The progress line: what it says, what goes when there is no room, when it is written.
#include "terminal/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "terminal/text.h"

namespace strata::terminal {
namespace {

Stage stage() {
  return {.what = "reading the weights",
          .unit = Unit::bytes,
          .done = 2'500'000'000,
          .all = 6'100'000'000,
          .seconds = 2,
          .note = {}};
}

TEST(ProgressLine, SaysAmountRateAndTimeLeft) {
  EXPECT_EQ(
      progress_line(stage(), 100),
      "reading the weights  [########............]  41 %  2.50 of 6.10 GB  1.25 GB/s  0:03 left");
  Stage s{.what = "reading the prompt",
          .unit = Unit::tokens,
          .done = 1500,
          .all = 3000,
          .first = 500,
          .seconds = 10,
          .note = {}};
  EXPECT_EQ(progress_line(s, 100),
            "reading the prompt  [##########..........]  50 %  1500 of 3000 tokens  100 tokens/s  "
            "0:15 left");
  s = {.what = "converting", .done = 3, .all = 4, .seconds = 7200, .note = "blk.0\x1b[2J"};
  EXPECT_EQ(progress_line(s, 100),
            "converting  [###############.....]  75 %  3 of 4  40:00 left  blk.0␛[2J");
  s = {.what = "thinking", .unit = Unit::tokens, .done = 7, .all = 0, .seconds = 0, .note = {}};
  EXPECT_EQ(progress_line(s, 100), "thinking  7 tokens");
}

TEST(ProgressLine, WhatHasNoRoomIsLeftOut) {
  EXPECT_EQ(progress_line(stage(), 70),
            "reading the weights  41 %  2.50 of 6.10 GB  1.25 GB/s  0:03 left");
  EXPECT_EQ(progress_line(stage(), 36), "reading the weights  41 %  0:03 left");
  EXPECT_EQ(progress_line(stage(), 20), "reading the weights");
  for (int columns = 0; columns < 120; ++columns)
    EXPECT_LE(width_of(progress_line(stage(), columns)), columns);
}

struct Fake {
  double now = 100;
  std::string written;
  Progress::Output output() {
    return {.write = [this](std::string_view text) { written += text; },
            .columns = [] { return 60; },
            .clock = [this] { return now; }};
  }
};

TEST(Progress, ShortJobsShowNothing) {
  Fake fake;
  {
    Progress progress(fake.output(), "job", Unit::items);
    progress.update(1, 3);
    fake.now += 0.2;
    progress.update(3, 3);
  }
  EXPECT_EQ(fake.written, "");
}

TEST(Progress, LongOnesAreWrittenOverAndTakenAway) {
  Fake fake;
  {
    Progress progress(fake.output(), "job", Unit::items);
    progress.update(1, 10);
    fake.now += 0.4;
    progress.update(2, 10);
    const std::string first = fake.written;
    EXPECT_THAT(first, testing::StartsWith("\r\x1b[Kjob"));
    fake.now += 0.01;
    progress.update(3, 10);
    EXPECT_EQ(fake.written, first);  // not so often
    fake.now += 0.2;
    progress.update(4, 10);
    EXPECT_THAT(fake.written.substr(first.size()), testing::HasSubstr("40 %"));
    progress.next("other");
    progress.update(0, 2);
    fake.now += 0.2;
    progress.update(1, 2);
    EXPECT_THAT(fake.written, testing::HasSubstr("\r\x1b[Kother"));
  }
  EXPECT_TRUE(fake.written.ends_with("\r\x1b[K"));
  EXPECT_EQ(fake.written.find('\n'), std::string::npos);
}

TEST(Progress, MayBeCalledFromManyThreads) {
  Fake fake;
  Progress progress(fake.output(), "job", Unit::bytes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 1000; ++i) progress.update(i, 1000);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake.written, "");
}

}  // namespace
}  // namespace strata::terminal
