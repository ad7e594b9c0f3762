// When samples are taken, and what is kept of them.
#include "telemetry/sampler.h"

#include <gmock/gmock.h>

#include <set>

namespace strata::telemetry {
namespace {

using namespace std::chrono_literals;

// Counts its readings; its value is their number.
class Counter final : public Source {
 public:
  Counter(std::atomic<int>& readings, std::atomic<int>& rests)
      : readings_(readings), rests_(rests) {
    fields_.push_back({"Readings", "", "Test", "strata_test_readings", "a=\"b\"", 0.5});
    fields_.push_back({"Never", "", "Test", "strata_test_never"});
  }
  void read(double, std::span<double> values) override { values[0] = ++readings_; }
  void rest() override { ++rests_; }
  void add_facts(boost::json::object& facts) const override { facts["test"] = 7; }

 private:
  std::atomic<int>& readings_;
  std::atomic<int>& rests_;
};

class SamplerTest : public ::testing::Test {
 protected:
  // A second takes this long.
  static constexpr auto kSecond = 2ms;

  Sampler::Options options() {
    Sampler::Options options;
    options.sources = [this] {
      ++made;
      Sources sources;
      sources.push_back(std::make_unique<Counter>(readings, rests));
      return sources;
    };
    options.busy = [this] { return busy.load(); };
    options.second = kSecond;
    return options;
  }
  static bool within(auto condition) {
    for (int i = 0; i < 20'000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }

  std::atomic<int> made{0}, readings{0}, rests{0};
  std::atomic<bool> busy{false};
};

TEST_F(SamplerTest, NothingIsReadUntilSomeoneLooks) {
  Sampler sampler(options());
  ASSERT_TRUE(within([&] { return sampler.asleep(); }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(sampler.since(0).seq, 0u);
  EXPECT_FALSE(sampler.latest());
  sampler.look();
  ASSERT_TRUE(within([&] { return sampler.since(0).seq >= 3; }));
  const auto samples = sampler.since(0);
  EXPECT_EQ(samples.facts.at("test").as_int64(), 7);
  ASSERT_EQ(samples.fields.size(), 2u);
  EXPECT_EQ(samples.values[0], 1);
  EXPECT_TRUE(std::isnan(samples.values[1]));
  // Only what is new.
  const auto later = sampler.since(samples.seq);
  EXPECT_EQ(later.times.size(), later.seq - samples.seq);
  if (!later.times.empty()) {
    EXPECT_EQ(later.values[0], static_cast<float>(samples.seq + 1));
  }
  // Of another run: everything.
  EXPECT_EQ(sampler.since(1'000'000'000).values[0], 1);
}

TEST_F(SamplerTest, ItSleepsWhenNobodyLooksAndWakesAtOnce) {
  Sampler sampler(options());
  sampler.look();
  ASSERT_TRUE(within([&] { return readings > 0; }));
  ASSERT_TRUE(within([&] { return sampler.asleep(); }));
  EXPECT_GE(rests, 1);
  const int before = readings;
  std::this_thread::sleep_for(50 * kSecond);
  EXPECT_EQ(readings, before);
  sampler.look();
  EXPECT_TRUE(within([&] { return readings > before + 2; }));
  EXPECT_EQ(made, 1);
}

TEST_F(SamplerTest, WorkIsSampledSlowlyThoughNobodyLooks) {
  busy = true;
  Sampler sampler(options());
  ASSERT_TRUE(within([&] { return readings > 2; }));
  busy = false;
  ASSERT_TRUE(within([&] { return sampler.asleep(); }));
  const int before = readings;
  sampler.stir();
  ASSERT_TRUE(within([&] { return readings > before; }));
  ASSERT_TRUE(within([&] { return sampler.asleep(); }));
}

TEST_F(SamplerTest, AnHourIsKept) {
  auto quick = options();
  quick.second = std::chrono::microseconds(20);
  quick.busy = [] { return true; };
  Sampler sampler(quick);
  ASSERT_TRUE(within([&] {
    sampler.look();
    return readings > static_cast<int>(kMostSamples) + 100;
  }));
  const auto samples = sampler.since(0);
  ASSERT_EQ(samples.times.size(), kMostSamples);
  EXPECT_EQ(samples.values.size(), 2 * kMostSamples);
  // The last ones, in order.
  for (std::size_t i = 0; i < kMostSamples; ++i)
    ASSERT_EQ(samples.values[2 * i], static_cast<float>(samples.seq - kMostSamples + 1 + i));
  EXPECT_TRUE(std::is_sorted(samples.times.begin(), samples.times.end()));
}

TEST_F(SamplerTest, GaugesAreWrittenByFamily) {
  Sampler sampler(options());
  sampler.look();
  ASSERT_TRUE(within([&] { return sampler.since(0).seq >= 1; }));
  sampler.stop();
  const Family families[] = {{"strata_test_never", "Never."}, {"strata_test_readings", "Some."}};
  auto sample = sampler.since(0);
  sample.values.resize(2);
  sample.times.resize(1);
  PrometheusText text;
  write_gauges(text, families, sample);
  EXPECT_EQ(std::move(text).text(),
            "# HELP strata_test_never Never.\n# TYPE strata_test_never gauge\n"
            "# HELP strata_test_readings Some.\n# TYPE strata_test_readings gauge\n"
            "strata_test_readings{a=\"b\"} 0.5\n");
}

TEST(Prometheus, HistogramsAddUp) {
  Histogram histogram(token_bounds());
  for (const double value : {1.0, 2.0, 3.0, 5e6, std::nan("")}) histogram.observe(value);
  PrometheusText text;
  text.histogram("strata_test", "Some.", histogram, "a=\"b\"");
  const std::string written = std::move(text).text();
  using ::testing::HasSubstr;
  EXPECT_THAT(written, HasSubstr("strata_test_bucket{a=\"b\",le=\"1\"} 1\n"));
  EXPECT_THAT(written, HasSubstr("strata_test_bucket{a=\"b\",le=\"2\"} 2\n"));
  EXPECT_THAT(written, HasSubstr("strata_test_bucket{a=\"b\",le=\"1000000\"} 3\n"));
  EXPECT_THAT(written, HasSubstr("strata_test_bucket{a=\"b\",le=\"+Inf\"} 4\n"));
  EXPECT_THAT(written, HasSubstr("strata_test_sum{a=\"b\"} 5000006\n"));
  EXPECT_THAT(written, HasSubstr("strata_test_count{a=\"b\"} 4\n"));
}

TEST(Prometheus, LabelsAreEscaped) {
  EXPECT_EQ(escaped_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
}

}  // namespace
}  // namespace strata::telemetry
