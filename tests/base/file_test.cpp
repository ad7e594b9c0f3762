// The file layer: real files, files in memory and faults behave as file.h says.
#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/checked.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Operation = FaultyFileSystem::Operation;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
Bytes to_bytes(std::string_view text) {
  return Bytes(bytes_of(text).begin(), bytes_of(text).end());
}
std::string to_text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void write_file(FileSystem& files, const std::string& path, std::string_view text) {
  auto out = files.create(path);
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE((*out)->write(bytes_of(text)));
  ASSERT_TRUE((*out)->finish());
}

// Each test of FileTest runs on the machine's files and in memory.
class FileTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) return;
    std::string pattern = testing::TempDir() + "strata-file-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (GetParam()) std::filesystem::remove_all(folder_);
  }
  FileSystem& files() { return GetParam() ? real_files() : memory_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_ = "folder";
  MemoryFileSystem memory_;
};
INSTANTIATE_TEST_SUITE_P(RealAndMemory, FileTest, testing::Bool());

TEST_P(FileTest, WritesReadsAndMaps) {
  auto out = files().create(path("a"));
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE((*out)->write(bytes_of("hello ")));
  ASSERT_TRUE((*out)->write(bytes_of("world")));
  ASSERT_TRUE((*out)->write_at(0, bytes_of("J")));
  ASSERT_TRUE((*out)->write(bytes_of("!")));
  ASSERT_TRUE((*out)->finish());

  auto file = files().open(path("a"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->size(), 12u);
  EXPECT_EQ((*file)->path(), path("a"));
  Bytes buffer(5);
  ASSERT_TRUE((*file)->read_exact(6, buffer));
  EXPECT_EQ(to_text(buffer), "world");
  EXPECT_EQ((*file)->read_at(10, buffer).value(), 2u);
  EXPECT_EQ((*file)->read_at(12, buffer).value(), 0u);
  EXPECT_EQ((*file)->read_at(1u << 20, buffer).value(), 0u);
  const Status status = (*file)->read_exact(10, buffer);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_EQ(status.error().message,
            fmt::format("'{}' ends early: 5 bytes wanted at offset 10, 2 read", path("a")));

  auto mapping = (*file)->map();
  ASSERT_TRUE(mapping);
  file->reset();  // a mapping outlives its file
  EXPECT_EQ(to_text((*mapping)->bytes()), "Jello world!");
}

TEST_P(FileTest, OverwritingStaysInsideWhatWasWritten) {
  auto out = files().create(path("a"));
  ASSERT_TRUE(out);
  ASSERT_TRUE((*out)->write(bytes_of("abc")));
  EXPECT_TRUE((*out)->write_at(1, bytes_of("xy")));
  const Status status = (*out)->write_at(2, bytes_of("xy"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE((*out)->write_at(UINT64_MAX, bytes_of("xy")));
  ASSERT_TRUE((*out)->finish());
  EXPECT_FALSE((*out)->write(bytes_of("more")));
  EXPECT_EQ(files().read_text(path("a")).value(), "axy");
}

TEST_P(FileTest, EmptyFile) {
  write_file(files(), path("empty"), "");
  auto file = files().open(path("empty"));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->size(), 0u);
  EXPECT_TRUE((*file)->map().value()->bytes().empty());
  EXPECT_EQ(files().read_text(path("empty")).value(), "");
}

TEST_P(FileTest, CreateTruncatesAndRenameReplaces) {
  write_file(files(), path("a"), "a long content");
  write_file(files(), path("a"), "new");
  write_file(files(), path("b"), "old");
  ASSERT_TRUE(files().rename(path("a"), path("b")));
  EXPECT_FALSE(files().exists(path("a")));
  EXPECT_EQ(files().read_text(path("b")).value(), "new");
}

TEST_P(FileTest, AppendsBehindWhatIsThere) {
  for (const char* piece : {"one", "two", ""}) {
    auto file = files().append(path("log"));
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->write(std::as_bytes(std::span(std::string_view(piece)))));
    ASSERT_TRUE((*file)->finish());
  }
  EXPECT_EQ(files().read_text(path("log")).value(), "onetwo");
}

TEST_P(FileTest, OpenFilesKeepTheContentThatARenameReplaced) {
  write_file(files(), path("a"), "one");
  auto file = files().open(path("a"));
  ASSERT_TRUE(file);
  write_file(files(), path("b"), "two");
  ASSERT_TRUE(files().rename(path("b"), path("a")));
  Bytes buffer(3);
  ASSERT_TRUE((*file)->read_exact(0, buffer));
  EXPECT_EQ(to_text(buffer), "one");
}

TEST_P(FileTest, ListsNamesSorted) {
  for (const char* name : {"c", "a", "b"}) write_file(files(), path(name), "x");
  EXPECT_THAT(files().list(folder_).value(), ElementsAre("a", "b", "c"));
  ASSERT_TRUE(files().remove(path("b")));
  EXPECT_THAT(files().list(folder_ + "/").value(), ElementsAre("a", "c"));
}

TEST_P(FileTest, AbsentFilesAreNotFoundByName) {
  const auto expect = [&](const Error& error, std::string_view verb) {
    EXPECT_EQ(error.code, ErrorCode::not_found);
    EXPECT_EQ(error.message,
              fmt::format("cannot {} '{}': No such file or directory", verb, path("no")));
  };
  expect(files().open(path("no")).error(), "open");
  expect(files().remove(path("no")).error(), "remove");
  expect(files().list(path("no")).error(), "list the folder");
  expect(files().read_text(path("no")).error(), "open");
  EXPECT_EQ(files().rename(path("no"), path("a")).error().code, ErrorCode::not_found);
  EXPECT_FALSE(files().exists(path("no")));
}

TEST_P(FileTest, ReadTextHasALimit) {
  write_file(files(), path("a"), std::string(10'000, 'x'));
  EXPECT_EQ(files().read_text(path("a"), 10'000).value().size(), 10'000u);
  const auto text = files().read_text(path("a"), 9'999);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::exhausted);
  EXPECT_EQ(text.error().message,
            fmt::format("'{}' is longer than the 9999 bytes allowed for it", path("a")));
}

TEST_P(FileTest, ReplacingIsRenamingWithoutTheFlush) {
  write_file(files(), path("a"), "new");
  write_file(files(), path("b"), "old");
  ASSERT_TRUE(files().replace(path("a"), path("b")));
  ASSERT_TRUE(files().flush_folder(folder_));
  EXPECT_EQ(files().read_text(path("b")).value(), "new");
  EXPECT_EQ(files().replace(path("a"), path("b")).error().code, ErrorCode::not_found);
}

TEST_P(FileTest, PrivateFilesAreNewOnes) {
  auto out = files().create_private(path("a"));
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE((*out)->write(bytes_of("secret")));
  ASSERT_TRUE((*out)->finish());
  EXPECT_EQ(files().create_private(path("a")).error().message,
            fmt::format("cannot create '{}': File exists", path("a")));
  EXPECT_EQ(files().read_text(path("a")).value(), "secret");
  auto file = files().open_private(path("a"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->size(), 6u);
  EXPECT_EQ(files().open_private(path("no")).error().code, ErrorCode::not_found);
}

TEST_P(FileTest, FoldersAreMadeWithTheirParentsAndListedEmpty) {
  ASSERT_TRUE(files().make_private_folder(path("x/y")));
  ASSERT_TRUE(files().make_private_folder(path("x/y"))) << "again";
  EXPECT_TRUE(files().list(path("x/y")).value().empty());
  write_file(files(), path("file"), "x");
  EXPECT_EQ(files().make_private_folder(path("file")).error().message,
            fmt::format("cannot make the folder '{}': there is a file of that name", path("file")));
}

TEST_P(FileTest, ExaminesAndTouches) {
  write_file(files(), path("a"), "12345");
  const auto before = files().examine(path("a"));
  ASSERT_TRUE(before) << before.error().message;
  EXPECT_EQ(before->kind, FileStatus::Kind::file);
  EXPECT_EQ(before->size, 5u);
  EXPECT_EQ(before->names, 1u);
  EXPECT_TRUE(before->own);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(files().touch(path("a")));
  const std::int64_t passed = files().examine(path("a")).value().modified - before->modified;
  EXPECT_GT(passed, 0);
  EXPECT_LT(passed, 60'000'000'000);
  EXPECT_EQ(files().examine(folder_).value().kind, FileStatus::Kind::folder);
  EXPECT_EQ(files().examine(path("no")).error().code, ErrorCode::not_found);
  EXPECT_EQ(files().touch(path("no")).error().code, ErrorCode::not_found);
}

TEST_P(FileTest, AFolderIsModifiedWhenItsFilesComeAndGo) {
  write_file(files(), path("a"), "x");
  auto changed = [&, last = files().examine(folder_).value().modified]() mutable {
    const std::int64_t now = files().examine(folder_).value().modified;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return std::exchange(last, now) != now;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(changed());
  write_file(files(), path("b"), "x");
  EXPECT_TRUE(changed());
  ASSERT_TRUE(files().rename(path("b"), path("c")));
  EXPECT_TRUE(changed());
  ASSERT_TRUE(files().remove(path("c")));
  EXPECT_TRUE(changed());
  EXPECT_FALSE(changed());
}

TEST_P(FileTest, SeveralThreadsReadOneFile) {
  std::string content;
  for (int i = 0; i < 100'000; ++i) content += static_cast<char>('a' + i % 26);
  write_file(files(), path("a"), content);
  auto file = files().open(path("a"));
  ASSERT_TRUE(file);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Bytes buffer(1000);
      for (std::size_t at = t; at + buffer.size() < content.size(); at += 997) {
        const bool same =
            (*file)->read_exact(at, buffer) && to_text(buffer) == content.substr(at, buffer.size());
        if (!same) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(RealFiles, RefusesWhatIsNoFile) {
  const std::string folder = testing::TempDir();
  const auto file = real_files().open(folder);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message,
            fmt::format("cannot open '{}': it is a folder, not a file", folder));
  EXPECT_THAT(real_files().open("/dev/zero").error().message, HasSubstr("a device or pipe"));
  // The open of a pipe without a writer must not wait for one.
  const std::string pipe = folder + "strata-pipe-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(real_files().open(pipe).error().message, HasSubstr("a device or pipe"));
  ::unlink(pipe.c_str());
}

TEST(RealFiles, AFullDiskIsAnIoErrorWithItsText) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  auto out = real_files().create("/dev/full");
  ASSERT_TRUE(out);
  const Status status = (*out)->write(bytes_of("abc"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_EQ(status.error().message,
            "cannot write 3 bytes at offset 0 of '/dev/full': No space left on device");
}

TEST(RealFiles, RenameReplacesFilesButNoDeviceLinkOrFolder) {
  const std::string base = testing::TempDir() + "strata-rename-" + std::to_string(::getpid());
  write_file(real_files(), base + ".from", "new");
  ASSERT_EQ(::mkfifo((base + ".pipe").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("/dev/null", (base + ".link").c_str()), 0);
  for (const std::string& to : {base + ".pipe", base + ".link", testing::TempDir()}) {
    const Status status = real_files().rename(base + ".from", to);
    ASSERT_FALSE(status) << to;
    EXPECT_THAT(status.error().message, HasSubstr("is no regular file, so it is not replaced"));
  }
  write_file(real_files(), base + ".to", "old");
  ASSERT_TRUE(real_files().rename(base + ".from", base + ".to"));
  EXPECT_EQ(*real_files().read_text(base + ".to"), "new");
  for (const char* end : {".to", ".pipe", ".link"}) ::unlink((base + end).c_str());
}

TEST(RealFiles, PrivateFilesAreNoLinksAndForOneUserAlone) {
  const std::string base = testing::TempDir() + "strata-private-" + std::to_string(::getpid());
  auto out = real_files().create_private(base);
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_TRUE((*out)->finish());
  EXPECT_EQ(std::filesystem::status(base).permissions(), std::filesystem::perms(0600));
  ASSERT_EQ(::symlink(base.c_str(), (base + ".link").c_str()), 0);
  EXPECT_THAT(real_files().open_private(base + ".link").error().message,
              HasSubstr("Too many levels of symbolic links"));
  EXPECT_EQ(real_files().examine(base + ".link").value().kind, FileStatus::Kind::link);
  EXPECT_FALSE(real_files().create_private(base + ".link"));
  ::unlink((base + ".link").c_str());
  // A dangling link must not be a way to make a file elsewhere.
  ASSERT_EQ(::symlink((base + ".elsewhere").c_str(), (base + ".link").c_str()), 0);
  EXPECT_FALSE(real_files().create_private(base + ".link"));
  EXPECT_FALSE(real_files().exists(base + ".elsewhere"));
  ASSERT_EQ(::link(base.c_str(), (base + ".second").c_str()), 0);
  EXPECT_THAT(real_files().open_private(base).error().message,
              HasSubstr("more names than one (hard links)"));
  EXPECT_EQ(real_files().examine(base).value().names, 2u);
  ASSERT_EQ(::mkfifo((base + ".pipe").c_str(), 0600), 0);
  EXPECT_EQ(real_files().examine(base + ".pipe").value().kind, FileStatus::Kind::other);
  EXPECT_FALSE(real_files().open_private(base + ".pipe"));
  const std::string folder = base + ".folder/inner";
  ASSERT_TRUE(real_files().make_private_folder(folder));
  EXPECT_EQ(std::filesystem::status(folder).permissions(), std::filesystem::perms(0700));
  std::filesystem::remove_all(base + ".folder");
  for (const char* end : {"", ".link", ".second", ".pipe"}) ::unlink((base + end).c_str());
}

TEST(RealFiles, ReadsFilesOfProcWhoseSizeIsZero) {
  const auto text = real_files().read_text("/proc/self/status");
  if (!text) GTEST_SKIP() << text.error().message;
  EXPECT_THAT(*text, HasSubstr("Name:"));
}

TEST(RealFiles, ShrinkingAnOpenFileIsAReadErrorNotACrash) {
  const std::string path = testing::TempDir() + "strata-shrink-" + std::to_string(::getpid());
  write_file(real_files(), path, std::string(10'000, 'x'));
  auto file = real_files().open(path);
  ASSERT_TRUE(file);
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  Bytes buffer(200);
  const Status status = (*file)->read_exact(50, buffer);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("200 bytes wanted at offset 50, 50 read"));
  ::unlink(path.c_str());
}

TEST(RealFiles, DescriptorsAreClosedOnExec) {
  const std::string path = testing::TempDir() + "strata-exec-" + std::to_string(::getpid());
  auto out = real_files().create(path);
  ASSERT_TRUE(out);
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) != path) continue;
    const int number = std::stoi(entry.path().filename().string());
    EXPECT_NE(::fcntl(number, F_GETFD) & FD_CLOEXEC, 0);
    ++checked;
  }
  EXPECT_EQ(checked, 1);
  ::unlink(path.c_str());
}

TEST(MemoryFiles, PutGetAndEquivalentPaths) {
  MemoryFileSystem files;
  files.put("./dir//a", to_bytes("x"));
  EXPECT_TRUE(files.exists("dir/a"));
  EXPECT_EQ(to_text(files.get("dir/./a").value()), "x");
  EXPECT_EQ(files.get("b").error().code, ErrorCode::not_found);
  files.put("top", to_bytes("y"));
  EXPECT_THAT(files.list(".").value(), ElementsAre("dir", "top"));
}

TEST(MemoryFiles, ContentIsNotPromisedWithoutFinish) {
  MemoryFileSystem files;
  auto out = files.create("a");
  ASSERT_TRUE((*out)->write(bytes_of("abc")));
  EXPECT_TRUE(files.exists("a"));
  EXPECT_TRUE(files.get("a").value().empty());
  ASSERT_TRUE(files.remove("a"));
  ASSERT_TRUE((*out)->finish());
  EXPECT_FALSE(files.exists("a")) << "a removed file came back";
}

TEST(FaultyFiles, RefusesTheChosenCallAndPassesOthers) {
  MemoryFileSystem memory;
  memory.put("a", to_bytes("0123456789"));
  Operation broken = Operation::open;
  FaultyFileSystem files(memory, [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
    if (call.operation == broken) return fail(ErrorCode::io, "injected on '{}'", call.path);
    return call.size;
  });
  EXPECT_EQ(files.open("a").error().message, "injected on 'a'");
  EXPECT_FALSE(files.open_private("a"));
  broken = Operation::create;
  EXPECT_FALSE(files.create("b"));
  EXPECT_FALSE(files.create_private("b"));
  broken = Operation::rename;
  EXPECT_FALSE(files.rename("a", "b"));
  broken = Operation::flush_folder;
  EXPECT_FALSE(files.flush_folder("."));
  broken = Operation::examine;
  EXPECT_FALSE(files.examine("a"));
  broken = Operation::touch;
  EXPECT_FALSE(files.touch("a"));
  broken = Operation::make_folder;
  EXPECT_FALSE(files.make_private_folder("f"));
  broken = Operation::remove;
  EXPECT_FALSE(files.remove("a"));
  broken = Operation::list;
  EXPECT_FALSE(files.list("."));
  broken = Operation::read;
  auto file = files.open("a");
  ASSERT_TRUE(file);
  Bytes buffer(4);
  EXPECT_FALSE((*file)->read_at(0, buffer));
  EXPECT_TRUE((*file)->map());
  broken = Operation::map;
  EXPECT_FALSE((*file)->map());
  EXPECT_TRUE((*file)->read_exact(0, buffer));
  auto out = files.create("c");
  broken = Operation::write;
  EXPECT_FALSE((*out)->write(bytes_of("x")));
  broken = Operation::finish;
  EXPECT_TRUE((*out)->write(bytes_of("x")));
  EXPECT_FALSE((*out)->finish());
  EXPECT_TRUE(memory.exists("a"));
}

TEST(FaultyFiles, ShortensReadsMappingsAndWrites) {
  MemoryFileSystem memory;
  memory.put("a", to_bytes("0123456789"));
  FaultyFileSystem files(memory, [](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
    return std::min<std::size_t>(call.size, 3);
  });
  auto file = files.open("a");
  ASSERT_TRUE(file);
  Bytes buffer(5);
  EXPECT_EQ((*file)->read_at(2, buffer).value(), 3u);
  EXPECT_EQ((*file)->read_exact(2, buffer).error().message,
            "'a' ends early: 5 bytes wanted at offset 2, 3 read");
  EXPECT_EQ(to_text((*file)->map().value()->bytes()), "012");
  auto out = files.create("b");
  EXPECT_TRUE((*out)->write(bytes_of("abc")));
  const Status status = (*out)->write(bytes_of("defgh"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "cannot write 5 bytes to 'b': No space left on device after 3");
  EXPECT_TRUE((*out)->finish());
  EXPECT_EQ(to_text(memory.get("b").value()), "abcdef");
}

TEST(Checked, ArithmeticStopsAtTheLimit) {
  EXPECT_EQ(checked_add(UINT64_MAX - 1, 1), UINT64_MAX);
  EXPECT_EQ(checked_add(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checked_mul(1ull << 32, 1ull << 31), 1ull << 63);
  EXPECT_EQ(checked_mul(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(checked_round_up(0, 32), 0u);
  EXPECT_EQ(checked_round_up(33, 32), 64u);
  EXPECT_EQ(checked_round_up(UINT64_MAX, 32), std::nullopt);
  EXPECT_EQ(checked_round_up(5, 0), std::nullopt);
  EXPECT_TRUE(fits(10, 0, 10));
  EXPECT_TRUE(fits(0, 10, 10));
  EXPECT_FALSE(fits(11, 0, 10));
  EXPECT_FALSE(fits(1, UINT64_MAX, 10));
}

}  // namespace
}  // namespace strata
