// Every option that takes a number refuses what is none, by its name and with the exit code of a
// wrong command line. Which options there are is read off the help texts.
#include <gmock/gmock.h>

#include <regex>
#include <sstream>
#include <vector>

#include "tests/cli/program.h"

namespace {

using namespace strata::test;
using testing::HasSubstr;

struct NumberOption {
  std::string name;
  bool whole = true;
};

std::vector<NumberOption> number_options(const std::string& help) {
  std::vector<NumberOption> found;
  std::istringstream lines(help);
  const std::regex option("^  (?:-[a-z],)?(--[a-z-]+) (INT|UINT|FLOAT|N|NUMBER)\\b");
  for (std::string line; std::getline(lines, line);) {
    std::smatch head;
    if (std::regex_search(line, head, option)) found.push_back({head[1], head[2] != "FLOAT"});
  }
  return found;
}

class Numbers : public Program {
 protected:
  void refuses(const std::string& command, const std::string& name, const std::string& value) {
    const Outcome r = run(command + " " + value);
    EXPECT_EQ(r.code, 2) << command << " " << value << "\n" << r.out << r.error;
    EXPECT_THAT(r.error, HasSubstr(name)) << command << " " << value;
    EXPECT_EQ(std::count(r.error.begin(), r.error.end(), '\n'), 1) << r.error;
  }
};

TEST_F(Numbers, what_is_no_number_of_the_range_is_refused_by_name) {
  // With what else they need; `config` has the options of `serve`, and serves nothing.
  const std::pair<std::string, std::string> commands[] = {
      {"run", "run -p a"},
      {"config", "config"},
      {"engine", "engine"},
      {"bench", "bench"},
      {"drafts", "drafts"},
      {"convert", "convert a b"},
      {"tokenize", "tokenize -p a"},
      {"logits", "logits --ids a -o b"},
      {"synth", "synth a"},
      {"ple bench", "ple bench a"},
      {"ple verify", "ple verify a"},
  };
  std::size_t options = 0;
  for (const auto& [command, usual] : commands) {
    for (const NumberOption& option : number_options(run(command + " --help").out)) {
      ++options;
      const std::string& name = option.name;
      for (const char* value : {"=", " ''", "=-7", " -7", "=x", "=5x", "=99999999999999999999999"})
        refuses(usual, name, name + value);
      // What parsers of numbers take and what is read here differently.
      const char* others[] = {"=0x10", "=1_0", "=' 5'", "='5 '", "=1e999", "=nan"};
      refuses(usual, name, name + others[options % std::size(others)]);
      if (option.whole) refuses(usual, name, name + "=1.5");
    }
  }
  EXPECT_GT(options, 50u);
}

TEST_F(Numbers, sizes_and_words_beside_numbers_are_refused_by_name) {
  for (const char* command : {"run -p a", "config", "engine", "drafts"}) {
    for (const char* name : {"--cache-ram", "--cache-disk", "--expert-ram", "--drafts"})
      for (const char* value :
           {"=", " ''", "=-7", "=x", "=5x", "=5X", "=' 5'", "=99999999999999999999", "=1.5G"})
        refuses(command, name, std::string(name) + value);
    for (const char* value : {"0", "0G", "0%", "-1%", "101%", "nan%", "%", "1e999%"}) {
      const std::string words = std::string(command) + " --expert-ram=" + value;
      refuses(command, "--expert-ram", std::string("--expert-ram=") + value);
      EXPECT_THAT(run(words).error,
                  HasSubstr("memory for experts is all, a size above 0 such as 12G, or a part "
                            "above 0% up to 100% such as 25%"))
          << words;
    }
    EXPECT_THAT(run(std::string(command) + " --expert-ram=99999999999999999999").error,
                HasSubstr("the size '99999999999999999999' is too large"));
  }
  refuses("drafts", "--arms", "--arms=off,16");
}

}  // namespace
