// The settings' table, over the program: precedence, sources, refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace strata {
namespace {

using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("strata-config-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& text) {
    const std::string path = (folder_ / "c.json").string();
    std::ofstream(path) << text;
    return path;
  }
  // Standard output and error together; the exit code goes to code_.
  std::string run(const std::string& arguments, const std::string& environment = "") {
    const std::string command = "env -u STRATA_CONFIG -u STRATA_PORT XDG_DATA_HOME='" +
                                folder_.string() + "' " + environment + " " + STRATA_PROGRAM + " " +
                                arguments + " 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    std::array<char, 4096> buffer{};
    while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
      out.append(buffer.data(), got);
    code_ = WEXITSTATUS(pclose(pipe));
    return out;
  }
  // "key value source" with single spaces.
  static std::string line_of(const std::string& text, const std::string& key) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string name, value, source;
      words >> name >> value >> source;
      if (name == key) return name + " " + value + " " + source;
    }
    return "";
  }

  std::filesystem::path folder_;
  int code_ = 0;
};

TEST_F(ConfigTest, FlagWinsOverEnvironmentOverFile) {
  const std::string path = file("\xEF\xBB\xBF{\"port\": 1, \"host\": \"::1\", \"parallel\": null}");
  EXPECT_EQ(line_of(run("config"), "port"), "port 8080 built-in");
  const std::string of_file = run("config --config " + path);
  EXPECT_EQ(line_of(of_file, "port"), "port 1 config");
  EXPECT_EQ(line_of(of_file, "host"), "host \"::1\" config");
  EXPECT_EQ(line_of(of_file, "parallel"), "parallel 4 built-in");
  EXPECT_EQ(line_of(run("config", "STRATA_CONFIG=" + path + " STRATA_PORT=2"), "port"),
            "port 2 environment");
  EXPECT_EQ(line_of(run("config --port 3 --config " + path, "STRATA_PORT=2"), "port"),
            "port 3 flag");
  EXPECT_EQ(line_of(run("config --fit-max-tokens"), "fit_max_tokens"), "fit_max_tokens true flag");
}

TEST_F(ConfigTest, SecretsAreNotPrinted) {
  const std::string out = run("config --api-key topsecret,other");
  EXPECT_EQ(line_of(out, "api_key"), "api_key (hidden) flag");
  EXPECT_EQ(out.find("topsecret"), std::string::npos);
}

TEST_F(ConfigTest, PathsOfTheFileAreMeantFromItsFolder) {
  const std::string out = run("config --config " + file(R"({"model":"m.gguf","tls_key":"/k"})"));
  EXPECT_THAT(line_of(out, "model"), HasSubstr((folder_ / "m.gguf").string()));
  EXPECT_EQ(line_of(out, "tls_key"), "tls_key \"/k\" config");
  EXPECT_EQ(line_of(run("config --model x.gguf"), "model"), "model \"x.gguf\" flag");
}

TEST_F(ConfigTest, ChatsLieInTheDataFolderOfTheUser) {
  const auto place = [&](const std::string& arguments, const std::string& environment) {
    return line_of(run("config " + arguments, environment), "chats_db");
  };
  EXPECT_EQ(place("", "XDG_DATA_HOME=/data"), "chats_db \"/data/strata/chats.db\" built-in");
  EXPECT_EQ(place("", "XDG_DATA_HOME= HOME=/home/a"),
            "chats_db \"/home/a/.local/share/strata/chats.db\" built-in");
  // Relative ones do not count, as the rules of XDG say.
  EXPECT_EQ(place("", "XDG_DATA_HOME=data HOME=home"), "chats_db \"\" built-in");
  EXPECT_EQ(place("--chats-db ''", "XDG_DATA_HOME=/data"), "chats_db \"\" flag");
  EXPECT_EQ(place("--chats-db x.db", "XDG_DATA_HOME=/data"), "chats_db \"x.db\" flag");
}

TEST_F(ConfigTest, WordsThatMayBeNumbers) {
  const std::string out =
      run("config --config " + file(R"({"drafts":3,"cache_ram":0,"cache_disk":1073741824})"));
  EXPECT_EQ(line_of(out, "drafts"), "drafts \"3\" config");
  EXPECT_EQ(line_of(out, "cache_ram"), "cache_ram \"0\" config");
  EXPECT_EQ(line_of(out, "cache_disk"), "cache_disk \"1073741824\" config");
}

// 'strata config' says what 'strata serve' would say.
TEST_F(ConfigTest, ValuesAreCheckedAsServeDoes) {
  const std::pair<const char*, const char*> table[] = {
      {"--cache-ram lots", "lots"},
      {"--cache-disk 5X", "5X"},
      {"--drafts 16", "must be auto, off or 1 to 15"},
      {"--draft-source tea", "tea"},
      {"--weights heavy", "heavy"},
      {"--kv-type q9", "--kv-type: 'q9' is not known; it must be f32, f16, int8"},
      {"--engine elsewhere", "must be process or inside"},
      {"--ctx 1", "less than 64 tokens hold no conversation"},
      {"--threads 100000", "from 0 to 4096"},
      {"--log-level loud", "loud"},
  };
  for (const auto& [arguments, sentence] : table) {
    for (const char* command : {"config ", "serve --port 0 "}) {
      EXPECT_THAT(run(std::string(command) + arguments), HasSubstr(sentence)) << command;
      EXPECT_EQ(code_, 2) << command << arguments;
    }
  }
  EXPECT_EQ(line_of(run("config --ctx 64"), "ctx"), "ctx 64 flag");
  EXPECT_EQ(line_of(run("config --ctx 0"), "ctx"), "ctx 0 flag");
}

TEST_F(ConfigTest, RefusesWithNameAndPlace) {
  const std::pair<const char*, const char*> table[] = {
      {R"({"prot":1})", "unknown key 'prot'"},
      {R"({"prot":1})", "did you mean 'port'?"},
      {R"({"tokenizer":"x"})", "'tokenizer' in"},
      {R"({"tokenizer":"x"})", "the model file carries its tokenizer"},
      {R"({"mcp_servers":{}})", "is not supported"},
      {R"({"port":"x"})", "must be a whole number from 0 to 65535"},
      {R"({"port":65536})", "'port' in"},
      {R"({"drafts":16})", "must be a string or a whole number from 0 to 15"},
      {R"({"drafts":true})", "must be a string or a whole number"},
      {R"({"host":3})", "must be a string"},
      {R"({"ctx":63})", "less than 64 tokens"},
      {R"({"port":1.5})", "must be a whole number"},
      {R"({"parallel":0})", "must be a whole number from 1 to 4096"},
      {R"({"fit_max_tokens":1})", "must be true or false"},
      {R"({"api_key":[""]})", "must be without empty strings"},
      {R"({"api_key":""})", "must be without empty strings"},
      {R"({"api_key":"a\u0007b"})",
       "must be without control characters and white space around a key"},
      {R"({"api_key":["a","b\u007f"]})", "must be without control characters"},
      {R"({"api_key":[" a"]})", "white space around a key"},
      {R"({"trusted_origins":["https://x.org","x"]})", "'trusted_origins' in"},
      {R"({"cors_origins":"*"})", "'*' is no origin"},
      {R"({"allowed_hosts":["https://x.org"]})", "'allowed_hosts' in"},
      {R"({"aliases":[5]})", "must be a string or an array of strings"},
      {R"({"sampling":[]})", "must be a JSON object"},
      {R"({"kv_type":"q9"})", "'kv_type' in"},
      {R"({"kv_type":"q9"})", "'q9' is not known; it must be f32, f16, int8, q4_0 or k8v4"},
      {R"({"expert_ram":"lots"})", "'expert_ram' in"},
      {R"({"cache_ram":"5X"})", "'cache_ram' in"},
      {R"({"cache_disk":"5X"})", "'cache_disk' in"},
      {R"({"drafts":"16"})", "'drafts' in"},
      {R"({"weights":"a,m"})", "'weights' in"},
      {R"({"log_level":"loud"})", "'log_level' in"},
      {R"([])", "is an array where an object is needed"},
      {R"({"port":1)", "is no valid JSON"},
  };
  for (const auto& [text, message] : table) {
    EXPECT_THAT(run("config --config " + file(text)), HasSubstr(message)) << text;
    EXPECT_EQ(code_, 2) << text;
  }
  EXPECT_THAT(run("config --config /nonexistent.json"), HasSubstr("/nonexistent.json"));
  EXPECT_THAT(run("config --port 70000"), HasSubstr("--port must be a whole number"));
  EXPECT_THAT(run("config", "STRATA_PORT=abc"), HasSubstr("STRATA_PORT must be a whole number"));
  EXPECT_THAT(run("config", "STRATA_KV_TYPE=q9"), HasSubstr("STRATA_KV_TYPE: 'q9' is not known"));
  EXPECT_THAT(run("config", "STRATA_EXPERT_RAM=12Q"), HasSubstr("STRATA_EXPERT_RAM: '12Q'"));
  EXPECT_THAT(run("config --api-key ''"), HasSubstr("--api-key must be without empty strings"));
  EXPECT_THAT(run("config --api-key 'a\tb'"), HasSubstr("--api-key must be without control"));
  EXPECT_EQ(code_, 2);
  EXPECT_THAT(run("config", "STRATA_API_KEY='a,b\x07'"),
              HasSubstr("STRATA_API_KEY must be without control characters"));
  EXPECT_EQ(code_, 2);
  EXPECT_THAT(run("config --sampling '{'"), HasSubstr("--sampling is no valid JSON"));
}

// What is found out later than by the key's own rule is told with its place, too, and what may be.
TEST_F(ConfigTest, ValuesThatCannotBeAreToldWithTheirPlace) {
  const std::string script = file("{}");
  struct Case {
    const char *key, *value, *variable, *flag, *sentence;
  };
  const Case table[] = {
      {"parallel", "65", "STRATA_PARALLEL=65", "--parallel 65",
       " must be a whole number from 1 to 64; more is for scripts"},
      {"sampling", R"({"temperature":-1})", R"(STRATA_SAMPLING='{"temperature":-1}')",
       R"(--sampling '{"temperature":-1}')", ": temperature is -1, allowed is 0 to 100"},
      {"sampling", R"({"heat":1})", R"(STRATA_SAMPLING='{"heat":1}')", R"(--sampling '{"heat":1}')",
       ": the field 'heat' is not known here"},
      {"expert_ram", R"("0")", "STRATA_EXPERT_RAM=0", "--expert-ram 0",
       ": '0' is none; memory for experts is all, a size above 0 such as 12G, or a part"},
      {"expert_ram", "0", "STRATA_EXPERT_RAM=0", "--expert-ram 0",
       ": '0' is none; memory for experts is all, a size above 0"},
      {"expert_ram", R"("0%")", "STRATA_EXPERT_RAM=0%", "--expert-ram 0%",
       ": '0%' is no part; memory for experts is all, a size above 0 such as 12G"},
      {"reasoning_effort", R"("huge")", "STRATA_REASONING_EFFORT=huge", "--reasoning-effort huge",
       ": 'reasoning_effort' is 'huge'"},
  };
  for (const Case& one : table) {
    const std::string path = file(fmt::format("{{\"{}\": {}}}", one.key, one.value));
    std::string variable = one.variable, flag = one.flag;
    variable.resize(variable.find('='));
    flag.resize(flag.find(' '));
    for (const char* command : {"config", "serve --port 0", "serve --plan"}) {
      EXPECT_THAT(run(fmt::format("{} --config {}", command, path)),
                  HasSubstr(fmt::format("'{}' in '{}'{}", one.key, path, one.sentence)));
      EXPECT_EQ(code_, 2) << command << one.value;
      EXPECT_THAT(run(command, one.variable), HasSubstr(variable + one.sentence));
      EXPECT_EQ(code_, 2) << command << one.variable;
      EXPECT_THAT(run(fmt::format("{} {}", command, one.flag)), HasSubstr(flag + one.sentence));
      EXPECT_EQ(code_, 2) << command << one.flag;
    }
  }
  EXPECT_EQ(line_of(run("config --parallel 65 --script " + script), "parallel"),
            "parallel 65 flag");
  run("serve --plan --parallel 64");
  EXPECT_EQ(code_, 0);
}

// A list that no request could ever match is told before anything starts.
TEST_F(ConfigTest, HostsAndOriginsThatNobodySendsAreRefused) {
  for (const char* origin :
       {"x", "x.org", "*", "https://", "https://x.org/", "https://x.org/a", "https://x.org:443",
        "http://x.org:80", "https://x.org:", "https://x.org:99999", "https://a@x.org",
        "https://x..org", "https://é.org", "://x.org", "ht tp://x.org", "http://[::1",
        "https://*.x.org"}) {
    for (const std::string key : {"--trusted-origins", "--cors-origins"}) {
      EXPECT_THAT(
          run(fmt::format("serve --port 0 {} 'https://y.org,{}'", key, origin)),
          HasSubstr(fmt::format("{}: '{}' is no origin; write it as browsers", key, origin)));
      EXPECT_EQ(code_, 2) << origin;
    }
  }
  for (const char* host :
       {"https://x.org", "x.org:80", "x.org/", "*.x.org", ".", "a b", "é.org", "[::1]"}) {
    EXPECT_THAT(run(fmt::format("serve --port 0 --allowed-hosts 'y.org,{}'", host)),
                HasSubstr(fmt::format("--allowed-hosts: '{}' is no name of a host", host)));
    EXPECT_EQ(code_, 2) << host;
  }
  EXPECT_THAT(run("config", "STRATA_CORS_ORIGINS=x.org"),
              HasSubstr("STRATA_CORS_ORIGINS: 'x.org' is no origin"));
  EXPECT_EQ(code_, 2);
  run("config --allowed-hosts 'x.org,.x.org,*,box_1,10.0.0.1,fe80::1,xn--bcher-kva.example' "
      "--trusted-origins 'https://X.org,http://x:8080,http://[::1]:3000,null,file://' "
      "--cors-origins 'chrome-extension://abcdefgh,tauri://localhost,https://x.org:80'");
  EXPECT_EQ(code_, 0);
}

TEST_F(ConfigTest, AKeyThatStandsTwiceIsRefused) {
  const std::string path = file("{\"port\": 1,\n \"host\": \"::1\",\n \"port\": 2}");
  EXPECT_THAT(run("config --config " + path),
              HasSubstr("'" + path +
                        "' has 'port' twice in one object: at line 1, column 2 and at "
                        "line 3, column 2"));
  EXPECT_EQ(code_, 2);
  run("config --config " + file(R"({"sampling":{"top_k":1,"top_k":2}})"));
  EXPECT_EQ(code_, 2);
  EXPECT_THAT(run(R"(config --sampling '{"top_k":1,"top_k":2}')"),
              HasSubstr("--sampling has 'top_k' twice in one object"));
  EXPECT_EQ(code_, 2);
}

TEST_F(ConfigTest, ServeRefusesOtherMachinesWithoutAKey) {
  const auto refused = [&](const std::string& arguments, const std::string& sentence) {
    EXPECT_THAT(run("serve --port 0 " + arguments), HasSubstr(sentence));
    EXPECT_EQ(code_, 2) << arguments;
  };
  refused("--host 0.0.0.0", "without a key");
  refused("--engine elsewhere", "must be process or inside");
  refused("--tls-cert x.pem", "both a certificate and its key");
  refused("--sampling '{\"temperature\":-1}'", "temperature");
  refused("--ngram-depth 0", "--ngram-depth must be a whole number from 1 to 1024");
  refused("--log-level loud", "loud");
  refused("--bogus", "unknown option '--bogus'");
}

TEST_F(ConfigTest, EveryKeyIsInTheDocs) {
  std::ifstream in(std::string(STRATA_SOURCE_DIR) + "/docs/config.md");
  std::ostringstream docs;
  docs << in.rdbuf();
  std::istringstream lines(run("config"));
  int keys = 0;
  for (std::string line; std::getline(lines, line); ++keys) {
    const std::string key = line.substr(0, line.find(' '));
    EXPECT_THAT(docs.str(), HasSubstr("`" + key + "`"));
  }
  EXPECT_GT(keys, 15);
}

}  // namespace
}  // namespace strata
