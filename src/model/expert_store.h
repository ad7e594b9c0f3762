// Experts in a memory budget: some stay, the others are read from the model file when a token needs
// them.
//
// Memory is slots of one size, the largest blob's. A slot belongs to one of two groups, and changes
// its group without being copied:
//   core     the experts that are used most by the profile (expert_profile.h): from the start, and
//            while tokens are generated what was read takes the place of what is used less
//   stream   on their way: what is read for the pass at hand, what was asked for ahead
// A prompt's window streams through the second group and leaves the first as it is.
//
// Reads go past the page cache straight into slots, many under way at a time. A slot that is being
// read into is nobody's until its reads have ended. While one group of experts is computed, the
// next ones are read: half of the stream slots may be in use, the other half is on its way. What a
// later layer will probably need is read when nothing that is needed is on its way any more.
//
// A blob that cannot be read fails its pass for the rows that need it (ExpertBlob, failure());
// asking again reads again.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/bulk_reader.h"
#include "base/large_memory.h"
#include "compute/weights.h"
#include "model/expert_profile.h"

namespace strata {

struct ExpertStoreOptions {
  std::uint64_t bytes = 0;   // of memory for slots
  std::uint32_t stream = 0;  // slots on their way; 0: twice what a token needs and a few more
  std::uint32_t depth = 64;  // reads under way
  bool direct = true;        // past the page cache
  bool look_ahead = true;    // read what the next layer will probably need
  bool lock = false;         // keep the slots from being swapped out
  std::string profile_path;  // empty: nothing is remembered
  // What is read first, and how far it is: done and total bytes.
  std::function<void(std::uint64_t, std::uint64_t)> progress;
  std::chrono::milliseconds patience{60'000};  // with a disk that does not answer
};

class ExpertStore final : public ExpertSource {
 public:
  // `layers` in order; `paths` of the model's files. Reads the hottest experts. `exhausted` where
  // `bytes` is less than least_bytes().
  static Result<std::shared_ptr<ExpertStore>> open(FileSystem& files,
                                                   const std::vector<std::string>& paths,
                                                   const std::vector<const ExpertsWeights*>& layers,
                                                   std::uint64_t model, ExpertStoreOptions options);
  // Saves the profile.
  ~ExpertStore() override;

  // Memory of one slot, and the least that a budget may be.
  static std::uint64_t slot_bytes(const std::vector<const ExpertsWeights*>& layers);
  static std::uint64_t least_bytes(const std::vector<const ExpertsWeights*>& layers);

  void begin(std::uint32_t layer, std::span<const ExpertUse> uses, bool decode) override;
  std::span<const ExpertBlob> next() override;
  const Status& failure() const override { return failure_; }
  bool looks_ahead() const override { return kDepths[depth_] > 0; }
  void prefetch(std::uint32_t layer, std::span<const std::uint32_t> experts) override;
  ExpertLifetime lifetime(std::uint32_t layer, std::uint32_t expert) const override;
  ExpertCounters counters() const override { return counters_; }

  Status save_profile();
  std::size_t slots() const { return slots_.size(); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  enum class Group : std::uint8_t { core, stream };
  enum class State : std::uint8_t { empty, reading, ready };
  using Order = std::list<std::uint32_t>;  // the first to go in front
  struct Slot {
    Group group = Group::stream;
    State state = State::empty;
    bool pinned = false;  // wanted by the pass
    bool ahead = false;   // asked for ahead and not used yet
    std::uint32_t id = kNone;
    std::uint32_t reads = 0;  // under way
    Status failure;
    Order* list = nullptr;  // one of the two, and where in it
    Order::iterator place;
  };
  // One of an expert's three matrices.
  struct Piece {
    std::uint32_t part = 0;
    std::uint64_t offset = 0;  // of expert 0, in its file
    std::size_t stride = 0, bytes = 0;
  };
  struct Layer {
    Piece pieces[3];  // gate, up, down
  };
  struct Wanted {
    std::uint32_t expert = 0;
    std::uint32_t slot = kNone;
  };

  ExpertStore(ExpertProfile profile, ExpertStoreOptions options)
      : options_(std::move(options)), profile_(std::move(profile)) {}
  void lay_out(const std::vector<const ExpertsWeights*>& layers);
  Status allocate();
  Status read_hottest(FileSystem& files, const std::vector<std::string>& paths);
  std::size_t head(std::uint32_t id, std::size_t piece) const;
  std::uint32_t expert_of(std::uint32_t id) const;
  void start_read(BulkReader& reader, std::uint32_t slot, std::uint32_t id);
  void move(std::uint32_t slot, Order& to, bool first = false);
  void forget(std::uint32_t slot);
  std::uint32_t free_slot();
  void fill();
  bool wait(std::chrono::microseconds timeout);
  void ended(const BulkReader::Ended& read);
  void release(std::uint32_t slot);
  void keep(std::uint32_t slot);
  void abandon();
  bool take_arrived();
  void give_up(const Status& why);
  void count(const Wanted& wanted);
  void send_ahead();
  void now_and_then();
  void choose_ahead();

  ExpertStoreOptions options_;
  FileSystem* files_ = nullptr;
  std::vector<std::string> paths_;
  std::vector<Layer> layers_;
  std::vector<std::uint32_t> layer_of_;  // by id
  ExpertProfile profile_;
  std::size_t region_[3] = {};  // where a slot's matrices begin
  std::size_t slot_bytes_ = 0;
  std::shared_ptr<LargeMemory> memory_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> where_;  // slot by id
  Order idle_, held_;                 // held: core, pinned, or being read into
  std::vector<std::uint32_t> core_;   // slots
  std::minstd_rand random_;           // some of them

  // The pass
  std::uint32_t layer_ = 0;
  bool decode_ = false;
  std::vector<Wanted> hits_, reading_;  // there; on their way
  std::vector<std::uint32_t> missing_;  // experts to be read, the last one first
  std::vector<Wanted> group_;           // given last
  std::vector<ExpertBlob> blobs_;
  std::vector<std::uint32_t> guesses_;  // ids that a later layer will probably need
  Status failure_;

  ExpertCounters counters_;
  // How many guesses pay is a matter of measurement: windows with more and with fewer, by turns.
  static constexpr std::uint32_t kDepths[] = {0, 1, 2, 3, 4, 8};  // guesses of a pass
  static constexpr std::size_t kDepthCount = std::size(kDepths);
  std::size_t depth_ = 0;                     // of these
  std::uint32_t trial_ = 0, settled_ = 1;     // windows until it is over, until it begins
  static constexpr std::size_t kTrials = 32;  // windows with each
  std::array<std::array<float, kTrials>, kDepthCount> seconds_ = {};  // that they took
  double began_ = 0;                                                  // when the last window did
  double saved_ = 0;                                                  // when
  std::unique_ptr<BulkReader> reader_;                                // last: ends before the slots
};

}  // namespace strata
