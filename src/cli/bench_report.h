// What strata bench prints: a table to read, CSV, or JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compute/cpu/probe.h"
#include "engine/benchmark.h"

namespace strata {

struct BenchTest {
  bool prompt = false;       // else decode
  std::uint32_t tokens = 0;  // of the prompt; made by each sequence
  std::uint32_t depth = 0;   // tokens in the cache before
  std::uint32_t batch = 1;   // sequences
};
std::string name_of(const BenchTest& test);  // "prompt 512", "decode 64 after 4096, 8 at once"

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);  // of at least one

// What came of a test: sums over its counted runs, and how they were chosen.
struct BenchOutcome {
  BenchTest test;
  std::vector<double> rates;  // tokens a second of each counted run
  double seconds = 0;
  std::uint64_t tokens = 0;
  PartUses parts{};
  std::vector<TableStats> ngram;  // of the counted runs; a network with several tables adds several
  ExpertCounters experts;         // of the counted runs
  std::uint32_t dropped = 0;      // disturbed runs that were made again
  std::uint32_t disturbed = 0;    // disturbed ones that count for want of better
  double others = 0;              // largest share of the CPUs that others had in a counted run
  std::optional<MachineLimits> limits;  // the best of the probes around the test

  Cost cost() const;  // of all counted runs
  double bytes_per_token() const { return cost().bytes / double(tokens); }
  double macs_per_token() const { return cost().macs / double(tokens); }
};

enum class BenchFormat : std::uint8_t { table, csv, json };

// Called in order: start, outcome for each test, finish.
class BenchReport {
 public:
  virtual ~BenchReport() = default;
  virtual void start(const Benchmark& benchmark) = 0;
  virtual void outcome(const BenchOutcome& outcome) = 0;
  // `probes`: all of the run, in order.
  virtual void finish(const std::vector<MachineLimits>& probes) = 0;
};
// `probed`: whether the machine is measured; without it no shares are claimed.
std::unique_ptr<BenchReport> make_report(BenchFormat format, bool parts, bool probed);

}  // namespace strata
