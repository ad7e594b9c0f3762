// Where the weights of experts come from, behind one interface: memory, the mapped file, or a part
// in memory and the rest read when it is needed. Backends ask; they do not know.
//
// All sources give the same bytes, in any order: nothing that is computed may depend on the order.
// One thread uses a source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace strata {

// The rows of one expert's matrices, laid out as ExpertMatrices says.
struct ExpertBlob {
  std::uint32_t expert = 0;
  const std::byte* gate = nullptr;  // all null: it could not be read
  const std::byte* up = nullptr;
  const std::byte* down = nullptr;
};

struct ExpertUse {
  std::uint32_t expert = 0;
  std::uint32_t rows = 0;  // of the window that use it
};

// How long a blob stays where it is.
enum class ExpertLifetime : std::uint8_t {
  pinned,     // in memory, as long as the source
  mapped,     // in the mapped file; the system may have to read it
  resident,   // in memory for now
  transient,  // not in memory, or only for the pass that asked
};

struct ExpertCounters {
  std::uint64_t pinned_hits = 0, mapped_hits = 0;  // blobs given, by where they were
  std::uint64_t core_hits = 0, recent_hits = 0;    // of a memory budget: hottest ones, recent ones
  std::uint64_t ahead_hits = 0;                    // that were asked for ahead
  std::uint64_t misses = 0;                        // read when they were needed
  std::uint64_t failed = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t asked_ahead = 0;        // blobs
  std::uint64_t wait_microseconds = 0;  // in which nothing was computed
  std::uint64_t resident_bytes = 0, total_bytes = 0;
};
// What counts up; the sizes do not.
inline constexpr std::uint64_t ExpertCounters::* kExpertCounts[] = {
    &ExpertCounters::pinned_hits,      &ExpertCounters::mapped_hits, &ExpertCounters::core_hits,
    &ExpertCounters::recent_hits,      &ExpertCounters::ahead_hits,  &ExpertCounters::misses,
    &ExpertCounters::failed,           &ExpertCounters::read_bytes,  &ExpertCounters::asked_ahead,
    &ExpertCounters::wait_microseconds};
// What was counted since `before`, with the sizes of now.
inline ExpertCounters operator-(ExpertCounters now, const ExpertCounters& before) {
  for (const auto count : kExpertCounts) now.*count -= before.*count;
  return now;
}
inline ExpertCounters operator+(ExpertCounters now, const ExpertCounters& before) {
  for (const auto count : kExpertCounts) now.*count += before.*count;
  return now;
}

class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // Begins a pass over some experts of a layer, ascending, each once. `decode`: the window is of
  // tokens that are generated, whose experts are likely to be used again.
  virtual void begin(std::uint32_t layer, std::span<const ExpertUse> uses, bool decode) = 0;
  // The next experts of the pass, those that are there first; none: the pass is over. Their bytes
  // stay until the next call of next() or begin(). Waits for the disk where it must.
  virtual std::span<const ExpertBlob> next() = 0;
  // Why blobs of the last pass could not be read.
  virtual const Status& failure() const = 0;

  // Whether a guess of a later layer's experts is of any use.
  virtual bool looks_ahead() const = 0;
  // These will probably be needed soon. Never waits, promises nothing.
  virtual void prefetch(std::uint32_t layer, std::span<const std::uint32_t> experts) = 0;

  virtual ExpertLifetime lifetime(std::uint32_t layer, std::uint32_t expert) const = 0;
  virtual ExpertCounters counters() const = 0;
};

}  // namespace strata
