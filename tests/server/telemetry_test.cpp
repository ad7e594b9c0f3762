// /v1/telemetry, /metrics over a machine, and the last requests of /v1/status.
#include "tests/server/api_fixture.h"
#include "tests/telemetry/tree.h"

namespace strata::server::testing {
namespace {

using telemetry::testing::Tree;
using telemetry::testing::write_machine;

class TelemetryTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    write_machine(tree_, 100, 1000);
    ApiOptions options;
    options.telemetry = TelemetryOptions{tree_.roots(), false};
    rebuild(std::move(options));
  }
  // The answer once it has so many samples.
  json::value samples(std::size_t least, const std::string& query = "") {
    for (int i = 0; i < 3000; ++i) {
      json::value answer = client().get("/v1/telemetry" + query).json();
      if (answer.at("samples").as_array().size() >= least) return answer;
      std::this_thread::sleep_for(20ms);
    }
    ADD_FAILURE() << "no samples";
    return {};
  }
  static std::size_t column(const json::value& answer, const std::string& group,
                            const std::string& name) {
    const json::array& fields = answer.at("fields").as_array();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (text_of(fields[i].at("group")) == group && text_of(fields[i].at("name")) == name)
        return i + 1;
    }
    ADD_FAILURE() << group << ", " << name;
    return 0;
  }

  Tree tree_;
};

TEST_F(TelemetryTest, SamplesComeWhenSomeoneLooks) {
  engine_->script({{.text = "word ", .pace = 2ms, .endless = true}});
  RawClient one = client();
  one.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: " +
           std::to_string(body("").size()) + "\r\n\r\n" + body(""));
  while (service_->answers().empty() || service_->answers()[0].generated < 3)
    std::this_thread::sleep_for(1ms);
  const json::value all = samples(2);
  EXPECT_EQ(all.at("interval_s").as_int64(), 1);
  const json::array& lines = all.at("samples").as_array();
  EXPECT_EQ(all.at("seq").to_number<std::size_t>(), lines.size());
  for (const json::value& line : lines)
    EXPECT_EQ(line.as_array().size(), all.at("fields").as_array().size() + 1);
  const json::array& last = lines.back().as_array();
  EXPECT_NEAR(last[0].to_number<double>(), static_cast<double>(std::time(nullptr)), 30);
  EXPECT_GT(last[column(all, "Speed", "Answers written")].to_number<double>(), 0);
  EXPECT_EQ(last[column(all, "Requests", "Running")].to_number<double>(), 1);
  EXPECT_EQ(last[column(all, "Memory of the machine", "Total")].to_number<double>(), 1.6384e10);
  EXPECT_TRUE(last[column(all, "Drafts", "At depth 1")].is_null());
  EXPECT_EQ(text_of(all.at("facts").at("nvidia")), "no NVIDIA driver");
  EXPECT_EQ(all.at("facts").at("memory_bytes").to_number<double>(), 16384000000.0);
  // Only what is new, and of another run everything.
  const auto seq = all.at("seq").to_number<std::uint64_t>();
  const json::value next = samples(1, fmt::format("?since={}", seq));
  EXPECT_GT(next.at("samples").at(0).at(0).to_number<double>(), last[0].to_number<double>());
  EXPECT_EQ(next.at("samples").as_array().size(), next.at("seq").to_number<std::uint64_t>() - seq);
  EXPECT_GE(samples(1, "?since=999999").at("samples").as_array().size(), 3u);
  one.close();
  EXPECT_TRUE(idle_within(2s));
}

TEST_F(TelemetryTest, WhatIsNoNumberIsRefused) {
  for (const char* query : {"?since=", "?since=-1", "?since=x", "?since=1e3", "?since=1%20",
                            "?since=99999999999999999999999"}) {
    const RawResponse refused = client().get(std::string("/v1/telemetry") + query);
    EXPECT_EQ(refused.status, 400u) << query;
    EXPECT_EQ(error_of(refused, "param"), "since");
  }
  EXPECT_EQ(send("POST /v1/telemetry").status, 405u);
}

TEST_F(TelemetryTest, ItWorksWhileTheModelIsLoaded) {
  api_->set_service(nullptr);
  const json::value all = samples(1);
  EXPECT_TRUE(all.at("samples").at(0).at(column(all, "Speed", "Answers written")).is_null());
  EXPECT_EQ(
      all.at("samples").at(0).at(column(all, "Memory of the machine", "Total")).to_number<double>(),
      1.6384e10);
}

TEST_F(TelemetryTest, ItAsksForTheKeyAsAllDo) {
  ApiOptions options;
  options.telemetry = TelemetryOptions{tree_.roots(), false};
  options.access.keys = {"alpha"};
  rebuild(std::move(options));
  for (const char* path : {"/v1/telemetry", "/metrics"}) {
    EXPECT_EQ(client().get(path).status, 401u) << path;
    EXPECT_EQ(send(std::string("GET ") + path, "Authorization: Bearer alpha\r\n").status, 200u);
    // Nor may a page of another site look.
    EXPECT_EQ(send(std::string("GET ") + path, "Host: evil.example\r\n").status, 401u);
  }
  rebuild({});
  EXPECT_EQ(send("GET /v1/telemetry", "Host: evil.example\r\n").status, 403u);
  EXPECT_EQ(client().get("/v1/telemetry").status, 501u);
}

TEST_F(TelemetryTest, MetricsSayWhatTheMachineDoes) {
  const std::string first = client().get("/metrics").body;
  // Families are there before there is a sample, and on machines without the device.
  EXPECT_THAT(first, HasSubstr("# TYPE strata_gpu_busy_ratio gauge\n"));
  EXPECT_EQ(first.find("\nstrata_gpu_busy_ratio "), first.npos);
  samples(1);
  const std::string second = client().get("/metrics").body;
  EXPECT_THAT(second, HasSubstr("\nstrata_machine_memory_total_bytes 16384000000\n"));
  rebuild({});
  EXPECT_EQ(client().get("/metrics").body.find("strata_machine"), std::string::npos);
}

TEST_F(TelemetryTest, TheLastRequestsAreKept) {
  engine_->script({{.text = "</think>\n\nHello", .cached = 2}});
  for (std::size_t i = 0; i < kMostPast + 3; ++i) chat("");
  engine_->script({{.text = "", .reason = FinishReason::error, .error = {ErrorCode::io, "no"}}});
  const json::value status = client().get("/v1/status").json();
  const json::array& last = status.at("last_requests").as_array();
  ASSERT_EQ(last.size(), kMostPast);
  EXPECT_EQ(last[0].at("timings"), status.at("last_timings"));
  EXPECT_EQ(text_of(last[0].at("finish")), "stop");
  EXPECT_GT(last[0].at("id").to_number<int>(), last[1].at("id").to_number<int>());
  EXPECT_GE(last[0].at("ended_at").to_number<double>(), last[1].at("ended_at").to_number<double>());
  EXPECT_GE(last[0].at("whole_ms").to_number<double>(),
            last[0].at("first_token_ms").to_number<double>());
  chat("");
  const json::value failed = client().get("/v1/status").json().at("last_requests").at(0);
  EXPECT_EQ(text_of(failed.at("finish")), "error");
  EXPECT_TRUE(failed.at("first_token_ms").is_null());
  // One that failed is in no histogram of times.
  EXPECT_THAT(client().get("/metrics").body,
              HasSubstr(fmt::format(
                  "vllm:e2e_request_latency_seconds_count{{model_name=\"fake-model\"}} {}\n",
                  kMostPast + 3)));
}

}  // namespace
}  // namespace strata::server::testing
