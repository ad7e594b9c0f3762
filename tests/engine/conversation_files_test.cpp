// Saved conversations survive a restart bit for bit; whatever happens to the files, a load gives
// what was saved or nothing.
#include "engine/conversation_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "tests/engine/conversation_fixture.h"

namespace strata::conversations {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::uint64_t kLarge = 1ull << 30;
// What files take: blocks of 4096.
constexpr std::uint64_t kPageRoom = 4096, kPointRoom = 4096;

class ConversationFilesTest : public testing::Test {
 protected:
  ConversationFilesOptions options() const {
    ConversationFilesOptions options;
    options.folder = folder_.path();
    options.budget_bytes = kLarge;
    options.shape = small_shape();
    options.rescan_after = 1h;
    return options;
  }
  std::unique_ptr<ConversationFiles> open() { return open(options()); }
  std::unique_ptr<ConversationFiles> open(const ConversationFilesOptions& options) {
    auto store = ConversationFiles::open(options);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }

  // Waits for it.
  static Result<SavedPoint> load(ConversationFiles& store, const Tokens& prompt) {
    std::promise<void> ready;
    const auto load = store.load(prompt, [&] { ready.set_value(); });
    if (!load->ready()) ready.get_future().wait();
    return load->take();
  }
  static void save(ConversationFiles& store, const Tokens& tokens) {
    store.save(make_point(tokens));
    EXPECT_TRUE(store.flush(60s));
  }
  // The point itself, or a shorter one, or nothing; never anything else.
  static std::size_t loaded_tokens(ConversationFiles& store, const Tokens& prompt) {
    const auto point = load(store, prompt);
    if (!point) return 0;
    EXPECT_TRUE(same_point(*point, Tokens(prompt.begin(), prompt.begin() + point->tokens.size())));
    return point->tokens.size();
  }

  std::vector<fs::path> files(std::string_view end = "") const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().string().ends_with(end)) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }

  TemporaryFolder folder_;
};

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_content(const fs::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// --- what it is for ---

TEST_F(ConversationFilesTest, WhatIsSavedIsLoadedAlsoAfterARestart) {
  // Below, at and above the end of a page; none, one and several full ones.
  for (const std::size_t count : {1, 3, 4, 5, 8, 31}) {
    SCOPED_TRACE(count);
    const Tokens tokens = counting(count, static_cast<TokenId>(1000 * count));
    auto store = open();
    save(*store, tokens);
    EXPECT_EQ(loaded_tokens(*store, tokens + Tokens{5}), count);
    store = open();
    EXPECT_EQ(store->longest(tokens + Tokens{5}), count);
    EXPECT_EQ(loaded_tokens(*store, tokens + Tokens{5}), count);
    EXPECT_EQ(store->counters().loaded, 1u);
  }
}

TEST_F(ConversationFilesTest, AtLeastOneTokenOfThePromptIsLeft) {
  auto store = open();
  save(*store, counting(8));
  EXPECT_EQ(store->longest(counting(8)), 0u);
  EXPECT_EQ(store->longest({}), 0u);
  const auto none = load(*store, counting(8));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::not_found);
  EXPECT_EQ(loaded_tokens(*store, counting(9)), 8u);
}

TEST_F(ConversationFilesTest, AGrownConversationWritesItsNewPagesOnly) {
  auto store = open();
  save(*store, counting(41));
  const std::uint64_t before = store->counters().written_bytes;
  save(*store, counting(50));
  const ConversationShape shape = small_shape();
  EXPECT_EQ(store->counters().written_bytes - before,
            2 * page_file_bytes(shape) + point_file_bytes(shape, 50));
  EXPECT_EQ(files(".page").size(), 12u);
  EXPECT_EQ(files(".point").size(), 2u);
  EXPECT_EQ(loaded_tokens(*store, counting(45)), 41u);
  EXPECT_EQ(loaded_tokens(*store, counting(51)), 50u);
  // A branch shares what comes before it.
  save(*store, counting(20) + counting(8, 500));
  EXPECT_EQ(files(".page").size(), 14u);
}

TEST_F(ConversationFilesTest, ASavedPointIsNotWrittenAgain) {
  auto store = open();
  save(*store, counting(9));
  const std::uint64_t written = store->counters().written_bytes;
  save(*store, counting(9));
  EXPECT_EQ(store->counters().written_bytes, written);
  EXPECT_EQ(store->counters().already_saved, 1u);
  EXPECT_EQ(store->counters().saved, 1u);
}

TEST_F(ConversationFilesTest, ForgottenPointsAndTheirPagesAreGone) {
  auto store = open();
  save(*store, counting(9));
  save(*store, counting(14));
  store->forget(counting(14));
  ASSERT_TRUE(store->flush(60s));
  EXPECT_EQ(store->longest(counting(20)), 9u);
  EXPECT_EQ(files(".page").size(), 2u);
  store->forget(counting(9));
  store->forget(counting(10));  // there is none
  ASSERT_TRUE(store->flush(60s));
  EXPECT_TRUE(files().empty());
}

TEST_F(ConversationFilesTest, FilesAndFolderAreForThisUserAlone) {
  ConversationFilesOptions deeper = options();
  deeper.folder += "/a/b";
  auto store = open(deeper);
  save(*store, counting(9));
  const auto mode = [](const fs::path& path) {
    return static_cast<unsigned>(fs::status(path).permissions());
  };
  EXPECT_EQ(mode(deeper.folder), 0700u);
  for (const auto& entry : fs::directory_iterator(deeper.folder))
    EXPECT_EQ(mode(entry.path()), 0600u) << entry.path();
}

TEST_F(ConversationFilesTest, UnusableFoldersAndOptionsAreErrorsWithASentence) {
  const auto error_of = [&](const ConversationFilesOptions& options) {
    const auto store = ConversationFiles::open(options);
    return store ? std::string("opened") : store.error().message;
  };
  ConversationFilesOptions bad = options();
  write_content(folder_.path() + "/file", "x");
  bad.folder = folder_.path() + "/file";
  EXPECT_THAT(error_of(bad), HasSubstr("there is a file of that name"));
  bad.folder = folder_.path() + "/file/below";
  EXPECT_THAT(error_of(bad), HasSubstr("cannot make the folder"));
  bad.folder = "";
  EXPECT_THAT(error_of(bad), HasSubstr("has no name"));
  bad = options();
  bad.shape.page_tokens = 0;
  EXPECT_EQ(error_of(bad), "page_tokens of a saved conversation is 0; it must be 1..65536");
}

TEST_F(ConversationFilesTest, PointsOfOtherSizesAreDropped) {
  auto store = open();
  SavedPoint point = make_point(counting(9));
  point.pages.pop_back();
  store->save(point);
  point = make_point(counting(9));
  point.state = std::make_shared<Bytes>(small_shape().state_bytes - 1);
  store->save(point);
  point.state = nullptr;
  store->save(point);
  store->save({});
  ASSERT_TRUE(store->flush(60s));
  EXPECT_EQ(store->counters().dropped, 4u);
  EXPECT_TRUE(files().empty());
}

// --- identity ---

TEST_F(ConversationFilesTest, AnotherModelOrShapeNeverSeesThem) {
  const Tokens tokens = counting(9);
  auto store = open();
  save(*store, tokens);
  std::vector<ConversationShape> others(4, small_shape());
  others[0].model += 1;
  others[1].page_tokens = 8;
  others[2].page_bytes += 1;
  others[3].state_bytes += 1;
  for (const ConversationShape& shape : others) {
    ConversationFilesOptions other = options();
    other.shape = shape;
    auto second = open(other);
    EXPECT_EQ(second->longest(tokens + Tokens{1}), 0u);
    EXPECT_GT(second->counters().bytes, 0u) << "they take room all the same";
  }
  EXPECT_EQ(loaded_tokens(*store, tokens + Tokens{1}), 9u);
}

TEST_F(ConversationFilesTest, APointUnderTheNameOfOtherTokensIsNotUsed) {
  auto store = open();
  const Tokens one = counting(9), two = counting(9, 100);
  save(*store, one);
  save(*store, two);
  // As if both had one hash: each lies where the other is looked for.
  const fs::path first =
      folder_.path() / fs::path(file_name(ConversationFile::point, point_id(small_shape(), one)));
  const fs::path second =
      folder_.path() / fs::path(file_name(ConversationFile::point, point_id(small_shape(), two)));
  const std::string first_content = content_of(first);
  write_content(first, content_of(second));
  write_content(second, first_content);
  EXPECT_EQ(loaded_tokens(*store, one + Tokens{1}), 0u);
  EXPECT_EQ(loaded_tokens(*store, two + Tokens{1}), 0u);
  store = open();
  EXPECT_EQ(store->longest(one + Tokens{1}), 0u);
}

// --- damage ---

// Changes one file, and expects that no load gives anything wrong: not from an index made before,
// not from one made after; and that saving again heals it.
class DamageTest : public ConversationFilesTest {
 protected:
  void expect_miss(const fs::path& path, const std::function<void()>& damage,
                   const std::string& what) {
    SCOPED_TRACE(what + " of " + path.extension().string());
    const std::string content = content_of(path);
    const Tokens prompt = counting(12);
    for (const bool reopened : {false, true}) {
      auto store = reopened ? nullptr : open();
      damage();
      if (reopened) store = open();
      EXPECT_EQ(loaded_tokens(*store, prompt), 0u);
      EXPECT_EQ(loaded_tokens(*store, prompt), 0u);
      ASSERT_TRUE(store->flush(60s));
      save(*store, counting(11));
      EXPECT_EQ(loaded_tokens(*store, prompt), 11u) << "saving again does not heal it";
      EXPECT_EQ(store->counters().dropped, 0u);
      store = nullptr;
      fs::remove_all(path);
      write_content(path, content);
      fs::permissions(path, fs::perms(0600));
    }
  }

  void SetUp() override { save(*open(), counting(11)); }
  fs::path point() const { return files(".point").at(0); }
};

TEST_F(DamageTest, AnyChangedByteIsAMiss) {
  for (const fs::path& path : {point(), files(".page").at(0), files(".page").at(1)}) {
    const std::string content = content_of(path);
    for (std::size_t i = 0; i < content.size(); ++i) {
      // Every byte of the header, and some of each part behind it.
      if (i >= kConversationHeaderBytes && i % 5 != 0 && i + 1 != content.size()) continue;
      expect_miss(
          path,
          [&] {
            std::string changed = content;
            changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
            write_content(path, changed);
          },
          fmt::format("byte {}", i));
      if (HasFailure()) return;
    }
  }
}

TEST_F(DamageTest, CutAndLengthenedFilesAreAMiss) {
  for (const fs::path& path : {point(), files(".page").at(0)}) {
    const std::string content = content_of(path);
    for (std::size_t size = 0; size < content.size(); size += size < 130 ? 1 : 7) {
      expect_miss(path, [&] { fs::resize_file(path, size); }, fmt::format("{} bytes", size));
      if (HasFailure()) return;
    }
    expect_miss(path, [&] { fs::resize_file(path, content.size() - 1); }, "one byte less");
    expect_miss(path, [&] { write_content(path, content + "x"); }, "one byte more");
    expect_miss(path, [&] { write_content(path, content + content); }, "twice the content");
    expect_miss(path, [&] { write_content(path, std::string(content.size(), '\0')); }, "zeros");
  }
}

TEST_F(DamageTest, FilesInPlaceOfOthersAreAMiss) {
  const fs::path one = files(".page").at(0), two = files(".page").at(1);
  const std::string first = content_of(one), second = content_of(two), whole = content_of(point());
  expect_miss(one, [&] { write_content(one, second); }, "another page");
  expect_miss(one, [&] { write_content(one, whole); }, "the point");
  expect_miss(point(), [&, path = point()] { write_content(path, first); }, "a page");
  expect_miss(one, [&] { fs::remove(one); }, "absence");
  expect_miss(point(), [&, path = point()] { fs::remove(path); }, "absence");
}

TEST_F(DamageTest, APointUnderAnotherNameIsNotUsed) {
  const std::string name = std::string(32, 'a') + ".point";
  fs::rename(point(), folder_.path() + "/" + name);
  auto store = open();
  EXPECT_EQ(store->longest(counting(12)), 0u);
  save(*store, counting(11));
  EXPECT_EQ(loaded_tokens(*store, counting(12)), 11u);
}

// What is no file of ours is never followed, removed or replaced.
TEST_F(DamageTest, LinksPipesAndFoldersInPlaceOfFiles) {
  const std::string treasure =
      folder_.path() + "/../" + fs::path(folder_.path()).filename().string() + "-treasure";
  for (const fs::path& path : {point(), files(".page").at(0)}) {
    const std::string content = content_of(path);
    const auto put = [&](const std::function<void()>& make) {
      fs::remove_all(path);
      make();
    };
    const std::vector<std::pair<std::string, std::function<void()>>> kinds = {
        {"a symbolic link",
         [&] {
           write_content(treasure, content);
           fs::create_symlink(treasure, path);
         }},
        {"a dangling link", [&] { fs::create_symlink("/nowhere", path); }},
        {"a hard link",
         [&] {
           write_content(treasure, content);
           fs::create_hard_link(treasure, path);
         }},
        {"a pipe", [&] { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }},
        {"a folder", [&] {
           fs::create_directory(path);
           write_content(path / "inside", "x");
         }}};
    for (const auto& [what, make] : kinds) {
      SCOPED_TRACE(what + " in place of a " + path.extension().string());
      for (const bool reopened : {false, true}) {
        auto store = reopened ? nullptr : open();
        put(make);
        if (reopened) store = open();
        EXPECT_EQ(loaded_tokens(*store, counting(12)), 0u);
        store->forget(counting(11));
        ASSERT_TRUE(store->flush(60s));
        EXPECT_TRUE(fs::exists(fs::symlink_status(path))) << "it was removed";
        if (what == "a symbolic link" || what == "a hard link") {
          EXPECT_EQ(content_of(treasure), content);
        }
        // The store goes on.
        save(*store, counting(3, 900));
        EXPECT_EQ(loaded_tokens(*store, counting(4, 900)), 3u);
        store->save(make_point(counting(11)));
        ASSERT_TRUE(store->flush(60s));
        EXPECT_LE(loaded_tokens(*store, counting(12)), 11u);
        if (what == "a symbolic link" || what == "a hard link") {
          EXPECT_EQ(content_of(treasure), content);
        }
        store = nullptr;
        for (const fs::path& old : files()) fs::remove_all(old);
        save(*open(), counting(11));
      }
    }
  }
  fs::remove(treasure);
}

TEST_F(DamageTest, ForeignFilesStayAndAreLoggedOnce) {
  const std::vector<std::string> names = {
      "README",  std::string(32, '0') + ".page",  std::string(32, '1') + ".point",
      ".hidden", std::string(32, 'A') + ".point", "strata-.tmp"};
  for (const std::string& name : names) write_content(folder_.path() + "/" + name, "not ours");
  ConversationFilesOptions quick = options();
  quick.rescan_after = 1ms;
  quick.budget_bytes = kPointRoom + kPageRoom;  // everything of ours has to go
  testing::internal::CaptureStderr();
  auto store = open(quick);
  for (int i = 0; i < 20; ++i) {
    write_content(folder_.path() + "/more", std::to_string(i));
    std::this_thread::sleep_for(2ms);
  }
  store = nullptr;
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("cannot be used"));
  std::size_t lines = 0;
  for (const char c : log) lines += c == '\n';
  EXPECT_LE(lines, 3u) << log;
  for (const std::string& name : names)
    EXPECT_EQ(content_of(folder_.path() + "/" + name), "not ours") << name;
}

// --- room ---

TEST_F(ConversationFilesTest, TheLeastRecentlyUsedGoesFirstAlsoAfterARestart) {
  ConversationFilesOptions small = options();
  small.budget_bytes = 3 * (kPointRoom + kPageRoom);
  auto store = open(small);
  const auto tokens = [](int i) { return counting(5, 100 * i); };
  const auto kept = [&](int i) { return store->longest(tokens(i) + Tokens{1}) == 5; };
  for (int i = 0; i < 3; ++i) {
    save(*store, tokens(i));
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(loaded_tokens(*store, tokens(0) + Tokens{1}), 5u);  // a use
  ASSERT_TRUE(store->flush(60s));
  std::this_thread::sleep_for(20ms);
  store = open(small);
  EXPECT_TRUE(kept(0) && kept(1) && kept(2));
  save(*store, tokens(3));
  EXPECT_TRUE(kept(0) && !kept(1) && kept(2) && kept(3));
  std::this_thread::sleep_for(20ms);
  save(*store, tokens(2));  // noted as a use, although nothing is written
  save(*store, tokens(4));
  EXPECT_TRUE(!kept(0) && kept(2) && kept(3) && kept(4));
  EXPECT_EQ(store->counters().evicted, 2u);
  EXPECT_LE(store->counters().bytes, small.budget_bytes);
  EXPECT_EQ(files(".page").size(), 3u);
  EXPECT_EQ(files(".point").size(), 3u);
}

TEST_F(ConversationFilesTest, PagesThatOthersNeedStayWhenAPointGoes) {
  ConversationFilesOptions small = options();
  small.budget_bytes = 3 * kPointRoom + 4 * kPageRoom;
  auto store = open(small);
  save(*store, counting(8) + counting(5, 100));
  std::this_thread::sleep_for(20ms);
  save(*store, counting(8) + counting(5, 200));
  std::this_thread::sleep_for(20ms);
  save(*store, counting(8) + counting(5, 300));
  EXPECT_EQ(loaded_tokens(*store, counting(8) + counting(6, 100)), 0u);
  EXPECT_EQ(loaded_tokens(*store, counting(8) + counting(6, 200)), 13u);
  EXPECT_EQ(loaded_tokens(*store, counting(8) + counting(6, 300)), 13u);
}

TEST_F(ConversationFilesTest, WhatIsLargerThanTheBudgetIsDroppedAndLeavesNothing) {
  ConversationFilesOptions small = options();
  small.budget_bytes = 4 * 4096;
  auto store = open(small);
  save(*store, counting(40));
  EXPECT_EQ(store->counters().dropped, 1u);
  EXPECT_EQ(store->longest(counting(41)), 0u);
  EXPECT_FALSE(store->counters().paused) << "nothing is wrong with the disk";
  EXPECT_TRUE(files().empty());
  save(*store, counting(5));
  EXPECT_EQ(loaded_tokens(*store, counting(6)), 5u);
}

TEST_F(ConversationFilesTest, OtherModelsFilesCountAndGoInTheirTurn) {
  ConversationFilesOptions first = options(), second = options();
  second.shape.model = 99;
  first.budget_bytes = second.budget_bytes = 2 * (kPointRoom + kPageRoom);
  auto store = open(first);
  save(*store, counting(5));
  std::this_thread::sleep_for(20ms);
  save(*store, counting(5, 100));
  store = nullptr;
  std::this_thread::sleep_for(20ms);
  auto other = open(second);
  other->save(make_point(counting(5), second.shape));
  ASSERT_TRUE(other->flush(60s));
  EXPECT_EQ(other->longest(counting(6)), 5u);
  store = open(first);
  EXPECT_EQ(store->longest(counting(6)), 0u) << "the oldest had to go";
  EXPECT_EQ(loaded_tokens(*store, counting(6, 100)), 5u);
  EXPECT_EQ(files(".page").size(), 2u);
}

TEST_F(ConversationFilesTest, FilesOfOtherVersionsAreOursAndGoInTheirTurn) {
  save(*open(), counting(5));
  const fs::path path = files(".point").at(0);
  std::string content = content_of(path);
  content[8] = 2;
  const std::uint64_t hash = hash64(std::string_view(content).substr(0, 120));
  std::memcpy(content.data() + 120, &hash, sizeof hash);
  write_content(path, content);
  testing::internal::CaptureStderr();
  ConversationFilesOptions small = options();
  small.budget_bytes = kPointRoom;
  auto store = open(small);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("has version 2, and this program writes version 1"));
  EXPECT_EQ(store->longest(counting(6)), 0u);
  EXPECT_TRUE(files(".point").empty() || store->counters().bytes <= small.budget_bytes);
}

TEST_F(ConversationFilesTest, AbandonedFilesGoAfterAnHour) {
  save(*open(), counting(5));
  const auto age = [](const fs::path& path, std::chrono::minutes by) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - by);
  };
  const std::string fresh = folder_.path() + "/" + temporary_name(1),
                    old = folder_.path() + "/" + temporary_name(2);
  write_content(fresh, "x");
  write_content(old, "x");
  age(old, 61min);
  age(fresh, 59min);
  const fs::path page = files(".page").at(0);
  fs::remove(files(".point").at(0));
  age(page, 59min);
  auto store = open();
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(page)) << "its point may still come";
  store = nullptr;
  age(page, 61min);
  store = open();
  EXPECT_FALSE(fs::exists(page));
}

// --- the queue ---

// Holds all writes until told.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST_F(ConversationFilesTest, TheQueueIsBoundedAndSharedPagesCountOnce) {
  Gate gate;
  FaultyFileSystem slow(real_files(), [&](const FaultyFileSystem::Call& call) {
    if (call.operation == FaultyFileSystem::Operation::write) gate.wait();
    return Result<std::size_t>(call.size);
  });
  const ConversationShape shape = small_shape();
  ConversationFilesOptions bounded = options();
  bounded.files = &slow;
  bounded.queue_bytes = 4 * shape.page_bytes + 2 * shape.state_bytes;
  auto store = open(bounded);
  const SavedPoint whole = make_point(counting(15));
  SavedPoint shorter = make_point(counting(12));
  std::copy_n(whole.pages.begin(), 3, shorter.pages.begin());
  store->save(whole);
  store->save(shorter);  // only its state is new
  EXPECT_EQ(store->counters().queued_bytes, 4 * shape.page_bytes + 2 * shape.state_bytes);
  store->save(make_point(counting(2, 100)));
  EXPECT_EQ(store->counters().dropped, 1u);
  EXPECT_FALSE(store->flush(10ms));
  gate.open();
  EXPECT_TRUE(store->flush(60s));
  EXPECT_EQ(store->counters().queued_bytes, 0u);
  EXPECT_EQ(loaded_tokens(*store, counting(16)), 15u);
  EXPECT_EQ(loaded_tokens(*store, counting(13)), 12u);
}

TEST_F(ConversationFilesTest, ALoadCanBeDroppedAtAnyTime) {
  auto store = open();
  save(*store, counting(400));
  for (int i = 0; i < 200; ++i) {
    std::atomic<bool> alive = true, late = false;
    auto load = store->load(counting(401), [&] { late = late || !alive; });
    if (i % 3 > 0) std::this_thread::sleep_for(std::chrono::microseconds(i * 10));
    load = nullptr;
    alive = false;
    EXPECT_FALSE(late);
  }
  EXPECT_EQ(loaded_tokens(*store, counting(401)), 400u);
}

TEST_F(ConversationFilesTest, LoadsEndWhenTheStoreDoes) {
  auto store = open();
  save(*store, counting(400));
  std::vector<std::unique_ptr<ConversationLoad>> loads;
  std::atomic<int> woken = 0;
  for (int i = 0; i < 30; ++i) loads.push_back(store->load(counting(401), [&] { ++woken; }));
  store = nullptr;
  EXPECT_EQ(woken, 30);
  for (const auto& load : loads) {
    ASSERT_TRUE(load->ready());
    const auto point = load->take();
    if (point)
      EXPECT_TRUE(same_point(*point, counting(400)));
    else
      EXPECT_EQ(point.error().code, ErrorCode::unavailable);
    EXPECT_FALSE(load->take()) << "twice";
  }
}

TEST_F(ConversationFilesTest, TooManyLoadsAreRefusedAtOnce) {
  Gate gate;
  std::atomic<bool> hold = false;
  FaultyFileSystem slow(real_files(), [&](const FaultyFileSystem::Call& call) {
    if (hold && call.operation == FaultyFileSystem::Operation::read) gate.wait();
    return Result<std::size_t>(call.size);
  });
  ConversationFilesOptions held = options();
  held.files = &slow;
  auto store = open(held);
  save(*store, counting(40));
  hold = true;
  std::vector<std::unique_ptr<ConversationLoad>> loads;
  for (int i = 0; i < 100; ++i) loads.push_back(store->load(counting(41), [] {}));
  ASSERT_TRUE(loads.back()->ready());
  EXPECT_EQ(loads.back()->take().error().code, ErrorCode::exhausted);
  EXPECT_FALSE(loads.front()->ready());
  gate.open();
  while (!loads.front()->ready()) std::this_thread::sleep_for(1ms);
  loads.clear();
  while (loaded_tokens(*store, counting(41)) != 40u) std::this_thread::sleep_for(1ms);
}

// --- a failing disk ---

using Operation = FaultyFileSystem::Operation;

// Fails the call number `at`, or that and all later ones.
struct Breaker {
  std::atomic<std::int64_t> left = INT64_MAX;
  std::atomic<bool> stays_broken = false;
  std::atomic<bool> short_counts = false;

  FaultyFileSystem::Fault fault() {
    return [this](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
      const std::int64_t now = --left;
      if (now > 0 || (now < 0 && !stays_broken)) return call.size;
      if (short_counts && call.size > 0) return call.size / 2;
      return fail(ErrorCode::io, "injected at operation {} on '{}'",
                  static_cast<int>(call.operation), call.path);
    };
  }
};

TEST_F(ConversationFilesTest, AnErrorAtAnyOperationCostsNoMoreThanWhatWasToBeSaved) {
  for (const bool stays : {false, true}) {
    for (const bool shortened : {false, true}) {
      for (std::int64_t at = 1; at < 120; ++at) {
        SCOPED_TRACE(fmt::format("call {}{}{}", at, stays ? " and all after it" : "",
                                 shortened ? ", short counts" : ""));
        TemporaryFolder folder;
        Breaker breaker;
        FaultyFileSystem files(real_files(), breaker.fault());
        ConversationFilesOptions faulty = options();
        faulty.folder = folder.path();
        faulty.files = &files;
        faulty.retry_after = 0ms;
        faulty.budget_bytes = 8 * 4096;
        auto store = open(faulty);
        save(*store, counting(9));
        breaker.short_counts = shortened;
        breaker.stays_broken = stays;
        breaker.left = at;
        save(*store, counting(14));
        (void)loaded_tokens(*store, counting(10));
        (void)loaded_tokens(*store, counting(15));
        save(*store, counting(9, 100));  // something has to go
        store->forget(counting(14));
        (void)store->flush(60s);
        const bool reached = breaker.left <= 0;
        breaker.stays_broken = false;
        breaker.left = INT64_MAX;
        // The disk is well again.
        save(*store, counting(13, 200));
        EXPECT_EQ(loaded_tokens(*store, counting(14, 200)), 13u);
        EXPECT_LE(store->counters().bytes, faulty.budget_bytes);
        store = nullptr;
        faulty.files = nullptr;
        store = open(faulty);
        for (const TokenId first : {0, 100, 200}) (void)loaded_tokens(*store, counting(15, first));
        if (!reached || HasFailure()) break;
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(ConversationFilesTest, AFullDiskIsOneLineAndSavingIsTriedAgainLater) {
  std::atomic<bool> full = false;
  FaultyFileSystem files(real_files(), [&](const FaultyFileSystem::Call& call) {
    const bool short_write = full && call.operation == Operation::write;
    return Result<std::size_t>(short_write ? call.size / 2 : call.size);
  });
  ConversationFilesOptions faulty = options();
  faulty.files = &files;
  faulty.retry_after = 200ms;
  auto store = open(faulty);
  save(*store, counting(9));
  full = true;
  testing::internal::CaptureStderr();
  for (int i = 1; i < 20; ++i) save(*store, counting(9, 100 * i));
  EXPECT_TRUE(store->counters().paused);
  EXPECT_EQ(store->counters().dropped, 19u);
  EXPECT_EQ(loaded_tokens(*store, counting(10)), 9u) << "loading goes on";
  std::this_thread::sleep_for(250ms);
  save(*store, counting(9, 5000));
  full = false;
  std::this_thread::sleep_for(250ms);
  EXPECT_FALSE(store->counters().paused);
  save(*store, counting(9, 6000));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(loaded_tokens(*store, counting(10, 6000)), 9u);
  EXPECT_THAT(log, HasSubstr("No space left on device"));
  EXPECT_THAT(log, HasSubstr("again"));
  std::size_t lines = 0;
  for (const char c : log) lines += c == '\n';
  EXPECT_EQ(lines, 2u) << log;
  EXPECT_TRUE(this->files(".tmp").empty());
}

}  // namespace
}  // namespace strata::conversations
