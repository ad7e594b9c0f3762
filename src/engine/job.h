// A request on its way through the engine. Internal to the engine.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/answer_watch.h"
#include "engine/constraints.h"
#include "engine/conversation_files.h"
#include "engine/draft_policy.h"
#include "engine/engine.h"
#include "engine/lookup.h"
#include "engine/sampling_chain.h"
#include "model/forward.h"

namespace strata {

// Tokens guessed for one round.
struct Guesses {
  std::vector<TokenId> tokens;
  std::vector<GuessKind> kinds;  // of each
  bool trial = false;            // although it does not seem to pay
};

struct Job {
  RequestId id = 0;
  Request request;  // without its prompt
  std::shared_ptr<Listener> listener;
  std::uint32_t limit = 0;  // tokens it may generate
  std::vector<TokenId>
      tokens;                // the prompt, then all that was picked; the last one is not read yet
  std::uint32_t prompt = 0;  // of them

  std::uint32_t read = 0;            // tokens that stand in the caches
  std::optional<Sequence> sequence;  // once it runs
  std::unique_ptr<ConversationLoad> load;
  bool loading = false;             // it waits for the disk or another request's prompt
  RequestId joined = 0;             // whose prompt begins as this one's and is being read; 0: none
  std::uint32_t join_at = 0;        // how far it must have got
  bool starved = false;             // there is no memory for it until another ends
  std::uint32_t reserved = 0;       // tokens that it has memory for
  std::vector<std::uint32_t> cuts;  // positions where a prompt's window ends, ascending
  std::uint32_t tail = 0;           // last rows of the prompt, before which a checkpoint is taken
  std::optional<bool> is_long;      // more than a chunk of its prompt was to be read at first
  std::shared_ptr<const PendingGrammar> grammar;  // until it starts; null: none
  SamplingChain chain;
  AnswerWatch watch;

  DepthChances chances{};
  Lookup lookup;
  Guesses guesses;
  std::vector<TokenId> window;  // rows of this round: the next token, then the guesses

  Completion completion;
  double submitted = 0, admitted = 0, decoding_since = 0;  // seconds
  std::optional<std::uint32_t> ahead;                      // last reported by Listener::queued
  bool cancelled = false;

  // What it needs of one is there, or known to be impossible.
  bool has_grammar() const { return !grammar || grammar->ready(); }
  bool decoding() const { return read >= prompt; }
  std::uint32_t generated() const { return static_cast<std::uint32_t>(tokens.size()) - prompt; }
};

}  // namespace strata
