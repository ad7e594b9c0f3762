// Manual pages, completions and the other words that the program has about itself. What they must
// name is taken from the help texts, which the parser prints by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "tests/cli/program.h"

namespace {

using namespace strata::test;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;

// The names of options in a help text: the first words of its lines.
std::set<std::string> options_in(const std::string& help) {
  std::set<std::string> names;
  std::istringstream lines(help);
  const std::regex name("--?[a-z][a-z-]*");
  for (std::string line; std::getline(lines, line);) {
    std::smatch head;
    if (!std::regex_search(line, head, std::regex("^  (-[a-z](,--[a-z-]+)?|--[a-z-]+)"))) continue;
    const std::string words = head.str();
    for (auto found = std::sregex_iterator(words.begin(), words.end(), name);
         found != std::sregex_iterator(); ++found)
      names.insert(found->str());
  }
  return names;
}

// The subcommands that a help text lists.
std::vector<std::string> commands_in(const std::string& help) {
  std::vector<std::string> names;
  std::istringstream lines(help.substr(std::min(help.find("Subcommands:"), help.size())));
  for (std::string line; std::getline(lines, line);) {
    std::smatch head;
    if (std::regex_search(line, head, std::regex("^  ([a-z]+) "))) names.push_back(head[1]);
  }
  return names;
}

class Help : public Program {
 protected:
  // "serve", "ple bench", ...: every command, with its help.
  std::vector<std::pair<std::string, std::string>> commands() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string& name : commands_in(run("--help").out)) {
      all.emplace_back(name, run(name + " --help").out);
      for (const std::string& below : commands_in(all.back().second))
        all.emplace_back(name + " " + below, run(name + " " + below + " --help").out);
    }
    return all;
  }
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = (folder / name).string();
    std::ofstream(path) << text;
    return path;
  }
  // Both outputs of a shell's command line.
  std::pair<int, std::string> shell(const std::string& command) const {
    const std::string out = (folder / "shell").string();
    const int status = std::system((command + " >'" + out + "' 2>&1 </dev/null").c_str());
    return {WEXITSTATUS(status), slurp(out)};
  }
  static bool has(const char* program) {
    return std::system((std::string("command -v ") + program + " >/dev/null").c_str()) == 0;
  }
  // What bash offers behind these words, the last of them unfinished.
  std::vector<std::string> offered(const std::vector<std::string>& words) const {
    std::string list;
    for (const std::string& word : words) list += " '" + word + "'";
    const std::string script =
        file("ask.bash", "source " + (folder / "strata.bash").string() + "\nCOMP_WORDS=(" + list +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_strata\n"
                             "printf '%s\\n' \"${COMPREPLY[@]}\"\n");
    std::vector<std::string> offers;
    std::istringstream lines(shell("bash --norc '" + script + "'").second);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) offers.push_back(line);
    return offers;
  }
};

TEST_F(Help, ThereAreTheCommandsThatWeKnow) {
  std::set<std::string> names;
  for (const auto& [name, help] : commands()) {
    names.insert(name);
    EXPECT_TRUE(options_in(help).contains("--help")) << name;
    EXPECT_EQ(run("help " + name).out, help) << name;
  }
  for (const char* known : {"serve", "chat", "run", "bench", "convert", "inspect", "ple bench",
                            "ple verify", "help", "version", "completion", "man"})
    EXPECT_TRUE(names.contains(known)) << known;
  EXPECT_FALSE(names.contains("engine"));  // it is not for people
}

TEST_F(Help, EveryCommandHasAManualPageWithAllItsOptions) {
  for (const auto& [name, help] : commands()) {
    const Outcome page = run("man " + name);
    EXPECT_EQ(page.code, 0) << page.error;
    std::string text = std::regex_replace(page.out, std::regex(R"(\\-)"), "-");
    for (const std::string& option : options_in(help))
      EXPECT_THAT(text, HasSubstr("\\fB" + option + "\\fR")) << name;
    EXPECT_THAT(text, HasSubstr("\\fBstrata " + name)) << name;
  }
}

TEST_F(Help, ManualPagesPleaseMandoc) {
  const std::string pages = (folder / "new" / "pages").string();  // makes both
  ASSERT_EQ(run("man --write " + pages).code, 0);
  std::size_t count = 0;
  for (const auto& page : std::filesystem::directory_iterator(pages)) {
    ++count;
    // A build outside a repository does not know its date.
    const auto [code, text] =
        shell("mandoc -T lint -W warning '" + page.path().string() + "' | grep -v 'missing date'");
    EXPECT_EQ(text, "") << page.path();
  }
  EXPECT_EQ(count, commands().size() + 1);
  std::string text = shell("mandoc -T ascii '" + pages + "/strata-run.1'").second;
  text = std::regex_replace(text, std::regex(".\\x08"), "");  // letters struck twice are bold
  EXPECT_THAT(text, HasSubstr("--max-tokens"));
  EXPECT_THAT(text, HasSubstr("none|low|medium|high"));
  EXPECT_EQ(run("man nothing").code, 2);
}

TEST_F(Help, CompletionsNameEverything) {
  const std::string bash = run("completion bash").out, zsh = run("completion zsh").out,
                    fish = run("completion fish").out;
  for (const auto& [name, help] : commands()) {
    EXPECT_THAT(bash, HasSubstr("'" + name + "'"));
    EXPECT_THAT(zsh, HasSubstr("_strata_" + std::regex_replace(name, std::regex(" "), "_") + "()"));
    for (const std::string& option : options_in(help)) {
      EXPECT_THAT(bash, HasSubstr(option));
      EXPECT_THAT(zsh, HasSubstr("*" + option + "["));
      EXPECT_THAT(fish, HasSubstr(option.starts_with("--") ? "-l " + option.substr(2)
                                                           : "-s " + option.substr(1)));
    }
  }
  const Outcome wrong = run("completion tcsh");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.error, HasSubstr("tcsh"));
}

TEST_F(Help, BashOffersWhatFits) {
  file("strata.bash", run("completion bash").out);
  EXPECT_THAT(offered({"strata", "in"}), UnorderedElementsAre("inspect"));
  EXPECT_THAT(offered({"strata", "c"}),
              UnorderedElementsAre("chat", "config", "convert", "completion"));
  EXPECT_THAT(offered({"strata", "ple", ""}), UnorderedElementsAre("bench", "verify"));
  EXPECT_THAT(offered({"strata", "run", "--effort", ""}),
              UnorderedElementsAre("none", "low", "medium", "high", "xhigh", "max"));
  for (const char* command : {"run", "bench", "serve"})
    EXPECT_THAT(offered({"strata", command, "--kv-type", ""}),
                UnorderedElementsAre("f32", "f16", "int8", "q4_0", "k8v4"));
  EXPECT_THAT(offered({"strata", "run", "--effort", "=", "l"}), UnorderedElementsAre("low"));
  EXPECT_THAT(offered({"strata", "completion", ""}), UnorderedElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(offered({"strata", "run", "-p", ""}), UnorderedElementsAre());
  file("the model.gguf", "");
  const std::string path = (folder / "th").string();
  const std::string model = (folder / "the model.gguf").string();
  EXPECT_THAT(offered({"strata", "inspect", path}), UnorderedElementsAre(model));
  EXPECT_THAT(offered({"strata", "run", "-m", path}), UnorderedElementsAre(model));
  for (const auto& [name, help] : commands()) {
    std::vector<std::string> words = {"strata"};
    std::istringstream parts(name);
    for (std::string part; parts >> part;) words.push_back(part);
    words.emplace_back("-");
    const std::vector<std::string> offers = offered(words);
    EXPECT_EQ(std::set(offers.begin(), offers.end()), options_in(help)) << name;
  }
}

TEST_F(Help, OtherShellsUnderstandTheirScripts) {
  for (const auto& [program, check] :
       {std::pair{"zsh", "zsh -n "}, std::pair{"fish", "fish --no-execute "}}) {
    if (!has(program)) continue;  // ./test --all installs them
    const std::string path = file(program, run(std::string("completion ") + program).out);
    const auto [code, text] = shell(check + path);
    EXPECT_EQ(code, 0) << program;
    EXPECT_EQ(text, "") << program;
  }
  if (!has("fish")) return;
  const std::string path = file("s.fish", run("completion fish").out);
  const auto [code, text] = shell("fish --no-config -c 'source " + path +
                                  "; complete -C \"strata ple ver\"; complete -C "
                                  "\"strata run --effort \"; complete -C \"strata bench --par\"'");
  EXPECT_THAT(text, StartsWith("verify\t"));
  EXPECT_THAT(text, HasSubstr("\nmedium"));
  EXPECT_THAT(text, HasSubstr("--parts"));
}

TEST_F(Help, UnknownWordsGetAHint) {
  EXPECT_EQ(run("help cht").error, "strata: unknown command 'cht'; did you mean 'chat'?\n");
  EXPECT_EQ(run("help xyzzy").code, 2);
  EXPECT_EQ(run("hel").error, "strata: unknown command 'hel'; did you mean 'help'?\n");
  EXPECT_EQ(run("ple benhc x").error,
            "strata: unknown command 'benhc' of 'ple'; did you mean 'bench'?\n");
  EXPECT_THAT(run("\"$(printf 'a\\033[31m')\"").error, HasSubstr("'a␛[31m'"));
}

TEST_F(Help, JsonForScripts) {
  const auto parsed = [&](const std::string& arguments) {
    const Outcome r = run(arguments);
    EXPECT_EQ(r.code, 0) << arguments << ": " << r.error;
    EXPECT_EQ(r.error, "") << arguments;
    EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 1) << arguments;
    return boost::json::parse(r.out).as_object();
  };
  const std::string demo = STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf";
  EXPECT_TRUE(parsed("version --json").contains("commit"));
  EXPECT_EQ(run("version").out, run("--version").out);
  const auto config = parsed("config --json --port 9 --api-key topsecret");
  EXPECT_EQ(config.at("port").at("value").as_int64(), 9);
  EXPECT_EQ(config.at("port").at("source").as_string(), "flag");
  EXPECT_EQ(config.at("api_key").at("value").as_string(), "(hidden)");
  const std::string model = (folder / "m.gguf").string();
  const auto report = parsed("convert --json " STRATA_GOLDEN_DIR "/tiny-a " + model);
  EXPECT_EQ(report.at("bytes").as_int64(), std::int64_t(std::filesystem::file_size(model)));
  EXPECT_TRUE(parsed("inspect --json " + model).contains("tensors"));
  const auto answer = parsed("run --json -t 0 -n 3 -p Hello -m " + demo);
  EXPECT_EQ(answer.at("completion_tokens").as_int64(), 3);
  EXPECT_EQ(answer.at("finish_reason").as_string(), "length");
  EXPECT_GT(answer.at("prompt_tokens").as_int64(), 0);
  EXPECT_EQ(parsed("drafts --json --arms off,2 -n 4 -p 8 -r 1 --limit 1 -m " + demo)
                .at("arms")
                .as_array()
                .size(),
            2u);
  const std::string noise = (folder / "noise.gguf").string();
  const auto synth = parsed(
      "synth --json --layers 1 --experts 4 --vocabulary 300 --ple-rows 50 --type q2_0 " + noise);
  EXPECT_GT(synth.at("tensors").as_int64(), 10);
}

}  // namespace
