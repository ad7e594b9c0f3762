// Prints what this machine's readers say: telemetry_look [SAMPLES], a second apart. For machines
// that the tests do not have.
#include <fmt/format.h>
#include <time.h>

#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "telemetry/machine.h"
#include "telemetry/sampler.h"

namespace {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

int main(int count, char** words) {
  using namespace strata::telemetry;
  const int samples = count > 1 ? std::atoi(words[1]) : 3;
  const double begun = strata::monotonic_seconds();
  Recorder recorder(machine_sources(Roots(), {}));
  fmt::print("made in {:.1f} ms\n", 1e3 * (strata::monotonic_seconds() - begun));
  double cpu = 0, wall = 0;
  for (int i = 0; i < samples; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    const double start = strata::monotonic_seconds(), had = cpu_seconds();
    recorder.sample(0, start);
    cpu += cpu_seconds() - had;
    wall += strata::monotonic_seconds() - start;
  }
  fmt::print("{}\n", boost::json::serialize(recorder.facts()));
  for (std::size_t i = 0; i < recorder.fields().size(); ++i) {
    const Field& field = recorder.fields()[i];
    fmt::print("{:<24} {:<28} {:>14.6g} {}\n", field.group, field.name, recorder.values()[i],
               field.unit);
  }
  fmt::print("a sample: {:.0f} us of processor time, {:.0f} us in all\n", 1e6 * cpu / samples,
             1e6 * wall / samples);
}
