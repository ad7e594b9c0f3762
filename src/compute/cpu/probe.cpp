#include "compute/cpu/probe.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "compute/cpu/kernels.h"

namespace strata {
namespace {

constexpr int kRounds = 5;
constexpr std::size_t kInt8Loops = 2'000'000;

template <class Body>
double fastest_seconds(const Body& body) {
  double best = 1e30;
  for (int i = 0; i < kRounds; ++i) {
    const double start = monotonic_seconds();
    body();
    best = std::min(best, monotonic_seconds() - start);
  }
  return best;
}

}  // namespace

Result<MachineLimits> measure_machine(std::uint32_t threads, std::size_t bytes,
                                      const std::string& isa) {
  STRATA_ASSIGN(const cpu::Kernels* const kernels, cpu::kernels_of(isa));
  ThreadPool pool(threads);
  const std::size_t part = bytes / pool.threads() / 4096 * 4096;
  const std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[part * pool.threads()]);
  if (!memory || part == 0)
    return fail(ErrorCode::exhausted, "no {} MiB of memory to measure its speed", bytes >> 20);
  pool.run(pool.threads(), [&](std::size_t i) {
    std::fill_n(memory.get() + i * part, part, static_cast<std::byte>(i + 1));
  });
  MachineLimits limits;
  std::vector<std::uint64_t> sums(pool.threads());  // so that the reads are not dropped
  for (const std::size_t streams : {1u, 2u, 4u}) {
    const double seconds = fastest_seconds([&] {
      pool.run(pool.threads(), [&](std::size_t i) {
        sums[i] += kernels->read_streams(memory.get() + i * part, part, streams);
      });
    });
    limits.read_gbps =
        std::max(limits.read_gbps, double(part) * double(pool.threads()) / seconds / 1e9);
  }
  const double seconds = fastest_seconds([&] {
    pool.run(pool.threads(), [&](std::size_t i) { sums[i] += kernels->int8_loop(kInt8Loops); });
  });
  limits.int8_peak_gops =
      2.0 * cpu::kInt8LoopProducts * double(kInt8Loops) * double(pool.threads()) / seconds / 1e9;
  volatile std::uint64_t keep = 0;
  for (const std::uint64_t sum : sums) keep = keep + sum;
  return limits;
}

}  // namespace strata
