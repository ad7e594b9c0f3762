// The built program, run as a person runs it: exit codes and sentences.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "tests/cli/program.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using namespace strata::test;

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
  auto types = types_of(run("inspect --json " + path).out);
  EXPECT_EQ(types["output.weight"], "F16");
  EXPECT_EQ(types["blk.3.attn_q.weight"], "Q4_0");
  EXPECT_EQ(types["blk.3.attn_v.weight"], "Q8_0");
}

TEST_F(Program, the_residual_may_have_a_type_of_its_own) {
  const std::string path = (folder / "q.gguf").string();
  const std::string convert = "convert " STRATA_GOLDEN_DIR "/tiny-a " + path;
  // rows of 24 (hc_*_up) divide into no blocks: they are what they were without the option
  const std::string cases[][3] = {
      {"", "F32", "F32"}, {"--type BF16", "BF16", "BF16"}, {"--type Q4_0", "Q4_0", "F32"}};
  for (const auto& [type, others, up] : cases) {
    Outcome r = run(convert + " --residual Q8_0 --tensor-type 'blk.2.hc_ffn_down=F16' " + type);
    EXPECT_EQ(r.code, 0) << r.error;
    EXPECT_THAT(r.error, HasSubstr("note: 'hc_attn_up.weight' becomes " + up + ": rows of 24"));
    auto types = types_of(run("inspect --json " + path).out);
    EXPECT_EQ(types["blk.0.hc_attn_down.weight"], "Q8_0") << type;
    EXPECT_EQ(types["output_hc_down.weight"], "Q8_0") << type;
    EXPECT_EQ(types["blk.2.hc_ffn_down.weight"], "F16") << type;
    EXPECT_EQ(types["blk.0.hc_attn_up.weight"], up) << type;
    EXPECT_EQ(types["blk.0.hc_attn_norm.weight"], "F32") << type;
    EXPECT_EQ(types["blk.0.attn_gate.weight"], others) << type;
  }
  const Outcome r = run(convert + " --residual IQ2_XS");
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.error, HasSubstr("this program cannot write IQ2_XS"));
}

// Copies the golden checkpoint, to be able to lose it.
std::filesystem::path copied(const std::filesystem::path& folder) {
  const std::filesystem::path copy = folder / "checkpoint";
  std::filesystem::copy(STRATA_GOLDEN_DIR "/tiny-a", copy);
  return copy;
}

TEST_F(Program, convert_never_writes_over_its_checkpoint) {
  const std::filesystem::path copy = copied(folder);
  std::filesystem::create_symlink(copy / "config.json", folder / "link");
  for (const std::filesystem::path& output :
       {copy / "config.json", copy / "model.safetensors",
        copy / ".." / "checkpoint" / "config.json", folder / "link"}) {
    const std::string before = slurp(output);
    const Outcome r = run("convert " + copy.string() + " " + output.string());
    EXPECT_EQ(r.code, 1) << output;
    EXPECT_THAT(r.error,
                AllOf(StartsWith("strata: writing '" + output.string() + "' would destroy"),
                      HasSubstr("choose another name\n")));
    EXPECT_TRUE(slurp(output) == before) << output;
  }
  EXPECT_EQ(run("convert " + copy.string() + " " + (copy / "model.gguf").string()).code, 0);
}

TEST_F(Program, logits_never_writes_over_its_inputs) {
  const std::string model = converted();
  const std::string ids = (folder / "ids.json").string();
  EXPECT_EQ(std::system(("echo '[1, 2, 3]' >" + ids).c_str()), 0);
  for (const std::string& output : {model, ids}) {
    const std::string before = slurp(output);
    const Outcome r = run("logits -m " + model + " --ids " + ids + " -o " + output);
    EXPECT_EQ(r.code, 1);
    EXPECT_EQ(r.error, "strata: writing '" + output + "' would destroy '" + output +
                           "', which is read; choose another name\n");
    EXPECT_TRUE(slurp(output) == before);
  }
  const Outcome r = run("logits -m " + model + " --ids " + ids + " -o " + model + ".logits");
  EXPECT_EQ(r.code, 0) << r.error;
}

TEST_F(Program, output_that_is_lost_is_an_error) {
  const std::string model = converted();
  const std::string demo = STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf";
  const std::string tokenizer = STRATA_GOLDEN_DIR "/demo-tokenizer/tokenizer.json";
  for (const std::string& arguments :
       {std::string("--version"), std::string("--help"), std::string(), "inspect " + model,
        "tokenize -p Hello --tokenizer " + tokenizer,
        "tokenize -p Hello --lines --tokenizer " + tokenizer,
        "convert " STRATA_GOLDEN_DIR "/tiny-a " + (folder / "b.gguf").string(),
        "run -p Hello -n 2 -t 0 -m " + demo, "run --raw -p Hello -n 2 -t 0 -m " + demo,
        "bench --probe 0 -p 16 -n 2 -r 1 -m " + demo}) {
    const std::string command = std::string("'") + STRATA_PROGRAM + "' " + arguments +
                                " >/dev/full 2>'" + (folder / "error").string() + "' </dev/null";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << arguments;
    EXPECT_THAT(
        slurp(folder / "error"),
        testing::EndsWith("strata: cannot write to standard output: No space left on device\n"))
        << arguments;
  }
  const std::string both = std::string("'") + STRATA_PROGRAM + "' --version >/dev/full 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(both.c_str())), 1);
}

TEST_F(Program, numbers_and_words_outside_their_range_exit_with_2) {
  const std::string conflict =
      "memory for experts is for weights in memory, not for those of a mapped file; leave out one "
      "of --expert-ram and --weights map";
  const std::map<std::string, std::string> sentences = {
      {"run -p a -t nan", "--temperature: 'nan' is no number from 0 to 100"},
      {"run -p a -t inf", "--temperature: 'inf' is no number from 0 to 100"},
      {"run -p a -t 1e39", "--temperature: '1e39' is no number from 0 to 100"},
      {"run -p a --top-p nan", "--top-p: 'nan' is no number from 1e-06 to 1"},
      {"chat --min-p nan", "--min-p: 'nan' is no number from 0 to 1"},
      {"run -p a --top-k 1.5", "--top-k: '1.5' is no whole number from 0 to 2147483647"},
      {"run -p a --seed -2", "--seed: '-2' is no whole number from -1 to 9223372036854775807"},
      {"bench -p 1,,2", "--prompt: '' is no whole number from 0 to 1048576"},
      {"bench -d 0,x", "--depth: 'x' is no whole number from 0 to 1048576"},
      {"bench -b 1,", "--batch: '' is no whole number from 1 to 64"},
      {"run -p a --weights map --expert-ram 25%", conflict},
      {"chat --weights map --expert-ram 2G", conflict},
      {"bench --weights map --expert-ram 25%", conflict},
      {"config --weights map --expert-ram 25%", conflict},
      {"serve --plan --parallel 65",
       "--parallel must be a whole number from 1 to 64; more is for scripts"},
      {"tokenize -p a --specials bogus", "--specials: 'bogus' must be all, user_defined or none"},
      {"tokenize", "a text (-p TEXT) or a file (-f FILE) is required"},
      {"run -p a -m ''", "--model: the model path is empty"},
      {"tokenize -p a -m ''", "--model: the model path is empty"},
      {"run -p a --threads 100000", "--threads: '100000' is no whole number from 0 to 4096"},
      {"bench --threads 100000", "--threads: '100000' is no whole number from 0 to 4096"},
      {"logits -p a --threads -1", "--threads: '-1' is no whole number from 0 to 4096"},
      {"run -p a --ctx 63",
       "--ctx: '63' is no size of a context: 0 is the model's own, and less than 64 tokens hold no "
       "conversation"},
  };
  for (const auto& [arguments, sentence] : sentences) {
    const Outcome r = run(arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_EQ(r.error, "strata: " + sentence + "\n") << arguments;
  }
}

// What a start would refuse.
TEST_F(Program, a_plan_refuses_what_could_not_be) {
  const std::map<std::string, std::pair<std::string, int>> sentences = {
      {"run --plan -f /nope", {"'/nope'", 1}},
      {"run --plan --ctx 100000000", {"is more than the model's", 2}},
      {"run -p a --ctx 100000000", {"is more than the model's", 2}},
      {"chat --ctx 100000000", {"is more than the model's", 2}},
      {"drafts --ctx 100000000", {"is more than the model's", 2}},
      {"serve --plan --ctx 100000000", {"is more than the model's", 2}},
      {"run --plan --drafts 2 --draft-vocabulary /nope", {"'/nope'", 1}},
      {"bench --plan -p 1000000", {"needs a context of 1000000 tokens", 2}},
      {"bench -p 1000000", {"needs a context of 1000000 tokens", 2}},
      {"bench --plan -p 0 -n 0", {"there is nothing to measure", 2}},
  };
  for (const auto& [arguments, expected] : sentences) {
    const auto& [sentence, code] = expected;
    const Outcome r = run(arguments);
    EXPECT_EQ(r.code, code) << arguments;
    EXPECT_THAT(r.error, HasSubstr(sentence)) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
  }
}

TEST_F(Program, a_saved_conversation_with_a_name_twice_is_refused) {
  const std::string saved = (folder / "saved.json").string();
  const auto load = [&](const std::string& text) {
    std::ofstream(saved) << text;
    std::ofstream(folder / "lines") << "/load " << saved << "\n";
    const int status =
        std::system(fmt::format("'{}' chat --no-progress <'{}' >'{}' 2>'{}'", STRATA_PROGRAM,
                                (folder / "lines").string(), (folder / "out").string(),
                                (folder / "error").string())
                        .c_str());
    return Outcome{WEXITSTATUS(status), slurp(folder / "out"), slurp(folder / "error")};
  };
  const Outcome twice =
      load(R"({"strata_chat": 1, "messages": [{"role": "user", "content": "a", "role": "user"}]})");
  EXPECT_EQ(twice.code, 1);
  EXPECT_THAT(twice.error, HasSubstr("saved.json' has 'role' twice in one object: at line 1, "));
  const Outcome once =
      load(R"({"strata_chat": 1, "messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(once.code, 0) << once.error;
  EXPECT_EQ(once.out, "1 messages\n");
}

// A limit of the shell is an error with a hint, and leaves no half of a file.
TEST_F(Program, a_limit_of_file_sizes_is_told) {
  const std::string model = (folder / "limited.gguf").string();
  const std::string error = (folder / "error").string();
  const std::string command = fmt::format(
      "bash -c '(ulimit -f 0; \"{}\" synth \"{}\" --layers 4 --experts 16 --type q4_0 2>&1) | cat "
      ">\"{}\"; exit ${{PIPESTATUS[0]}}'",
      STRATA_PROGRAM, model, error);
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
  EXPECT_THAT(slurp(error), HasSubstr("allow this program larger files (ulimit -f)"));
  EXPECT_FALSE(std::filesystem::exists(model));
  EXPECT_FALSE(std::filesystem::exists(model + ".partial"));
}

TEST_F(Program, sampling_in_a_model_that_no_request_may_have_is_said_and_not_used) {
  std::string bytes = slurp(STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf");
  // Behind a key come four bytes of type, then the value.
  const auto set = [&](const std::string& key, auto value) {
    const std::size_t at = bytes.find(key);
    ASSERT_NE(at, std::string::npos) << key;
    std::memcpy(bytes.data() + at + key.size() + 4, &value, sizeof value);
  };
  set("general.sampling.temp", -5.0f);
  set("general.sampling.top_p", std::numeric_limits<float>::quiet_NaN());
  set("general.sampling.top_k", std::int32_t{-1});
  const std::string path = (folder / "bad.gguf").string();
  std::ofstream(path, std::ios::binary) << bytes;
  const Outcome r = run("run --raw -p a -n 2 -m " + path);
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(
      r.error,
      AllOf(HasSubstr("key 'general.sampling.temp' of the model is not used: temperature is -5"),
            HasSubstr("key 'general.sampling.top_p' of the model is not used: top_p is nan"),
            HasSubstr("key 'general.sampling.top_k' of the model is not used: top_k is -1")));
}

}  // namespace
