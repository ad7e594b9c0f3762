// Conversations in files of their own (the slots' save, restore and erase): the files themselves,
// and as a client of the engine sees them.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "tests/engine/answers.h"
#include "tests/engine/conversation_fixture.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using conversations::counting;
using conversations::make_point;
using conversations::same_point;
using conversations::small_shape;
using conversations::TemporaryFolder;
using conversations::Tokens;
using testing::HasSubstr;

// The files ------------------------------------------------------------------------------------

constexpr const char* kPath = "folder/name";

WholeConversation whole(std::size_t tokens, std::size_t before) {
  WholeConversation conversation;
  conversation.end = make_point(counting(tokens));
  conversation.before_tokens = static_cast<std::uint32_t>(before);
  if (before > 0) conversation.before_state = make_point(counting(before)).state;
  return conversation;
}

Result<std::uint64_t> save(FileSystem& files, std::size_t tokens, std::size_t before) {
  return write_whole(files, "folder", "name", small_shape(), whole(tokens, before));
}

Result<ReadConversation> load(FileSystem& files, const WholeLimits& limits = {}) {
  return read_whole(files, kPath, small_shape(), limits);
}

TEST(WholeConversation, ComesBackBitForBit) {
  for (const auto& [tokens, before] :
       {std::pair{1, 0}, std::pair{4, 3}, std::pair{10, 0}, std::pair{10, 8}, std::pair{12, 5}}) {
    MemoryFileSystem files;
    const auto size = static_cast<std::size_t>(tokens);
    const auto earlier = static_cast<std::size_t>(before);
    const auto written = save(files, size, earlier);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(*written, files.get(kPath)->size());
    const auto read = load(files);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->bytes, *written);
    EXPECT_TRUE(same_point(read->conversation.end, counting(size)));
    EXPECT_EQ(read->conversation.before_tokens, earlier);
    if (before > 0) {
      EXPECT_EQ(*read->conversation.before_state, *make_point(counting(earlier)).state);
    }
    EXPECT_EQ(files.list("folder")->size(), 1u) << "nothing else is left";
  }
}

TEST(WholeConversation, EveryBitCounts) {
  MemoryFileSystem files;
  ASSERT_TRUE(save(files, 10, 8));
  const Bytes good = *files.get(kPath);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const unsigned bit : {0u, 7u}) {
      Bytes bad = good;
      bad[at] ^= static_cast<std::byte>(1u << bit);
      files.put(kPath, std::move(bad));
      EXPECT_FALSE(load(files)) << at;
    }
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    files.put(kPath, Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_FALSE(load(files)) << size;
  }
  Bytes longer = good;
  longer.push_back({});
  files.put(kPath, std::move(longer));
  EXPECT_FALSE(load(files));
}

TEST(WholeConversation, IsCheckedBeforeAnythingIsAllocated) {
  MemoryFileSystem files;
  const std::uint64_t bytes = save(files, 10, 0).value();
  EXPECT_EQ(load(files, {.tokens = 9}).error().code, ErrorCode::exhausted);
  EXPECT_EQ(load(files, {.bytes = bytes - 1}).error().code, ErrorCode::exhausted);
  EXPECT_TRUE(load(files, {.tokens = 10, .bytes = bytes}));
  ConversationShape other = small_shape();
  ++other.model;
  EXPECT_EQ(read_whole(files, kPath, other, {}).error().code, ErrorCode::unsupported);
  EXPECT_EQ(read_whole(files, "folder/none", small_shape(), {}).error().code, ErrorCode::not_found);
  // Headers that lie although their hash is right.
  const auto set = [&](std::size_t offset, std::uint32_t value) {
    Bytes lie = *files.get(kPath);
    std::memcpy(lie.data() + offset, &value, sizeof value);
    const std::uint64_t hash = hash64(std::span<const std::byte>(lie).first(120));
    std::memcpy(lie.data() + 120, &hash, sizeof hash);
    MemoryFileSystem liar;
    liar.put(kPath, std::move(lie));
    return load(liar).error();
  };
  EXPECT_EQ(set(8, 2).code, ErrorCode::unsupported);
  for (const std::uint32_t kind : {0u, 1u, 2u, 4u})
    EXPECT_EQ(set(12, kind).code, ErrorCode::corrupt);
  for (const std::uint32_t tokens : {0u, 9u, 11u, 1u << 22, 0xffff'ffffu})
    EXPECT_EQ(set(44, tokens).code, ErrorCode::corrupt) << tokens;
  for (const std::uint32_t before : {5u, 10u, 11u, 0xffff'ffffu})
    EXPECT_EQ(set(88, before).code, ErrorCode::corrupt) << before;
}

// Whatever fails, and wherever: the old file stays, and nothing else does.
TEST(WholeConversation, ADiskThatFailsCostsNothing) {
  using Operation = FaultyFileSystem::Operation;
  for (const Operation operation : {Operation::make_folder, Operation::create, Operation::write,
                                    Operation::finish, Operation::rename, Operation::examine}) {
    for (int which = 0; which < 6; ++which) {
      MemoryFileSystem files;
      ASSERT_TRUE(save(files, 6, 0));
      const Bytes old = *files.get(kPath);
      int seen = 0;
      FaultyFileSystem faulty(files,
                              [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
                                if (call.operation != operation || seen++ != which)
                                  return call.size;
                                return fail(ErrorCode::io, "No space left on device");
                              });
      const auto written = save(faulty, 10, 8);
      if (seen <= which) continue;
      EXPECT_FALSE(written);
      EXPECT_EQ(*files.get(kPath), old);
      EXPECT_EQ(files.list("folder")->size(), 1u);
    }
  }
}

TEST(WholeConversation, ReplacesNothingElse) {
  TemporaryFolder folder;
  const auto save_as = [&](const std::string& name) {
    return write_whole(real_files(), folder.path(), name, small_shape(), whole(10, 8));
  };
  const std::string precious = folder.path() + "/precious";
  std::ofstream(precious) << "something that is long enough to be a header, and is none";
  EXPECT_EQ(save_as("precious").error().code, ErrorCode::invalid_argument);
  fs::create_symlink(precious, folder.path() + "/link");
  EXPECT_EQ(save_as("link").error().code, ErrorCode::invalid_argument);
  fs::create_symlink(folder.path() + "/nowhere", folder.path() + "/dangling");
  EXPECT_EQ(save_as("dangling").error().code, ErrorCode::invalid_argument);
  fs::create_directory(folder.path() + "/folder");
  EXPECT_EQ(save_as("folder").error().code, ErrorCode::invalid_argument);
  ASSERT_TRUE(save_as("ours"));
  ASSERT_TRUE(save_as("ours"));
  fs::create_symlink(folder.path() + "/ours", folder.path() + "/to-ours");
  EXPECT_EQ(save_as("to-ours").error().code, ErrorCode::invalid_argument);
  for (const char* name : {"precious", "link", "dangling", "folder", "to-ours"})
    EXPECT_FALSE(read_whole(real_files(), folder.path() + "/" + name, small_shape(), {})) << name;
  EXPECT_TRUE(read_whole(real_files(), folder.path() + "/ours", small_shape(), {}));
  EXPECT_EQ(fs::status(folder.path() + "/ours").permissions() & fs::perms(0077), fs::perms::none);
}

// The engine ------------------------------------------------------------------------------------

class SlotFiles : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_draft_model();
    ASSERT_NE(model_, nullptr);
    reference_ = open(test::without_drafts_and_cache());
  }
  std::unique_ptr<Engine> open(EngineOptions options) {
    options.model_path = "model.gguf";
    options.threads = 1;
    auto engine = Engine::open(model_->files, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }
  std::unique_ptr<Engine> open() {
    EngineOptions options;
    options.cache.ram_bytes = std::uint64_t{16} << 20;
    options.cache.gap = 1;
    return open(options);
  }
  static Result<ConversationResult> tell(Engine& engine, ConversationTask::Kind kind,
                                         const Tokens& tokens, const std::string& path) {
    std::promise<Result<ConversationResult>> told;
    engine.conversation({kind, tokens, path}, [&](Result<ConversationResult> result) {
      told.set_value(std::move(result));
    });
    return told.get_future().get();
  }
  Result<ConversationResult> save(Engine& engine, const Tokens& tokens) {
    return tell(engine, ConversationTask::Kind::save, tokens, path());
  }
  Result<ConversationResult> restore(Engine& engine) {
    return tell(engine, ConversationTask::Kind::restore, {}, path());
  }
  std::string path() const { return folder_.path() + "/sub/slot"; }
  // Asks, and compares with the answer of an engine without caches.
  test::Answer ask(Engine& engine, const Tokens& prompt, std::uint32_t answer = 12) {
    Request request;
    request.prompt = prompt;
    request.max_tokens = answer;
    test::Answer given = test::run(engine, request);
    EXPECT_EQ(given, test::run(*reference_, request));
    return given;
  }
  static Tokens prompt(std::size_t size, TokenId first = 1) {
    Tokens tokens = {257};
    for (std::size_t i = 1; i + 3 < size; ++i)
      tokens.push_back(static_cast<TokenId>((first + 7 * static_cast<TokenId>(i)) % 250));
    for (const TokenId last : {257, 1, 3}) tokens.push_back(last);
    return tokens;
  }

  std::unique_ptr<test::Converted> model_;
  std::unique_ptr<Engine> reference_;
  TemporaryFolder folder_;
};

TEST_F(SlotFiles, AnotherProcessGoesOnFromWhatWasSaved) {
  for (const std::size_t size : {20, 64, 100, 200}) {
    Tokens all = prompt(size);
    const Tokens question = all;
    std::uint64_t bytes = 0;
    {
      const auto engine = open();
      const auto answer = ask(*engine, all);
      all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
      const auto saved = save(*engine, all);
      ASSERT_TRUE(saved) << saved.error().message;
      EXPECT_GE(saved->tokens.size() + 1, all.size());
      bytes = saved->bytes;
      EXPECT_EQ(bytes, fs::file_size(path()));
    }
    const auto engine = open();
    const auto restored = restore(*engine);
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(restored->bytes, bytes);
    Tokens next = all;
    for (const TokenId id : {257, 9, 8, 257, 1, 3}) next.push_back(id);
    EXPECT_GE(ask(*engine, next).completion.cached_tokens + 1, all.size());
    // A client that sends the answer back as something else goes on from its opening.
    const auto fresh = open();
    ASSERT_TRUE(restore(*fresh));
    Tokens other = question;
    for (const TokenId id : {77, 78, 257, 9, 8, 257, 1, 3}) other.push_back(id);
    EXPECT_GE(ask(*fresh, other).completion.cached_tokens + 3, question.size());
  }
}

TEST_F(SlotFiles, WhatIsForgottenIsReadAgainAndMayBeRestored) {
  const auto engine = open();
  Tokens all = prompt(120);
  const auto answer = ask(*engine, all);
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  ASSERT_TRUE(save(*engine, all));
  const auto gone = tell(*engine, ConversationTask::Kind::erase, all, "");
  ASSERT_TRUE(gone) << gone.error().message;
  EXPECT_GE(gone->tokens.size() + 1, all.size());
  EXPECT_EQ(save(*engine, all).error().code, ErrorCode::not_found);
  Tokens next = all;
  for (const TokenId id : {257, 9, 257, 1, 3}) next.push_back(id);
  EXPECT_EQ(ask(*engine, next).completion.cached_tokens, 0u);
  ASSERT_TRUE(tell(*engine, ConversationTask::Kind::erase, next, ""));
  ASSERT_TRUE(restore(*engine));
  EXPECT_GE(ask(*engine, next).completion.cached_tokens + 1, all.size());
}

TEST_F(SlotFiles, ForgettingLeavesWhatOthersGoOnFrom) {
  const auto engine = open();
  const Tokens root = prompt(100);
  Tokens one = root, two = root;
  for (const TokenId id : {257, 5, 6, 7, 257, 1, 3}) one.push_back(id);
  for (const TokenId id : {257, 9, 9, 9, 257, 1, 3}) two.push_back(id);
  ask(*engine, root);
  ask(*engine, one);
  ask(*engine, two);
  ASSERT_TRUE(tell(*engine, ConversationTask::Kind::erase, one, ""));
  EXPECT_GT(ask(*engine, two).completion.cached_tokens, 90u);
}

TEST_F(SlotFiles, AlsoThoseOfTheDisk) {
  TemporaryFolder cache;
  EngineOptions options;
  options.cache.ram_bytes = std::uint64_t{16} << 20;
  options.cache.gap = 1;
  options.cache.folder = cache.path();
  Tokens all = prompt(120);
  {
    const auto engine = open(options);
    const auto answer = ask(*engine, all);
    all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  }
  const auto engine = open(options);  // memory has nothing
  const auto saved = save(*engine, all);
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_GE(saved->tokens.size() + 1, all.size());
  const auto gone = tell(*engine, ConversationTask::Kind::erase, all, "");
  ASSERT_TRUE(gone);
  EXPECT_GE(gone->tokens.size() + 1, all.size());
  Tokens next = all;
  for (const TokenId id : {257, 9, 257, 1, 3}) next.push_back(id);
  EXPECT_EQ(ask(*engine, next).completion.cached_tokens, 0u);
}

TEST_F(SlotFiles, WhatCannotBeRestoredChangesNothing) {
  const auto engine = open();
  Tokens all = prompt(200);
  const auto answer = ask(*engine, all);
  all.insert(all.end(), answer.tokens.begin(), answer.tokens.end());
  ASSERT_TRUE(save(*engine, all));
  // Counters follow the round in which a task was begun: the second finds those of the first's.
  for (int i = 0; i < 2; ++i)
    EXPECT_FALSE(tell(*engine, ConversationTask::Kind::restore, {}, folder_.path() + "/none"));
  const EngineCounters before = engine->counters();
  const auto size = static_cast<std::streamoff>(fs::file_size(path()));
  for (const std::streamoff at :
       {std::streamoff{0}, std::streamoff{20}, std::streamoff{130}, size / 2, size - 1}) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char old = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(old ^ 4));
    file.close();
    const auto restored = restore(*engine);
    EXPECT_FALSE(restored) << at;
    EXPECT_EQ(engine->counters().cache.bytes, before.cache.bytes);
    std::fstream mend(path(), std::ios::in | std::ios::out | std::ios::binary);
    mend.seekp(at);
    mend.put(old);
  }
  EXPECT_TRUE(restore(*engine));
  EngineOptions small;
  small.cache.ram_bytes = 1000;
  EXPECT_THAT(restore(*open(small)).error().message, HasSubstr("cache_ram"));
  EXPECT_EQ(
      tell(*engine, ConversationTask::Kind::restore, {}, folder_.path() + "/none").error().code,
      ErrorCode::not_found);
  EXPECT_EQ(save(*engine, prompt(50, 3)).error().code, ErrorCode::not_found);
}

// Requests go on meanwhile, and an engine that ends tells everybody.
TEST_F(SlotFiles, BesideRequestsAndAtTheEnd) {
  auto engine = open();
  Tokens all = prompt(120);
  ask(*engine, all);
  std::atomic<int> told{0}, wrong{0};
  const auto busy = test::submit(*engine, [&] {
    Request request;
    request.prompt = prompt(40, 5);
    request.max_tokens = 300;
    return request;
  }());
  for (int i = 0; i < 12; ++i) {
    const auto kind = i % 3 == 0   ? ConversationTask::Kind::save
                      : i % 3 == 1 ? ConversationTask::Kind::restore
                                   : ConversationTask::Kind::erase;
    engine->conversation({kind, all, path()}, [&](const Result<ConversationResult>& result) {
      if (!result && result.error().code != ErrorCode::not_found &&
          result.error().code != ErrorCode::unavailable)
        ++wrong;
      ++told;
    });
  }
  engine.reset();
  EXPECT_EQ(told, 12);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace strata
