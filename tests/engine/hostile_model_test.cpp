// Model files that promise tokens they do not have, and one that changes while it is served.
#include <gmock/gmock.h>
#include <unistd.h>

#include "engine/engine.h"
#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

using test::Collector;
using testing::HasSubstr;

class HostileModel : public testing::Test {
 protected:
  void SetUp() override {
    model_ = test::tiny_model();
    ASSERT_NE(model_, nullptr);
  }

  // The tiny model with one key set to another value, opened.
  Result<std::unique_ptr<Engine>> open_with(const std::string& key, MetaValue value) {
    auto writer = GgufWriter::create(files_, "changed.gguf");
    for (const auto& [name, held] : model_->model->metadata.entries())
      writer->metadata().set(name, held);
    writer->metadata().set(key, std::move(value));
    for (const TensorView& t : model_->model->tensors) {
      EXPECT_TRUE(writer->declare(t.name, t.type,
                                  std::vector<std::uint64_t>(t.ne.begin(), t.ne.begin() + t.dims)));
    }
    for (const TensorView& t : model_->model->tensors) EXPECT_TRUE(writer->write_data(t.data));
    EXPECT_TRUE(writer->finish());
    EngineOptions options;
    options.model_path = "changed.gguf";
    options.threads = 1;
    return Engine::open(files_, options);
  }
  std::string refusal(const std::string& key, MetaValue value) {
    const auto engine = open_with(key, std::move(value));
    return engine ? "opened" : engine.error().message;
  }

  std::unique_ptr<test::Converted> model_;
  MemoryFileSystem files_;
};

TEST_F(HostileModel, E6TokensThatEndAnswersMustExist) {
  const std::uint32_t vocabulary = model_->network.params.vocabulary;
  const std::string eos = "tokenizer.ggml.eos_token_id";
  EXPECT_EQ(refusal(eos, MetaValue::i32(-1)),
            fmt::format("model 'changed.gguf': key '{}' is -1, outside the vocabulary of {} tokens",
                        eos, vocabulary));
  EXPECT_THAT(refusal(eos, MetaValue::u32(vocabulary)), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(refusal(eos, MetaValue::u32(1u << 31)), HasSubstr("is 2147483648, outside"));
  EXPECT_THAT(refusal(eos, MetaValue::u64(UINT64_MAX)), HasSubstr(eos));
  EXPECT_THAT(refusal(eos, MetaValue::string("2")), HasSubstr(eos));
  const std::string stops = "strata.stop_token_ids";
  const auto list = [](std::int64_t id) { return MetaValue::array(MetaType::i32, {0, id}); };
  EXPECT_THAT(refusal(stops, list(-1)), HasSubstr("key 'strata.stop_token_ids' holds -1, outside"));
  EXPECT_THAT(refusal(stops, list(vocabulary)), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(refusal(stops, MetaValue::floats({1.5})), HasSubstr(stops));
  EXPECT_EQ(refusal(stops, list(vocabulary - 1)), "opened");
}

TEST_F(HostileModel, E6OtherTokensAreIgnoredWithAWarning) {
  for (const char* name : {"bos", "eot", "padding", "unknown"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    testing::internal::CaptureStderr();
    EXPECT_EQ(refusal(key, MetaValue::u32(1u << 31)), "opened");
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        HasSubstr(fmt::format("warning key '{}' is 2147483648, outside the vocabulary of {} "
                              "tokens; it is ignored",
                              key, model_->network.params.vocabulary)));
  }
}

// E11: the request in flight fails with a sentence, the process lives, later requests are refused.
TEST_F(HostileModel, E11AFileThatBecomesShorterFailsRequestsAndNothingElse) {
  const std::string path =
      fmt::format("{}strata-shrinking-{}.gguf", testing::TempDir(), ::getpid());
  {
    auto file = real_files().create(path);
    ASSERT_TRUE(file);
    ASSERT_TRUE((*file)->write(*model_->files.get("model.gguf")));
    ASSERT_TRUE((*file)->finish());
  }
  EngineOptions options;
  options.model_path = path;
  options.threads = 2;
  auto engine = Engine::open(real_files(), options);
  ASSERT_TRUE(engine) << engine.error().message;
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = (*engine)->facts().context - 3;
  const auto running = std::make_shared<Collector>();
  ASSERT_TRUE((*engine)->submit(request, running));
  running->wait_for_tokens(2);
  ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
  const Completion completion = running->wait();
  EXPECT_EQ(completion.reason, FinishReason::error);
  EXPECT_THAT(completion.error.message,
              HasSubstr(fmt::format("'{}' cannot be read any more: it became shorter", path)));
  const auto refused = (*engine)->submit(request, std::make_shared<Collector>());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  engine->reset();
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace strata
