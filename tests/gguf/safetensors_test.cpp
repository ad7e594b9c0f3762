// Safetensors: the golden checkpoints open, hostile headers are refused.
#include "gguf/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/gguf/refusal_cost.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Bytes to_bytes(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return Bytes(raw.begin(), raw.end());
}

Bytes file_of(std::string_view header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), sizeof(length));
  text += header;
  text += std::string(data, 'd');
  return to_bytes(text);
}

Result<SafetensorCheckpoint> open_header(std::string_view header, std::size_t data) {
  MemoryFileSystem files;
  files.put("dir/model.safetensors", file_of(header, data));
  return open_safetensors_file(files, "dir/model.safetensors");
}

void expect_refused(std::string_view header, std::size_t data, const std::string& text,
                    ErrorCode code = ErrorCode::corrupt) {
  const auto checkpoint = open_header(header, data);
  ASSERT_FALSE(checkpoint) << "accepted; should say: " << text;
  EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
  EXPECT_THAT(checkpoint.error().message, HasSubstr(text));
  EXPECT_THAT(checkpoint.error().message, HasSubstr("'dir/model.safetensors': "));
  test::expect_cheap(header.size() + data, [&] { return !open_header(header, data); });
}

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},
        "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},
        "a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})";

TEST(Safetensors, OpensTheGoldenCheckpoint) {
  const auto checkpoint = open_safetensors(real_files(), STRATA_GOLDEN_DIR "/tiny-a");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors.size(), 578u);
  EXPECT_THAT(checkpoint->skipped_files, ElementsAre("golden.safetensors"));
  const SafetensorView* view =
      checkpoint->find("model.layers.1.ple.ple_embedding.layer_multipliers");
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->type, SafetensorType::I64);
  EXPECT_THAT(view->shape, ElementsAre(3u));
  EXPECT_EQ(view->file, "model.safetensors");
  // Odd numbers below 2^63 by construction, see the hash of the n-grams.
  for (std::size_t i = 0; i < 3; ++i) {
    std::int64_t multiplier = 0;
    ASSERT_EQ(view->data.size(), 24u);
    std::memcpy(&multiplier, view->data.data() + 8 * i, 8);
    EXPECT_GT(multiplier, 0);
    EXPECT_EQ(multiplier % 2, 1);
  }
  // Neighbours in the file are neighbours in the list, and nothing lies between them.
  for (std::size_t i = 1; i < checkpoint->tensors.size(); ++i) {
    const auto& before = checkpoint->tensors[i - 1].data;
    EXPECT_EQ(before.data() + before.size(), checkpoint->tensors[i].data.data());
  }
  EXPECT_EQ(checkpoint->find("lm_head"), nullptr);
}

TEST(Safetensors, OpensOneFile) {
  const auto golden =
      open_safetensors_file(real_files(), STRATA_GOLDEN_DIR "/tiny-a/golden.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  const SafetensorView* view = golden->find("hidden.3.0");
  ASSERT_NE(view, nullptr);
  EXPECT_THAT(view->shape, ElementsAre(40u, 256u));
  EXPECT_EQ(view->data.size(), 40u * 256u * 4u);
  const auto drafts = open_safetensors(real_files(), STRATA_GOLDEN_DIR "/tiny-a-mtp");
  ASSERT_TRUE(drafts) << drafts.error().message;
  EXPECT_NE(drafts->find("mtp.fc_hidden.weight"), nullptr);
}

TEST(Safetensors, ReadsScalarsTypesAndOrder) {
  const auto checkpoint = open_header(kTwo, 20);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->tensors.size(), 2u);
  EXPECT_EQ(checkpoint->tensors[0].name, "a");
  EXPECT_TRUE(checkpoint->tensors[0].shape.empty());
  EXPECT_EQ(checkpoint->tensors[0].data.size(), 8u);
  EXPECT_EQ(checkpoint->find("b")->type, SafetensorType::BF16);
  EXPECT_EQ(to_string(SafetensorType::F8_E4M3), "F8_E4M3");
  EXPECT_EQ(size_of(SafetensorType::F8_E4M3), 1u);
  EXPECT_EQ(size_of(SafetensorType::F64), 8u);
  // A tensor of no values lies between others without disturbing them.
  EXPECT_TRUE(open_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                              "e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
                          4));
}

TEST(SafetensorsHostile, HeaderLength) {
  MemoryFileSystem files;
  const auto refused = [&](std::string_view raw, const std::string& text) {
    files.put("x.safetensors", to_bytes(raw));
    const auto checkpoint = open_safetensors_file(files, "x.safetensors");
    ASSERT_FALSE(checkpoint);
    EXPECT_EQ(checkpoint.error().code, ErrorCode::corrupt);
    EXPECT_THAT(checkpoint.error().message, HasSubstr(text));
    test::expect_cheap(raw.size(), [&] { return !open_safetensors_file(files, "x.safetensors"); });
  };
  refused("", "has only 0 bytes");
  refused("1234567", "has only 7 bytes");
  refused("\xff\xff\xff\xff\xff\xff\xff\xff{}", "claims a header of 18446744073709551615 bytes");
  refused(std::string_view("\x03\0\0\0\0\0\0\0{}", 10), "claims a header of 3 bytes");
  refused(std::string_view("\0\0\0\0\0\0\0\0", 8), "no valid JSON");
}

TEST(SafetensorsHostile, Json) {
  expect_refused("[]", 0, "its header is an array where an object is needed");
  expect_refused("{", 0, "its header is no valid JSON");
  expect_refused(std::string(100'000, '['), 0, "its header is nested deeper than");
  expect_refused(R"({"a":7})", 0, "tensor 'a' is a number where an object is needed");
  expect_refused(R"({"a":{}})", 0, "tensor 'a': 'dtype' is missing");
  expect_refused(R"({"a":{"dtype":"F32"}})", 0, "tensor 'a': 'shape' is missing");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "'data_offsets' is missing");
  expect_refused(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
                 "tensor 'a': 'shape' is a number where a whole number of at least 0 is needed");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
                 "has 1 data_offsets where 2 are needed");
  expect_refused(R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", 8,
                 "tensor 'a' has the dtype 'C64', which this program cannot read",
                 ErrorCode::unsupported);
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
      "has 17 dimensions, more than the 16 allowed");
}

TEST(SafetensorsHostile, Ranges) {
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
                 "has the byte range [0, 8), but the file has 4 bytes of data");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
                 "has the byte range [4, 0)");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                 "tensor 'a' of type F32 and shape [2] needs 8 bytes but has 4");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
                 "has the shape [4294967296, 4294967296], more than 2^64 bytes");
  // 2^62 values of 4 bytes wrap to 0.
  expect_refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
                 "more than 2^64 bytes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],
                     "data_offsets":[18446744073709551615,18446744073709551616]}})",
                 4, "tensor 'a'");
}

TEST(SafetensorsHostile, HolesAndOverlaps) {
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                     "b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                 7, "tensor 'b' shares bytes from 3 on with another tensor");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                     "b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
                 9, "no tensor claims the 1 bytes of data before tensor 'b'");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 6,
                 "no tensor claims the last 2 bytes of data");
  // A name that occurs twice leaves the bytes of the first without an owner.
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                     "a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                 8, "no tensor claims the 4 bytes");
}

class Shards : public testing::Test {
 protected:
  static std::string one(const std::string& name) {
    return fmt::format(R"({{"{}":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}}})", name);
  }
  void put(const std::string& name, const std::string& tensor) {
    files_.put("dir/" + name, file_of(one(tensor), 4));
  }
  void put_index(std::string_view weights) {
    files_.put("dir/model.safetensors.index.json",
               to_bytes(fmt::format(R"({{"metadata":{{}},"weight_map":{}}})", weights)));
  }
  void expect_error(ErrorCode code, const std::string& text) {
    const auto checkpoint = open_safetensors(files_, "dir");
    ASSERT_FALSE(checkpoint) << "accepted; should say: " << text;
    EXPECT_EQ(checkpoint.error().code, code);
    EXPECT_THAT(checkpoint.error().message, HasSubstr(text));
  }
  MemoryFileSystem files_;
};

TEST_F(Shards, TheIndexChoosesTheFiles) {
  put("model-00001-of-00002.safetensors", "a");
  put("model-00002-of-00002.safetensors", "b");
  put("model.safetensors", "stale");
  put("mtp-model.safetensors", "mtp.x");
  put("consolidated.safetensors", "c");
  put_index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  const auto checkpoint = open_safetensors(files_, "dir/");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors.size(), 3u);
  EXPECT_EQ(checkpoint->find("mtp.x")->file, "mtp-model.safetensors");
  EXPECT_THAT(checkpoint->skipped_files,
              ElementsAre("consolidated.safetensors", "model.safetensors"));
}

TEST_F(Shards, WithoutAnIndexAllShardsMustBeThere) {
  put("model-00001-of-00003.safetensors", "a");
  put("model-00003-of-00003.safetensors", "c");
  expect_error(ErrorCode::not_found,
               "shard 2 of 3 is missing: there is no 'model-00002-of-00003.safetensors'");
  put("model-00002-of-00003.safetensors", "b");
  EXPECT_TRUE(open_safetensors(files_, "dir"));
}

TEST_F(Shards, E10NamesThatLeaveTheFolder) {
  put("model.safetensors", "a");
  for (const char* name : {"../model.safetensors", "/model.safetensors", "x/../model.safetensors",
                           "..\\\\model.safetensors", "..", "", ".safetensors", "model.bin",
                           "c:model.safetensors", "a\\u0000.safetensors"}) {
    put_index(fmt::format(R"({{"a":"{}"}})", name));
    expect_error(ErrorCode::corrupt, "which is no plain name of a .safetensors file");
  }
  put_index(R"({"a":7})");
  expect_error(ErrorCode::corrupt, "which is no plain name");
  put_index("[]");
  expect_error(ErrorCode::corrupt, "'weight_map' is an array where an object is needed");
}

TEST_F(Shards, FilesAndTensorsThatTheIndexPromises) {
  put_index(R"({"a":"model-1.safetensors"})");
  expect_error(ErrorCode::not_found, "cannot open 'dir/model-1.safetensors'");
  put("model-1.safetensors", "b");
  expect_error(ErrorCode::corrupt, "places tensor 'a' in 'model-1.safetensors', but it is not");
  put("model-1.safetensors", "a");
  EXPECT_TRUE(open_safetensors(files_, "dir"));
}

TEST_F(Shards, ATensorInTwoFiles) {
  put("model-a.safetensors", "x");
  put("model-b.safetensors", "x");
  expect_error(ErrorCode::corrupt,
               "tensor 'x' occurs twice, in 'model-a.safetensors' and in 'model-b.safetensors'");
}

TEST_F(Shards, AFolderWithoutACheckpoint) {
  expect_error(ErrorCode::not_found, "cannot list the folder 'dir'");
  put("other.safetensors", "x");
  expect_error(ErrorCode::not_found, "'dir' holds no checkpoint");
}

TEST(SafetensorsMutated, TruncationIsAlwaysAnErrorAndFlipsNeverCrash) {
  const Bytes whole = file_of(kTwo, 20);
  MemoryFileSystem files;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    files.put("x", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    ASSERT_FALSE(open_safetensors_file(files, "x")) << "cut to " << size;
  }
  std::mt19937 random(20260102);
  unsigned sum = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = whole;
    for (auto flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    files.put("x", std::move(bytes));
    const auto checkpoint = open_safetensors_file(files, "x");
    if (!checkpoint) continue;
    for (const SafetensorView& view : checkpoint->tensors) {
      for (const std::byte byte : view.data) sum += static_cast<unsigned>(byte);
    }
  }
  EXPECT_GT(sum, 0u);
}

}  // namespace
}  // namespace strata
