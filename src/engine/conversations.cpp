#include "engine/conversations.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/memory.h"

namespace strata {
namespace {

constexpr std::chrono::seconds kFlushTime{20};

std::uint64_t ram_limit(const CacheOptions& options) {
  return options.ram_bytes.value_or(available_memory() / 10);
}

}  // namespace

Conversations::Conversations(Forward& forward, const Backend& backend, const CacheOptions& options,
                             std::uint64_t identity)
    : forward_(forward), options_(options), store_(ram_limit(options), backend.page_bytes()) {
  if (options.folder.empty() || options.disk_bytes == 0) return;
  ConversationFilesOptions files;
  files.folder = options.folder;
  files.budget_bytes = options.disk_bytes;
  files.shape.model = identity;
  files.shape.page_tokens = backend.page_tokens();
  files.shape.page_bytes = backend.page_bytes();
  files.shape.state_bytes = forward.saved_state_bytes();
  auto opened = ConversationFiles::open(files);
  if (!opened) {
    log_warning("conversations are not kept on the disk: {}", opened.error().message);
    return;
  }
  files_ = std::move(*opened);
  store_.on_evict([this](Sequence& sequence) { save(sequence); });
}

Conversations::~Conversations() {
  if (!files_) return;
  store_.save_some(ConversationStore::kMostCheckpoints);
  if (!files_->flush(kFlushTime))
    log_warning("some conversations were not written to the disk in {} s", kFlushTime.count());
}

void Conversations::save(Sequence& sequence) {
  auto saved = forward_.save(sequence);
  if (!saved) {
    log_debug("a conversation of {} tokens is not saved: {}", sequence.tokens(),
              saved.error().message);
    return;
  }
  files_->save({std::move(saved->tokens), std::move(saved->state), std::move(saved->pages)});
}

std::unique_ptr<ConversationLoad> Conversations::load(std::span<const TokenId> prompt,
                                                      std::function<void()> wake) {
  if (!files_) return nullptr;
  const std::uint32_t on_disk = files_->longest(prompt);
  if (on_disk < store_.longest(prompt) + std::max(options_.gap, 1u)) return nullptr;
  return files_->load(prompt, std::move(wake));
}

Result<Conversations::Start> Conversations::start(std::span<const TokenId> prompt,
                                                  ConversationLoad* load) {
  if (load) {
    auto point = load->take();
    if (point) {
      const auto tokens = static_cast<std::uint32_t>(point->tokens.size());
      auto sequence = forward_.restore(
          {std::move(point->tokens), std::move(point->state), std::move(point->pages)});
      if (sequence) {
        if (auto copy = forward_.fork(*sequence)) keep(std::move(*copy), true);
        return Start{std::move(*sequence), tokens, tokens};
      }
      log_warning("a conversation from the disk is not used: {}", sequence.error().message);
    }
  }
  STRATA_ASSIGN(Sequence sequence, store_.start(forward_, prompt));
  const std::uint32_t cached = sequence.tokens();
  return Start{std::move(sequence), cached, 0};
}

void Conversations::keep(Sequence sequence, bool saved) {
  if (sequence.tokens() < options_.gap) return;
  store_.keep(std::move(sequence), saved);
}

bool Conversations::save_some() {
  return files_ && store_.save_some(1);
}

EngineCounters::Cache Conversations::counters() const {
  EngineCounters::Cache counters;
  counters.bytes = store_.bytes();
  counters.limit = store_.limit();
  counters.checkpoints = store_.checkpoints();
  counters.evicted = store_.evicted();
  if (!files_) return counters;
  const ConversationFilesCounters files = files_->counters();
  counters.disk_bytes = files.bytes;
  counters.disk_limit = options_.disk_bytes;
  counters.disk_checkpoints = files.points;
  counters.disk_misses = files.missed;
  return counters;
}

}  // namespace strata
