// Experts in a memory budget: the same bits whatever is in memory, what is kept, and errors that
// stay with those who met them.
#include "model/expert_store.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "model/forward.h"
#include "model/open_network.h"
#include "tests/model/golden.h"

namespace strata {
namespace {

using testing::Test;
using Faults = FaultyFileSystem::QueuedFaults;

class ExpertStoreTest : public Test {
 protected:
  void SetUp() override {
    STRATA_NEEDS_GOLDEN("tiny-a");
    converted_ =
        test::convert({test::golden_dir() + "/tiny-a", test::golden_dir() + "/tiny-a-mtp"});
    ASSERT_NE(converted_, nullptr);
    std::mt19937 random(7);
    for (int i = 0; i < 96; ++i) ids_.push_back(static_cast<std::int32_t>(random() % vocabulary()));
  }

  std::vector<const ExpertsWeights*> layers() {
    std::vector<const ExpertsWeights*> all;
    for (const ExpertsWeights* weights : converted_->network.expert_layers())
      all.push_back(weights);
    return all;
  }
  std::uint64_t all_bytes() {
    std::uint64_t experts = 0;
    for (const ExpertsWeights* weights : layers()) experts += weights->gate.count;
    return experts * ExpertStore::slot_bytes(layers());
  }
  // A store with so many slots beside those of the stream.
  std::shared_ptr<ExpertStore> open(FileSystem& files, std::size_t keeping,
                                    ExpertStoreOptions options = {}) {
    options.stream = options.stream == 0 ? 3 : options.stream;
    options.bytes = (keeping + options.stream) * ExpertStore::slot_bytes(layers());
    auto store = ExpertStore::open(files, converted_->model->paths, layers(), 1, options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? *store : nullptr;
  }
  std::size_t vocabulary() const { return converted_->network.head.rows; }

  // Logits of all tokens, in windows of the given size.
  std::vector<float> logits(std::size_t window) {
    auto backend = make_cpu_backend(converted_->network.shape(), 2, "");
    Forward forward(converted_->network, **backend);
    auto sequence = forward.new_sequence();
    std::vector<float> all;
    for (std::size_t at = 0; at < ids_.size(); at += window) {
      const auto ids = std::span(ids_).subspan(at, std::min(window, ids_.size() - at));
      std::vector<std::uint32_t> rows(ids.size());
      for (std::uint32_t r = 0; r < rows.size(); ++r) rows[r] = r;
      std::vector<float> some(rows.size() * vocabulary());
      const Status read = forward.read(std::vector<Forward::Rows>{{&*sequence, ids}}, rows, some);
      EXPECT_TRUE(read) << read.error().message;
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  static bool equal(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
  void use(std::shared_ptr<ExpertStore> store) {
    converted_->network.take_experts_from(std::move(store));
  }

  std::unique_ptr<test::Converted> converted_;
  std::vector<std::int32_t> ids_;
};

TEST_F(ExpertStoreTest, SameBitsWhateverIsInMemory) {
  const std::vector<float> expected = logits(96);
  std::size_t experts = 0;
  for (const ExpertsWeights* weights : layers()) experts += weights->gate.count;
  for (const std::size_t percent : {100u, 50u, 25u, 10u, 0u}) {
    for (const std::uint32_t stream : {1u, 3u, 40u}) {
      for (const bool ahead : {true, false}) {
        ExpertStoreOptions options;
        options.stream = stream;
        options.look_ahead = ahead;
        const auto store = open(converted_->files, experts * percent / 100, options);
        use(store);
        for (const std::size_t window : {1u, 7u, 64u})
          EXPECT_TRUE(equal(logits(window), expected)) << percent << ' ' << stream << ' ' << window;
        const ExpertCounters counters = store->counters();
        EXPECT_EQ(counters.failed, 0u);
        if (percent == 100) {
          EXPECT_EQ(counters.misses, 0u);
        }
        if (percent == 0) {
          EXPECT_GT(counters.misses, 0u);
        }
      }
    }
  }
}

// Direct reads of a real file, with the ring and without.
TEST_F(ExpertStoreTest, SameBitsFromADisk) {
  const std::vector<float> expected = logits(96);
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("strata-experts-{}.gguf", ::getpid());
  const auto bytes = converted_->files.get(converted_->model->paths[0]);
  auto file = real_files().create(path);
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->write(*bytes));
  ASSERT_TRUE((*file)->finish());
  for (const bool ring : {true, false}) {
    FaultyFileSystem files(
        real_files(), [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
          if (call.queue && !ring && call.queue->method == ReadQueueOptions::Method::ring)
            return fail(ErrorCode::unsupported, "no rings here");
          return call.size;
        });
    OpenOptions options;
    options.plan = [](const Network& mapped) -> Result<MemoryPlan> {
      MemoryPlan plan;
      plan.experts = MemoryPlan::Place::partly;
      plan.expert_bytes = weight_sizes(mapped).expert_least;
      return plan;
    };
    auto network = open_network(files, path, options);
    ASSERT_TRUE(network) << network.error().message;
    converted_->network = std::move(*network);
    EXPECT_NE(converted_->network.experts->lifetime(0, 0), ExpertLifetime::mapped);
    for (const std::size_t window : {1u, 64u}) EXPECT_TRUE(equal(logits(window), expected));
    EXPECT_GT(converted_->network.experts->counters().read_bytes, 0u);
  }
  std::filesystem::remove(path);
}

// Reads end late, out of order and short; the last are tried again in the ordinary way.
TEST_F(ExpertStoreTest, SameBitsOfADiskWithMoods) {
  const std::vector<float> expected = logits(96);
  std::mt19937 random(3);
  FaultyFileSystem files(
      converted_->files, [](const FaultyFileSystem::Call& call) { return call.size; },
      [&](std::uint64_t, std::size_t) {
        FaultyFileSystem::QueuedFault fault;
        fault.delay = std::chrono::microseconds(random() % 300);
        if (random() % 5 == 0) fault.at_most = random() % 4096;
        if (random() % 7 == 0) fault.error = EIO;
        return fault;
      });
  use(open(files, 4));
  for (const std::size_t window : {1u, 64u}) EXPECT_TRUE(equal(logits(window), expected));
}

TEST_F(ExpertStoreTest, AnErrorStaysWithTheRowsThatMetIt) {
  bool broken = false;
  FaultyFileSystem files(
      converted_->files,
      [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
        if (broken && call.operation == FaultyFileSystem::Operation::read)
          return fail(ErrorCode::io, "the disk is gone");
        return call.size;
      },
      [&](std::uint64_t, std::size_t) {
        FaultyFileSystem::QueuedFault fault;
        if (broken) fault.error = EIO;
        return fault;
      });
  const auto store = open(files, 0);
  use(store);
  auto backend = make_cpu_backend(converted_->network.shape(), 1, "");
  Forward forward(converted_->network, **backend);
  std::vector<float> one(vocabulary());
  const std::uint32_t row = 0;
  const auto read = [&](Sequence& sequence) {
    return forward.read(std::vector<Forward::Rows>{{&sequence, std::span(ids_).first(1)}},
                        {&row, 1}, one);
  };
  auto sequence = forward.new_sequence();
  broken = true;
  const Status failed = read(*sequence);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("of layer 0: the disk is gone"), std::string::npos)
      << failed.error().message;
  EXPECT_FALSE(sequence->status());
  EXPECT_GT(store->counters().failed, 0u);
  broken = false;
  auto next = forward.new_sequence();
  EXPECT_TRUE(read(*next));
  EXPECT_TRUE(next->status());
}

TEST_F(ExpertStoreTest, ADiskThatDoesNotAnswerEndsInASentence) {
  std::chrono::microseconds delay{0};
  FaultyFileSystem files(
      converted_->files, [](const FaultyFileSystem::Call& call) { return call.size; },
      [&](std::uint64_t, std::size_t) {
        FaultyFileSystem::QueuedFault fault;
        fault.delay = delay;
        return fault;
      });
  ExpertStoreOptions options;
  options.patience = std::chrono::milliseconds(1);
  const auto store = open(files, 0, options);
  delay = std::chrono::seconds(1);
  const ExpertUse uses[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}};
  store->begin(0, uses, true);
  std::size_t given = 0;
  for (auto blobs = store->next(); !blobs.empty(); blobs = store->next()) {
    for (const ExpertBlob& blob : blobs) EXPECT_EQ(blob.gate, nullptr);
    given += blobs.size();
  }
  EXPECT_EQ(given, 5u);
  ASSERT_FALSE(store->failure());
  EXPECT_NE(store->failure().error().message.find("has not answered"), std::string::npos);
  // What comes late goes into slots that nobody had meanwhile; then all is as before.
  delay = std::chrono::seconds(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  store->begin(0, uses, true);
  given = 0;
  for (auto blobs = store->next(); !blobs.empty(); blobs = store->next())
    for (const ExpertBlob& blob : blobs) given += blob.gate ? 1 : 0;
  EXPECT_EQ(given, 5u);
}

// A prompt leaves what decoding used last, and what is used often stays.
TEST_F(ExpertStoreTest, WhatIsKept) {
  ExpertStoreOptions options;
  const auto store = open(converted_->files, 4, options);
  const auto pass = [&](std::vector<std::uint32_t> experts, bool decode) {
    std::vector<ExpertUse> uses;
    for (const std::uint32_t e : experts) uses.push_back({e, 1});
    const std::uint64_t before = store->counters().misses;
    store->begin(1, uses, decode);
    while (!store->next().empty()) continue;
    return store->counters().misses - before;
  };
  EXPECT_EQ(pass({5, 6}, true), 2u);
  EXPECT_EQ(pass({5, 6}, true), 0u);
  pass({0, 1, 2, 3, 4, 7}, false);
  EXPECT_EQ(pass({5, 6}, true), 0u);
  EXPECT_EQ(store->lifetime(1, 5), ExpertLifetime::resident);
  EXPECT_EQ(store->lifetime(1, 7), ExpertLifetime::transient);
}

// What is read once does not take the place of what is used often; what is used often from now on
// does, and what is no longer used goes first.
TEST_F(ExpertStoreTest, TheCoreFollowsWhatIsUsed) {
  ExpertStoreOptions options;
  options.profile_path.clear();
  const auto store = open(converted_->files, 3, options);
  const auto use_of = [&](std::vector<std::uint32_t> experts, int times) {
    std::vector<ExpertUse> uses;
    for (const std::uint32_t e : experts) uses.push_back({e, 1});
    for (int i = 0; i < times; ++i) {
      store->begin(0, uses, true);
      while (!store->next().empty()) continue;
    }
  };
  const auto resident = [&](std::uint32_t expert) {
    return store->lifetime(0, expert) == ExpertLifetime::resident;
  };
  use_of({4, 5, 6}, 20);
  EXPECT_TRUE(resident(4) && resident(5) && resident(6));
  use_of({7}, 3);
  EXPECT_TRUE(resident(4) && resident(5) && resident(6));
  use_of({5, 6}, 10);
  use_of({7}, 30);
  EXPECT_FALSE(resident(4));
  EXPECT_TRUE(resident(5) && resident(6) && resident(7));
}

// Guesses wait for what is needed, are no more than pay, and are hits of their own.
TEST_F(ExpertStoreTest, GuessesAreReadBehindWhatIsNeeded) {
  ExpertStoreOptions options;
  options.stream = 12;
  const auto store = open(converted_->files, 0, options);
  const std::uint32_t count = layers()[1]->gate.count;
  std::vector<std::uint64_t> steps;
  for (std::uint32_t window = 0; window < 100; ++window) {
    const std::uint64_t before = store->counters().asked_ahead;
    const std::uint32_t first = 2 * window % count, guess = 3 * window % count;
    const ExpertUse uses[] = {{first, 1}, {first + 1, 1}};
    store->begin(0, uses, true);
    const std::uint32_t guesses[] = {guess, (guess + 1) % count, (guess + 2) % count};
    if (store->looks_ahead()) store->prefetch(1, guesses);
    EXPECT_EQ(store->counters().asked_ahead, before);
    while (!store->next().empty()) continue;
    if (const std::uint64_t asked = store->counters().asked_ahead - before; asked > 0)
      steps.push_back(asked);
    const ExpertUse needed[] = {{guess, 1}};
    store->begin(1, needed, true);
    while (!store->next().empty()) continue;
  }
  EXPECT_GT(store->counters().ahead_hits, 0u);
  EXPECT_THAT(steps, testing::Each(testing::Le(3u)));
  EXPECT_THAT(steps, testing::Contains(1u));
  EXPECT_EQ(store->counters().failed, 0u);
}

TEST_F(ExpertStoreTest, TheProfileSurvivesAndIsBoundToItsModel) {
  MemoryFileSystem& files = converted_->files;
  {
    ExpertStoreOptions options;
    options.profile_path = "profile";
    const auto store = open(files, 2, options);
    const ExpertUse uses[] = {{6, 1}, {7, 1}};
    for (int i = 0; i < 5; ++i) {
      for (const std::uint32_t layer : {0u, 1u}) {
        store->begin(layer, uses, true);
        while (!store->next().empty()) continue;
      }
    }
  }
  ASSERT_TRUE(files.exists("profile"));
  EXPECT_FALSE(files.exists("profile.partial"));
  ExpertStoreOptions options;
  options.profile_path = "profile";
  const auto store = open(files, 4, options);
  for (const std::uint32_t layer : {0u, 1u})
    for (const std::uint32_t expert : {6u, 7u})
      EXPECT_EQ(store->lifetime(layer, expert), ExpertLifetime::resident);

  ExpertProfile same(1, [&] {
    std::vector<std::uint32_t> counts;
    for (const ExpertsWeights* weights : layers()) counts.push_back(weights->gate.count);
    return counts;
  }());
  EXPECT_TRUE(same.load(files, "profile"));
  ExpertProfile other(2, {8, 8});
  EXPECT_EQ(other.load(files, "profile").error().code, ErrorCode::invalid_argument);
  const Bytes good = *files.get("profile");
  for (std::size_t size = 0; size < good.size(); size += 7) {
    files.put("profile", Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_FALSE(same.load(files, "profile")) << size;
  }
  for (std::size_t at = 0; at < good.size(); at += 5) {
    Bytes damaged = good;
    damaged[at] ^= std::byte{0x20};
    files.put("profile", damaged);
    EXPECT_FALSE(same.load(files, "profile")) << at;
  }
}

// A mistyped --expert-profile once replaced the file that it named.
TEST_F(ExpertStoreTest, AFileThatIsNoProfileIsLeftAlone) {
  MemoryFileSystem& files = converted_->files;
  const Bytes foreign(500, std::byte{'x'});
  files.put("notes", foreign);
  {
    ExpertStoreOptions options;
    options.profile_path = "notes";
    const auto store = open(files, 2, options);
    const ExpertUse uses[] = {{6, 1}};
    store->begin(0, uses, true);
    while (!store->next().empty()) continue;
  }
  EXPECT_EQ(*files.get("notes"), foreign);
}

TEST_F(ExpertStoreTest, TooLittleIsRefusedWithTheNumbers) {
  ExpertStoreOptions options;
  options.bytes = ExpertStore::least_bytes(layers()) - 1;
  const auto store =
      ExpertStore::open(converted_->files, converted_->model->paths, layers(), 1, options);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::exhausted);
  EXPECT_NE(store.error().message.find("at least"), std::string::npos) << store.error().message;
}

TEST(ExpertRam, Words) {
  EXPECT_EQ(expert_ram_from("all")->kind, ExpertRam::Kind::all);
  EXPECT_EQ(expert_ram_from("12G")->of(1), std::uint64_t{12} << 30);
  EXPECT_EQ(expert_ram_from("25%")->of(1000), 250u);
  EXPECT_EQ(expert_ram_from("12.5%")->of(1000), 125u);
  for (const char* wrong : {"", "%", "0%", "101%", "-1%", "nan%", "x", "5Q"})
    EXPECT_FALSE(expert_ram_from(wrong)) << wrong;
}

}  // namespace
}  // namespace strata
