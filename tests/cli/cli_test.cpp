// The built program, run as a person runs it: exit codes and sentences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string out, error;
};

std::string slurp(const std::filesystem::path& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
    std::array<char, 4096> buffer;
    for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), file)) > 0;)
      text.append(buffer.data(), n);
    std::fclose(file);
  }
  return text;
}

class Program : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  Outcome run(const std::string& arguments) const {
    const std::string command = std::string("'") + STRATA_PROGRAM + "' " + arguments + " >'" +
                                (folder / "out").string() + "' 2>'" + (folder / "error").string() +
                                "' </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(folder / "out"),
            slurp(folder / "error")};
  }

  std::string converted(const std::string& model = "tiny-a") const {
    const std::string path = (folder / (model + ".gguf")).string();
    const Outcome r = run("convert " STRATA_GOLDEN_DIR "/" + model + " " + path);
    EXPECT_EQ(r.code, 0) << r.error;
    return path;
  }

  std::filesystem::path folder;
};

TEST_F(Program, without_arguments_prints_help) {
  const Outcome r = run("");
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.out, AllOf(HasSubstr("convert"), HasSubstr("inspect"), HasSubstr("--version")));
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(run("--help").code, 0);
}

TEST_F(Program, version_says_compiler_and_instruction_sets) {
  const Outcome r = run("--version");
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.out,
              AllOf(StartsWith("strata "), HasSubstr("commit "), HasSubstr("compiler: "),
                    HasSubstr("flags: "), HasSubstr("built for: "), HasSubstr("this CPU: ")));
}

TEST_F(Program, unknown_words_exit_with_2_and_a_hint) {
  Outcome r = run("convrt a b");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.error, "strata: unknown command 'convrt'; did you mean 'convert'?\n");
  r = run("xyzzy");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.error, "strata: unknown command 'xyzzy'; 'strata --help' lists what there is\n");
  r = run("--verzion");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.error, "strata: unknown option '--verzion'; did you mean '--version'?\n");
  r = run("convert a b --tpye=Q8_0");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.error, "strata: unknown option '--tpye' of 'convert'; did you mean '--type'?\n");
  r = run("inspect a b");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("strata: unknown argument 'b' of 'inspect'"));
}

TEST_F(Program, bad_values_exit_with_2) {
  Outcome r = run("convert");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, AllOf(StartsWith("strata: "), HasSubstr("HF_DIR")));
  r = run("convert a b --type Q9");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, AllOf(HasSubstr("'Q9' is no tensor type"), HasSubstr("Q4_K")));
  r = run("convert a b --tensor-type foo");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("'foo' is not of the form REGEX=TYPE"));
}

TEST_F(Program, failures_exit_with_1_and_one_sentence) {
  Outcome r = run("inspect " + (folder / "nothing.gguf").string());
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.error, AllOf(StartsWith("strata: "), HasSubstr("nothing.gguf")));
  EXPECT_EQ(std::count(r.error.begin(), r.error.end(), '\n'), 1);
  r = run("convert " + folder.string() + " " + (folder / "x.gguf").string());
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.error, HasSubstr("config.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x.gguf"));
}

TEST_F(Program, converts_and_inspects) {
  const std::string path = converted();
  Outcome r = run("inspect " + path);
  EXPECT_EQ(r.code, 0) << r.error;
  EXPECT_THAT(r.out, AllOf(HasSubstr("in 214 tensors"), HasSubstr("qwen4exp.block_count"),
                           HasSubstr("blk.3.ffn_down_exps.weight"), HasSubstr("[32, 64, 16]")));

  r = run("inspect --json " + path);
  EXPECT_EQ(r.code, 0) << r.error;
  const auto json = boost::json::parse(r.out).as_object();
  EXPECT_EQ(json.at("parts").as_array().size(), 1u);
  EXPECT_EQ(json.at("tensors").as_array().size(), 214u);
  std::uint64_t parameters = 0;
  for (const auto& t : json.at("tensors").as_array()) {
    std::uint64_t values = 1;
    for (const auto& n : t.at("shape").as_array()) values *= n.to_number<std::uint64_t>();
    parameters += values;
    EXPECT_EQ(t.at("bytes").to_number<std::uint64_t>(), values * 4);
  }
  EXPECT_EQ(json.at("parameters").to_number<std::uint64_t>(), parameters);
  const auto& block_count = json.at("metadata").at("qwen4exp.block_count").as_object();
  EXPECT_EQ(block_count.at("value").to_number<int>(), 8);
  EXPECT_EQ(block_count.at("type").as_string(), "u32");
}

TEST_F(Program, converts_with_types) {
  const std::string path = (folder / "q.gguf").string();
  Outcome r = run("convert " STRATA_GOLDEN_DIR "/tiny-a " + path +
                  " --type q8_0 --tensor-type '^output\\.weight$=F16' --tensor-type attn_q=q4_0");
  EXPECT_EQ(r.code, 1);  // attn_q finds attn_q_norm, too
  EXPECT_THAT(r.error, HasSubstr("attn_q_norm.weight' is always F32"));
  r = run("convert " STRATA_GOLDEN_DIR "/tiny-a " + path +
          " --type q8_0 --tensor-type '^output\\.weight$=F16' --tensor-type 'attn_q\\.=q4_0'");
  EXPECT_EQ(r.code, 0) << r.error;
  EXPECT_THAT(r.error, HasSubstr("note: 'ffn_down_shexp.weight' becomes F32"));
  r = run("inspect --json " + path);
  const auto json = boost::json::parse(r.out).as_object();
  std::map<std::string, std::string> types;
  for (const auto& t : json.at("tensors").as_array())
    types[std::string(t.at("name").as_string())] = std::string(t.at("type").as_string());
  EXPECT_EQ(types["output.weight"], "F16");
  EXPECT_EQ(types["blk.3.attn_q.weight"], "Q4_0");
  EXPECT_EQ(types["blk.3.attn_v.weight"], "Q8_0");
}

}  // namespace
