// The engine: token ids in, token events out. Subcommands, tests and the server use the model only
// through this header; it knows nothing of templates, dialects or HTTP.
//
// What callers may rely on
// - submit(), cancel(), facts() and counters() may be called from any thread, also from inside a
//   listener. They never wait for the model.
// - Listener calls for one request come from one thread at a time, in order: queued*, started,
//   progress* and prompt_chances*, token* (each after its chances), then exactly one finished(),
//   which may also come before any of them. After finished() the engine drops its reference.
// - Same tokens: greedy and seeded output of a request depends on its prompt, sampling and the
//   model alone, never on drafts, caches, other requests, chunk sizes, windows or threads.
// - A request hears nothing before its grammar is compiled, and only finished() if that fails.
// - Requests are admitted first come first served; who still waits for a grammar lets others by.
//   Memory for all that a request may become is reserved before it starts; it waits for it, or is
//   refused if it could never be had.
// - Prompts are read in chunks beside the decoding of others (scheduler.h states the bounds).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "compute/expert_source.h"
#include "compute/kv_type.h"
#include "gguf/gguf.h"
#include "model/residence.h"
#include "ple/open_table.h"
#include "tokenizer/tokenizer.h"

namespace strata {

// Applied in this order: biases of the request, penalties, DRY, banned strings, the grammar
// (sampling_chain.h), then top_k, top_p, min_p, temperature and the pick.
struct Sampling {
  float temperature = 0.0f;  // 0 = greedy (lowest id wins ties)
  std::int32_t top_k = 0;    // 0 = all
  float top_p = 1.0f;        // 1 = off
  float min_p = 0.0f;        // 0 = off
  std::uint64_t seed = 0;    // counter-based generator keyed by (seed, position)
  // Penalties on the tokens among the last `penalty_last_n` of the sequence, prompt included: the
  // logit is divided by `repetition_penalty` (multiplied, if negative), then loses
  // `frequency_penalty` for each occurrence and `presence_penalty` once.
  float repetition_penalty = 1.0f;   // 1 = off
  float frequency_penalty = 0.0f;    // 0 = off
  float presence_penalty = 0.0f;     // 0 = off
  std::int32_t penalty_last_n = 64;  // 0 = none, -1 = all
};
// The sentence that names the field, its value and the allowed range, or success.
Status validate(const Sampling& sampling);

// "Don't repeat yourself": a token that would make the end of the sequence repeat an earlier run of
// `length` tokens, at least `allowed_length` of them, loses multiplier * base^(length -
// allowed_length). Runs do not reach over a token in which a breaker begins.
struct DryPenalty {
  float multiplier = 0;  // 0 = off
  float base = 1.75f;
  std::int32_t allowed_length = 2;
  std::int32_t last_n = -1;  // tokens looked at; -1 = all
  // At most kMaxBreakers, of 1 to kMaxBreakerBytes each.
  std::vector<std::string> breakers = {"\n", ":", "\"", "*"};
};
inline constexpr std::size_t kMaxBreakers = 64, kMaxBreakerBytes = 64;
Status validate(const DryPenalty& dry);

struct LogitBias {
  TokenId id = 0;
  float bias = 0;  // finite; kBan and less: never
};
inline constexpr float kBan = -100.0f;
inline constexpr std::uint32_t kMaxTopLogprobs = 20;

// Thinking that is brought to an end when it takes too long or leads nowhere: at the next token
// that ends no character in the middle and lies in no call, the engine writes the wrap-up itself,
// once an answer. It counts as output like any other token; where it would leave no room for an
// answer, the answer ends as `length` instead.
struct ThinkingLimit {
  TokenId open = -1, close = -1;            // the tokens around it
  bool begun = false;                       // the prompt ends inside it
  std::uint32_t budget = 0;                 // tokens; 0: none
  std::vector<TokenId> wrap_up;             // holds `close`; at most kMaxWrapUp
  TokenId call_open = -1, call_close = -1;  // the tokens around a call; -1: there are none
  // Written where the model would stop inside its thinking without any answer or call. Holds
  // `close`; empty: it may stop there.
  // (Its initializer lets designated ones leave it out.)
  std::vector<TokenId> closing = {};  // NOLINT(readability-redundant-member-init)
};
// What text that goes round in circles (loop_finder.h) leads to: nothing; the end of the answer as
// `length`; or, once, the wrap-up, where it is thinking that does so.
enum class LoopGuard : std::uint8_t { off, stop, recover };
std::string_view to_string(LoopGuard guard);
inline constexpr std::size_t kMaxWrapUp = 256;
inline constexpr std::size_t kMaxBannedStrings = 64, kMaxBannedBytes = 256;

struct Request {
  std::vector<TokenId> prompt;  // at least one id, all inside the vocabulary
  Sampling sampling;
  std::uint32_t max_tokens = 0;       // 0 = the room that is left in the context
  std::vector<TokenId> stop_ids;      // generation ends when one is sampled; it is not reported
  std::vector<LogitBias> logit_bias;  // at most one for an id, and not a ban of every id
  DryPenalty dry;
  // Texts that the answer must not hold: a token that would complete one is never picked. At most
  // kMaxBannedStrings, not empty, of kMaxBannedBytes at most.
  std::vector<std::string> banned_strings;
  // What may be generated, all of it, thinking included: a grammar text (constrain/gbnf.h) of at
  // most constrain::kMaxGrammarBytes; empty: anything. Stop ids come where the grammar can end, and
  // the answer ends where nothing else can follow. A grammar that cannot be compiled fails the
  // request with `invalid_argument` before its prompt is read.
  std::string grammar;
  // How many alternatives Listener::chances reports for each generated token; absent: none at all.
  std::optional<std::uint32_t> logprobs;
  bool prompt_logprobs = false;  // also for the prompt's tokens; reads it in small windows
  std::optional<ThinkingLimit> thinking;
  // One token so often in a row ends the answer as `length`; 0: off.
  std::uint32_t repeat_limit = 0;
  LoopGuard loop_guard = LoopGuard::off;
  // Most tokens guessed at a time, at most kMaxDrafts; absent: as the engine was started. Changes
  // the speed only.
  std::optional<std::uint32_t> drafts;
  // False: a one-shot request. It may start from the cache but leaves nothing in it.
  bool keep = true;
  // Who asks, in any numbers: grammars of different clients are compiled in turns.
  std::uint64_t client = 0;
};

// The model's own distribution at one position, before biases, penalties and temperature.
struct TokenChances {
  struct Chance {
    TokenId id = 0;
    float logprob = 0;  // natural
  };
  Chance chosen;
  std::vector<Chance> top;  // the likeliest first; ties by id
};

enum class FinishReason { stop, length, cancelled, error };
std::string_view to_string(FinishReason reason);

// Why the engine ended the thinking, if it did: its budget, a loop, or a stop inside it.
enum class ThinkingCut : std::uint8_t { none, budget, loop, stop };
std::string_view to_string(ThinkingCut cut);
// The guard that ended an answer as `length`, if one did.
enum class StoppedBy : std::uint8_t { none, repeat, loop };
std::string_view to_string(StoppedBy guard);

struct Completion {
  FinishReason reason = FinishReason::stop;
  Error error;  // when reason is error
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;       // of them not read again
  std::uint32_t cached_disk_tokens = 0;  // of these, from the disk
  std::uint32_t generated_tokens = 0;    // reported tokens; a stop id is not counted
  double queue_seconds = 0;
  double prompt_seconds = 0;
  double decode_seconds = 0;
  RowCounts ngram_rows;  // how the n-gram rows of its tokens were found
  ThinkingCut thinking_cut = ThinkingCut::none;
  StoppedBy stopped_by = StoppedBy::none;
  std::uint32_t rounds = 0;    // windows in which it was decoded
  std::uint32_t drafted = 0;   // tokens guessed in them
  std::uint32_t accepted = 0;  // of these, right
};

class Listener {
 public:
  virtual ~Listener() = default;
  // It waits, and `ahead` requests before it.
  virtual void queued(std::uint32_t ahead) { (void)ahead; }
  // It runs; `cached` tokens of its prompt need not be read.
  virtual void started(std::uint32_t cached) { (void)cached; }
  // Part of the prompt was read; `read` of `total` tokens stand in the caches now.
  virtual void progress(std::uint32_t read, std::uint32_t total) { (void)read, (void)total; }
  // Of a prompt's token (all but the first, in order), if Request::prompt_logprobs.
  virtual void prompt_chances(const TokenChances& chances) { (void)chances; }
  // Of the token that comes next, if Request::logprobs.
  virtual void chances(const TokenChances& chances) { (void)chances; }
  virtual void token(TokenId id) = 0;
  // No more tokens come before the next window is computed: what was held back to be sent together
  // should go now. Called after everything a window gave to anybody, but not after finished().
  virtual void window_over() {}
  virtual void finished(const Completion& completion) = 0;
};

using RequestId = std::uint64_t;

// Most tokens guessed at a time, for any setting.
inline constexpr std::uint32_t kMaxDrafts = 15;

// Where guesses of the next tokens come from: the model's draft block (MTP), earlier places of the
// same text, or whichever promises more.
enum class DraftSource : std::uint8_t { mtp, lookup, both };
std::string_view to_string(DraftSource source);
Result<DraftSource> parse_draft_source(std::string_view text);

struct DraftOptions {
  // Guesses each round; absent: as many as measurements say are worth it, zero included.
  std::optional<std::uint32_t> depth;
  DraftSource source = DraftSource::both;
  // Tokens that the draft block may guess: the usual ones (draft_vocabulary.h), or those of a file
  // of little-endian 32-bit ids.
  std::string vocabulary_path;
  // For tests and measurements: tokens that take the place of the draft block's guesses, whose work
  // is done all the same. Gets the tokens so far and how many are wanted; called by the engine's
  // thread.
  std::function<std::vector<TokenId>(std::span<const TokenId> tokens, std::uint32_t most)>
      test_guesses;
};

// Conversations that were read stay for the next request that begins with them.
struct CacheOptions {
  std::optional<std::uint64_t>
      ram_bytes;       // absent: a tenth of the memory that is free at the start
  std::string folder;  // where they survive a restart; empty: nowhere
  std::uint64_t disk_bytes = std::uint64_t{16} << 30;
  std::uint32_t every = 4096;  // prompt tokens between checkpoints, beside those at turns
  std::uint32_t gap = 32;      // fewest tokens that a checkpoint must save
};

struct EngineOptions {
  std::string model_path;
  std::uint32_t threads = 0;                   // 0 = usable CPUs
  std::uint32_t context = 0;                   // tokens a request may hold; 0 = the model's own
  std::uint32_t prompt_chunk = 512;            // rows of a prompt window, 1..2048
  std::uint32_t parallel = 4;                  // requests that may run at once
  std::uint32_t queue_limit = 256;             // requests that may wait; one more is refused
  TableOptions ngram_table;                    // how the n-gram tables are read
  Residence residence = Residence::automatic;  // of all other weights
  KvType kv_type = kDefaultKvType;             // how keys and values are stored
  ExpertRam expert_ram;                        // memory for experts; the others are read
  std::string expert_profile;     // file that remembers the most used ones (OpenOptions)
  bool expert_look_ahead = true;  // reads what the next layer will probably need
  bool lock_memory = false;       // weights are never swapped out
  // Bytes of weights read and to be read, while open() goes on.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  DraftOptions drafts;
  CacheOptions cache;
  std::string trace_path;     // JSON lines of every round (docs/trace.md); empty: none
  bool trace_append = false;  // behind those of an engine before
  // For tests: bytes of memory that are free, in the machine's place.
  std::function<std::uint64_t()> test_memory;
};

// Fixed while the engine lives.
struct EngineFacts {
  std::string model_name;
  std::string architecture;
  std::string model_path;
  std::uint32_t context = 0;     // tokens
  std::uint32_t vocabulary = 0;  // rows of the head
  std::uint32_t layers = 0;
  std::uint64_t parameters = 0;
  std::uint64_t weight_bytes = 0;
  std::uint32_t threads = 0;
  std::uint32_t parallel = 1;     // requests that may run at once
  std::string isa;                // of the kernels in use
  std::string kv_type;            // "f16"
  std::uint64_t token_bytes = 0;  // of a conversation's memory, that a token takes
  bool has_draft_block = false;
  std::string drafts;             // in words: "auto, from mtp and lookup", "off"
  Sampling default_sampling;      // the model file's own (general.sampling.*), else built-in
  std::vector<TokenId> stop_ids;  // the model file's own
};

// Whether an engine of these facts takes the request: `invalid_argument`, or `exhausted` when it
// does not fit the context.
Status check_request(const Request& request, const EngineFacts& facts);

struct EngineCounters {
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint64_t requests = 0;  // finished, any reason
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::vector<TableStats> ngram_tables;  // one for each layer that has one

  struct Drafts {
    std::uint64_t rounds = 0, drafted = 0, accepted = 0;
    std::array<std::uint64_t, kMaxDrafts> drafted_at{}, accepted_at{};  // by depth, from 1
  } drafts;
  struct Cache {
    std::uint64_t tokens = 0, disk_tokens = 0;  // of prompts, not read again; from the disk
    std::uint64_t bytes = 0, limit = 0;         // in memory
    std::uint64_t checkpoints = 0;              // that stand there
    std::uint64_t evicted = 0;
    std::uint64_t disk_bytes = 0, disk_limit = 0, disk_checkpoints = 0;
    std::uint64_t disk_misses = 0;  // files that could not be used
  } cache;
  std::uint64_t reserved_bytes = 0;  // of running requests
  ExpertCounters experts;            // where their weights were found
  struct Grammars {
    std::uint64_t compiled = 0, reused = 0, refused = 0, microseconds = 0;  // of compiling
  } grammars;
};

// A conversation that was read, to be written to a file of its own, read back, or forgotten.
struct ConversationTask {
  enum class Kind : std::uint8_t { save, restore, erase };
  Kind kind = Kind::save;
  std::vector<TokenId> tokens;  // to save or forget: what was read and written so far
  std::string path;             // of the file, but to forget
};
struct ConversationResult {
  std::vector<TokenId> tokens;  // that were saved, stand ready, or were forgotten
  std::uint64_t bytes = 0;      // of the file
};
using ConversationDone = std::function<void(Result<ConversationResult>)>;

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(FileSystem& files, const EngineOptions& options);
  virtual ~Engine() = default;  // cancels what runs, waits for it

  // Checks the request (`invalid_argument`, or `exhausted` when it does not fit the context or the
  // queue) and queues it. The listener must not be null and is kept until finished().
  virtual Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener) = 0;
  // Takes effect within one window; unknown and finished ids are ignored.
  virtual void cancel(RequestId id) = 0;
  // Calls `done` once, perhaps from another thread and perhaps before this returns. Requests go on
  // meanwhile. A file is either what was saved by a program of this model, or an error, and then
  // nothing has changed; one that stands there is replaced if it is a saved conversation, once the
  // new one is whole. What was restored serves the next prompt that begins with it. Forgetting
  // leaves the beginnings that other conversations go on from.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): other engines keep both.
  virtual void conversation(ConversationTask task, ConversationDone done) {
    (void)task;
    done(fail(ErrorCode::unsupported, "this engine keeps no conversations"));
  }

  virtual const EngineFacts& facts() const = 0;
  virtual EngineCounters counters() const = 0;
  // The model file's metadata and tokenizer, for templates and prompts.
  virtual const Metadata& metadata() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
};

}  // namespace strata
