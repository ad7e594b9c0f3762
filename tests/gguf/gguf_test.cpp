// What the writer writes, the reader reads: every metadata type, tensor types, split files.
#include "gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/json.h"
#include "tests/gguf/gguf_fixture.h"

namespace strata {
namespace {

using test::pattern;
using test::RawGguf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

MetaValue integer(MetaType type, std::int64_t value) {
  return {type, {}, value};
}

std::vector<std::pair<std::string, MetaValue>> every_type() {
  const auto low = std::numeric_limits<std::int64_t>::min();
  const auto high = std::numeric_limits<std::int64_t>::max();
  return {
      {"u8", integer(MetaType::u8, 255)},
      {"i8", integer(MetaType::i8, -128)},
      {"u16", integer(MetaType::u16, 65535)},
      {"i16", integer(MetaType::i16, -32768)},
      {"u32", MetaValue::u32(4294967295u)},
      {"i32", MetaValue::i32(-2147483647 - 1)},
      {"u64", MetaValue::u64(UINT64_MAX)},
      {"i64", integer(MetaType::i64, low)},
      {"f32", MetaValue::f32(1e-6f)},
      {"f64", {MetaType::f64, {}, 1e-300}},
      {"bool.true", MetaValue::boolean(true)},
      {"bool.false", MetaValue::boolean(false)},
      {"string", MetaValue::string("Grüße\n\0x")},
      {"string.empty", MetaValue::string("")},
      {"array.u8", MetaValue::array(MetaType::u8, {0, 255})},
      {"array.i8", MetaValue::array(MetaType::i8, {-128, 127})},
      {"array.u16", MetaValue::array(MetaType::u16, {0, 65535})},
      {"array.i16", MetaValue::array(MetaType::i16, {-32768, 32767})},
      {"array.u32", MetaValue::array(MetaType::u32, {0, 4294967295})},
      {"array.i32", MetaValue::array(MetaType::i32, {-2147483648, 2147483647})},
      {"array.u64", MetaValue::array(MetaType::u64, {0, -1})},
      {"array.i64", MetaValue::array(MetaType::i64, {low, high})},
      {"array.bool", MetaValue::array(MetaType::boolean, {1, 0, 1})},
      {"array.f32", MetaValue::floats({0.5, -kInfinity, 1.25})},
      {"array.f64", {MetaType::array, MetaType::f64, MetaValue::Floats{1e-300, 2.0}}},
      {"array.string", MetaValue::strings({"", "a", "\xff\xfe", std::string("\0z", 2)})},
      {"array.empty", MetaValue::array(MetaType::i32, {})},
      {"array.string.empty", MetaValue::strings({})},
  };
}

struct Declared {
  std::string name;
  TensorType type;
  std::vector<std::uint64_t> ne;
};

Bytes data_of(const Declared& tensor, unsigned seed) {
  std::uint64_t values = 1;
  for (const std::uint64_t width : tensor.ne) values *= width;
  return pattern(static_cast<std::size_t>(bytes_of(tensor.type, values).value()), seed);
}

void write_model(FileSystem& files, const std::string& path,
                 const std::vector<std::pair<std::string, MetaValue>>& keys,
                 const std::vector<Declared>& tensors) {
  auto writer = GgufWriter::create(files, path);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const auto& [key, value] : keys) writer->metadata().set(key, value);
  for (const Declared& tensor : tensors) {
    const Status status = writer->declare(tensor.name, tensor.type, tensor.ne);
    ASSERT_TRUE(status) << status.error().message;
  }
  unsigned seed = 0;
  for (const Declared& tensor : tensors) {
    const Bytes data = data_of(tensor, ++seed);
    const std::size_t half = data.size() / 2;  // in two pieces
    ASSERT_TRUE(writer->write_data(std::span(data).first(half)));
    ASSERT_TRUE(writer->write_data(std::span(data).subspan(half)));
  }
  const Status status = writer->finish();
  ASSERT_TRUE(status) << status.error().message;
}

TEST(Gguf, RoundTripOfEveryMetadataType) {
  MemoryFileSystem files;
  write_model(files, "m.gguf", every_type(), {});
  const auto model = open_gguf(files, "m.gguf");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->version, 3u);
  EXPECT_TRUE(model->tensors.empty());
  const auto expected = every_type();
  ASSERT_EQ(model->metadata.entries().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [key, value] = model->metadata.entries()[i];
    EXPECT_EQ(key, expected[i].first);
    EXPECT_EQ(value.type, expected[i].second.type) << key;
    if (value.type == MetaType::array) {
      EXPECT_EQ(value.element, expected[i].second.element) << key;
    }
    EXPECT_EQ(value.value, expected[i].second.value) << key;
  }
}

// A copy of the metadata writes the same bytes.
TEST(Gguf, ACopyIsTheSameFile) {
  MemoryFileSystem files;
  const std::vector<Declared> tensors = {{"a", TensorType::F32, {3}}};
  write_model(files, "m.gguf", every_type(), tensors);
  const auto model = open_gguf(files, "m.gguf");
  ASSERT_TRUE(model);
  write_model(files, "copy.gguf", model->metadata.entries(), tensors);
  EXPECT_EQ(files.get("m.gguf").value(), files.get("copy.gguf").value());
}

TEST(Gguf, LookUpsCheckTypeAndRange) {
  MemoryFileSystem files;
  write_model(files, "m.gguf", every_type(), {});
  const auto model = open_gguf(files, "m.gguf");
  ASSERT_TRUE(model);
  const Metadata& m = model->metadata;
  EXPECT_EQ(m.uint("u64").value(), UINT64_MAX);
  EXPECT_EQ(m.uint("u8").value(), 255u);
  EXPECT_EQ(m.integer("i64").value(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(m.number("f32").value(), double{1e-6f});
  EXPECT_EQ(m.number("u64").value(), 18446744073709551615.0);
  EXPECT_EQ(m.number("i8").value(), -128.0);
  EXPECT_EQ(m.boolean("bool.true").value(), true);
  EXPECT_EQ(m.string("string.empty").value(), "");
  EXPECT_THAT(m.integers("array.bool").value(), ElementsAre(1, 0, 1));
  EXPECT_THAT(m.floats("array.f32").value(), ElementsAre(0.5, -kInfinity, 1.25));
  EXPECT_THAT(m.strings("array.string").value(), testing::SizeIs(4));

  EXPECT_EQ(m.uint("none").error().code, ErrorCode::not_found);
  EXPECT_EQ(m.uint("none").error().message, "key 'none' is missing");
  EXPECT_EQ(m.uint("i8").error().message,
            "key 'i8' is -128 where an integer of at least 0 is needed");
  EXPECT_EQ(m.integer("u64").error().message,
            "key 'u64' is 18446744073709551615, more than a signed 64-bit integer holds");
  EXPECT_EQ(m.uint("string").error().message,
            "key 'string' holds string where an integer of at least 0 is needed");
  EXPECT_EQ(m.integers("array.string").error().message,
            "key 'array.string' holds array of string where an array of integers is needed");
  for (const auto& [key, value] : m.entries()) {
    const bool array = value.type == MetaType::array;
    EXPECT_EQ(m.string(key).has_value(), value.type == MetaType::string) << key;
    EXPECT_EQ(m.boolean(key).has_value(), value.type == MetaType::boolean) << key;
    EXPECT_EQ(m.strings(key).has_value(), array && value.element == MetaType::string) << key;
    EXPECT_FALSE(array && m.number(key)) << key;
  }
}

TEST(Gguf, RoundTripOfTensors) {
  MemoryFileSystem files;
  const std::vector<Declared> tensors = {
      {"one", TensorType::F32, {1}},
      {"odd", TensorType::I8, {5, 3}},
      {"q4_k", TensorType::Q4_K, {512, 3}},
      {"mxfp4", TensorType::MXFP4, {32, 1, 5}},
      {"q2_0", TensorType::Q2_0, {64, 2, 2, 3}},
      {"iq4_nl", TensorType::IQ4_NL, {160, 4}},
      {"bf16", TensorType::BF16, {7, 1}},
  };
  write_model(files, "m.gguf", {}, tensors);
  EXPECT_FALSE(files.exists("m.gguf.partial"));
  auto opened = open_gguf(files, "m.gguf");
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_TRUE(files.remove("m.gguf"));
  const GgufModel model = *opened;  // a copy keeps the data alive
  opened = fail(ErrorCode::internal, "gone");
  ASSERT_EQ(model.tensors.size(), tensors.size());
  unsigned seed = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorView* view = model.find(tensors[i].name);
    ASSERT_EQ(view, &model.tensors[i]);
    EXPECT_EQ(view->type, tensors[i].type);
    ASSERT_EQ(view->dims, tensors[i].ne.size());
    for (std::size_t d = 0; d < 4; ++d) {
      EXPECT_EQ(view->ne[d], d < tensors[i].ne.size() ? tensors[i].ne[d] : 1);
    }
    EXPECT_EQ(view->file_offset % 32, 0u);
    EXPECT_EQ(view->part, 0u);
    EXPECT_EQ(Bytes(view->data.begin(), view->data.end()), data_of(tensors[i], ++seed));
  }
  EXPECT_EQ(shape_text(*model.find("q2_0")), "[64, 2, 2, 3]");
  EXPECT_EQ(shape_text(*model.find("one")), "[1]");
  EXPECT_EQ(model.find("two"), nullptr);
}

TEST(Gguf, HonoursTheAlignmentKey) {
  MemoryFileSystem files;
  write_model(files, "m.gguf", {{"general.alignment", MetaValue::u32(4096)}},
              {{"a", TensorType::F32, {3}}, {"b", TensorType::F32, {5}}});
  const auto model = open_gguf(files, "m.gguf");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->find("a")->file_offset, 4096u);
  EXPECT_EQ(model->find("b")->file_offset, 8192u);
}

TEST(Gguf, ReadsVersion2) {
  const auto model = test::open_bytes(RawGguf()
                                          .start(1, 1, 2)
                                          .key("a", MetaType::u8)
                                          .number(std::uint8_t{9})
                                          .tensor("t", {2}, 0, 0)
                                          .data(8)
                                          .take());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->version, 2u);
  EXPECT_EQ(model->metadata.uint("a").value(), 9u);
  EXPECT_EQ(model->find("t")->data.size(), 8u);
}

TEST(Gguf, AModelPutTogetherByHandCanBeSearched) {
  GgufModel model;
  model.tensors.emplace_back().name = "a";
  EXPECT_EQ(model.find("a"), &model.tensors[0]);
  EXPECT_EQ(model.find("b"), nullptr);
}

// --- files of another writer (golden/make_golden.py) ------------------------------------------

constexpr const char* kGolden = STRATA_SOURCE_DIR "/tests/gguf/golden/";

float first_float(const TensorView& tensor, std::size_t index) {
  float value = 0;
  std::memcpy(&value, tensor.data.data() + 4 * index, sizeof(value));
  return value;
}

TEST(GgufPeer, ReadsAFileOfThePythonPackage) {
  const auto model = open_gguf(real_files(), std::string(kGolden) + "gguf-py.gguf");
  ASSERT_TRUE(model) << model.error().message;
  const Metadata& m = model->metadata;
  EXPECT_EQ(m.string("general.architecture").value(), "qwen4exp");
  EXPECT_EQ(m.uint("t.u8").value(), 255u);
  EXPECT_EQ(m.integer("t.i8").value(), -128);
  EXPECT_EQ(m.uint("t.u16").value(), 65535u);
  EXPECT_EQ(m.integer("t.i16").value(), -32768);
  EXPECT_EQ(m.uint("t.u32").value(), 4294967295u);
  EXPECT_EQ(m.integer("t.i32").value(), -2147483648);
  EXPECT_EQ(m.uint("t.u64").value(), UINT64_MAX);
  EXPECT_EQ(m.integer("t.i64").value(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(m.number("t.f32").value(), double{0.1f});
  EXPECT_EQ(m.number("t.f64").value(), 0.1);
  EXPECT_EQ(m.boolean("t.bool").value(), true);
  EXPECT_EQ(m.string("t.string").value(), "Grüße");
  EXPECT_THAT(m.strings("t.tokens").value(), ElementsAre("a", "", "bc"));
  EXPECT_THAT(m.integers("t.ints").value(), ElementsAre(0, 0, 0, 4));
  EXPECT_THAT(m.floats("t.floats").value(), ElementsAre(0.5, 1.5));
  EXPECT_THAT(m.integers("t.bools").value(), ElementsAre(1, 0));
  ASSERT_EQ(model->tensors.size(), 3u);
  const TensorView* a = model->find("a.weight");
  EXPECT_EQ(shape_text(*a), "[3, 2]");
  EXPECT_EQ(first_float(*a, 5), 5.0f);
  const TensorView* c = model->find("c.weight");
  EXPECT_EQ(c->type, TensorType::Q8_0);
  EXPECT_EQ(shape_text(*c), "[32, 2]");
  EXPECT_EQ(c->data[67], std::byte{67});
}

// Our writer's bytes for the same content.
TEST(GgufPeer, WritesTheSameFileAsThePythonPackage) {
  const std::string path = std::string(kGolden) + "gguf-py.gguf";
  const auto model = open_gguf(real_files(), path);
  ASSERT_TRUE(model) << model.error().message;
  MemoryFileSystem files;
  auto writer = GgufWriter::create(files, "m.gguf");
  for (const auto& [key, value] : model->metadata.entries()) writer->metadata().set(key, value);
  for (const TensorView& tensor : model->tensors) {
    const std::vector<std::uint64_t> ne(tensor.ne.begin(), tensor.ne.begin() + tensor.dims);
    ASSERT_TRUE(writer->declare(tensor.name, tensor.type, ne));
  }
  for (const TensorView& tensor : model->tensors) ASSERT_TRUE(writer->write_data(tensor.data));
  ASSERT_TRUE(writer->finish());
  const Bytes ours = files.get("m.gguf").value();
  const std::string theirs = real_files().read_text(path).value();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(ours.data()), ours.size()), theirs);
}

TEST(GgufPeer, ReadsSplitFilesOfThePythonPackage) {
  const auto model = open_gguf(real_files(), std::string(kGolden) + "split-00002-of-00003.gguf");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->metadata.string("general.architecture").value(), "qwen4exp");
  ASSERT_EQ(model->tensors.size(), 5u);
  for (std::uint32_t i = 0; i < 5; ++i) {
    const TensorView* tensor = model->find(fmt::format("t.{}", i));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(first_float(*tensor, 0), static_cast<float>(i));
    EXPECT_EQ(tensor->part, i / 2);
  }
}

// --- the writer's own errors ---------------------------------------------------------------

class WriterTest : public testing::Test {
 protected:
  GgufWriter writer() { return std::move(GgufWriter::create(files_, "m.gguf")).value(); }
  MemoryFileSystem files_;
};

TEST_F(WriterTest, RefusesBadDeclarations) {
  GgufWriter w = writer();
  ASSERT_TRUE(w.declare("a", TensorType::F32, {2}));
  EXPECT_EQ(w.declare("a", TensorType::F32, {2}).error().message, "tensor 'a' is declared twice");
  EXPECT_FALSE(w.declare("", TensorType::F32, {2}));
  EXPECT_FALSE(w.declare("b", TensorType::F32, {}));
  EXPECT_FALSE(w.declare("b", TensorType::F32, {1, 1, 1, 1, 1}));
  EXPECT_FALSE(w.declare("b", TensorType::F32, {0}));
  EXPECT_EQ(w.declare("b", TensorType::Q4_K, {640, 2}).error().message,
            "tensor 'b' of type Q4_K has rows of 640 values, no whole number of blocks of 256");
  EXPECT_FALSE(w.declare("b", TensorType::F32, {1ull << 32, 1ull << 32}));
}

TEST_F(WriterTest, RefusesDataThatDoesNotFit) {
  GgufWriter w = writer();
  ASSERT_TRUE(w.declare("a", TensorType::F32, {2}));
  EXPECT_EQ(w.write_data(Bytes(9)).error().message, "tensor 'a' has 8 bytes but 9 were given");
  ASSERT_TRUE(w.write_data(Bytes(4)));
  EXPECT_EQ(w.declare("b", TensorType::F32, {2}).error().message,
            "tensor 'b' is declared after data was written");
  EXPECT_EQ(w.finish().error().message, "tensor 'a' has 8 bytes but only 4 were given");
  ASSERT_TRUE(w.write_data(Bytes(4)));
  EXPECT_EQ(w.write_data(Bytes(1)).error().message, "1 bytes of data follow the last of 1 tensors");
  EXPECT_TRUE(w.finish());
  EXPECT_FALSE(w.finish());
}

TEST_F(WriterTest, RefusesMetadataThatDoesNotFitItsType) {
  const auto refused = [&](MetaValue value) {
    GgufWriter w = writer();
    w.metadata().set("k", std::move(value));
    return !w.finish();
  };
  EXPECT_TRUE(refused(integer(MetaType::u8, 256)));
  EXPECT_TRUE(refused(integer(MetaType::u32, -1)));
  EXPECT_TRUE(refused(integer(MetaType::i16, 40'000)));
  EXPECT_TRUE(refused(integer(MetaType::string, 1)));
  EXPECT_TRUE(refused({MetaType::u32, {}, std::string("x")}));
  EXPECT_TRUE(refused({MetaType::u32, {}, true}));
  EXPECT_TRUE(refused(MetaValue::array(MetaType::boolean, {2})));
  EXPECT_TRUE(refused(MetaValue::array(MetaType::f32, {2})));
  EXPECT_TRUE(refused({MetaType::array, MetaType::array, MetaValue::Integers{}}));
  EXPECT_TRUE(refused({MetaType::array, MetaType::u8, std::string("x")}));
  GgufWriter w = writer();
  w.metadata().set("general.alignment", MetaValue::u32(13));
  EXPECT_THAT(w.finish().error().message, HasSubstr("must be a power of two"));
}

TEST_F(WriterTest, LeavesNothingBehindWithoutFinish) {
  {
    GgufWriter w = writer();
    ASSERT_TRUE(w.declare("a", TensorType::F32, {2}));
    ASSERT_TRUE(w.write_data(Bytes(4)));
    EXPECT_TRUE(files_.exists("m.gguf.partial"));
    GgufWriter moved = std::move(w);
    EXPECT_TRUE(files_.exists("m.gguf.partial"));
  }
  EXPECT_FALSE(files_.exists("m.gguf.partial"));
  EXPECT_FALSE(files_.exists("m.gguf"));
}

// Whatever call fails, the old file under the name stays whole and no partial file is left. Only
// the last one, that makes the new name durable, comes when the new file stands there.
TEST_F(WriterTest, AFaultAnywhereKeepsTheOldFile) {
  const Bytes old = pattern(10, 1);
  for (int failing = 0;; ++failing) {
    files_.put("m.gguf", old);
    int calls = 0;
    bool replaced = false;
    FaultyFileSystem faulty(files_, [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
      if (call.operation == FaultyFileSystem::Operation::remove) return 0;
      replaced = call.operation == FaultyFileSystem::Operation::flush_folder;
      if (calls++ == failing) return fail(ErrorCode::io, "injected");
      return call.size;
    });
    const auto write = [&]() -> Status {
      STRATA_ASSIGN(GgufWriter w, GgufWriter::create(faulty, "m.gguf"));
      STRATA_TRY(w.declare("a", TensorType::F32, {2}));
      STRATA_TRY(w.declare("b", TensorType::F32, {3}));
      STRATA_TRY(w.write_data(Bytes(8)));
      STRATA_TRY(w.write_data(Bytes(12)));
      return w.finish();
    };
    const Status status = write();
    EXPECT_FALSE(files_.exists("m.gguf.partial"));
    if (status) {
      EXPECT_GT(failing, 5);
      EXPECT_NE(files_.get("m.gguf").value(), old);
      break;
    }
    EXPECT_EQ(status.error().message, "injected");
    EXPECT_EQ(files_.get("m.gguf").value() == old, !replaced) << "after failing call " << failing;
  }
}

TEST(GgufFaults, ReadErrorsAreReported) {
  MemoryFileSystem files;
  write_model(files, "m.gguf", {}, {{"a", TensorType::F32, {64}}});
  FaultyFileSystem broken(files, [](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
    if (call.operation == FaultyFileSystem::Operation::map) return fail(ErrorCode::io, "EIO");
    return call.size;
  });
  EXPECT_EQ(open_gguf(broken, "m.gguf").error().message, "'m.gguf': EIO");
  FaultyFileSystem shrinking(files, [](const FaultyFileSystem::Call& call) {
    return Result<std::size_t>(call.size - std::min<std::size_t>(call.size, 1));
  });
  EXPECT_EQ(open_gguf(shrinking, "m.gguf").error().code, ErrorCode::corrupt);
  EXPECT_EQ(open_gguf(files, "none.gguf").error().code, ErrorCode::not_found);
}

// --- split files ---------------------------------------------------------------------------

class SplitTest : public testing::Test {
 protected:
  using Keys = std::vector<std::pair<std::string, MetaValue>>;
  static std::string path(int part, int parts = 3) {
    return fmt::format("dir/m-{:05}-of-{:05}.gguf", part, parts);
  }
  static Keys keys(std::int64_t number, std::int64_t count, std::int64_t total) {
    return {{"split.no", integer(MetaType::u16, number)},
            {"split.count", integer(MetaType::u16, count)},
            {"split.tensors.count", integer(MetaType::i32, total)}};
  }
  void SetUp() override {
    Keys first = keys(0, 3, 3);
    first.emplace_back("general.architecture", MetaValue::string("qwen4exp"));
    write_model(files_, path(1), first, {});
    write_model(files_, path(2), keys(1, 3, 3),
                {{"a", TensorType::F32, {3}}, {"b", TensorType::Q8_0, {64}}});
    write_model(files_, path(3), keys(2, 3, 3), {{"c", TensorType::F16, {9}}});
  }
  void expect_refused(ErrorCode code, const std::string& text, int part = 1) {
    const auto model = open_gguf(files_, path(part));
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, code);
    EXPECT_THAT(model.error().message, HasSubstr(text));
  }
  MemoryFileSystem files_;
};

TEST_F(SplitTest, AnyPartOpensAll) {
  for (int part = 1; part <= 3; ++part) {
    const auto model = open_gguf(files_, path(part));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_THAT(model->paths, ElementsAre(path(1), path(2), path(3)));
    EXPECT_EQ(model->metadata.string("general.architecture").value(), "qwen4exp");
    ASSERT_EQ(model->tensors.size(), 3u);
    EXPECT_EQ(model->find("b")->part, 1u);
    EXPECT_EQ(model->find("c")->part, 2u);
    EXPECT_EQ(Bytes(model->find("c")->data.begin(), model->find("c")->data.end()), pattern(18, 1));
  }
}

TEST_F(SplitTest, E10MissingPart) {
  ASSERT_TRUE(files_.remove(path(2)));
  expect_refused(ErrorCode::not_found, "part 2 of 3 is missing: there is no 'dir/m-00002-of-00003");
}

TEST_F(SplitTest, E10PartsInTheWrongOrder) {
  const Bytes second = files_.get(path(2)).value();
  files_.put(path(2), files_.get(path(3)).value());
  files_.put(path(3), second);
  expect_refused(ErrorCode::corrupt, "split.no is 2 where the file's name says 1");
}

TEST_F(SplitTest, E10PartOfAnotherSplit) {
  write_model(files_, path(2), keys(1, 4, 3), {{"a", TensorType::F32, {3}}});
  expect_refused(ErrorCode::corrupt, "split.count is 4 where the file's name says 3");
  write_model(files_, path(2), {}, {{"a", TensorType::F32, {3}}});
  expect_refused(ErrorCode::not_found, "key 'split.count' is missing");
}

TEST_F(SplitTest, E10MixedModels) {
  Keys other = keys(1, 3, 3);
  other.emplace_back("general.architecture", MetaValue::string("llama"));
  write_model(files_, path(2), other, {{"a", TensorType::F32, {3}}});
  expect_refused(ErrorCode::corrupt, "general.architecture is 'llama' but the first part says");
}

TEST_F(SplitTest, E10TensorInTwoParts) {
  write_model(files_, path(3), keys(2, 3, 3), {{"a", TensorType::F16, {9}}});
  expect_refused(ErrorCode::corrupt, "tensor 'a' occurs twice (first in 'dir/m-00002-of-00003");
}

TEST_F(SplitTest, E10TensorsMissingFromTheParts) {
  write_model(files_, path(2), keys(1, 3, 3), {{"a", TensorType::F32, {3}}});
  expect_refused(ErrorCode::corrupt, "split.tensors.count is 3 but the parts hold 2 tensors");
}

TEST_F(SplitTest, E10NumbersInTheName) {
  for (const auto& [number, count] : {std::pair(0, 3), std::pair(4, 3), std::pair(1, 99999)}) {
    const auto model = open_gguf(files_, path(number, count));
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, ErrorCode::invalid_argument);
  }
}

TEST_F(SplitTest, E10APartUnderAnotherName) {
  files_.put("dir/renamed.gguf", files_.get(path(1)).value());
  const auto model = open_gguf(files_, "dir/renamed.gguf");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("is one of 3 parts, but its name does not end in"));
}

TEST_F(SplitTest, ASinglePartNeedsNoSplitKeys) {
  write_model(files_, path(1, 1), {}, {{"a", TensorType::F32, {3}}});
  EXPECT_TRUE(open_gguf(files_, path(1, 1)));
}

// --- types ---------------------------------------------------------------------------------

// The sizes that the golden blocks of the reference implementation have.
TEST(TensorTypes, AgreeWithTheGoldenBlocks) {
  const auto text = real_files().read_text(STRATA_GOLDEN_DIR "/quant/index.json");
  ASSERT_TRUE(text) << text.error().message;
  const auto tree = parse_json(*text, "index.json").value();
  int compared = 0;
  for (const auto& member : tree.as_object()) {
    const auto& entry = member.value().as_object();
    if (!entry.contains("ggml_type")) continue;
    const std::string name(member.key().data(), member.key().size());
    const auto type = type_from_name(name);
    ASSERT_TRUE(type) << name;
    EXPECT_EQ(static_cast<std::int64_t>(*type), entry.at("ggml_type").as_int64()) << name;
    EXPECT_EQ(traits(*type).block_values, entry.at("block_values").as_int64()) << name;
    EXPECT_EQ(traits(*type).block_bytes, entry.at("block_bytes").as_int64()) << name;
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

TEST(TensorTypes, NamesIdsAndSizes) {
  std::uint32_t last = 0;
  for (const TypeTraits& entry : all_types()) {
    const auto id = static_cast<std::uint32_t>(entry.type);
    EXPECT_GE(id, last);
    last = id;
    EXPECT_EQ(type_from_id(id), entry.type);
    EXPECT_EQ(type_from_name(entry.name), entry.type);
    EXPECT_EQ(to_string(entry.type), entry.name);
    EXPECT_EQ(bytes_of(entry.type, entry.block_values).value(), entry.block_bytes);
  }
  for (const std::uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 41u, 43u, 255u, ~0u}) {
    EXPECT_EQ(type_from_id(id), std::nullopt) << id;
  }
  EXPECT_EQ(type_from_name("q4_k"), TensorType::Q4_K);
  EXPECT_EQ(type_from_name("q4"), std::nullopt);
  EXPECT_EQ(traits(TensorType::MXFP4).block_bytes, 17u);
  EXPECT_EQ(traits(TensorType::NVFP4).block_bytes, 36u);
  EXPECT_EQ(traits(TensorType::Q2_0).block_bytes, 18u);
  EXPECT_EQ(traits(TensorType::Q8_K).block_bytes, 292u);
  EXPECT_EQ(bytes_of(TensorType::Q4_K, 257).error().message,
            "257 values are no whole number of Q4_K blocks of 256");
  EXPECT_FALSE(bytes_of(TensorType::F64, UINT64_MAX));
  EXPECT_FALSE(bytes_of(static_cast<TensorType>(5), 32));
}

}  // namespace
}  // namespace strata
