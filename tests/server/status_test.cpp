// What the server says of itself, the tokenizer's paths, defaults and their sources.
#include "server/control_api.h"
#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

class StatusTest : public ApiTest {
 protected:
  json::value setting(const std::string& name) {
    const json::value all = client().get("/v1/status").json();
    for (const json::value& entry : all.at("defaults").as_array()) {
      if (text_of(entry.at("name")) == name) return entry;
    }
    ADD_FAILURE() << name;
    return {};
  }
};

TEST_F(StatusTest, Props) {
  const json::value props = client().get("/props").json();
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx").as_int64(), 2048);
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("n_predict").as_int64(), -1);
  EXPECT_EQ(props.at("total_slots").as_int64(), 2);
  EXPECT_EQ(text_of(props.at("chat_template")), service_->template_source());
  EXPECT_FALSE(props.at("modalities").at("vision").as_bool());
  EXPECT_EQ(client().get("/props?model=fake-model").status, 200u);
  EXPECT_EQ(client().get("/props?model=other").status, 404u);
}

TEST_F(StatusTest, CountsWhatRuns) {
  EXPECT_EQ(text_of(client().get("/status").json().at("phase")), "idle");
  engine_->script({{.text = "word ", .pace = 2ms, .endless = true}});
  RawClient one = client();
  one.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " +
           std::to_string(body("").size()) + "\r\n\r\n" + body(""));
  while (service_->answers().empty() || service_->answers()[0].generated < 3)
    std::this_thread::sleep_for(1ms);
  const json::value activity = client().get("/status").json();
  EXPECT_TRUE(activity.at("busy").as_bool());
  EXPECT_EQ(activity.at("running").as_int64(), 1);
  EXPECT_EQ(activity.at("queued").as_int64(), 0);
  EXPECT_EQ(text_of(activity.at("phase")), "thinking");
  const json::array slots = client().get("/slots").json().as_array();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_TRUE(slots[0].at("is_processing").as_bool());
  EXPECT_FALSE(slots[1].at("is_processing").as_bool());
  EXPECT_EQ(slots[0].at("n_prompt_tokens").as_int64(),
            static_cast<std::int64_t>(engine_->request(0).prompt.size()));
  EXPECT_EQ(client().get("/v1/status").json().at("activity").at("in_flight").as_int64(), 1);
  EXPECT_THAT(client().get("/metrics").body, HasSubstr("llamacpp:requests_processing 1\n"));
  one.close();
  EXPECT_TRUE(idle_within(1s));
  for (int i = 0; i < 500 && service_->counters().finished[3] == 0; ++i)
    std::this_thread::sleep_for(2ms);
  const json::value after = client().get("/v1/status").json();
  EXPECT_EQ(after.at("activity").at("in_flight").as_int64(), 0);
  EXPECT_EQ(after.at("activity").at("finished").at("cancelled").as_int64(), 1);
  EXPECT_EQ(after.at("activity").at("finished").at("error").as_int64(), 0);
}

TEST_F(StatusTest, MetricsAreCountersThatAddUp) {
  engine_->script({{.text = "</think>\n\nHello", .cached = 2}});
  const json::value usage = chat("").json().at("usage");
  chat("");
  const RawResponse metrics = client().get("/metrics");
  EXPECT_THAT(metrics.headers.at("Content-Type"), ::testing::StartsWith("text/plain"));
  const auto value = [&](const std::string& name) {
    const std::size_t at = metrics.body.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return std::strtod(metrics.body.c_str() + at + name.size() + 2, nullptr);
  };
  EXPECT_EQ(value("strata_requests_total"), 2);
  EXPECT_EQ(value("strata_finished_total{reason=\"stop\"}"), 2);
  EXPECT_EQ(value("strata_cached_tokens_total"), 4);
  EXPECT_EQ(value("llamacpp:prompt_tokens_total"),
            2 * (usage.at("prompt_tokens").to_number<double>() - 2));
  EXPECT_EQ(value("llamacpp:tokens_predicted_total"),
            2 * usage.at("completion_tokens").to_number<double>());
  EXPECT_EQ(value("llamacpp:prompt_seconds_total"), 1);
  // Every line is a comment or "name value".
  std::istringstream lines(metrics.body);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(
        line,
        ::testing::MatchesRegex(
            R"(# (HELP|TYPE) [a-z0-9_:]+ .*|[a-z0-9_:]+(\{([a-z_]+="[-a-zA-Z0-9_+.]+",?)+\})? [0-9.e+-]+)"));
  }
}

// vLLM's label, taken off.
std::string without_model(std::string metrics) {
  for (const std::string_view label :
       {"{model_name=\"fake-model\"}", "model_name=\"fake-model\","}) {
    for (std::size_t at = 0; (at = metrics.find(label)) != metrics.npos;)
      metrics.erase(at, label.size());
  }
  return metrics;
}

TEST_F(StatusTest, DraftsAndCacheAreCounted) {
  EngineCounters& counters = engine_->counters_;
  counters.drafts.rounds = 50;
  counters.drafts.drafted = 70;
  counters.drafts.accepted = 45;
  counters.drafts.drafted_at = {40, 30};
  counters.drafts.accepted_at = {25, 20};
  counters.cache = {600, 100, 7000, 8000, 3, 2, 900, 1000, 4, 1};
  counters.reserved_bytes = 5000;
  engine_->facts_.drafts = "auto, from mtp and lookup";
  ServiceOptions options;
  options.engine_settings = {{"drafts", "auto", "built-in"}, {"cache_ram", "2G", "flag"}};
  serve_again(options);
  engine_->script({{.text = "</think>\n\nHello", .cached = 2}});
  chat("");
  const std::string metrics = without_model(client().get("/metrics").body);
  const auto prompt = engine_->request(0).prompt.size();
  for (const std::string& line :
       {std::string("strata_draft_rounds_total 50"),
        std::string("strata_drafted_tokens_total 70"),
        std::string("strata_accepted_tokens_total 45"),
        std::string("strata_drafted_tokens_by_depth_total{depth=\"1\"} 40"),
        std::string("strata_drafted_tokens_by_depth_total{depth=\"15\"} 0"),
        std::string("strata_accepted_tokens_by_depth_total{depth=\"2\"} 20"),
        std::string("vllm:spec_decode_num_drafts_total 40"),
        std::string("vllm:spec_decode_num_draft_tokens_total 70"),
        std::string("vllm:spec_decode_num_accepted_tokens_total 45"),
        std::string("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 25"),
        std::string("vllm:num_requests_running 0"),
        std::string("vllm:num_requests_waiting 0"),
        fmt::format("vllm:prefix_cache_queries_total {}", prompt),
        std::string("vllm:prefix_cache_hits_total 2"),
        std::string("vllm:request_success_total{finished_reason=\"stop\"} 1"),
        std::string("vllm:request_success_total{finished_reason=\"abort\"} 0"),
        std::string("vllm:e2e_request_latency_seconds_count 1"),
        std::string("vllm:e2e_request_latency_seconds_bucket{le=\"+Inf\"} 1"),
        std::string("vllm:time_to_first_token_seconds_count 1"),
        std::string("vllm:request_queue_time_seconds_count 1"),
        std::string("vllm:request_prompt_tokens_count 1"),
        fmt::format("vllm:request_prompt_tokens_sum {}", prompt),
        std::string("vllm:kv_cache_usage_perc 0"),
        std::string("strata_cache_bytes 7000"),
        std::string("strata_cache_limit_bytes 8000"),
        std::string("strata_cache_checkpoints 3"),
        std::string("strata_cache_evicted_total 2"),
        std::string("strata_cache_disk_bytes 900"),
        std::string("strata_cache_disk_limit_bytes 1000"),
        std::string("strata_cache_disk_checkpoints 4"),
        std::string("strata_cache_disk_misses_total 1"),
        std::string("strata_cache_disk_tokens_total 100"),
        std::string("strata_reserved_bytes 5000")}) {
    EXPECT_THAT(metrics, HasSubstr("\n" + line + "\n"));
  }
  const json::value status = client().get("/v1/status").json();
  EXPECT_EQ(status.at("drafts"), json::parse(R"({"rounds":50,"drafted":70,"accepted":45,"by_depth":
      [{"depth":1,"drafted":40,"accepted":25},{"depth":2,"drafted":30,"accepted":20}]})"));
  EXPECT_EQ(status.at("cache").at("limit").to_number<int>(), 8000);
  EXPECT_TRUE(status.at("capabilities").at("drafts").as_bool());
  EXPECT_EQ(status.at("engine").at("settings"), json::parse(R"([
      {"name":"drafts","value":"auto","source":"built-in"},
      {"name":"cache_ram","value":"2G","source":"flag"}])"));
  // They change the speed only: parity leaves them alone.
  for (const json::value& entry : status.at("defaults").as_array())
    EXPECT_NE(text_of(entry.at("name")), "drafts");
}

TEST_F(StatusTest, TellsWhoWaitsAndHowFarOthersAre) {
  const Script runs{.text = "word ", .pace = 2ms, .endless = true, .cached = 3};
  Script second{.text = "word ", .wait = 10s}, first = second;
  second.ahead = {1};
  first.ahead = {0};
  engine_->script({runs, second, first});
  const std::string request =
      "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(body("").size()) +
      "\r\n\r\n" + body("");
  std::vector<RawClient> clients;
  for (std::size_t i = 0; i < 3; ++i) {
    clients.push_back(client());
    clients.back().send(request);
    while (engine_->requests() <= i) std::this_thread::sleep_for(1ms);
  }
  const auto seen = [&] {
    const auto answers = service_->answers();
    return answers.size() == 3 && answers[0].generated > 0 && answers[1].ahead == 1;
  };
  while (!seen()) std::this_thread::sleep_for(1ms);
  const auto prompt = static_cast<std::int64_t>(engine_->request(0).prompt.size());
  const json::value status = client().get("/v1/status").json().at("activity");
  const json::value activity = client().get("/status").json();
  for (const json::value& where : {status, activity}) {
    const json::array& queue = where.at("queue").as_array();
    ASSERT_EQ(queue.size(), 2u);
    EXPECT_EQ(queue[0].at("ahead").as_int64(), 0);
    EXPECT_EQ(queue[1].at("ahead").as_int64(), 1);
    EXPECT_EQ(queue[1].at("prompt_tokens").as_int64(), prompt);
    EXPECT_EQ(where.at("queued").as_int64(), 2);
  }
  EXPECT_EQ(activity.at("running").as_int64(), 1);
  EXPECT_EQ(activity.at("prompt_read").as_int64(), prompt);
  EXPECT_EQ(activity.at("cached_tokens").as_int64(), 3);
  const json::array slots = client().get("/slots").json().as_array();
  EXPECT_EQ(slots[0].at("n_prompt_tokens_cache").as_int64(), 3);
  EXPECT_EQ(slots[0].at("n_prompt_tokens_processed").as_int64(), prompt);
  EXPECT_FALSE(slots[0].at("speculative").as_bool());
  EXPECT_FALSE(slots[1].at("is_processing").as_bool());
  EXPECT_THAT(without_model(client().get("/metrics").body),
              HasSubstr("\nvllm:num_requests_waiting 2\n"));
  for (RawClient& one : clients) one.close();
  EXPECT_TRUE(idle_within(2s));
}

TEST_F(StatusTest, DefaultsHaveSources) {
  engine_->facts_.default_sampling.temperature = 0.7f;
  ServiceOptions options;
  options.sampling = {{"top_p", 0.5}};
  options.reasoning_effort = "none";
  serve_again(options);
  EXPECT_EQ(text_of(setting("temperature").at("source")), "model file");
  EXPECT_EQ(text_of(setting("top_p").at("source")), "config");
  EXPECT_FLOAT_EQ(setting("top_p").at("value").to_number<float>(), 0.5f);
  EXPECT_EQ(text_of(setting("min_p").at("source")), "built-in");
  EXPECT_EQ(text_of(setting("reasoning_effort").at("value")), "none");
  EXPECT_EQ(text_of(setting("fit_max_tokens").at("source")), "built-in");
  chat("");
  EXPECT_FLOAT_EQ(engine_->request(0).sampling.temperature, 0.7f);
  EXPECT_FLOAT_EQ(engine_->request(0).sampling.top_p, 0.5f);
  EXPECT_THAT(engine_->prompt(0), ::testing::EndsWith("</think>\n\n"));
  // A request that says something about thinking is not overruled.
  chat(R"("reasoning_effort":"low")");
  EXPECT_THAT(engine_->prompt(1), ::testing::EndsWith("<think>\n"));
}

// Request > shared settings > configuration > model file > built-in.
TEST_F(StatusTest, EachPlaceGoesBeforeTheNext) {
  engine_->facts_.default_sampling.temperature = 0.7f;
  engine_->facts_.default_sampling.top_k = 20;
  engine_->facts_.default_sampling.min_p = 0.1f;
  ServiceOptions options;
  options.sampling = {{"temperature", 0.6}, {"top_k", 30}, {"dry_multiplier", 0.5}};
  options.fields = {{"loop_guard", "stop", "flag"}};
  options.thinking.budget = 300;
  options.thinking.budget_source = "environment";
  serve_again(options);
  json::object shared = {{"temperature", 0.5},
                         {"banned_strings", json::array{"xyz"}},
                         {"reasoning_budget_tokens", 200},
                         {"max_tokens", 900}};
  ASSERT_TRUE(service_->share_settings(shared));
  EXPECT_EQ(text_of(setting("temperature").at("source")), "shared settings");
  EXPECT_EQ(text_of(setting("top_k").at("source")), "config");
  EXPECT_EQ(text_of(setting("min_p").at("source")), "model file");
  EXPECT_EQ(text_of(setting("top_p").at("source")), "built-in");
  EXPECT_EQ(text_of(setting("dry_multiplier").at("source")), "config");
  EXPECT_EQ(text_of(setting("loop_guard").at("source")), "flag");
  EXPECT_EQ(text_of(setting("loop_guard").at("value")), "stop");
  EXPECT_EQ(text_of(setting("reasoning_budget_tokens").at("source")), "shared settings");
  EXPECT_EQ(setting("reasoning_budget_tokens").at("value").to_number<int>(), 200);

  chat("");
  const Request silent = engine_->request(0);
  EXPECT_FLOAT_EQ(silent.sampling.temperature, 0.5f);
  EXPECT_EQ(silent.sampling.top_k, 30);
  EXPECT_FLOAT_EQ(silent.sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(silent.dry.multiplier, 0.5f);
  EXPECT_EQ(silent.banned_strings, std::vector<std::string>{"xyz"});
  EXPECT_EQ(silent.loop_guard, LoopGuard::stop);
  EXPECT_EQ(silent.max_tokens, 900u);
  ASSERT_TRUE(silent.thinking);
  EXPECT_EQ(silent.thinking->budget, 200u);
  chat(R"("temperature":0.2,"banned_strings":[],"loop_guard":"off","reasoning_budget_tokens":50,)"
       R"("dry_multiplier":2,"max_tokens":800)");
  const Request own = engine_->request(1);
  EXPECT_FLOAT_EQ(own.sampling.temperature, 0.2f);
  EXPECT_FLOAT_EQ(own.dry.multiplier, 2);
  EXPECT_TRUE(own.banned_strings.empty());
  EXPECT_EQ(own.loop_guard, LoopGuard::off);
  EXPECT_EQ(own.max_tokens, 800u);
  EXPECT_EQ(own.thinking->budget, 50u);

  // A limit that nobody asked for never refuses a request.
  ASSERT_TRUE(service_->share_settings({{"max_tokens", 1'000'000}}));
  EXPECT_EQ(chat("").status, 200u);
  EXPECT_EQ(chat(R"("max_tokens":1000000)").status, 400u);
  ASSERT_TRUE(service_->share_settings({}));
  EXPECT_EQ(text_of(setting("temperature").at("source")), "config");
  EXPECT_EQ(text_of(setting("reasoning_budget_tokens").at("source")), "environment");
}

TEST_F(StatusTest, SharedSettingsSurviveAStart) {
  MemoryFileSystem files;
  ServiceOptions options;
  options.settings_file = "settings.json";
  options.files = &files;
  serve_again(options);
  ASSERT_TRUE(service_->share_settings({{"top_k", 9}}));
  EXPECT_FALSE(service_->share_settings({{"top_k", -9}}));
  EXPECT_FALSE(service_->share_settings({{"model", "x"}}));
  serve_again(options);
  EXPECT_EQ(service_->defaults()->request.sampling.top_k, 9);
  EXPECT_EQ(text_of(setting("top_k").at("source")), "shared settings");
  // What cannot be read is not used, and no start fails because of it.
  for (const char* text : {"{", "[]", R"({"defaults":{"top_k":-9}})", R"({"defaults":7})"}) {
    const auto bytes = std::as_bytes(std::span(std::string_view(text)));
    files.put("settings.json", Bytes(bytes.begin(), bytes.end()));
    serve_again(options);
    EXPECT_EQ(service_->defaults()->request.sampling.top_k, 0) << text;
  }
}

TEST_F(StatusTest, SettingsAreTheServersOwn) {
  const auto post = [&](const std::string& body, const std::string& headers = "") {
    return send("POST /settings", "Content-Type: application/json\r\n" + headers, body);
  };
  EXPECT_EQ(post(R"({"defaults":{"top_k":3}})").status, 200u);
  EXPECT_EQ(post(R"({"defaults":{"top_k":4}})", "Origin: http://evil.example\r\n").status, 403u);
  EXPECT_EQ(client().get("/settings").json().at("defaults").at("top_k").as_int64(), 3);
  EXPECT_EQ(post(R"({"defaults":null})").status, 200u);
  EXPECT_TRUE(client().get("/settings").json().at("defaults").as_object().empty());
  for (const char* wrong : {"{}", "[]", R"({"defaults":1})", R"({"defaults":{},"more":1})",
                            R"({"defaults":{"messages":[]}})"}) {
    EXPECT_EQ(post(wrong).status, 400u) << wrong;
  }
}

TEST_F(StatusTest, ParityPinsEverything) {
  engine_->facts_.default_sampling.temperature = 0.7f;
  ServiceOptions options;
  options.sampling = {{"top_p", 0.5}};
  options.reasoning_effort = "none";
  options.fit_max_tokens = true;
  options.fields = {{"loop_guard", "stop", "flag"}};
  options.parity = true;
  serve_again(options);
  ASSERT_TRUE(service_->share_settings({{"temperature", 0.9}, {"dry_multiplier", 1}}));
  const json::value status = client().get("/v1/status").json();
  EXPECT_TRUE(status.at("parity").as_bool());
  for (const json::value& entry : status.at("defaults").as_array())
    EXPECT_EQ(text_of(entry.at("source")), "parity") << entry;
  chat("");
  EXPECT_EQ(engine_->request(0).sampling.temperature, 0);
  EXPECT_EQ(engine_->request(0).sampling.top_p, 1);
  EXPECT_THAT(engine_->prompt(0), ::testing::EndsWith("<think>\n"));
  EXPECT_EQ(chat(R"("max_tokens":100000)").status, 400u);
}

TEST_F(StatusTest, BadDefaultsStopTheStart) {
  ServiceOptions options;
  options.sampling = {{"temperature", -1}};
  EXPECT_THAT(Service::create(*engine_, options).error().message, HasSubstr("temperature"));
  options.sampling = {{"temperatur", 1}};
  EXPECT_THAT(Service::create(*engine_, options).error().message, HasSubstr("temperature"));
  options.sampling = {};
  options.fields = {{"loop_guard", "never", "flag"}};
  EXPECT_THAT(Service::create(*engine_, options).error().message, HasSubstr("loop_guard"));
  options.fields = {};
  options.thinking.wrap_up = std::string(3000, '?');
  for (std::size_t i = 0; i < 3000; i += 2) options.thinking.wrap_up[i] = ' ';
  EXPECT_THAT(Service::create(*engine_, options).error().message, HasSubstr("thinking_wrap_up"));
  options.thinking = {};
  options.reasoning_effort = "huge";
  EXPECT_THAT(Service::create(*engine_, options).error().message, HasSubstr("huge"));
}

TEST_F(StatusTest, AliasesAreListedAndEchoed) {
  ServiceOptions options;
  options.aliases = {"gpt-4", "claude"};
  serve_again(options);
  const json::array models = client().get("/v1/models").json().at("data").as_array();
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(text_of(models[1].at("id")), "gpt-4");
  EXPECT_EQ(text_of(models[1].at("alias_of")), "fake-model");
  EXPECT_EQ(client().get("/v1/models/claude").status, 200u);
  const auto answered = [&](const std::string& model) {
    return text_of(client()
                       .post(kChat, R"({"model":")" + model + R"(","messages":)" + kHello + "}")
                       .json()
                       .at("model"));
  };
  EXPECT_EQ(answered("claude"), "claude");
  EXPECT_EQ(answered("unheard-of"), "fake-model");
}

TEST_F(StatusTest, TokenizesBothWays) {
  const std::string text = R"(Hi <|im_end|> \ud83d\ude00)";
  const json::value plain =
      client().post("/tokenize", R"({"content":")" + text + R"(","parse_special":false})").json();
  const json::value special = client().post("/tokenize", R"({"content":")" + text + "\"}").json();
  EXPECT_GT(plain.at("tokens").as_array().size(), special.at("tokens").as_array().size());
  const auto id = *engine_->tokenizer().special("<|im_end|>");
  EXPECT_THAT(json::serialize(special.at("tokens")), HasSubstr(std::to_string(id)));
  for (const json::value& ids : {plain.at("tokens"), special.at("tokens")}) {
    EXPECT_EQ(text_of(client()
                          .post("/detokenize", json::serialize(json::object{{"tokens", ids}}))
                          .json()
                          .at("content")),
              "Hi <|im_end|> \xF0\x9F\x98\x80");
  }
  const json::value pieces =
      client().post("/tokenize", R"({"content":"Hi","with_pieces":true})").json();
  EXPECT_EQ(text_of(pieces.at("tokens").at(0).at("piece")), "Hi");
  EXPECT_EQ(client().post("/tokenize", R"({"content":5})").status, 400u);
  EXPECT_EQ(client().post("/tokenize", "{}").status, 400u);
  EXPECT_EQ(client().post("/detokenize", R"({"tokens":[-1]})").status, 400u);
  EXPECT_EQ(client().post("/detokenize", R"({"tokens":"x"})").status, 400u);
}

TEST_F(StatusTest, AppliesTheTemplate) {
  const json::value prompt = client().post("/apply-template", body("")).json();
  chat("");
  EXPECT_EQ(text_of(prompt.at("prompt")), engine_->prompt(0));
}

TEST_F(StatusTest, WhatItCannotDoIs501) {
  for (const char* path : {"/v1/embeddings", "/embeddings", "/v1/rerank", "/v1/audio/speech"}) {
    const RawResponse response = client().post(path, R"({"input":"x"})");
    EXPECT_EQ(response.status, 501u) << path;
    EXPECT_EQ(error_of(response, "code"), "not_supported");
  }
  for (const char* path : {"/load", "/v1/unload"}) {
    const RawResponse response = client().post(path, "");
    EXPECT_EQ(response.status, 501u) << path;
    EXPECT_EQ(error_of(response, "code"), "not_supported");
  }
}

ServiceOptions saving_slots() {
  ServiceOptions options;
  options.slot_save_path = "/slots-folder";
  return options;
}

TEST_F(StatusTest, SlotActionsAreChecked) {
  const auto status = [&](const std::string& path, const std::string& body) {
    return client().post("/slots/" + path, body).status;
  };
  const RawResponse nowhere = client().post("/slots/0?action=save", R"({"filename":"a.bin"})");
  EXPECT_EQ(nowhere.status, 501u);
  EXPECT_THAT(error_of(nowhere), HasSubstr("--slot-save-path"));
  EXPECT_EQ(status("1?action=restore", R"({"filename":"a.bin"})"), 501u);
  serve_again(saving_slots());
  EXPECT_EQ(status("0?action=save", R"({"filename":"../../x"})"), 400u);
  EXPECT_EQ(status("0?action=save", R"({"filename":5})"), 400u);
  EXPECT_EQ(status("0?action=save", "{}"), 400u);
  EXPECT_EQ(status("0?action=restore", R"({"filename":"a","path":"b"})"), 400u);
  EXPECT_EQ(status("0?action=explode", "{}"), 400u);
  for (const char* id : {"2", "x", "-1", "0x", "99999999999999"})
    EXPECT_EQ(status(std::string(id) + "?action=erase", ""), 404u) << id;
  EXPECT_EQ(status("0?action=save", R"({"filename":"a"})"), 404u) << "nothing was answered there";
  EXPECT_EQ(client().post("/slots/0?action=erase", "").json(),
            json::value({{"id_slot", 0}, {"n_erased", 0}}));
  EXPECT_TRUE(engine_->tasks_.empty());
}

TEST_F(StatusTest, SlotsHoldWhatWasAnsweredInThemLast) {
  serve_again(saving_slots());
  engine_->script({{.text = "</think>\n\nOne."}});
  ASSERT_EQ(chat("").status, 200u);
  std::vector<TokenId> told = engine_->request(0).prompt;
  const auto answer = engine_->tokens_of({.text = "</think>\n\nOne."});
  told.insert(told.end(), answer.begin(), answer.end());
  json::array slots = client().get("/slots").json().as_array();
  EXPECT_EQ(slots[0].at("n_held_tokens").to_number<std::size_t>(), told.size());
  EXPECT_EQ(slots[1].at("n_held_tokens").as_int64(), 0);

  engine_->task_result_ = ConversationResult{{told.begin(), told.end() - 1}, 4711};
  const json::value saved =
      client().post("/slots/0?action=save", R"({"filename":"mine.bin"})").json();
  EXPECT_EQ(saved.at("id_slot").as_int64(), 0);
  EXPECT_EQ(text_of(saved.at("filename")), "mine.bin");
  EXPECT_EQ(saved.at("n_saved").to_number<std::size_t>(), told.size() - 1);
  EXPECT_EQ(saved.at("n_written").as_int64(), 4711);
  EXPECT_GE(saved.at("timings").at("save_ms").as_double(), 0.0);
  ASSERT_EQ(engine_->tasks_.size(), 1u);
  EXPECT_EQ(engine_->tasks_[0].kind, ConversationTask::Kind::save);
  EXPECT_EQ(engine_->tasks_[0].tokens, told);
  EXPECT_EQ(engine_->tasks_[0].path, "/slots-folder/mine.bin");

  // Another conversation goes to the empty slot, one that goes on stays in its own.
  ASSERT_EQ(chat("", R"([{"role":"user","content":"Other."}])").status, 200u);
  ASSERT_EQ(chat("", R"([{"role":"user","content":"hi"},{"role":"assistant","content":"One."},
                         {"role":"user","content":"more"}])")
                .status,
            200u);
  slots = client().get("/slots").json().as_array();
  EXPECT_GT(slots[0].at("n_held_tokens").to_number<std::size_t>(), 0u);
  EXPECT_GT(slots[1].at("n_held_tokens").to_number<std::size_t>(), 0u);

  const std::vector<TokenId> restored = {1, 2, 3, 4, 5};
  engine_->task_result_ = ConversationResult{restored, 100};
  const json::value back =
      client().post("/slots/1?action=restore", R"({"filename":"mine.bin"})").json();
  EXPECT_EQ(back.at("n_restored").as_int64(), 5);
  EXPECT_EQ(back.at("n_read").as_int64(), 100);
  EXPECT_TRUE(back.at("timings").as_object().contains("restore_ms"));
  EXPECT_EQ(client().get("/slots").json().at(1).at("n_held_tokens").as_int64(), 5);
  EXPECT_EQ(client().post("/slots/1?action=erase", "").json(),
            json::value({{"id_slot", 1}, {"n_erased", 5}}));
  EXPECT_EQ(engine_->tasks_.back().tokens, restored);
  EXPECT_EQ(client().get("/slots").json().at(1).at("n_held_tokens").as_int64(), 0);

  // A one-shot request leaves nothing; an error of the engine changes nothing.
  ASSERT_EQ(chat(R"("cache_prompt":false)", R"([{"role":"user","content":"New."}])").status, 200u);
  EXPECT_EQ(client().get("/slots").json().at(1).at("n_held_tokens").as_int64(), 0);
  for (const auto& [code, status] :
       {std::pair{ErrorCode::corrupt, 400u}, std::pair{ErrorCode::unsupported, 400u},
        std::pair{ErrorCode::invalid_argument, 400u}, std::pair{ErrorCode::not_found, 404u},
        std::pair{ErrorCode::exhausted, 503u}, std::pair{ErrorCode::io, 500u}}) {
    engine_->task_result_ = tl::unexpected<Error>(Error{code, "it is wrong"});
    const RawResponse wrong =
        client().post("/slots/1?action=restore", R"({"filename":"mine.bin"})");
    EXPECT_EQ(wrong.status, status);
    EXPECT_EQ(error_of(wrong), "it is wrong");
  }
  engine_->task_result_ = fail(ErrorCode::io, "cannot write: No space left on device");
  EXPECT_EQ(client().post("/slots/0?action=save", R"({"filename":"a"})").status, 507u);
}

TEST_F(StatusTest, ASlotInWhichAnAnswerRunsIsLeftAlone) {
  serve_again(saving_slots());
  engine_->script({{.text = "word ", .pace = 1ms, .endless = true}});
  RawClient one = client();
  const std::string text = body(R"("stream":true)");
  one.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " + std::to_string(text.size()) +
           "\r\n\r\n" + text);
  ASSERT_TRUE(one.wait_for("word"));
  EXPECT_TRUE(client().get("/slots").json().at(0).at("is_processing").as_bool());
  EXPECT_EQ(client().post("/slots/0?action=erase", "").status, 503u);
  one.close();
  EXPECT_TRUE(idle_within(1s));
}

TEST(FileNames, PlainOnesOnly) {
  for (const char* good : {"a", "session 1.bin", "\xC3\xA9t\xC3\xA9", "a.b.c", "common.txt",
                           "nullable", "comx", "a..b"}) {
    EXPECT_TRUE(check_file_name(good, "filename")) << good;
  }
  const std::string long_name(201, 'a');
  for (const std::string& bad : {std::string(),
                                 std::string("a/b"),
                                 std::string("/etc/passwd"),
                                 std::string("..\\x"),
                                 std::string("C:x"),
                                 std::string("a:stream"),
                                 std::string(".hidden"),
                                 std::string(".."),
                                 std::string("a."),
                                 std::string("a "),
                                 std::string("CON"),
                                 std::string("nul.txt"),
                                 std::string("Com1.bin"),
                                 std::string("LPT9"),
                                 std::string("com\xC2\xB9.x"),
                                 std::string("aux .txt"),
                                 std::string("a\nb"),
                                 std::string("a\0b", 3),
                                 std::string("a\x7f"),
                                 std::string("a\xC2\x85"),
                                 std::string("a\xff"),
                                 std::string("a*"),
                                 long_name}) {
    const auto checked = check_file_name(bad, "filename");
    ASSERT_FALSE(checked) << bad;
    EXPECT_EQ(checked.error().status, 400u);
    EXPECT_EQ(checked.error().param, "filename");
  }
  EXPECT_TRUE(check_file_name(std::string(200, 'a'), "filename"));
}

TEST_F(StatusTest, AModelWithoutATemplateCompletesTexts) {
  engine_->metadata_ = Metadata();
  engine_->script({{.text = "and so on"}});
  serve_again();
  EXPECT_EQ(
      client().post("/v1/completions", R"({"prompt":"one"})").json().at("choices").at(0).at("text"),
      "and so on");
  const RawResponse refused = chat("");
  EXPECT_EQ(refused.status, 400u);
  EXPECT_THAT(error_of(refused), HasSubstr("has no chat template"));
  EXPECT_THAT(error_of(refused), HasSubstr("POST /v1/completions"));
  EXPECT_EQ(client().post("/v1/messages", R"({"max_tokens":5,"messages":)" + kHello + "}").status,
            400u);
  EXPECT_EQ(text_of(client().get("/props").json().at("chat_template")), "");
}

}  // namespace
}  // namespace strata::server::testing
