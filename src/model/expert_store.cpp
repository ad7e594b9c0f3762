#include "model/expert_store.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages_ahead.h"

namespace strata {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kReadBytes = std::size_t{1} << 20;  // of one read
constexpr double kSaveSeconds = 600;
constexpr std::size_t kVictims = 64;  // slots of the core that are looked at for the least used

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kReadPage - 1) / kReadPage * kReadPage;
}

// Pages for a matrix, wherever in a page it begins.
std::size_t room_for(const ExpertMatrices& matrices) {
  return whole_pages(matrices.bytes() + kReadPage - 1);
}

std::uint32_t stream_slots(const std::vector<const ExpertsWeights*>& layers) {
  std::uint32_t used = 1;
  for (const ExpertsWeights* layer : layers) used = std::max(used, layer->shape.used);
  return 3 * used + 2;
}

}  // namespace

// --- memory -------------------------------------------------------------------------------------

std::uint64_t ExpertStore::slot_bytes(const std::vector<const ExpertsWeights*>& layers) {
  std::size_t gate = 0, up = 0, down = 0;
  for (const ExpertsWeights* layer : layers) {
    gate = std::max(gate, room_for(layer->gate));
    up = std::max(up, room_for(layer->up));
    down = std::max(down, room_for(layer->down));
  }
  return gate + up + down;
}

std::uint64_t ExpertStore::least_bytes(const std::vector<const ExpertsWeights*>& layers) {
  return stream_slots(layers) * slot_bytes(layers);
}

void ExpertStore::lay_out(const std::vector<const ExpertsWeights*>& layers) {
  std::size_t room[3] = {};
  for (const ExpertsWeights* weights : layers) {
    const ExpertMatrices* matrices[3] = {&weights->gate, &weights->up, &weights->down};
    Layer& layer = layers_.emplace_back();
    std::uint64_t bytes = 0;
    for (std::size_t p = 0; p < 3; ++p) {
      const ExpertMatrices& m = *matrices[p];
      layer.pieces[p] = {m.part, m.file_offset, m.stride_bytes(), m.bytes()};
      room[p] = std::max(room[p], room_for(m));
      bytes += m.bytes();
    }
    counters_.total_bytes += bytes * weights->gate.count;
    layer_of_.insert(layer_of_.end(), weights->gate.count,
                     static_cast<std::uint32_t>(layers_.size() - 1));
  }
  region_[1] = room[0];
  region_[2] = room[0] + room[1];
  slot_bytes_ = room[0] + room[1] + room[2];
}

Status ExpertStore::allocate() {
  const std::size_t experts = layer_of_.size();
  const std::size_t count =
      std::min<std::uint64_t>(options_.bytes / slot_bytes_, experts + options_.stream);
  if (count < options_.stream) {
    return fail(ErrorCode::exhausted,
                "{} MiB for experts hold {} of them; {} are on their way at a time, so at least {} "
                "MiB are needed",
                options_.bytes >> 20, count, options_.stream,
                (options_.stream * slot_bytes_ >> 20) + 1);
  }
  STRATA_ASSIGN(memory_, LargeMemory::allocate(count * slot_bytes_, "experts"));
  if (options_.lock) STRATA_TRY(memory_->lock());
  counters_.resident_bytes = count * slot_bytes_;
  slots_.resize(count);
  where_.assign(experts, kNone);
  const std::size_t keeping = count - options_.stream;
  for (std::uint32_t s = 0; s < count; ++s) {
    Slot& slot = slots_[s];
    slot.group = s < keeping ? Group::core : Group::stream;
    slot.list = s < keeping ? &held_ : &idle_;
    slot.place = slot.list->insert(slot.list->end(), s);
    if (s < keeping) core_.push_back(s);
  }
  return {};
}

Result<std::shared_ptr<ExpertStore>> ExpertStore::open(
    FileSystem& files, const std::vector<std::string>& paths,
    const std::vector<const ExpertsWeights*>& layers, std::uint64_t model,
    ExpertStoreOptions options) {
  std::vector<std::uint32_t> counts;
  for (const ExpertsWeights* layer : layers) counts.push_back(layer->gate.count);
  if (options.stream == 0) options.stream = stream_slots(layers);
  try {
    std::shared_ptr<ExpertStore> store(
        new ExpertStore(ExpertProfile(model, std::move(counts)), std::move(options)));
    store->files_ = &files;
    store->lay_out(layers);
    STRATA_TRY(store->allocate());
    if (const std::string& path = store->options_.profile_path; !path.empty()) {
      const Status read = store->profile_.load(files, path);
      if (!read && read.error().code != ErrorCode::not_found)
        log_warning("experts are learned anew: {}", read.error().message);
      if (!read && read.error().code == ErrorCode::unsupported)
        store->options_.profile_path.clear();  // somebody else's file
    }
    STRATA_TRY(store->read_hottest(files, paths));
    const BulkReader::Options reading{store->options_.direct, store->options_.depth};
    STRATA_ASSIGN(store->reader_, BulkReader::open(files, paths, reading));
    store->saved_ = monotonic_seconds();
    return store;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for the list of experts");
  }
}

ExpertStore::~ExpertStore() {
  if (profile_.learned())
    if (const Status saved = save_profile(); !saved) log_warning("{}", saved.error().message);
}

Status ExpertStore::save_profile() {
  saved_ = monotonic_seconds();
  if (options_.profile_path.empty()) return {};
  try {
    return profile_.save(*files_, options_.profile_path);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory to save an expert profile");
  }
}

// What was used most is there from the start; of equals the first of each layer.
Status ExpertStore::read_hottest(FileSystem& files, const std::vector<std::string>& paths) {
  const std::size_t keeping = std::min(slots_.size() - options_.stream, where_.size());
  std::vector<std::uint32_t> ids(where_.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::sort(ids.begin(), ids.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (profile_.heat(a) != profile_.heat(b)) return profile_.heat(a) > profile_.heat(b);
    return expert_of(a) != expert_of(b) ? expert_of(a) < expert_of(b) : a < b;
  });
  ids.resize(keeping);
  std::sort(ids.begin(), ids.end());  // layer by layer, as the file has them
  STRATA_ASSIGN(const auto reader,
                BulkReader::open(files, paths, {options_.direct, options_.depth}));
  for (std::uint32_t i = 0; i < keeping; ++i) start_read(*reader, core_[i], ids[i]);
  const PagesAhead pages({{memory_->data(), keeping * slot_bytes_}});
  const std::uint64_t total = counters_.read_bytes;
  for (double heard = monotonic_seconds(); reader->busy();) {
    const auto all = reader->wait(std::chrono::seconds(1));
    for (const BulkReader::Ended& read : all) {
      STRATA_TRY(read.status);
      Slot& slot = slots_[read.owner];
      if (--slot.reads == 0) slot.state = State::ready;
    }
    if (options_.progress) options_.progress(reader->bytes(), total);
    if (!all.empty()) heard = monotonic_seconds();
    if (const double silent = monotonic_seconds() - heard;
        silent * 1000 > static_cast<double>(options_.patience.count()))
      return fail(ErrorCode::io, "the disk has not answered for {:.0f} s", silent);
  }
  counters_.read_bytes = 0;
  return {};
}

// --- slots --------------------------------------------------------------------------------------

std::uint32_t ExpertStore::expert_of(std::uint32_t id) const {
  return id - static_cast<std::uint32_t>(profile_.id(layer_of_[id], 0));
}

// Bytes before a matrix in its first page.
std::size_t ExpertStore::head(std::uint32_t id, std::size_t piece) const {
  const Piece& p = layers_[layer_of_[id]].pieces[piece];
  return (p.offset + std::uint64_t{expert_of(id)} * p.stride) % kReadPage;
}

void ExpertStore::start_read(BulkReader& reader, std::uint32_t index, std::uint32_t id) {
  Slot& slot = slots_[index];
  slot.id = id;
  slot.state = State::reading;
  slot.failure = {};
  where_[id] = index;
  for (std::size_t p = 0; p < 3; ++p) {
    const Piece& piece = layers_[layer_of_[id]].pieces[p];
    const auto range =
        PageRange::around(piece.offset + std::uint64_t{expert_of(id)} * piece.stride, piece.bytes);
    const std::span<std::byte> place(memory_->data() + index * slot_bytes_ + region_[p],
                                     range.size);
    for (std::size_t at = 0; at < range.size; at += kReadBytes) {
      const std::size_t size = std::min(kReadBytes, range.size - at);
      const std::size_t wanted = std::min(size, range.head + piece.bytes - at);
      reader.start({index, piece.part, range.first + at, place.subspan(at, size), wanted});
      ++slot.reads;
      counters_.read_bytes += wanted;
    }
  }
}

void ExpertStore::move(std::uint32_t index, Order& to, bool first) {
  Slot& slot = slots_[index];
  to.splice(first ? to.begin() : to.end(), *slot.list, slot.place);  // needs no memory
  slot.list = &to;
}

// Whatever the slot holds is not to be found any more.
void ExpertStore::forget(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.id != kNone) where_[slot.id] = kNone;
  slot.id = kNone;
  slot.state = State::empty;
  slot.ahead = false;
  slot.failure = {};
}

std::uint32_t ExpertStore::free_slot() {
  if (idle_.empty()) return kNone;
  const std::uint32_t slot = idle_.front();
  forget(slot);
  move(slot, held_);
  return slot;
}

// Reads what is missing, as far as there are slots.
void ExpertStore::fill() {
  while (!missing_.empty()) {
    const std::uint32_t slot = free_slot();
    if (slot == kNone) break;
    const std::uint32_t expert = missing_.back();
    missing_.pop_back();
    slots_[slot].pinned = true;
    start_read(*reader_, slot, static_cast<std::uint32_t>(profile_.id(layer_, expert)));
    reading_.push_back({expert, slot});
  }
  reader_->begin();
}

void ExpertStore::ended(const BulkReader::Ended& read) {
  Slot& slot = slots_[read.owner];
  if (!read.status && slot.failure) {
    slot.failure =
        with_context(read.status.error(),
                     fmt::format("expert {} of layer {}", expert_of(slot.id), layer_of_[slot.id]));
  }
  if (--slot.reads > 0) return;
  slot.state = State::ready;
  if (slot.pinned) return;
  if (!slot.failure) forget(read.owner);
  move(read.owner, idle_);
}

// Whether anything ended.
bool ExpertStore::wait(microseconds timeout) {
  const auto all = reader_->wait(timeout);
  for (const BulkReader::Ended& read : all) ended(read);
  return !all.empty();
}

// The pass is done with a slot.
void ExpertStore::release(std::uint32_t index) {
  Slot& slot = slots_[index];
  slot.pinned = false;
  if (slot.state == State::reading) return;  // goes among the idle ones when its reads have ended
  if (!slot.failure) {
    forget(index);
    if (slot.group == Group::stream) move(index, idle_, true);
    return;
  }
  if (slot.group == Group::core) return;
  if (decode_) {
    keep(index);
  } else {
    move(index, idle_, true);  // a prompt's are the first to be written over
  }
}

// A slot of the stream becomes one of the core if its expert is used more than the least used one
// there, whose slot becomes one of the stream. Of a large core some slots are looked at.
void ExpertStore::keep(std::uint32_t index) {
  const auto score = [&](std::uint32_t slot) {
    return slots_[slot].state == State::empty ? -1.0 : profile_.score(slots_[slot].id);
  };
  const bool all = core_.size() <= kVictims;
  std::size_t victim = core_.size();
  double least = score(index);
  for (std::size_t i = 0; i < std::min(core_.size(), kVictims); ++i) {
    const std::size_t place = all ? i : random_() % core_.size();
    const Slot& slot = slots_[core_[place]];
    if (slot.pinned || slot.state == State::reading || score(core_[place]) >= least) continue;
    least = score(core_[place]);
    victim = place;
  }
  if (victim == core_.size()) return move(index, idle_);
  const std::uint32_t out = core_[victim];
  slots_[out].group = Group::stream;
  move(out, idle_, slots_[out].state == State::empty);
  slots_[index].group = Group::core;
  move(index, held_);
  core_[victim] = index;
}

// --- passes -------------------------------------------------------------------------------------

// A pass that was not taken to its end.
void ExpertStore::abandon() {
  for (auto* some : {&group_, &hits_, &reading_}) {
    for (const Wanted& wanted : *some)
      if (wanted.slot != kNone) release(wanted.slot);
    some->clear();
  }
  missing_.clear();
  guesses_.clear();
}

void ExpertStore::begin(std::uint32_t layer, std::span<const ExpertUse> uses, bool decode) {
  abandon();
  layer_ = layer;
  decode_ = decode;
  failure_ = {};
  if (decode && layer == 0) now_and_then();
  std::uint32_t choices = 0;
  for (const ExpertUse& use : uses) {
    const std::size_t id = profile_.id(layer, use.expert);
    choices += use.rows;
    if (decode) profile_.used(id, use.rows);
    const std::uint32_t index = where_[id];
    if (index == kNone) {
      missing_.push_back(use.expert);
      continue;
    }
    Slot& slot = slots_[index];
    slot.pinned = true;
    if (slot.group == Group::stream && slot.state == State::ready) move(index, held_);
    (slot.state == State::ready ? hits_ : reading_).push_back({use.expert, index});
  }
  if (decode && layer == 0) profile_.passed(choices);
  std::reverse(missing_.begin(), missing_.end());
  fill();
}

void ExpertStore::count(const Wanted& wanted) {
  Slot& slot = slots_[wanted.slot];
  if (slot.ahead) {
    ++counters_.ahead_hits;
    slot.ahead = false;
  } else if (slot.group == Group::core) {
    ++counters_.core_hits;
  } else {
    ++counters_.recent_hits;
  }
}

// Those on their way that are there now, as many as may be in use while others are read.
bool ExpertStore::take_arrived() {
  const std::size_t most = std::max<std::size_t>(1, options_.stream / 2);
  std::erase_if(reading_, [&](const Wanted& wanted) {
    Slot& slot = slots_[wanted.slot];
    if (group_.size() >= most || slot.state == State::reading) return false;
    group_.push_back(wanted);
    if (!slot.failure) {
      ++counters_.failed;
      if (failure_) failure_ = slot.failure;
    } else if (slot.ahead) {
      count(wanted);
    } else {
      ++counters_.misses;
    }
    return true;
  });
  return !group_.empty();
}

// What has not come will not come.
void ExpertStore::give_up(const Status& why) {
  for (const Wanted& wanted : reading_) {
    release(wanted.slot);
    group_.push_back({wanted.expert, kNone});
  }
  for (const std::uint32_t expert : missing_) group_.push_back({expert, kNone});
  counters_.failed += group_.size();
  reading_.clear();
  missing_.clear();
  if (failure_) failure_ = why;
}

std::span<const ExpertBlob> ExpertStore::next() {
  for (const Wanted& wanted : group_)
    if (wanted.slot != kNone) release(wanted.slot);
  group_.clear();
  blobs_.clear();
  fill();
  if (!hits_.empty()) {
    for (const Wanted& wanted : hits_) count(wanted);
    group_.swap(hits_);
  } else if (!reading_.empty()) {
    wait(microseconds(0));
  }
  const double start = monotonic_seconds();
  double heard = start;
  while (group_.empty() && !take_arrived() && !(reading_.empty() && missing_.empty())) {
    if (!reader_->busy()) {
      give_up(fail(ErrorCode::internal, "no slot can be had for an expert of layer {}", layer_));
      break;
    }
    if (wait(std::chrono::milliseconds(100))) {
      heard = monotonic_seconds();
      fill();
    } else if (const double silent = monotonic_seconds() - heard;
               silent * 1000 > static_cast<double>(options_.patience.count())) {
      give_up(fail(ErrorCode::io,
                   "the disk has not answered for {:.0f} s while experts of layer {} "
                   "were read",
                   silent, layer_));
    }
  }
  counters_.wait_microseconds += static_cast<std::uint64_t>(1e6 * (monotonic_seconds() - start));
  if (reading_.empty() && missing_.empty()) send_ahead();
  for (const Wanted& wanted : group_) {
    ExpertBlob& blob = blobs_.emplace_back(ExpertBlob{wanted.expert, nullptr, nullptr, nullptr});
    if (wanted.slot == kNone || !slots_[wanted.slot].failure) continue;
    const std::byte* slot = memory_->data() + wanted.slot * slot_bytes_;
    const std::uint32_t id = slots_[wanted.slot].id;
    blob.gate = slot + region_[0] + head(id, 0);
    blob.up = slot + region_[1] + head(id, 1);
    blob.down = slot + region_[2] + head(id, 2);
  }
  return blobs_;
}

// The likeliest first. They wait until what is needed now has come: the disk serves that alone.
void ExpertStore::prefetch(std::uint32_t layer, std::span<const std::uint32_t> experts) {
  guesses_.clear();
  if (layer >= layers_.size()) return;
  for (const std::uint32_t expert : experts) {
    const auto id = static_cast<std::uint32_t>(profile_.id(layer, expert));
    if (where_[id] != kNone) continue;
    if (guesses_.size() == kDepths[depth_]) break;
    guesses_.push_back(id);
  }
}

// Into idle slots only, and never so many that the next pass would have none.
void ExpertStore::send_ahead() {
  const std::size_t reserve = options_.stream / 3;
  for (const std::uint32_t id : guesses_) {
    if (where_[id] != kNone) continue;
    if (idle_.size() <= reserve) break;
    const std::uint32_t slot = free_slot();
    slots_[slot].ahead = true;
    start_read(*reader_, slot, id);
    ++counters_.asked_ahead;
  }
  guesses_.clear();
  reader_->begin();
}

ExpertLifetime ExpertStore::lifetime(std::uint32_t layer, std::uint32_t expert) const {
  const std::uint32_t slot = where_[profile_.id(layer, expert)];
  const bool stays = slot != kNone && slots_[slot].group != Group::stream;
  return stays ? ExpertLifetime::resident : ExpertLifetime::transient;
}

// --- what is learned ----------------------------------------------------------------------------

// What guesses save is waiting for the disk; what they cost is the guessing, and reads that nobody
// needs. Medians, so that a pause between windows does not count.
void ExpertStore::choose_ahead() {
  constexpr std::uint32_t kTurn = 4, kTrial = kTrials * kDepthCount, kSettled = 4096;
  if (!options_.look_ahead) return;
  const double now = monotonic_seconds(), took = now - std::exchange(began_, now);
  if (trial_ == 0) {
    if (--settled_ > 0) return;
    trial_ = kTrial;
    depth_ = 0;
    return;
  }
  const std::uint32_t window = kTrial - trial_;
  seconds_[depth_][window / (kTurn * kDepthCount) * kTurn + window % kTurn] =
      static_cast<float>(took);
  if (--trial_ % kTurn == 0) depth_ = (depth_ + 1) % kDepthCount;
  if (trial_ > 0) return;
  std::array<float, kDepthCount> medians;
  for (std::size_t d = 0; d < kDepthCount; ++d) {
    const auto middle = seconds_[d].begin() + kTrials / 2;
    std::nth_element(seconds_[d].begin(), middle, seconds_[d].end());
    medians[d] = *middle;
  }
  depth_ = 0;  // none, if it is as good
  for (std::size_t d = 1; d < kDepthCount; ++d)
    if (medians[d] < (depth_ == 0 ? medians[0] * 0.98f : medians[depth_])) depth_ = d;
  settled_ = kSettled;
  log_debug("{} guesses a layer are read ahead: {:.2f} ms a window, {:.2f} ms without",
            kDepths[depth_], 1e3f * medians[depth_], 1e3f * medians[0]);
}

void ExpertStore::now_and_then() {
  choose_ahead();
  if (monotonic_seconds() - saved_ < kSaveSeconds) return;
  if (const Status saved = save_profile(); !saved) log_warning("{}", saved.error().message);
}

}  // namespace strata
