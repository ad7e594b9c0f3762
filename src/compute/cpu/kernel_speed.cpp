#include "compute/cpu/kernel_speed.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "base/clock.h"
#include "base/huge_memory.h"
#include "base/thread_pool.h"
#include "compute/cpu/registry.h"
#include "quant/quant.h"
#include "quant/random_blocks.h"

namespace strata {
namespace {

using namespace cpu;

constexpr std::size_t kWidth = 2560;
constexpr std::size_t kCacheBytes = 300'000;  // a thread
constexpr std::size_t kPanels = 4;            // 64 outputs each, of a product of many tokens
constexpr int kRounds = 5;
constexpr double kRoundSeconds = 0.01;

using Bytes = std::vector<std::byte, HugeAllocator<std::byte>>;

class Measurement {
 public:
  Measurement(const Kernels& kernels, std::size_t threads, std::size_t bytes)
      : kernels_(kernels), pool_(threads), matrix_(bytes + kHugePage) {}

  Result<KernelSpeed> measure(TensorType type, Inputs inputs) {
    const IntFormat* format = format_for(type, inputs);  // nullptr: floats
    KernelSpeed speed;
    speed.format = to_string(type);
    speed.inputs = to_string(inputs);
    speed.few_way = kernels_.way(type, inputs, true);
    speed.many_way = kernels_.way(type, inputs, false);
    row_bytes_ = *bytes_of(type, kWidth);
    STRATA_TRY(fill(type));
    prepare_inputs(format);
    const std::size_t all_rows = (matrix_.size() - kHugePage) / row_bytes_;
    const std::size_t few = std::max(kPanelRows, kCacheBytes / row_bytes_ / kLanes * kLanes);
    const double threads = double(pool_.threads());
    speed.cache_gbps = double(few * row_bytes_) * threads / 1e9 / fastest([&](std::size_t thread) {
                         multiply(type, format, thread * few, few, few, 1);
                       });
    const std::size_t share = all_rows / pool_.threads() / kPanelRows * kPanelRows;
    speed.memory_gbps =
        double(share * row_bytes_) * threads / 1e9 / fastest([&](std::size_t thread) {
          multiply(type, format, thread * share, share, sweep_rows(), 1);
        });
    if (!format) return speed;
    speed.few_rows_gops = gops(type, format, kFewSpeedRows);
    speed.many_rows_gops = gops(type, format, kManySpeedRows);
    return speed;
  }

 private:
  Status fill(TensorType type) {
    STRATA_ASSIGN(const RandomBlocks random, RandomBlocks::create(type, 0.02f));
    const std::size_t rows = (matrix_.size() - kHugePage) / row_bytes_;
    const std::size_t pattern = std::min<std::size_t>(rows, kPanelRows);
    random.fill(1, {matrix_.data(), pattern * row_bytes_});
    for (std::size_t row = pattern; row < rows; row += pattern)
      std::memcpy(matrix_.data() + row * row_bytes_, matrix_.data(),
                  std::min(pattern, rows - row) * row_bytes_);
    return {};
  }

  void prepare_inputs(const IntFormat* format) {
    floats_.resize(kWidth);
    if (format) inputs_.resize(kManySpeedRows, kWidth, format->kind);
    views_.clear();
    for (std::size_t r = 0; r < kManySpeedRows; ++r) {
      for (std::size_t i = 0; i < kWidth; ++i)
        floats_[i] = static_cast<float>((i * 37 + r * 101) % 255) - 127.0f;
      if (!format) return;
      views_.push_back(inputs_.row(r));
      if (format->kind == BlockKind::group_words) {
        kernels_.quantize_words(floats_.data(), kWidth, views_[r]);
      } else {
        kernels_.quantize_row(floats_.data(), kWidth, scale_width(format->kind), views_[r]);
      }
    }
  }

  // As the backend hands out a sweep.
  std::size_t sweep_rows() const {
    return std::max(kLanes, (std::size_t{96} << 10) / row_bytes_ / kLanes * kLanes);
  }

  // Rows from `first` on, some at a time.
  void multiply(TensorType type, const IntFormat* format, std::size_t first, std::size_t rows,
                std::size_t at_once, std::size_t tokens) {
    thread_local std::vector<float> values;
    thread_local std::vector<float*> y;
    values.resize(tokens * at_once);
    y.resize(tokens);
    for (std::size_t t = 0; t < tokens; ++t) y[t] = values.data() + t * at_once;
    for (std::size_t row = 0; row < rows; row += at_once) {
      const std::byte* matrix = matrix_.data() + (first + row) * row_bytes_;
      const std::size_t count = std::min(at_once, rows - row);
      const float* x = floats_.data();
      if (format) {
        kernels_.int_gemm(*format, matrix, row_bytes_, count, kWidth, views_.data(), y.data(),
                          tokens, matrix + count * row_bytes_, false);
      } else {
        (void)kernels_.float_gemm(type, matrix, row_bytes_, count, kWidth, &x, y.data(), tokens,
                                  matrix + count * row_bytes_, true);
      }
    }
  }

  double gops(TensorType type, const IntFormat* format, std::size_t tokens) {
    constexpr std::size_t rows = kPanels * kPanelRows;
    const double seconds = fastest([&](std::size_t thread) {
      multiply(type, format, thread * rows, rows, kPanelRows, tokens);
    });
    return 2.0 * double(rows * kWidth * tokens) * double(pool_.threads()) / seconds / 1e9;
  }

  // Seconds of one call on all threads.
  template <class Body>
  double fastest(const Body& body) {
    double best = 1e30;
    std::size_t calls = 1;
    for (int round = 0; round <= kRounds; ++round) {
      const double start = monotonic_seconds();
      pool_.run(pool_.threads(), [&](std::size_t thread) {
        for (std::size_t i = 0; i < calls; ++i) body(thread);
      });
      const double seconds = (monotonic_seconds() - start) / double(calls);
      if (round > 0) best = std::min(best, seconds);
      if (round == 0) calls = std::max<std::size_t>(1, std::size_t(kRoundSeconds / seconds));
    }
    return best;
  }

  const Kernels& kernels_;
  ThreadPool pool_;
  Bytes matrix_;
  std::size_t row_bytes_ = 0;
  std::vector<float> floats_;
  QuantizedRows inputs_;
  std::vector<QuantizedRow> views_;
};

}  // namespace

Result<std::vector<KernelSpeed>> measure_kernels(std::uint32_t threads, std::size_t bytes,
                                                 const std::string& isa,
                                                 const std::string& format) {
  STRATA_ASSIGN(const Kernels* const kernels, kernels_of(isa));
  try {
    Measurement measurement(*kernels, threads, bytes);
    std::vector<KernelSpeed> speeds;
    for (const KernelEntry& entry : kernel_registry({&kernels, 1})) {
      // Floats: those that need no panels for one token.
      if (entry.inputs == Inputs::floats ? !entry.few || entry.way != "rows" : entry.few) continue;
      if (!format.empty() && format != to_string(entry.type)) continue;
      STRATA_ASSIGN(speeds.emplace_back(), measurement.measure(entry.type, entry.inputs));
    }
    return speeds;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no {} MiB of memory for a matrix", bytes >> 20);
  }
}

}  // namespace strata
