// The built program, run as a person runs it, in a folder of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace strata::test {

struct Outcome {
  int code = -1;
  std::string out, error;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
    std::array<char, 4096> buffer;
    for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), file)) > 0;)
      text.append(buffer.data(), n);
    std::fclose(file);
  }
  return text;
}

// Type of each tensor, from what `inspect --json` prints.
inline std::map<std::string, std::string> types_of(const std::string& json) {
  std::map<std::string, std::string> types;
  const boost::json::value parsed = boost::json::parse(json);
  for (const auto& t : parsed.at("tensors").as_array())
    types[std::string(t.at("name").as_string())] = std::string(t.at("type").as_string());
  return types;
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
    // What a server keeps by itself stays in the folder.
    const std::string command = "XDG_DATA_HOME='" + folder.string() + "' '" + STRATA_PROGRAM +
                                "' " + arguments + " >'" + (folder / "out").string() + "' 2>'" +
                                (folder / "error").string() + "' </dev/null";
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

}  // namespace strata::test
