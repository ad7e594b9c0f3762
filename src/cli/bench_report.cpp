#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "cli/version.h"
#include "model/costs.h"

namespace strata {
namespace {

// Achieved rates at the median, and their shares where the machine was measured.
struct Rates {
  double gbps = 0, gops = 0;
  std::optional<double> of_read, of_int8;
};

Rates rates_of(const BenchOutcome& o) {
  const double median = spread_of(o.rates).median;
  Rates r;
  r.gbps = median * o.bytes_per_token() / 1e9;
  r.gops = 2 * median * o.macs_per_token() / 1e9;
  if (o.limits) {
    r.of_read = r.gbps / o.limits->read_gbps;
    r.of_int8 = r.gops / o.limits->int8_peak_gops;
  }
  return r;
}

// The parts that ran, then what is left: token ids, n-gram rows, the clocks.
struct NamedUse {
  std::string name;
  PartUse use;
};
std::vector<NamedUse> uses_of(const BenchOutcome& o) {
  std::vector<NamedUse> uses;
  double rest = o.seconds;
  for (std::size_t i = 0; i < kForwardParts; ++i) {
    rest -= o.parts[i].seconds;
    uses.push_back({std::string(to_string(static_cast<ForwardPart>(i))), o.parts[i]});
  }
  uses.push_back({"rest", {.seconds = rest, .cost = {}}});
  return uses;
}

// Sums over the counted runs; of times the middle p50 and the largest p99.
TableStats ngram_of(const BenchOutcome& o) {
  TableStats sum;
  std::vector<double> waits, reads;
  for (const TableStats& n : o.ngram) {
    sum.how = n.how;
    sum.rows += n.rows;
    sum.requests += n.requests;
    sum.prefetched += n.prefetched;
    sum.prefetch_dropped += n.prefetch_dropped;
    sum.reads += n.reads;
    sum.read_bytes += n.read_bytes;
    sum.memory_bytes = n.memory_bytes;
    sum.cache_rows = n.cache_rows;
    sum.depth = n.depth;
    waits.push_back(double(n.wait_p50));
    reads.push_back(double(n.read_p50));
    sum.read_p99 = std::max(sum.read_p99, n.read_p99);
    sum.wait_p99 = std::max(sum.wait_p99, n.wait_p99);
    sum.wait_max = std::max(sum.wait_max, n.wait_max);
  }
  sum.wait_p50 = static_cast<std::uint64_t>(spread_of(std::move(waits)).median);
  sum.read_p50 = static_cast<std::uint64_t>(spread_of(std::move(reads)).median);
  return sum;
}

class TableReport final : public BenchReport {
 public:
  TableReport(bool parts, bool probed) : parts_(parts), probed_(probed) {}

  void start(const Benchmark& b) override {
    const Network& n = b.network();
    const Cost token = token_cost(n);
    fmt::print(
        "{} ({:.1f} M parameters, {:.1f} MB; a token moves {:.1f} MB and takes {:.1f} M MACs), {} "
        "threads, {}, keys and values as {} ({} bytes a token)\n\n",
        n.params.name, double(n.parameters) / 1e6, double(n.weight_bytes) / 1e6, token.bytes / 1e6,
        token.macs / 1e6, b.threads(), b.isa(), to_string(b.kv_type()), b.token_bytes());
    fmt::print("| test | tokens/s (median) | least | most | GB/s | {}GOP/s | {}runs | dropped |\n",
               probed_ ? "of read | " : "", probed_ ? "of int8 | " : "");
    fmt::print("| --- | ---: | ---: | ---: | ---: | {}---: | {}---: | ---: |\n",
               probed_ ? "---: | " : "", probed_ ? "---: | " : "");
    std::fflush(stdout);
  }

  void outcome(const BenchOutcome& o) override {
    const Spread s = spread_of(o.rates);
    const Rates r = rates_of(o);
    const auto share = [&](const std::optional<double>& value) {
      return probed_ && value ? fmt::format("{:.1f} % | ", 100 * *value) : std::string();
    };
    fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {}{:.1f} | {}{} | {} |\n",
               name_of(o.test), s.median, s.least, s.most, r.gbps, share(r.of_read), r.gops,
               share(r.of_int8), o.rates.size(), o.dropped);
    std::fflush(stdout);
    outcomes_.push_back(o);
  }

  void finish(const std::vector<MachineLimits>& probes) override {
    for (const BenchOutcome& o : outcomes_) {
      if (o.disturbed == 0) continue;
      fmt::print("\n{}: {} of the {} runs are disturbed, by up to {:.1f} % of the CPUs",
                 name_of(o.test), o.disturbed, o.rates.size(), 100 * o.others);
    }
    if (!probes.empty()) {
      std::vector<double> read, int8;
      for (const MachineLimits& p : probes) {
        read.push_back(p.read_gbps);
        int8.push_back(p.int8_peak_gops);
      }
      const Spread r = spread_of(read), i = spread_of(int8);
      fmt::print(
          "\nthis machine in the same run, {} probes: {:.1f} GB/s read ({:.1f} to {:.1f}), {:.0f} "
          "GOP/s int8 ({:.0f} to {:.0f})\n",
          probes.size(), r.median, r.least, r.most, i.median, i.least, i.most);
    }
    if (parts_) print_parts();
    print_ngram_rows();
    print_experts();
  }

 private:
  void print_parts() const {
    fmt::print(
        "\n| test | part | ms a token | of the time | MB a token | GB/s | GOP/s |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
    for (const BenchOutcome& o : outcomes_) {
      for (const auto& [name, use] : uses_of(o)) {
        const double tokens = double(o.tokens);
        const double seconds = std::max(use.seconds, 1e-12);
        fmt::print("| {} | {} | {:.3f} | {:.1f} % | {:.2f} | {:.2f} | {:.1f} |\n", name_of(o.test),
                   name, 1e3 * use.seconds / tokens, 100 * use.seconds / o.seconds,
                   use.cost.bytes / tokens / 1e6, use.cost.bytes / seconds / 1e9,
                   2 * use.cost.macs / seconds / 1e9);
      }
    }
  }

  // What the tables' rows cost a window, caches empty at the start of each run.
  void print_ngram_rows() const {
    if (outcomes_.empty() || outcomes_.front().ngram.empty()) return;
    fmt::print(
        "\nn-gram rows: {}\n| test | a token | cached | asked ahead | exposed wait us p50 | p99 | "
        "most | a read us p50 | p99 |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | "
        "---: "
        "|\n",
        outcomes_.front().ngram.front().how);
    for (const BenchOutcome& o : outcomes_) {
      const TableStats n = ngram_of(o);
      const double rows = double(std::max<std::uint64_t>(n.rows.requested, 1));
      // Without a cache there is nothing to keep what would be asked for ahead; a mapped table has
      // neither.
      const auto share = [&](std::uint64_t part) {
        return n.cache_rows == 0 ? std::string("-")
                                 : fmt::format("{:.1f} %", 100 * double(part) / rows);
      };
      const auto read = [&](std::uint64_t microseconds) {
        return n.depth == 0 ? std::string("-") : fmt::format("{}", microseconds);
      };
      fmt::print("| {} | {:.1f} | {} | {} | {} | {} | {} | {} | {} |\n", name_of(o.test),
                 double(n.rows.requested) / double(o.tokens), share(n.rows.cache_hits),
                 share(n.rows.prefetched_used), n.wait_p50, n.wait_p99, n.wait_max,
                 read(n.read_p50), read(n.read_p99));
    }
  }

  // Of experts in a memory budget: where they were, and what reading them cost.
  void print_experts() const {
    if (outcomes_.empty()) return;
    const ExpertCounters& first = outcomes_.front().experts;
    if (first.pinned_hits + first.mapped_hits > 0) return;
    fmt::print(
        "\nexperts: {} of {} MiB in memory\n| test | core | recent | asked ahead | read when "
        "needed "
        "| ahead in vain | MB read a token | waited ms a token |\n| --- | ---: | ---: | ---: | "
        "---: | "
        "---: | ---: | ---: |\n",
        first.resident_bytes >> 20, first.total_bytes >> 20);
    for (const BenchOutcome& o : outcomes_) {
      const ExpertCounters& e = o.experts;
      const double tokens = double(o.tokens);
      const double all =
          double(std::max<std::uint64_t>(e.core_hits + e.recent_hits + e.ahead_hits + e.misses, 1));
      fmt::print(
          "| {} | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} | {:.2f} |\n",
          name_of(o.test), 100 * double(e.core_hits) / all, 100 * double(e.recent_hits) / all,
          100 * double(e.ahead_hits) / all, 100 * double(e.misses) / all,
          e.asked_ahead == 0 ? 0.0 : 100 * (1 - double(e.ahead_hits) / double(e.asked_ahead)),
          double(e.read_bytes) / tokens / 1e6, 1e-3 * double(e.wait_microseconds) / tokens);
    }
  }

  bool parts_, probed_;
  std::vector<BenchOutcome> outcomes_;
};

class CsvReport final : public BenchReport {
 public:
  explicit CsvReport(bool parts) : parts_(parts) {}

  void start(const Benchmark&) override {
    fmt::print(
        "test,kind,tokens,depth,batch,tokens_per_s,tokens_per_s_least,tokens_per_s_most,"
        "bytes_per_token,macs_per_token,gbps,gops,read_gbps,int8_peak_gops,"
        "share_of_read_bandwidth,share_of_int8_peak,runs,dropped,disturbed,others");
    if (parts_) {
      for (std::size_t i = 0; i < kForwardParts; ++i) {
        std::string name(to_string(static_cast<ForwardPart>(i)));
        std::replace(name.begin(), name.end(), ' ', '_');
        fmt::print(",{0}_seconds_per_token,{0}_bytes_per_token", name);
      }
    }
    fmt::print("\n");
  }

  void outcome(const BenchOutcome& o) override {
    const Spread s = spread_of(o.rates);
    const Rates r = rates_of(o);
    const auto number = [](const std::optional<double>& value) {
      return value ? fmt::format("{:.6g}", *value) : std::string();
    };
    std::optional<double> read, int8;
    if (o.limits) {
      read = o.limits->read_gbps;
      int8 = o.limits->int8_peak_gops;
    }
    fmt::print("\"{}\",{},{},{},{},{:.6g},{:.6g},{:.6g},{:.0f},{:.0f},{:.6g},{:.6g}",
               name_of(o.test), o.test.prompt ? "prompt" : "decode", o.test.tokens, o.test.depth,
               o.test.batch, s.median, s.least, s.most, o.bytes_per_token(), o.macs_per_token(),
               r.gbps, r.gops);
    fmt::print(",{},{},{},{},{},{},{},{:.4f}", number(read), number(int8), number(r.of_read),
               number(r.of_int8), o.rates.size(), o.dropped, o.disturbed, o.others);
    if (parts_) {
      for (const PartUse& use : o.parts)
        fmt::print(",{:.6g},{:.0f}", use.seconds / double(o.tokens),
                   use.cost.bytes / double(o.tokens));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

  void finish(const std::vector<MachineLimits>&) override {}

 private:
  bool parts_;
};

boost::json::value or_null(std::optional<double> number) {
  return number ? boost::json::value(*number) : boost::json::value(nullptr);
}

class JsonReport final : public BenchReport {
 public:
  explicit JsonReport(bool parts) : parts_(parts) {}

  void start(const Benchmark& b) override {
    const Network& n = b.network();
    const Cost token = token_cost(n);
    const Metadata& m = n.file->metadata;
    out_ = {{"model", n.params.name},
            {"model_path", n.file->paths.empty() ? std::string() : n.file->paths.front()},
            {"synthetic", m.boolean("strata.synthetic").value_or(false)},
            {"parameters", n.parameters},
            {"weight_bytes", n.weight_bytes},
            {"bytes_per_token", token.bytes},
            {"macs_per_token", token.macs},
            {"threads", b.threads()},
            {"chunk", b.chunk()},
            {"isa", b.isa()},
            {"kv_type", to_string(b.kv_type())},
            {"token_bytes", b.token_bytes()},
            {"version", version_text()}};
  }

  void outcome(const BenchOutcome& o) override {
    const Spread s = spread_of(o.rates);
    const Rates r = rates_of(o);
    boost::json::object test = {{"test", name_of(o.test)},
                                {"kind", o.test.prompt ? "prompt" : "decode"},
                                {"tokens", o.test.tokens},
                                {"depth", o.test.depth},
                                {"batch", o.test.batch},
                                {"tokens_per_s", s.median},
                                {"tokens_per_s_least", s.least},
                                {"tokens_per_s_most", s.most},
                                {"bytes_per_token", o.bytes_per_token()},
                                {"macs_per_token", o.macs_per_token()},
                                {"gbps", r.gbps},
                                {"gops", r.gops},
                                {"share_of_read_bandwidth", or_null(r.of_read)},
                                {"share_of_int8_peak", or_null(r.of_int8)},
                                {"runs", o.rates.size()},
                                {"dropped", o.dropped},
                                {"disturbed", o.disturbed},
                                {"others", o.others}};
    test["rates"] = boost::json::array(o.rates.begin(), o.rates.end());
    test["read_gbps"] = or_null(o.limits ? std::optional(o.limits->read_gbps) : std::nullopt);
    test["int8_peak_gops"] =
        or_null(o.limits ? std::optional(o.limits->int8_peak_gops) : std::nullopt);
    if (parts_) {
      boost::json::array parts;
      for (const auto& [name, use] : uses_of(o)) {
        parts.push_back({{"part", name},
                         {"seconds_per_token", use.seconds / double(o.tokens)},
                         {"share_of_time", use.seconds / o.seconds},
                         {"bytes_per_token", use.cost.bytes / double(o.tokens)},
                         {"macs_per_token", use.cost.macs / double(o.tokens)}});
      }
      test["parts"] = std::move(parts);
    }
    if (!o.ngram.empty()) {
      const TableStats n = ngram_of(o);
      test["ngram"] = boost::json::object{{"how", n.how},
                                          {"rows", n.rows.requested},
                                          {"cache_hits", n.rows.cache_hits},
                                          {"joined", n.rows.joined},
                                          {"prefetched", n.prefetched},
                                          {"prefetched_used", n.rows.prefetched_used},
                                          {"prefetch_dropped", n.prefetch_dropped},
                                          {"reads", n.reads},
                                          {"read_bytes", n.read_bytes},
                                          {"read_p50_us", n.read_p50},
                                          {"read_p99_us", n.read_p99},
                                          {"wait_seconds", n.rows.wait_seconds},
                                          {"wait_p50_us", n.wait_p50},
                                          {"wait_p99_us", n.wait_p99},
                                          {"wait_max_us", n.wait_max},
                                          {"memory_bytes", n.memory_bytes}};
    }
    const ExpertCounters& e = o.experts;
    test["experts"] = boost::json::object{{"core_hits", e.core_hits},
                                          {"recent_hits", e.recent_hits},
                                          {"ahead_hits", e.ahead_hits},
                                          {"misses", e.misses},
                                          {"in_place", e.pinned_hits + e.mapped_hits},
                                          {"asked_ahead", e.asked_ahead},
                                          {"read_bytes", e.read_bytes},
                                          {"wait_seconds", 1e-6 * double(e.wait_microseconds)},
                                          {"resident_bytes", e.resident_bytes},
                                          {"total_bytes", e.total_bytes}};
    tests_.push_back(std::move(test));
  }

  void finish(const std::vector<MachineLimits>& probes) override {
    std::optional<double> read, int8;
    for (const MachineLimits& p : probes) {
      read = std::max(read.value_or(0), p.read_gbps);
      int8 = std::max(int8.value_or(0), p.int8_peak_gops);
    }
    out_["read_gbps"] = or_null(read);
    out_["int8_peak_gops"] = or_null(int8);
    out_["tests"] = std::move(tests_);
    fmt::print("{}\n", boost::json::serialize(out_));
  }

 private:
  bool parts_;
  boost::json::object out_;
  boost::json::array tests_;
};

}  // namespace

std::string name_of(const BenchTest& test) {
  if (test.prompt) return fmt::format("prompt {}", test.tokens);
  std::string name = fmt::format("decode {} after {}", test.tokens, test.depth);
  if (test.batch > 1) name += fmt::format(", {} at once", test.batch);
  return name;
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double upper = values[middle];
  const double median = values.size() % 2 == 1 ? upper : (values[middle - 1] + upper) / 2;
  return {median, values.front(), values.back()};
}

Cost BenchOutcome::cost() const {
  Cost sum;
  for (const PartUse& use : parts) sum += use.cost;
  return sum;
}

std::unique_ptr<BenchReport> make_report(BenchFormat format, bool parts, bool probed) {
  if (format == BenchFormat::json) return std::make_unique<JsonReport>(parts);
  if (format == BenchFormat::csv) return std::make_unique<CsvReport>(parts);
  return std::make_unique<TableReport>(parts, probed);
}

}  // namespace strata
