#include "engine/conversations.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

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
  shape_ = {identity, backend.page_tokens(), backend.page_bytes(), forward.saved_state_bytes()};
  if (options.folder.empty() || options.disk_bytes == 0) return;
  ConversationFilesOptions files;
  files.folder = options.folder;
  files.budget_bytes = options.disk_bytes;
  files.shape = shape_;
  auto opened = ConversationFiles::open(files);
  if (!opened) {
    log_warning("conversations are not kept on the disk: {}", opened.error().message);
    return;
  }
  files_ = std::move(*opened);
  store_.on_evict([this](Sequence& sequence) { save(sequence); });
}

Conversations::~Conversations() {
  clerk_.stop();
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

// Files of their own ------------------------------------------------------------------------------

namespace {

// Tokens, and one that a search for a longer prompt may leave over.
std::vector<TokenId> with_one_more(const std::vector<TokenId>& tokens) {
  std::vector<TokenId> more = tokens;
  more.push_back(0);
  return more;
}

// The point of a load that is under way.
Result<SavedPoint> wait_for(ConversationLoad& load) {
  const auto until = std::chrono::steady_clock::now() + kFlushTime;
  while (!load.ready() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return load.take();
}

}  // namespace

void Conversations::handle(ConversationTask task, const Post& post, ConversationDone done) {
  if (task.kind == ConversationTask::Kind::save)
    return save_whole(std::move(task), std::move(done));
  if (task.kind == ConversationTask::Kind::restore)
    return restore_whole(task, post, std::move(done));
  forget(std::move(task), std::move(done));
}

void Conversations::save_whole(ConversationTask task, ConversationDone done) {
  auto copies = store_.copy(forward_, task.tokens);
  if (!copies) return done(tl::unexpected<Error>(copies.error()));
  const std::size_t in_memory = copies->empty() ? 0 : copies->front().tokens.size();
  std::shared_ptr<ConversationLoad> load;
  const std::vector<TokenId> more = with_one_more(task.tokens);
  if (files_ && files_->longest(more) > in_memory) load = files_->load(more, [] {});
  if (!load && copies->empty()) {
    return done(fail(ErrorCode::not_found,
                     "nothing of this conversation of {} tokens is kept any more; it is too short, "
                     "or others took its room (cache_ram)",
                     task.tokens.size()));
  }
  auto whole = std::make_shared<WholeConversation>();
  if (!copies->empty()) {
    SavedSequence& end = copies->front();
    whole->end = {std::move(end.tokens), std::move(end.state), std::move(end.pages)};
  }
  if (copies->size() > 1) {
    whole->before_tokens = static_cast<std::uint32_t>((*copies)[1].tokens.size());
    whole->before_state = std::move((*copies)[1].state);
  }
  clerk_.post([shape = shape_, path = std::move(task.path), load, whole, done = std::move(done)] {
    if (load) {
      if (auto point = wait_for(*load)) {
        whole->end = std::move(*point);
        whole->before_tokens = 0;
      } else if (whole->end.tokens.empty()) {
        return done(tl::unexpected<Error>(point.error()));
      }
    }
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == path.npos ? "." : path.substr(0, slash);
    auto bytes = write_whole(real_files(), folder, path.substr(slash == path.npos ? 0 : slash + 1),
                             shape, *whole);
    if (!bytes) return done(tl::unexpected<Error>(bytes.error()));
    done(ConversationResult{whole->end.tokens, *bytes});
  });
}

void Conversations::restore_whole(const ConversationTask& task, const Post& post,
                                  ConversationDone done) {
  WholeLimits limits;
  limits.bytes = std::min(store_.limit(), available_memory());
  clerk_.post([this, limits, path = task.path, post, done = std::move(done)] {
    auto read =
        std::make_shared<Result<ReadConversation>>(read_whole(real_files(), path, shape_, limits));
    if (!*read) return done(tl::unexpected<Error>(read->error()));
    post([this, read, done] { done(take_in(std::move(**read))); });
  });
}

// Both points, or nothing.
Result<ConversationResult> Conversations::take_in(ReadConversation read) {
  WholeConversation& whole = read.conversation;
  const std::vector<TokenId> tokens = whole.end.tokens;
  std::optional<Sequence> before;
  if (whole.before_tokens > 0) {
    SavedSequence saved{
        {tokens.begin(), tokens.begin() + whole.before_tokens}, whole.before_state, {}};
    saved.pages.assign(
        whole.end.pages.begin(),
        whole.end.pages.begin() + static_cast<std::ptrdiff_t>(shape_.pages(whole.before_tokens)));
    STRATA_ASSIGN(before, forward_.restore(saved));
  }
  STRATA_ASSIGN(Sequence end,
                forward_.restore({tokens, std::move(whole.end.state), std::move(whole.end.pages)}));
  if (before) store_.keep(std::move(*before), false);
  store_.keep(std::move(end), false);
  if (store_.longest(with_one_more(tokens)) != tokens.size()) {
    return fail(ErrorCode::exhausted,
                "the conversation of {} tokens has no room beside the others; start with more "
                "--cache-ram",
                tokens.size());
  }
  return ConversationResult{tokens, read.bytes};
}

void Conversations::forget(ConversationTask task, ConversationDone done) {
  const auto forgotten = store_.forget(task.tokens);
  std::vector<TokenId> longest = forgotten.empty() ? std::vector<TokenId>() : forgotten.front();
  const std::vector<TokenId> more = with_one_more(task.tokens);
  const std::uint32_t left = store_.longest(more);
  if (!files_) return done(ConversationResult{std::move(longest), 0});
  for (const auto& tokens : forgotten) files_->forget(tokens);
  // What only the disk has of it, as far as no other conversation in memory begins with it.
  clerk_.post([this, more, left, longest = std::move(longest), done = std::move(done)]() mutable {
    constexpr int kMostPoints = 64;
    for (int i = 0; i < kMostPoints && files_->flush(kFlushTime); ++i) {
      const std::uint32_t there = files_->longest(more);
      if (there <= left) break;
      const auto tokens = std::span<const TokenId>(more).first(there);
      if (tokens.size() > longest.size()) longest.assign(tokens.begin(), tokens.end());
      files_->forget(tokens);
    }
    done(ConversationResult{std::move(longest), 0});
  });
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
