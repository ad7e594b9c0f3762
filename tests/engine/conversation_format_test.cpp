// Files of saved conversations: written and read back, and headers that lie although their hash is
// right.
#include "engine/conversation_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/conversation_fixture.h"

namespace strata::conversations {
namespace {

using testing::HasSubstr;

constexpr const char* kFolder = "folder";

std::string path_of(ConversationFile kind, const Hash128& id) {
  return std::string(kFolder) + "/" + file_name(kind, id);
}

class ConversationFormatTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::span<const std::byte> page(point_.pages[i].get(), shape_.page_bytes);
      ids_.push_back(page_id(shape_, page));
      write(path_of(ConversationFile::page, ids_.back()),
            [&](OutputFile& out) { return write_page(out, shape_, page, ids_.back()); });
    }
    id_ = point_id(shape_, point_.tokens);
    write(path_of(ConversationFile::point, id_),
          [&](OutputFile& out) { return write_point(out, shape_, point_, ids_); });
  }

  void write(const std::string& path, const std::function<Status(OutputFile&)>& content) {
    auto out = files_.create_private(path);
    ASSERT_TRUE(out);
    ASSERT_TRUE(content(**out));
    ASSERT_TRUE((*out)->finish());
  }

  // Changes the header of the point or of the first page and makes its hash right again.
  template <class T>
  void set(ConversationFile kind, std::size_t offset, T value) {
    const std::string path = path_of(kind, kind == ConversationFile::point ? id_ : ids_[0]);
    Bytes bytes = files_.get(path).value();
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    const std::uint64_t hash = hash64(std::span<const std::byte>(bytes).first(120));
    std::memcpy(bytes.data() + 120, &hash, sizeof hash);
    files_.put(path, std::move(bytes));
  }
  std::string error_of_point() {
    const auto outline = read_outline(files_, kFolder, id_, shape_);
    const auto point = read_point(files_, kFolder, id_, shape_, point_.tokens, ids_);
    EXPECT_FALSE(point);
    return point ? "" : point.error().message;
  }

  const ConversationShape shape_ = small_shape();
  const SavedPoint point_ = make_point(counting(10));
  std::vector<Hash128> ids_;
  Hash128 id_;
  MemoryFileSystem files_;
};

TEST_F(ConversationFormatTest, WhatIsWrittenIsRead) {
  auto point = read_point(files_, kFolder, id_, shape_, point_.tokens, ids_);
  ASSERT_TRUE(point) << point.error().message;
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(point->pages[i], nullptr) << "full pages are files of their own";
    auto page = read_page(files_, kFolder, ids_[i], shape_);
    ASSERT_TRUE(page) << page.error().message;
    point->pages[i] = *page;
  }
  EXPECT_TRUE(same_point(*point, counting(10)));
  const auto outline = read_outline(files_, kFolder, id_, shape_);
  ASSERT_TRUE(outline) << outline.error().message;
  EXPECT_EQ(outline->tokens, point_.tokens);
  EXPECT_EQ(outline->page_ids, ids_);
  EXPECT_EQ(outline->file_bytes, point_file_bytes(shape_, 10));
}

// The documented layout, spelled out; docs/formats/conversations.md.
TEST_F(ConversationFormatTest, FieldsLieWhereTheDocumentSays) {
  const Bytes bytes = files_.get(path_of(ConversationFile::point, id_)).value();
  const auto number = [&]<class T>(std::size_t offset, T) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  EXPECT_EQ(std::memcmp(bytes.data(), "StrataKV", 8), 0);
  EXPECT_EQ(number(8, 0u), 1u);
  EXPECT_EQ(number(12, 0u), 1u);
  EXPECT_EQ(number(16, std::uint64_t{}), shape_.model);
  EXPECT_EQ(number(24, std::uint64_t{}), 96u);
  EXPECT_EQ(number(32, std::uint64_t{}), 40u);
  EXPECT_EQ(number(40, 0u), 4u);
  EXPECT_EQ(number(44, 0u), 10u);
  EXPECT_EQ(number(48, std::uint64_t{}), bytes.size() - 128);
  EXPECT_EQ(bytes.size(), 128u + 2 * 16 + 10 * 4 + 96 + 40);
  for (std::size_t i = 88; i < 120; ++i) EXPECT_EQ(bytes[i], std::byte{0});
  EXPECT_EQ(number(128, Hash128{}), ids_[0]);
  EXPECT_EQ(number(160, TokenId{}), 0);
  EXPECT_EQ(number(164, TokenId{}), 1);
  EXPECT_EQ(std::memcmp(bytes.data() + 200, point_.pages[2].get(), 96), 0);
  EXPECT_EQ(std::memcmp(bytes.data() + 296, point_.state->data(), 40), 0);
}

TEST_F(ConversationFormatTest, LyingSizesAreRefusedBeforeAnythingIsAllocated) {
  constexpr auto kPoint = ConversationFile::point;
  const Bytes whole = files_.get(path_of(kPoint, id_)).value();
  const auto expect = [&](std::size_t offset, auto value, const char* text) {
    set(kPoint, offset, value);
    EXPECT_THAT(error_of_point(), HasSubstr(text)) << "offset " << offset << " = " << value;
    files_.put(path_of(kPoint, id_), whole);
  };
  expect(12, 2u, "another kind");
  expect(12, 0u, "another kind");
  expect(8, 2u, "version 2");
  expect(16, std::uint64_t{1}, "another model");
  expect(24, std::uint64_t{0}, "impossible sizes");
  expect(24, std::uint64_t{1} << 63, "impossible sizes");
  expect(24, UINT64_MAX, "impossible sizes");
  expect(32, UINT64_MAX, "impossible sizes");
  expect(32, kMaxStateBytes, "bytes in place of");
  expect(40, 0u, "impossible sizes");
  expect(40, UINT32_MAX, "impossible sizes");
  expect(44, 0u, "impossible sizes");
  expect(44, kMaxPointTokens + 1, "impossible sizes");
  expect(44, kMaxPointTokens, "bytes in place of");
  expect(48, std::uint64_t{0}, "bytes in place of");
  // Sizes that still fit the file, with other borders between its parts.
  expect(24, std::uint64_t{97}, "bytes in place of");
  expect(56, std::uint64_t{0}, "the hash of its tokens is wrong");
  expect(72, std::uint64_t{0}, "the hash of its state is wrong");
  EXPECT_TRUE(read_point(files_, kFolder, id_, shape_, point_.tokens, ids_));
}

TEST_F(ConversationFormatTest, APagesHeaderAndContentMustBeWhatItsNameSays) {
  set(ConversationFile::page, 72, std::uint64_t{1});
  EXPECT_THAT(read_page(files_, kFolder, ids_[0], shape_).error().message,
              HasSubstr("its content is not what its name says"));
  set(ConversationFile::page, 72, ids_[0]);
  ASSERT_TRUE(read_page(files_, kFolder, ids_[0], shape_));
  set(ConversationFile::page, 44, 3u);
  EXPECT_THAT(read_page(files_, kFolder, ids_[0], shape_).error().message,
              HasSubstr("impossible sizes"));
}

TEST_F(ConversationFormatTest, OthersTokensOrPagesUnderTheSameNameAreNotFound) {
  std::vector<TokenId> tokens = point_.tokens;
  tokens[9] = 77;
  EXPECT_EQ(read_point(files_, kFolder, id_, shape_, tokens, ids_).error().code,
            ErrorCode::not_found);
  std::vector<Hash128> ids = ids_;
  ids[1].low ^= 1;
  EXPECT_EQ(read_point(files_, kFolder, id_, shape_, point_.tokens, ids).error().code,
            ErrorCode::not_found);
  ConversationShape other = shape_;
  other.state_bytes = 39;
  EXPECT_EQ(read_point(files_, kFolder, id_, other, point_.tokens, ids_).error().code,
            ErrorCode::unsupported);
  EXPECT_EQ(read_page(files_, kFolder, ids_[0], other).error().code, ErrorCode::unsupported);
}

TEST(ConversationNames, OnlyTheirOneSpellingIsAName) {
  const Hash128 id{0x0123456789abcdef, 0xfedcba9876543210};
  const std::string point = "fedcba98765432100123456789abcdef.point";
  EXPECT_EQ(file_name(ConversationFile::point, id), point);
  ASSERT_TRUE(parse_name(point));
  EXPECT_EQ(parse_name(point)->id, id);
  EXPECT_EQ(parse_name(point)->kind, ConversationFile::point);
  EXPECT_EQ(parse_name(point.substr(0, 32) + ".page")->kind, ConversationFile::page);
  const std::vector<std::string> others = {"",
                                           ".",
                                           point + "x",
                                           "x" + point,
                                           point.substr(1),
                                           point.substr(0, 32),
                                           point.substr(0, 32) + ".pages",
                                           "FEDCBA98765432100123456789abcdef.page",
                                           "+edcba98765432100123456789abcdef.page",
                                           "fedcba9876543210 123456789abcdef.page"};
  for (const std::string& name : others) EXPECT_FALSE(parse_name(name)) << name;
  EXPECT_TRUE(is_temporary_name(temporary_name(0)));
  EXPECT_TRUE(is_temporary_name(temporary_name(UINT64_MAX)));
  for (const char* name : {"", "strata-.tmp", "strata-00000000000000zz.tmp", "strata-1.tmp",
                           "strata-0000000000000001.tmp.old"})
    EXPECT_FALSE(is_temporary_name(name)) << name;
}

}  // namespace
}  // namespace strata::conversations
