// The reader against the bytes of its file: every row size and place, any order, any fault.
#include "ple/row_reader.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <atomic>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

#include "base/clock.h"

namespace strata {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Fault = FaultyFileSystem::QueuedFault;
using Method = ReadQueueOptions::Method;

constexpr const char* kPath = "table.gguf";

Bytes random_bytes(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// A file with a table in it, and what is right.
struct Table {
  RowPlaces places;
  Bytes content;

  Table(std::size_t row_bytes, std::uint64_t rows, std::uint64_t offset, std::size_t behind = 0)
      : places{offset, rows, row_bytes},
        content(random_bytes(offset + rows * row_bytes + behind, static_cast<unsigned>(rows))) {}

  std::span<const std::byte> row(std::uint64_t id) const {
    return std::span(content).subspan(places.offset + id * places.row_bytes, places.row_bytes);
  }
  bool straddles(std::uint64_t id) const {
    const std::uint64_t start = places.offset + id * places.row_bytes;
    return start / kReadPage != (start + places.row_bytes - 1) / kReadPage;
  }
};

std::unique_ptr<RowReader> open(FileSystem& files, const Table& table,
                                const RowReaderOptions& options) {
  auto file = files.open(kPath);
  EXPECT_TRUE(file);
  auto reader = RowReader::open(std::move(*file), table.places, options);
  EXPECT_TRUE(reader) << reader.error().message;
  return reader ? std::move(*reader) : nullptr;
}

RowReaderOptions options_of(std::uint32_t depth, std::uint64_t cache = 0) {
  RowReaderOptions options;
  options.queue.depth = depth;
  options.cache_bytes = cache == 0 ? 0 : cache + 2 * depth * options.queue.slot_bytes;
  return options;
}

void expect_rows(const Table& table, const RowTicket& ticket, std::span<const std::uint64_t> keys) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto got = ticket.row(i), right = table.row(keys[i]);
    ASSERT_TRUE(std::equal(got.begin(), got.end(), right.begin(), right.end()))
        << "row " << keys[i];
  }
}

std::vector<std::uint64_t> random_keys(std::mt19937_64& random, const Table& table,
                                       std::size_t count) {
  std::vector<std::uint64_t> keys(count);
  for (std::uint64_t& key : keys) key = random() % table.places.rows;
  return keys;
}

struct Passing {
  std::size_t operator()(const FaultyFileSystem::Call& call) const { return call.size; }
};

// ---- bytes

// Every row size, header, queue depth and cache; on memory, and on a disk in every way it is read.
TEST(RowReaderBytes, EqualTheFilesWhateverTheShape) {
  const auto folder = std::filesystem::current_path() /
                      fmt::format("row_reader_test.{}", static_cast<int>(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "table").string();
  std::mt19937_64 random(1);
  for (const std::size_t row_bytes : {90u, 100u, 110u, 120u, 160u, 170u, 320u, 5000u}) {
    for (const std::uint64_t offset : {0u, 192u, 4095u, 4096u, 70001u}) {
      const Table table(row_bytes, row_bytes == 5000 ? 300 : 3000, offset, offset % 2 ? 10000 : 0);
      MemoryFileSystem memory;
      memory.put(kPath, table.content);
      auto out = real_files().create(path);
      ASSERT_TRUE(out && (*out)->write(table.content) && (*out)->finish());
      std::uint64_t straddling = 0;
      while (!table.straddles(straddling)) ++straddling;
      for (const std::uint32_t depth : {1u, 8u, 64u}) {
        for (const int how : {0, 1, 2, 3}) {
          for (const std::uint64_t cache : {0u, 1u << 16, 1u << 22}) {
            RowReaderOptions options = options_of(depth, cache);
            options.queue.method = how == 2 ? Method::threads : Method::ring;
            options.queue.direct = how != 3;
            auto file = how == 0 ? memory.open(kPath) : real_files().open(path);
            ASSERT_TRUE(file);
            auto reader = RowReader::open(std::move(*file), table.places, options);
            if (!reader && reader.error().code == ErrorCode::unsupported) continue;
            ASSERT_TRUE(reader) << reader.error().message;
            SCOPED_TRACE(fmt::format("{} bytes at {}, depth {}, {}, cache {}", row_bytes, offset,
                                     depth, (*reader)->stats().how, cache));
            for (int round = 0; round < 2; ++round) {
              std::vector<std::uint64_t> keys = random_keys(random, table, 60);
              keys.insert(keys.end(), {0, table.places.rows - 1, straddling, straddling, keys[0]});
              auto ticket = (*reader)->request(keys);
              ASSERT_TRUE(ticket) << ticket.error().message;
              const Status status = ticket->wait();
              ASSERT_TRUE(status) << status.error().message;
              expect_rows(table, *ticket, keys);
            }
          }
        }
      }
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(RowReaderBytes, BulkInAnyOrderOfCollectionOrNever) {
  const Table table(90, 50'000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  std::mt19937_64 random(2);
  FaultyFileSystem files(memory, Passing{}, [&](std::uint64_t offset, std::size_t) -> Fault {
    return {.delay = std::chrono::microseconds(offset * 2654435761 % 300)};
  });
  for (const std::uint32_t depth : {1u, 8u, 64u}) {
    for (const std::uint64_t cache : {0u, 1u << 20}) {
      const auto reader = open(depth == 1 ? static_cast<FileSystem&>(memory) : files, table,
                               options_of(depth, cache));
      std::vector<std::vector<std::uint64_t>> keys;
      std::vector<RowTicket> tickets;
      keys.push_back(random_keys(random, table, 20'000));
      for (int i = 0; i < 30; ++i) keys.push_back(random_keys(random, table, random() % 100));
      for (const auto& k : keys) {
        auto ticket = reader->request(k);
        ASSERT_TRUE(ticket);
        tickets.push_back(std::move(*ticket));
      }
      while (!tickets.empty()) {
        if (random() % 4 != 0) {
          const Status status = tickets.back().wait();
          ASSERT_TRUE(status) << status.error().message;
          expect_rows(table, tickets.back(), keys.back());
        }
        tickets.pop_back();
        keys.pop_back();
      }
    }
  }
}

TEST(RowReaderBytes, RowsOfOnePageAreReadTogetherAndNoneTwice) {
  const Table table(90, 50'000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  const auto reader = open(memory, table, options_of(8, 1 << 23));
  std::vector<std::uint64_t> keys(50'000);
  std::iota(keys.begin(), keys.end(), 0);
  std::shuffle(keys.begin(), keys.end(), std::mt19937_64(1));
  auto ticket = reader->request(keys);
  ASSERT_TRUE(ticket && ticket->wait());
  const std::uint64_t pages = (table.content.size() + kReadPage - 1) / kReadPage;
  const TableStats stats = reader->stats();
  // 16 KiB a read, of which the last row may share a page; and a request comes in slices.
  EXPECT_LE(stats.reads, pages / 3 + 1 + 50'000 / 256);
  EXPECT_GE(stats.read_bytes, table.content.size() - 192);
  EXPECT_EQ(stats.rows.read, 50'000u);
  auto again = reader->request(std::span(keys).first(1000));
  ASSERT_TRUE(again && again->wait());
  EXPECT_GT(again->counts().cache_hits, 900u);  // sets are eight rows wide: some were crowded out
}

TEST(RowReaderBytes, RowsOutsideAndTooManyAreRefused) {
  const Table table(90, 100, 0);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  const auto reader = open(memory, table, options_of(4));
  const auto outside = reader->request(std::vector<std::uint64_t>{5, 100});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().message, "n-gram row 100 asked of a table of 100 rows");
  EXPECT_FALSE(reader->request(std::vector<std::uint64_t>(kMaxRequestRows + 1, 0)));
  EXPECT_EQ(reader->stats().requests, 0u);
  auto none = reader->request({});
  ASSERT_TRUE(none && none->wait());
  auto file = memory.open(kPath);
  const auto beyond = RowReader::open(std::move(*file), {1, 100, 90}, {});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::corrupt);
}

// ---- joining, prefetching, cancelling

// A disk that answers nothing until it is told to.
struct Gate {
  std::atomic<bool> open = false;
  std::atomic<int> reads = 0;
  FaultyFileSystem::QueuedFaults faults() {
    return [this](std::uint64_t, std::size_t) -> Fault {
      ++reads;
      while (!open) std::this_thread::sleep_for(1ms);
      return {};
    };
  }
};

TEST(RowReaderSharing, DemandJoinsPrefetchAndDemand) {
  const Table table(90, 1000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  Gate gate;
  FaultyFileSystem files(memory, Passing{}, gate.faults());
  const auto reader = open(files, table, options_of(4, 1 << 20));
  const std::vector<std::uint64_t> keys = {1, 400, 900};
  reader->prefetch(keys);
  reader->prefetch(keys);
  auto first = reader->request(keys);
  auto second = reader->request(std::vector<std::uint64_t>{900, 1, 500});
  ASSERT_TRUE(first && second);
  gate.open = true;
  ASSERT_TRUE(first->wait() && second->wait());
  expect_rows(table, *first, keys);
  EXPECT_EQ(first->counts().joined, 3u);
  EXPECT_EQ(first->counts().prefetched_used, 3u);
  EXPECT_EQ(first->counts().read, 0u);
  EXPECT_EQ(second->counts().joined, 2u);
  EXPECT_EQ(second->counts().prefetched_used, 0u);
  EXPECT_EQ(second->counts().read, 1u);
  EXPECT_EQ(gate.reads, 4);
  reader->prefetch(std::vector<std::uint64_t>{42, 400, 5000});  // one is new, one does not exist
  auto third = reader->request(std::vector<std::uint64_t>{42, 400});
  ASSERT_TRUE(third && third->wait());
  EXPECT_EQ(third->counts().prefetched_used, 1u);
  EXPECT_EQ(third->counts().cache_hits + third->counts().joined, 2u);
  EXPECT_EQ(reader->stats().prefetched, 4u);
}

TEST(RowReaderSharing, PrefetchIsBoundedAndItsLossCounted) {
  const Table table(90, 100'000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  const auto reader = open(memory, table, options_of(8, 100'000));
  const std::uint64_t fits = reader->stats().cache_rows;
  ASSERT_GT(fits, 500u);
  std::vector<std::uint64_t> keys(10'000);
  std::iota(keys.begin(), keys.end(), 0);
  reader->prefetch(keys);
  EXPECT_EQ(reader->stats().prefetched, fits / 2);
  EXPECT_EQ(reader->stats().prefetch_dropped, 10'000 - fits / 2);
  const double limit = monotonic_seconds() + 10;
  while (reader->stats().read_bytes < fits / 2 * 90 && monotonic_seconds() < limit)
    std::this_thread::sleep_for(1ms);
  // Crowded out by rows that were asked for.
  std::iota(keys.begin(), keys.end(), 50'000);
  auto ticket = reader->request(keys);
  ASSERT_TRUE(ticket && ticket->wait());
  EXPECT_EQ(reader->stats().prefetch_dropped, 10'000u);
  // Without a cache there is nowhere to keep it.
  const auto none = open(memory, table, options_of(8));
  none->prefetch(keys);
  EXPECT_EQ(none->stats().prefetched, 0u);
}

TEST(RowReaderSharing, WhatNobodyWaitsForIsNotRead) {
  const Table table(90, 100'000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  Gate gate;
  FaultyFileSystem files(memory, Passing{}, gate.faults());
  const auto reader = open(files, table, options_of(1));
  auto kept = reader->request(std::vector<std::uint64_t>{1});
  while (gate.reads == 0) std::this_thread::sleep_for(1ms);
  {
    auto dropped = reader->request(std::vector<std::uint64_t>{1, 50'000, 60'000, 70'000});
    ASSERT_TRUE(dropped);
  }
  auto other = reader->request(std::vector<std::uint64_t>{70'000});
  gate.open = true;
  ASSERT_TRUE(kept->wait() && other->wait());
  expect_rows(table, *kept, std::vector<std::uint64_t>{1});
  expect_rows(table, *other, std::vector<std::uint64_t>{70'000});
  EXPECT_EQ(gate.reads, 2);
  EXPECT_EQ(reader->stats().cancelled, 2u);
}

TEST(RowReaderSharing, TicketsMoveAndOutliveTheirReader) {
  const Table table(90, 1000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  Gate gate;
  FaultyFileSystem files(memory, Passing{}, gate.faults());
  auto reader = open(files, table, options_of(1));
  const std::vector<std::uint64_t> keys = {7, 800};
  auto a = reader->request(keys), b = reader->request(std::vector<std::uint64_t>{3});
  RowTicket moved = std::move(*a);
  moved = std::move(*b);  // drops the first
  std::thread opener([&] {
    std::this_thread::sleep_for(20ms);
    gate.open = true;
  });
  reader.reset();  // with reads in flight
  opener.join();
  const Status status = moved.wait();
  if (!status) {
    EXPECT_EQ(status.error().code, ErrorCode::unavailable);
    EXPECT_THAT(status.error().message, HasSubstr("was closed"));
  }
}

// ---- faults

// A read that fails, at every position of a request; then the same rows again.
TEST(RowReaderFaults, AFailureAtEveryPositionIsReportedAndPasses) {
  const Table table(90, 20'000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 24; ++i) keys.push_back(19'999 - i * 800);
  for (const std::uint32_t depth : {1u, 8u, 64u}) {
    for (std::size_t broken = 0; broken < keys.size(); ++broken) {
      const std::uint64_t place = 192 + keys[broken] * 90;
      std::atomic<bool> sick = true;
      FaultyFileSystem files(memory, Passing{},
                             [&](std::uint64_t offset, std::size_t size) -> Fault {
                               if (sick && place >= offset && place < offset + size)
                                 return {.error = EIO, .delay = 100us};
                               return {.delay = std::chrono::microseconds(offset % 7 * 30)};
                             });
      const auto reader = open(files, table, options_of(depth, 1 << 20));
      auto whole = reader->request(keys);
      std::vector<std::uint64_t> others = keys;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(broken));
      auto healthy = reader->request(others);
      ASSERT_TRUE(whole && healthy);
      const Status status = whole->wait();
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::io);
      EXPECT_EQ(status.error().message,
                fmt::format("row {} of the n-gram table, bytes {} to {} of 'table.gguf', cannot be "
                            "read: Input/output error (errno 5)",
                            keys[broken], place, place + 90));
      EXPECT_EQ(whole->counts().failed, 1u);
      ASSERT_TRUE(healthy->wait());
      expect_rows(table, *healthy, others);
      sick = false;
      auto again = reader->request(keys);
      ASSERT_TRUE(again && again->wait());
      expect_rows(table, *again, keys);
      EXPECT_EQ(again->counts().read, 1u);
    }
  }
}

// Whatever the disk does, a ticket has the right bytes or an error.
TEST(RowReaderFaults, BytesOrAnErrorUnderAnyMixOfFaults) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t sizes[] = {90, 100, 110, 120, 160, 170, 320};
    const Table table(sizes[seed % 7], 4000, seed % 3 * 192, seed % 2 * 5000);
    MemoryFileSystem memory;
    memory.put(kPath, table.content);
    std::mt19937_64 luck(seed);
    FaultyFileSystem files(memory, Passing{}, [&](std::uint64_t, std::size_t size) -> Fault {
      Fault fault;
      fault.delay = std::chrono::microseconds(luck() % 200);
      switch (luck() % 12) {
        case 0:
          fault.error = EIO;
          break;
        case 1:
          fault.at_most = luck() % size;
          break;
        case 2:
          fault.error = EAGAIN;
          break;
        case 3:
          fault.error = EINTR;
          break;
        default:
          break;
      }
      return fault;
    });
    const auto reader = open(files, table, options_of(1u << seed % 7, seed % 4 == 0 ? 0 : 50'000));
    int failed = 0, fine = 0;
    std::vector<std::pair<std::vector<std::uint64_t>, RowTicket>> open_tickets;
    for (int step = 0; step < 80; ++step) {
      auto keys = random_keys(random, table, 1 + random() % 40);
      if (random() % 3 == 0) reader->prefetch(keys);
      auto ticket = reader->request(keys);
      ASSERT_TRUE(ticket);
      open_tickets.emplace_back(std::move(keys), std::move(*ticket));
      if (open_tickets.size() < 4) continue;
      const auto which = open_tickets.begin() + static_cast<std::ptrdiff_t>(random() % 4);
      if (random() % 5 != 0) {
        if (const Status status = which->second.wait(); status) {
          ++fine;
          expect_rows(table, which->second, which->first);
        } else {
          ++failed;
          EXPECT_EQ(status.error().code, ErrorCode::io);
          EXPECT_THAT(status.error().message, HasSubstr("of the n-gram table, bytes "));
        }
      }
      open_tickets.erase(which);
    }
    EXPECT_GT(failed + fine, 40);
    EXPECT_GT(reader->stats().retries, 0u);
  }
}

TEST(RowReaderFaults, ShortReadsAreContinued) {
  const Table table(320, 4000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  FaultyFileSystem files(memory, Passing{}, [](std::uint64_t, std::size_t size) -> Fault {
    return {.at_most = std::max<std::size_t>(size / 2, 2 * kReadPage)};
  });
  const auto reader = open(files, table, options_of(4));
  std::vector<std::uint64_t> keys(4000);
  std::iota(keys.begin(), keys.end(), 0);
  auto ticket = reader->request(keys);
  ASSERT_TRUE(ticket && ticket->wait());
  expect_rows(table, *ticket, keys);
  EXPECT_GT(reader->stats().retries, 50u);
}

TEST(RowReaderFaults, AFileThatShrinksIsNamed) {
  const auto path = (std::filesystem::current_path() /
                     fmt::format("row_reader_test.{}.shrinks", static_cast<int>(::getpid())))
                        .string();
  const Table table(90, 20'000, 192);
  auto out = real_files().create(path);
  ASSERT_TRUE(out && (*out)->write(table.content) && (*out)->finish());
  for (const Method method : {Method::ring, Method::threads}) {
    std::filesystem::resize_file(path, table.content.size());
    auto file = real_files().open(path);
    RowReaderOptions options = options_of(8);
    options.queue.method = method;
    options.queue.direct = false;  // a test's folder may be anywhere
    auto reader = RowReader::open(std::move(*file), table.places, options);
    if (!reader) continue;
    const std::vector<std::uint64_t> keys = {10, 19'000};
    auto before = (*reader)->request(keys);
    ASSERT_TRUE(before && before->wait());
    std::filesystem::resize_file(path, 900'000);
    auto after = (*reader)->request(keys);
    const Status status = after->wait();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message,
              fmt::format("row 19000 of the n-gram table, bytes 1710192 to 1710282 of '{}', cannot "
                          "be read: the file has become shorter, 900000 bytes where 1800192 were "
                          "when it was opened",
                          path));
    auto first = (*reader)->request(std::vector<std::uint64_t>{10});
    EXPECT_TRUE(first && first->wait());
  }
  std::filesystem::remove(path);
}

TEST(RowReaderFaults, ADiskThatNeverAnswersEndsTheWait) {
  const Table table(90, 1000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  FaultyFileSystem files(memory, Passing{}, [](std::uint64_t offset, std::size_t) -> Fault {
    return {.delay = offset == 0 ? 3'600s : 0s};
  });
  RowReaderOptions options = options_of(4);
  options.patience = 50ms;
  const auto reader = open(files, table, options);
  auto ticket = reader->request(std::vector<std::uint64_t>{0, 1, 900});
  const Status status = ticket->wait();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "2 rows of the n-gram table in 'table.gguf' did not come within 0.05 s; its disk may "
            "have failed");
  auto other = reader->request(std::vector<std::uint64_t>{800});
  EXPECT_TRUE(other && other->wait());
}

TEST(RowReaderFaults, KeepAliveReadsAreCounted) {
  const Table table(90, 1000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  RowReaderOptions options = options_of(4);
  options.keep_alive_ms = 5;
  const auto reader = open(memory, table, options);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(reader->stats().keep_alive, 0u);  // nobody has asked for a row yet
  auto ticket = reader->request(std::vector<std::uint64_t>{0});
  ASSERT_TRUE(ticket && ticket->wait());
  const double limit = monotonic_seconds() + 10;
  while (reader->stats().keep_alive < 3 && monotonic_seconds() < limit)
    std::this_thread::sleep_for(5ms);
  EXPECT_GE(reader->stats().keep_alive, 3u);
  EXPECT_EQ(reader->stats().reads, 1u);
}

// ---- memory

// Kilobytes of memory of its own that this process holds.
std::uint64_t own_kilobytes() {
  const auto status = real_files().read_text("/proc/self/status");
  const std::size_t at = status ? status->find("RssAnon:") : std::string::npos;
  return at == std::string::npos ? 0 : std::stoull(status->substr(at + 8));
}

TEST(RowReaderMemory, StaysAtTheBudgetHoweverLargeTheTable) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is counted too";
#endif
  const auto path = (std::filesystem::current_path() /
                     fmt::format("row_reader_test.{}.large", static_cast<int>(::getpid())))
                        .string();
  const Bytes piece = random_bytes(1 << 20, 1);
  auto out = real_files().create(path);
  ASSERT_TRUE(out);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE((*out)->write(piece));
  ASSERT_TRUE((*out)->finish());
  const RowPlaces places{0, (64u << 20) / 90, 90};
  RowReaderOptions options;
  options.queue.depth = 16;
  options.queue.direct = false;  // a test's folder may be anywhere
  options.cache_bytes = 4 << 20;
  ::malloc_trim(0);  // what earlier tests have left would hide growth
  const std::uint64_t before = own_kilobytes();
  auto reader = RowReader::open(std::move(*real_files().open(path)), places, options);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_LE((*reader)->stats().memory_bytes, 4u << 20);
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> keys(256);
  for (int i = 0; i < 600; ++i) {  // four times what the cache holds
    for (std::uint64_t& key : keys) key = random() % places.rows;
    (*reader)->prefetch(keys);
    auto ticket = (*reader)->request(keys);
    ASSERT_TRUE(ticket && ticket->wait());
  }
  const std::uint64_t after = own_kilobytes();
  EXPECT_GT((*reader)->stats().rows.cache_hits, 1000u);
  EXPECT_LT(after, before + 4'096 + 1'024);
  std::filesystem::remove(path);
}

// ---- threads

// Two callers and a prefetcher; the thread sanitizer watches in ./test --all.
TEST(RowReaderThreads, TwoCallersAndAPrefetcher) {
  const Table table(90, 30'000, 192);
  MemoryFileSystem memory;
  memory.put(kPath, table.content);
  FaultyFileSystem files(memory, Passing{}, [](std::uint64_t offset, std::size_t) -> Fault {
    return {.error = offset / kReadPage % 97 == 0 ? EIO : 0,
            .delay = std::chrono::microseconds(offset / kReadPage % 40)};
  });
  for (const bool faulty : {true, false}) {
    const auto reader =
        open(faulty ? static_cast<FileSystem&>(files) : memory, table, options_of(16, 200'000));
    std::atomic<int> fine = 0;
    const auto caller = [&](unsigned seed) {
      std::mt19937_64 random(seed);
      std::vector<RowTicket> held;
      for (int i = 0; i < 400; ++i) {
        std::vector<std::uint64_t> keys(random() % 32);
        for (std::uint64_t& key : keys) key = random() % 2000 * (1 + random() % 15);
        auto ticket = reader->request(keys);
        ASSERT_TRUE(ticket);
        if (i % 7 == 0) {
          held.push_back(std::move(*ticket));
          if (held.size() > 5) held.erase(held.begin());
        } else if (ticket->wait()) {
          ++fine;
          expect_rows(table, *ticket, keys);
        }
      }
    };
    std::thread first(caller, 1u), second(caller, 2u);
    std::thread prefetcher([&] {
      std::mt19937_64 random(3);
      for (int i = 0; i < 400; ++i) {
        reader->prefetch(random_keys(random, table, 64));
        (void)reader->stats();
      }
    });
    first.join(), second.join(), prefetcher.join();
    EXPECT_GT(fine, 100);
  }
}

}  // namespace
}  // namespace strata
