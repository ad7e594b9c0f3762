// All conversations that a request may go on from: those in memory (conversation_store.h) and those
// on the disk (conversation_files.h). What leaves memory goes to the disk, and what is worth it
// when there is nothing else to do. Internal to the engine; belongs to its thread.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/serial_worker.h"
#include "engine/conversation_files.h"
#include "engine/conversation_store.h"
#include "engine/engine.h"
#include "model/forward.h"

namespace strata {

class Conversations {
 public:
  // `identity`: of the model and all else that changes bits. A folder that cannot be used costs a
  // line in the log.
  Conversations(Forward& forward, const Backend& backend, const CacheOptions& options,
                std::uint64_t identity);
  ~Conversations();  // writes what the disk does not have yet, for some seconds

  // Asks the disk for the prompt's beginning, if it has much more of it than memory; else null.
  std::unique_ptr<ConversationLoad> load(std::span<const TokenId> prompt,
                                         std::function<void()> wake);
  bool keeps_any() const { return store_.limit() > 0; }
  std::uint32_t cached(std::span<const TokenId> prompt) const { return store_.longest(prompt); }
  struct Start {
    Sequence sequence;
    std::uint32_t cached = 0, from_disk = 0;  // tokens of it that were read before
  };
  // A sequence for the prompt: from what was loaded, from memory, or a new one.
  Result<Start> start(std::span<const TokenId> prompt, ConversationLoad* load);

  // Takes in a sequence that was settled.
  void keep(Sequence sequence, bool saved = false);
  // Drops the least useful ones in memory until `bytes` are free; what it could free.
  std::uint64_t free(std::uint64_t bytes) { return store_.free(bytes); }
  // As Engine::conversation. Files are written and read on a thread of their own; `post` brings a
  // function back to this one.
  using Post = std::function<void(std::function<void()>)>;
  void handle(ConversationTask task, const Post& post, ConversationDone done);
  void finish_files() { clerk_.stop(); }  // what handle() has begun is with `post`

  // Nothing runs: something that only memory has goes to the disk. False when there was nothing.
  bool save_some();

  EngineCounters::Cache counters() const;

 private:
  void save(Sequence& sequence);
  void save_whole(ConversationTask task, ConversationDone done);
  void restore_whole(const ConversationTask& task, const Post& post, ConversationDone done);
  Result<ConversationResult> take_in(ReadConversation read);
  void forget(ConversationTask task, ConversationDone done);

  Forward& forward_;
  CacheOptions options_;
  ConversationShape shape_;
  ConversationStore store_;
  std::unique_ptr<ConversationFiles> files_;  // null: no disk
  SerialWorker clerk_;                        // last: its work uses the files
};

}  // namespace strata
