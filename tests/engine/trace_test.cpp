// The trace: lines of JSON with the fields that docs/trace.md lists, and totals that are those of
// the requests.
#include "engine/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/json.h"
#include "base/log.h"
#include "tests/engine/tiny_model.h"

namespace strata {
namespace {

namespace json = boost::json;

std::vector<json::object> lines_of(MemoryFileSystem& files, const std::string& path) {
  const auto bytes = files.get(path);
  EXPECT_TRUE(bytes) << bytes.error().message;
  std::vector<json::object> lines;
  if (!bytes) return lines;
  std::istringstream text(std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
  for (std::string line; std::getline(text, line);) {
    auto value = parse_json(line, "a line of the trace");
    EXPECT_TRUE(value && value->is_object()) << line;
    if (value && value->is_object()) lines.push_back(value->get_object());
  }
  return lines;
}

// Names of members, of the round and of its parts.
void add_names(const json::object& object, std::set<std::string>& names) {
  for (const auto& [key, value] : object) {
    names.insert(std::string(key));
    if (key == "parts")
      for (const json::value& part : value.as_array()) add_names(part.as_object(), names);
  }
}

// Those in backticks in the first column of the table of docs/trace.md.
std::set<std::string> documented_names() {
  std::ifstream in(STRATA_SOURCE_DIR "/docs/trace.md");
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find('|', 1));
    for (std::size_t at = cell.find('`'); at != std::string::npos;) {
      const std::size_t end = cell.find('`', at + 1);
      names.insert(cell.substr(at + 1, end - at - 1));
      at = cell.find('`', end + 1);
    }
  }
  return names;
}

const std::vector<TokenId> kGuesses = {310, 88, 4};
const std::vector<GuessKind> kKinds = {GuessKind::of_draft(0.5f, false),
                                       GuessKind::of_lookup(9, true, false),
                                       GuessKind::of_lookup(9, false, false)};

Trace::Part decoding_part() {
  Trace::Part part;
  part.request = 2;
  part.position = 41;
  part.rows = 4;
  part.decoding = true;
  part.guesses = kGuesses;
  part.kinds = kKinds;
  part.accepted = 1;
  return part;
}

TEST(Trace, ALineARoundWithTheFieldsOfItsDocumentation) {
  MemoryFileSystem files;
  {
    auto trace = Trace::open(files, "trace.jsonl");
    ASSERT_TRUE(trace);
    (*trace)->part(decoding_part());
    Trace::Part reading;
    reading.request = 3;
    reading.position = 64;
    reading.rows = 32;
    (*trace)->part(reading);
    (*trace)->round({7, 36, 32, 0.00021, 0.5, 0.0000314});
    Trace::Part tried = decoding_part();
    tried.trial = true;
    (*trace)->part(tried);
    (*trace)->round({8, 4, 0, 0, 0, 0});
    ExpertCounters experts;
    experts.core_hits = 3;
    experts.misses = 2;
    experts.read_bytes = 700;
    experts.wait_microseconds = 1500;
    (*trace)->round({9, 0, 0, 0, 0, 0, experts});
  }
  const auto lines = lines_of(files, "trace.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], json::parse(R"({"round":7,"rows":36,"prompt_rows":32,"draft_ms":0.210,
      "window_ms":500.000,"sample_ms":0.031,"parts":[
        {"request":2,"position":41,"rows":4,"drafts":[310,88,4],
         "from":["mtp","agreed","lookup"],"accepted":1},
        {"request":3,"position":64,"rows":32}]})"));
  EXPECT_TRUE(lines[1].at("parts").at(0).at("trial").as_bool());
  EXPECT_TRUE(lines[2].at("parts").as_array().empty());
  EXPECT_EQ(lines[2].at("experts"), json::parse(R"({"core":3,"recent":0,"ahead":0,"missed":2,
      "read_bytes":700,"wait_ms":1.500})"));
  std::set<std::string> names;
  for (json::object line : lines) {
    if (line.contains("experts")) line["experts"] = nullptr;  // its own names stand in one row
    add_names(line, names);
  }
  EXPECT_EQ(names, documented_names());
}

TEST(Trace, WhatWasSaidStandsThereAfterFlush) {
  std::string folder = std::filesystem::temp_directory_path() / "strata-trace-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/trace.jsonl";
  {
    auto trace = Trace::open(real_files(), path);
    ASSERT_TRUE(trace);
    (*trace)->round({1, 0, 0, 0, 0, 0});
    (*trace)->flush();
    std::size_t lines = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) ++lines;
    }
    EXPECT_EQ(lines, 1u);
  }
  std::filesystem::remove_all(folder);
}

TEST(Trace, GoesOnBehindWhatAnEngineBeforeHasLeft) {
  MemoryFileSystem files;
  for (const bool append : {true, true, false, true}) {
    auto trace = Trace::open(files, "t", append);
    ASSERT_TRUE(trace);
    (*trace)->round({1, 1, 1, 0, 0, 0});
  }
  EXPECT_EQ(lines_of(files, "t").size(), 2u) << "the third one began anew";
  // One that was killed in the middle of a line.
  Bytes bytes = files.get("t").value();
  bytes.resize(bytes.size() - 9);
  files.put("t", std::move(bytes));
  (*Trace::open(files, "t", true))->round({1, 1, 1, 0, 0, 0});
  const Bytes mended = files.get("t").value();
  const std::string text(reinterpret_cast<const char*>(mended.data()), mended.size());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_TRUE(parse_json(text.substr(text.rfind("\n{") + 1), "the last line"));
}

TEST(Trace, AFullDiskEndsTheTraceAndNothingElse) {
  MemoryFileSystem memory;
  int writes = 0;
  FaultyFileSystem files(memory, [&](const FaultyFileSystem::Call& call) -> Result<std::size_t> {
    if (call.operation != FaultyFileSystem::Operation::write) return call.size;
    ++writes;
    return fail(ErrorCode::io, "no space left");
  });
  auto trace = Trace::open(files, "trace.jsonl");
  ASSERT_TRUE(trace);
  set_log_level(LogLevel::error);
  for (std::uint64_t round = 0; round < 10; ++round) {
    (*trace)->round({round, 0, 0, 0, 0, 0});
    (*trace)->flush();
  }
  EXPECT_EQ(writes, 1);  // it is not tried again
}

TEST(Trace, AFileThatCannotBeMadeIsSaid) {
  const auto trace = Trace::open(real_files(), "/nowhere/at/all/trace.jsonl");
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("/nowhere/at/all/trace.jsonl"), std::string::npos);
}

TEST(Trace, AddsUpToWhatTheRequestsSay) {
  const auto model = test::tiny_draft_model();
  ASSERT_NE(model, nullptr);
  EngineOptions options;
  options.model_path = "model.gguf";
  options.threads = 1;
  options.drafts.depth = 3;
  options.trace_path = "trace.jsonl";
  options.cache.ram_bytes = 0;
  struct Totals {
    std::uint64_t rounds = 0, drafted = 0, accepted = 0, prompt_rows = 0;
  };
  std::map<std::uint64_t, Totals> expected, traced;
  std::uint64_t generated = 0, prompt_rows = 0;
  {
    auto engine = Engine::open(model->files, options);
    ASSERT_TRUE(engine) << engine.error().message;
    std::vector<std::pair<RequestId, std::shared_ptr<test::Collector>>> requests;
    for (TokenId first = 1; first <= 3; ++first) {
      Request request;
      for (TokenId i = 0; i < 30; ++i) request.prompt.push_back(first + i % 5);
      request.max_tokens = 25;
      auto collector = std::make_shared<test::Collector>();
      const auto id = (*engine)->submit(std::move(request), collector);
      ASSERT_TRUE(id);
      requests.emplace_back(*id, collector);
    }
    for (const auto& [id, collector] : requests) {
      const Completion done = collector->wait();
      expected[id] = {done.rounds, done.drafted, done.accepted, done.prompt_tokens};
      generated += done.generated_tokens;
    }
  }
  std::uint64_t given = 0;
  for (const json::object& line : lines_of(model->files, "trace.jsonl")) {
    std::uint64_t rows = 0;
    for (const json::value& value : line.at("parts").as_array()) {
      const json::object& part = value.as_object();
      Totals& totals = traced[part.at("request").to_number<std::uint64_t>()];
      rows += part.at("rows").to_number<std::uint64_t>();
      if (!part.contains("drafts")) {
        totals.prompt_rows += part.at("rows").to_number<std::uint64_t>();
        continue;
      }
      ++totals.rounds;
      const json::array& drafts = part.at("drafts").as_array();
      const auto accepted = part.at("accepted").to_number<std::uint64_t>();
      EXPECT_EQ(part.at("from").as_array().size(), drafts.size());
      EXPECT_EQ(part.at("rows").to_number<std::uint64_t>(), drafts.size() + 1);
      EXPECT_LE(accepted, drafts.size());
      totals.drafted += drafts.size();
      totals.accepted += accepted;
      given += accepted + 1;
    }
    EXPECT_EQ(line.at("rows").to_number<std::uint64_t>(), rows);
    prompt_rows += line.at("prompt_rows").to_number<std::uint64_t>();
  }
  ASSERT_EQ(traced.size(), expected.size());
  for (const auto& [id, totals] : expected) {
    EXPECT_EQ(traced[id].rounds, totals.rounds) << id;
    EXPECT_EQ(traced[id].drafted, totals.drafted) << id;
    EXPECT_EQ(traced[id].accepted, totals.accepted) << id;
    EXPECT_EQ(traced[id].prompt_rows, totals.prompt_rows) << id;
    EXPECT_GT(totals.drafted, 0u) << id;
  }
  EXPECT_EQ(prompt_rows, 90u);
  // The first token of each answer comes with its prompt's last window.
  EXPECT_GE(given + 3, generated);
}

}  // namespace
}  // namespace strata
