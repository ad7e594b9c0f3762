// A model file with a tokenizer and a template but without weights, and scripts, in a folder of
// their own: what a scripted engine needs.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace strata::server::testing {

class ScriptedModel {
 public:
  ScriptedModel() {
    static int number = 0;
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("strata-scripted-{}-{}", getpid(), ++number);
    std::filesystem::create_directories(folder_);
    auto tokenizer = Tokenizer::from_tokenizer_json(golden("tokenizer.json"));
    EXPECT_TRUE(tokenizer);
    auto writer = GgufWriter::create(real_files(), model());
    EXPECT_TRUE(writer);
    write_tokenizer(*tokenizer, writer->metadata());
    const auto config = boost::json::parse(golden("tokenizer_config.json"));
    writer->metadata().set("tokenizer.chat_template",
                           MetaValue::string(std::string(config.at("chat_template").as_string())));
    writer->metadata().set("general.name", MetaValue::string("scripted-model"));
    writer->metadata().set("general.architecture", MetaValue::string("qwen4exp"));
    EXPECT_TRUE(writer->declare("none", TensorType::F32, std::vector<std::uint64_t>{32}));
    EXPECT_TRUE(writer->write_data(Bytes(128)));
    EXPECT_TRUE(writer->finish());
  }
  ~ScriptedModel() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string model() const { return (folder_ / "model.gguf").string(); }
  // Its path. `scripts` is the JSON of the list.
  std::string script(const std::string& scripts) const {
    const std::string path = (folder_ / "script.json").string();
    std::ofstream(path) << "{\"scripts\":" << scripts << "}";
    return path;
  }

 private:
  static std::string golden(const std::string& name) {
    std::ifstream in(fmt::format("{}/demo-tokenizer/{}", STRATA_GOLDEN_DIR, name));
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  std::filesystem::path folder_;
};

}  // namespace strata::server::testing
