// Twenty clients talk to two engines that share a cache folder, for STRATA_SOAK_SECONDS (60 if not
// set): turns, edits, regenerations, shared beginnings, greedy and sampled, with any drafts, while
// requests are cancelled, one engine is closed and opened again with other settings, caches are too
// small and files of the folder are damaged. Every answer must be the one that the request gets
// alone, without drafts and caches; requests are counted right at every moment; and nothing grows.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <shared_mutex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "tests/soak/soak.h"

namespace strata::soak {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kClients = 20;
constexpr std::size_t kLongest = 500;  // tokens of a conversation, after which another begins
// Of resident memory, between the first half of the run and its end. Engines that come and go leave
// the heap in pieces: it moves by some MiB.
constexpr std::int64_t kGrowth = std::int64_t{12} << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // memory and speed are not the program's own
#else
constexpr bool kSanitized = false;
#endif

double duration() {
  const char* text = std::getenv("STRATA_SOAK_SECONDS");
  return text ? std::atof(text) : 60;
}

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// What must not grow.
struct Footprint {
  std::int64_t resident = 0;  // bytes
  std::size_t threads = 0, files = 0;
};

Footprint footprint() {
  ::malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return {resident * ::sysconf(_SC_PAGESIZE), entries("/proc/self/task"), entries("/proc/self/fd")};
}

// Clients pass it one by one; closed, it waits until none is inside.
class Gate {
 public:
  void enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !closed_; });
    ++inside_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    --inside_;
    changed_.notify_all();
  }
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.wait(lock, [&] { return inside_ == 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t inside_ = 0;
  bool closed_ = false;
};

// What happened, so that a run in which nothing happened is no success.
struct Tally {
  std::atomic<std::uint64_t> answers{0}, cancelled{0}, stopped{0}, cached{0}, from_disk{0};
  std::atomic<std::uint64_t> accepted{0}, drafted{0}, wrong{0};
  std::uint64_t restarts = 0, damaged = 0;
};

// One user: a conversation that goes on, is edited, is asked again, or is given up for another.
class Client {
 public:
  Client(std::uint32_t seed, const Texts& texts, Solo& solo, std::array<EngineSlot, 2>& engines,
         Tally& tally)
      : random_(seed), texts_(texts), solo_(solo), engines_(engines), tally_(tally) {}

  void step() {
    choose_prompt();
    const std::uint32_t manner = draw(kManners);
    Request request = request_in(manner, prompt_);
    request.max_tokens = draw(3) == 0 ? 1 + draw(kMostTokens) : kMostTokens;
    request.stop_ids = solo_.stop_ids();
    if (draw(2) == 0) request.logprobs = 1;
    if (draw(3) == 0) request.drafts = draw(kMaxDrafts + 1);
    request.keep = draw(12) != 0;
    EngineSlot& engine = engines_[draw(static_cast<std::uint32_t>(engines_.size()))];
    const auto heard = std::make_shared<Heard>(&engine);
    const auto ticket = engine.submit(request, heard);
    if (!ticket) return;  // it is closed just now
    const bool cancels = draw(6) == 0;
    if (cancels) {
      heard->wait_for(draw(2) == 0 ? 0 : draw(8), std::chrono::milliseconds(draw(50)));
      engine.cancel(*ticket);
    }
    const Answer answer = heard->wait();
    judge(request, manner, answer, cancels || engine.closed_since(*ticket));
    if (answer.reason != FinishReason::stop && answer.reason != FinishReason::length) return;
    before_ = prompt_;
    before_.insert(before_.end(), answer.tokens.begin(), answer.tokens.end());
    before_.insert(before_.end(), texts_.end.begin(), texts_.end.end());
  }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void choose_prompt() {
    const std::uint32_t action = draw(10);
    if (!prompt_.empty() && action < 2) return;  // the same again
    if (before_.empty() || before_.size() > kLongest || action == 9) {
      before_ = texts_.systems[draw(static_cast<std::uint32_t>(texts_.systems.size()))];
      turns_.clear();
    } else if (!turns_.empty() && action < 4) {  // another question in place of an earlier one
      const std::uint32_t turn = draw(static_cast<std::uint32_t>(turns_.size()));
      before_.resize(turns_[turn]);
      turns_.resize(turn);
    }
    turns_.push_back(before_.size());
    // The first ones are asked more often, so that clients meet.
    const auto count = static_cast<std::uint32_t>(texts_.questions.size());
    const auto& question = texts_.questions[std::min(draw(count), draw(count))];
    prompt_ = before_;
    prompt_.insert(prompt_.end(), question.begin(), question.end());
    before_ = prompt_;  // if it is not answered, another question follows it
  }

  void judge(const Request& request, std::uint32_t manner, const Answer& answer, bool may_end) {
    const Answer expected = solo_.answer(request.prompt, manner);
    const std::size_t count = answer.tokens.size();
    const auto begins = [&](const auto& whole, const auto& part) {
      return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
    };
    bool right = begins(expected.tokens, answer.tokens);
    if (request.logprobs) {
      right =
          right && answer.logprobs.size() == count && begins(expected.logprobs, answer.logprobs);
    }
    if (answer.reason == FinishReason::stop) {
      right = right && expected.reason == FinishReason::stop && count == expected.tokens.size();
    } else if (answer.reason == FinishReason::length) {
      right = right && count == request.max_tokens;
    } else {
      right = right && answer.reason == FinishReason::cancelled && may_end;
    }
    const Completion& done = answer.completion;
    right = right && done.cached_tokens < request.prompt.size() &&
            done.cached_disk_tokens <= done.cached_tokens && done.accepted <= done.drafted;
    ++(answer.reason == FinishReason::cancelled ? tally_.cancelled : tally_.answers);
    if (answer.reason == FinishReason::stop) ++tally_.stopped;
    tally_.cached += done.cached_tokens;
    tally_.from_disk += done.cached_disk_tokens;
    tally_.drafted += done.drafted;
    tally_.accepted += done.accepted;
    if (right) return;
    ++tally_.wrong;
    std::size_t same = 0;
    while (same < std::min(count, expected.tokens.size()) &&
           answer.tokens[same] == expected.tokens[same])
      ++same;
    ADD_FAILURE() << "an answer of " << count << " tokens that ended with '"
                  << to_string(answer.reason) << "' " << done.error.message << " to a prompt of "
                  << request.prompt.size() << " (" << done.cached_tokens << " cached, "
                  << done.cached_disk_tokens << " of them from the disk) in manner " << manner
                  << " differs from its solo answer of " << expected.tokens.size() << " after "
                  << same << " tokens";
  }

  std::mt19937 random_;
  const Texts& texts_;
  Solo& solo_;
  std::array<EngineSlot, 2>& engines_;
  Tally& tally_;
  std::vector<TokenId> before_, prompt_;  // the conversation so far; what was asked last
  std::vector<std::size_t> turns_;        // where its questions begin
};

class Soak : public testing::Test {
 protected:
  // `steady`: of the engine that lives through the whole run.
  EngineOptions options(bool steady) {
    EngineOptions o;
    o.model_path = model_path();
    o.context = 2048;
    o.cache.folder = folder_.path();
    o.parallel = 8;
    o.threads = 1;
    if (steady) {
      o.cache.ram_bytes = std::uint64_t{24} << 20;
      o.cache.disk_bytes = std::uint64_t{64} << 20;
      return o;
    }
    const auto pick = [&](auto... values) {
      const std::array all = {values...};
      return all[random_() % all.size()];
    };
    o.threads = pick(1u, 2u);
    o.parallel = pick(1u, 3u, 20u);
    o.prompt_chunk = pick(7u, 64u, 512u);
    o.cache.ram_bytes = pick(0u, 2u, 8u, 64u) * (std::uint64_t{1} << 20);
    o.cache.disk_bytes = pick(3u, 16u, 64u) * (std::uint64_t{1} << 20);
    o.cache.gap = pick(1u, 32u);
    o.cache.every = pick(50u, 16384u);
    o.drafts.source = pick(DraftSource::mtp, DraftSource::lookup, DraftSource::both);
    if (random_() % 2 == 0) o.drafts.depth = pick(0u, 1u, 3u, 15u);
    return o;
  }

  // A byte, the end or the whole of a file that somebody saved.
  void damage_a_file() {
    std::error_code ignored;
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_.path(), ignored))
      all.push_back(entry.path());
    if (all.empty()) return;
    const fs::path& victim = all[random_() % all.size()];
    const auto size = fs::file_size(victim, ignored);
    if (ignored || size == 0) return;
    switch (random_() % 4) {
      case 0:
        fs::resize_file(victim, random_() % size, ignored);
        break;
      case 1:
        fs::copy_file(all[random_() % all.size()], victim, fs::copy_options::overwrite_existing,
                      ignored);
        break;
      case 2:
        fs::remove(victim, ignored);
        break;
      default: {
        std::fstream file(victim, std::ios::in | std::ios::out | std::ios::binary);
        // Headers are as likely as all the rest.
        const auto at = static_cast<std::streamoff>(random_() % 2 == 0 ? random_() % 128 % size
                                                                       : random_() % size);
        file.seekg(at);
        const int byte = file.get();
        file.seekp(at);
        file.put(static_cast<char>(byte ^ (1 << random_() % 8)));
      }
    }
    ++tally_.damaged;
  }

  // All clients wait: nothing is open, and what is held can be weighed.
  void weigh() {
    gate_.close();
    engines_[1].close();
    engines_[0].expect_idle();
    // What is saved may still be on its way to the disk.
    Footprint least = footprint();
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const Footprint now = footprint();
      least.resident = std::min(least.resident, now.resident);
      least.threads = std::min(least.threads, now.threads);
      least.files = std::min(least.files, now.files);
    }
    footprints_.push_back(least);
    open(1);
    gate_.open();
  }

  void open(std::size_t which) {
    const Status opened = engines_[which].open(options(which == 0));
    ASSERT_TRUE(opened) << opened.error().message;
  }

  void restart() {
    engines_[1].close();
    for (std::uint32_t i = static_cast<std::uint32_t>(random_() % 3); i > 0; --i) damage_a_file();
    open(1);
    ++tally_.restarts;
  }

  std::mt19937 random_{97};
  conversations::TemporaryFolder folder_;
  std::array<EngineSlot, 2> engines_;
  Gate gate_;
  Tally tally_;
  std::vector<Footprint> footprints_;
};

TEST_F(Soak, EveryAnswerEqualsItsSoloAnswer) {
  ::mallopt(M_ARENA_MAX, 2);  // so that what is resident is what is used
  set_log_level(LogLevel::off);
  Solo solo;
  ASSERT_TRUE(solo.opened());
  const Texts texts = texts_of(solo.tokenizer());
  open(0);
  open(1);
  if (HasFatalFailure()) return;

  const double start = monotonic_seconds(), end = start + duration();
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (std::uint32_t c = 0; c < kClients; ++c) {
    threads.emplace_back([&, c] {
      Client client(c, texts, solo, engines_, tally_);
      while (!over && tally_.wrong < 5) {
        gate_.enter();
        client.step();
        gate_.leave();
      }
    });
  }
  std::thread counting([&] {
    while (!over) {
      for (EngineSlot& engine : engines_) engine.check_counters();
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  });

  constexpr std::size_t kWeighings = 12;
  double next_restart = start + 1;
  while (monotonic_seconds() < end && tally_.wrong < 5 && !HasFatalFailure()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const double passed = monotonic_seconds() - start;
    if (passed > duration() * double(footprints_.size() + 1) / kWeighings) weigh();
    if (monotonic_seconds() < next_restart) continue;
    restart();
    next_restart = monotonic_seconds() + 0.5 + double(random_() % 100) / 20;
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  counting.join();
  weigh();

  const EngineCounters counters = engines_[0].counters();
  fmt::print("{} answers ({} stopped), {} cancelled, {} restarts, {} files damaged\n",
             tally_.answers.load(), tally_.stopped.load(), tally_.cancelled.load(), tally_.restarts,
             tally_.damaged);
  fmt::print(
      "{} tokens from caches, {} of them from the disk; {} of {} guesses right; {} of {} "
      "solo answers known\n",
      tally_.cached.load(), tally_.from_disk.load(), tally_.accepted.load(), tally_.drafted.load(),
      solo.known(), solo.asked());
  fmt::print(
      "the steady engine: {} requests, {} checkpoints of {} MiB, {} evicted; disk {} "
      "checkpoints, {} MiB, {} misses\n",
      counters.requests, counters.cache.checkpoints, counters.cache.bytes >> 20,
      counters.cache.evicted, counters.cache.disk_checkpoints, counters.cache.disk_bytes >> 20,
      counters.cache.disk_misses);
  std::int64_t most = 0;
  for (std::size_t i = 0; i < footprints_.size(); ++i) {
    const Footprint& f = footprints_[i];
    fmt::print("{:.1f} MiB, {} threads, {} files; ", double(f.resident) / (1 << 20), f.threads,
               f.files);
    if (i >= 1 && i < footprints_.size() / 2) most = std::max(most, f.resident);
  }
  fmt::print("\n");

  EXPECT_LE(counters.cache.bytes, counters.cache.limit);
  EXPECT_LE(counters.cache.disk_bytes, counters.cache.disk_limit);
  for (std::size_t i = 2; i + 1 < footprints_.size(); ++i) {
    EXPECT_EQ(footprints_[i].threads, footprints_[1].threads);
    EXPECT_EQ(footprints_[i].files, footprints_[1].files);
  }
  EXPECT_GT(tally_.answers, 0u);
  if (kSanitized || duration() < 20) return;
  EXPECT_LT(footprints_.back().resident, most + kGrowth);
  EXPECT_GT(tally_.restarts, 3u);
  EXPECT_GT(tally_.stopped, 0u);
  EXPECT_GT(tally_.cancelled, 5u);
  EXPECT_GT(tally_.cached, tally_.from_disk);
  EXPECT_GT(tally_.from_disk, 0u);
  EXPECT_GT(tally_.accepted, 0u);
}

}  // namespace
}  // namespace strata::soak
