#include "base/read_queue.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/file.h"

namespace strata {
namespace {

using namespace std::chrono_literals;
using Method = ReadQueueOptions::Method;

Bytes random_bytes(std::size_t size) {
  std::mt19937_64 random(3);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

class ReadQueues : public testing::Test {
 protected:
  void SetUp() override {
    // Beside the program: a file system on a disk, which the folder for temporary files may not be.
    folder_ = std::filesystem::current_path() /
              fmt::format("read_queue_test.{}", static_cast<int>(::getpid()));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "file").string();
    content_ = random_bytes(40 * kReadPage + 1234);
    auto out = real_files().create(path_);
    ASSERT_TRUE(out && (*out)->write(content_) && (*out)->finish());
    memory_.put(path_, content_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<File> open(FileSystem& files) {
    auto file = files.open(path_);
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }

  // Reads the whole file page by page with all slots busy.
  void expect_whole(ReadQueue& queue) {
    const std::uint64_t pages = content_.size() / kReadPage + 1;
    std::map<std::uint32_t, std::uint64_t> page_of;
    std::uint64_t next = 0, seen = 0;
    for (std::uint32_t slot = 0; slot < queue.slots() && next < pages; ++slot, ++next) {
      page_of[slot] = next;
      queue.start(slot, next * kReadPage, kReadPage);
    }
    while (seen < pages) {
      for (const ReadQueue::Done& done : queue.wait(10s)) {
        const std::uint64_t page = page_of[done.slot];
        const auto expected = std::span(content_)
                                  .subspan(page * kReadPage)
                                  .first(std::min(kReadPage, content_.size() - page * kReadPage));
        ASSERT_EQ(done.result, static_cast<std::int32_t>(expected.size())) << "page " << page;
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), queue.buffer(done.slot).begin()));
        ++seen;
        if (next == pages) continue;
        page_of[done.slot] = next;
        queue.start(done.slot, next++ * kReadPage, kReadPage);
      }
    }
  }

  std::filesystem::path folder_;
  std::string path_;
  Bytes content_;
  MemoryFileSystem memory_;
};

TEST_F(ReadQueues, GiveTheFilesBytes) {
  for (const std::uint32_t depth : {1u, 2u, 7u, 64u}) {
    for (const Method method : {Method::ring, Method::threads}) {
      for (const bool direct : {true, false}) {
        const auto file = open(real_files());
        const auto queue = file->queue_reads({method, direct, depth, 0, kReadPage});
        if (!queue && queue.error().code == ErrorCode::unsupported) continue;
        ASSERT_TRUE(queue) << queue.error().message;
        SCOPED_TRACE((*queue)->description());
        expect_whole(**queue);
      }
    }
    const auto file = open(memory_);
    const auto queue = file->queue_reads({Method::ring, true, depth, 0, kReadPage});
    ASSERT_TRUE(queue);
    expect_whole(**queue);
  }
}

TEST_F(ReadQueues, ReportErrnoAndTheEndOfTheFile) {
  for (const Method method : {Method::ring, Method::threads}) {
    const auto file = open(real_files());
    const auto queue = file->queue_reads({method, false, 2, 0, kReadPage});
    if (!queue) continue;
    (*queue)->start(0, 1ull << 40, kReadPage);
    const auto behind = (*queue)->wait(10s);
    ASSERT_EQ(behind.size(), 1u);
    EXPECT_EQ(behind[0].result, 0);
    (*queue)->start(1, UINT64_MAX - kReadPage, kReadPage);  // a negative place
    const auto refused = (*queue)->wait(10s);
    ASSERT_EQ(refused.size(), 1u);
    EXPECT_EQ(refused[0].slot, 1u);
    EXPECT_LT(refused[0].result, 0);
  }
}

TEST_F(ReadQueues, WakeEndsAWaitAndTimeoutsPass) {
  std::vector<std::unique_ptr<File>> files;
  std::vector<std::unique_ptr<ReadQueue>> queues;
  for (FileSystem* system : {static_cast<FileSystem*>(&memory_), &real_files()}) {
    for (const Method method : {Method::ring, Method::threads}) {
      files.push_back(open(*system));
      auto queue = files.back()->queue_reads({method, false, 4, 0, kReadPage});
      if (queue) queues.push_back(std::move(*queue));
    }
  }
  for (const auto& queue : queues) {
    SCOPED_TRACE(queue->description());
    double start = monotonic_seconds();
    EXPECT_TRUE(queue->wait(20ms).empty());
    EXPECT_GE(monotonic_seconds() - start, 0.019);
    for (int i = 0; i < 3; ++i) {
      std::thread other([&] {
        std::this_thread::sleep_for(10ms);
        queue->wake();
      });
      start = monotonic_seconds();
      EXPECT_TRUE(queue->wait(20s).empty());
      EXPECT_LT(monotonic_seconds() - start, 10);
      other.join();
    }
    queue->wake();  // before the wait
    EXPECT_TRUE(queue->wait(20s).empty());
  }
}

TEST_F(ReadQueues, EndWithReadsUnderWay) {
  for (const Method method : {Method::ring, Method::threads}) {
    const auto file = open(real_files());
    auto queue = file->queue_reads({method, false, 32, 0, kReadPage});
    if (!queue) continue;
    for (std::uint32_t slot = 0; slot < 32; ++slot)
      (*queue)->start(slot, slot * kReadPage, kReadPage);
    (void)(*queue)->wait(0us);
    queue->reset();
  }
}

TEST_F(ReadQueues, RefuseImpossibleSizes) {
  const auto file = open(memory_);
  for (const auto& [depth, bytes] : std::initializer_list<std::pair<std::uint32_t, std::size_t>>{
           {0, kReadPage},
           {kMaxReadDepth + 1, kReadPage},
           {1, 0},
           {1, 100},
           {1, kMaxSlotBytes + kReadPage}}) {
    const auto queue = file->queue_reads({Method::ring, true, depth, 0, bytes});
    ASSERT_FALSE(queue);
    EXPECT_EQ(queue.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_FALSE(file->queue_reads({Method::ring, true, 4, 3, kReadPage}));
  EXPECT_FALSE(file->queue_reads({Method::ring, true, 4, 9, kReadPage}));
  EXPECT_EQ((*file->queue_reads({Method::ring, true, 4, 8, kReadPage}))->slots(), 8u);
}

TEST_F(ReadQueues, AFileThatWasReplacedIsNotAnother) {
  const auto file = open(real_files());
  ASSERT_TRUE(real_files().rename(path_, path_ + ".old"));
  auto out = real_files().create(path_);
  ASSERT_TRUE(out && (*out)->finish());
  const auto queue = file->queue_reads({Method::threads, false, 1, 0, kReadPage});
  ASSERT_FALSE(queue);
  EXPECT_THAT(queue.error().message, testing::HasSubstr("was replaced"));
}

TEST_F(ReadQueues, FaultsChangeReads) {
  using Fault = FaultyFileSystem::QueuedFault;
  FaultyFileSystem files(
      memory_, [](const FaultyFileSystem::Call& call) { return call.size; },
      [](std::uint64_t offset, std::size_t) -> Fault {
        switch (offset / kReadPage) {
          case 0:
            return {.delay = 30ms};
          case 1:
            return {.error = EIO};
          case 2:
            return {.at_most = 100};
          default:
            return {};
        }
      });
  const auto file = open(files);
  const auto queue = file->queue_reads({Method::ring, true, 4, 0, kReadPage});
  ASSERT_TRUE(queue);
  for (std::uint32_t slot = 0; slot < 4; ++slot) (*queue)->start(slot, slot * kReadPage, kReadPage);
  std::vector<std::uint32_t> order;
  std::map<std::uint32_t, std::int32_t> results;
  const double start = monotonic_seconds();
  while (order.size() < 4) {
    for (const ReadQueue::Done& done : (*queue)->wait(1s)) {
      order.push_back(done.slot);
      results[done.slot] = done.result;
    }
  }
  EXPECT_GE(monotonic_seconds() - start, 0.03);
  EXPECT_EQ(order.back(), 0u);
  EXPECT_EQ(results[0], static_cast<std::int32_t>(kReadPage));
  EXPECT_EQ(results[1], -EIO);
  EXPECT_EQ(results[2], 100);
  EXPECT_EQ(results[3], static_cast<std::int32_t>(kReadPage));
}

TEST_F(ReadQueues, TheSizeNowIsSeen) {
  const auto file = open(real_files());
  EXPECT_EQ(file->size_now(), content_.size());
  std::filesystem::resize_file(path_, 5000);
  EXPECT_EQ(file->size_now(), 5000u);
  EXPECT_EQ(file->size(), content_.size());
}

}  // namespace
}  // namespace strata
