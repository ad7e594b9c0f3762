#include "engine/engine.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "compute/cpu/notice.h"
#include "constrain/gbnf.h"
#include "engine/engine_memory.h"
#include "engine/local_engine.h"
#include "model/open_network.h"

namespace strata {
namespace {

constexpr std::uint32_t kMaxChunk = 2048;
constexpr std::uint32_t kMaxParallel = 64;

// The model file's sampling. A value that no request may have is not used, and the log says so.
Sampling default_sampling(const Metadata& m) {
  Sampling sampling;
  const auto take = [&](std::string_view key, auto set) {
    if (!m.contains(key)) return;
    const Result<double> value = m.number(key);
    Sampling with = sampling;
    Status status = value ? set(with, *value) : Status(tl::unexpected(value.error()));
    if (status) status = validate(with);
    if (status)
      sampling = with;
    else
      log_warning("key '{}' of the model is not used: {}", key, status.error().message);
  };
  take("general.sampling.temp", [](Sampling& s, double value) -> Status {
    s.temperature = static_cast<float>(value);
    return {};
  });
  take("general.sampling.top_p", [](Sampling& s, double value) -> Status {
    s.top_p = static_cast<float>(value);
    return {};
  });
  take("general.sampling.top_k", [](Sampling& s, double value) -> Status {
    if (!(value >= 0 && value <= INT32_MAX) || value != std::floor(value))
      return fail(ErrorCode::corrupt, "top_k is {}, allowed is a whole number of 0 (off) or more",
                  value);
    s.top_k = static_cast<std::int32_t>(value);
    return {};
  });
  return sampling;
}

// What the model file says of its defaults.
EngineFacts facts_of(const Network& network, const Tokenizer& tokenizer, const Backend& backend,
                     const EngineOptions& options) {
  const Metadata& m = network.file->metadata;
  EngineFacts facts;
  facts.model_name = network.params.name.empty() ? "model" : network.params.name;
  facts.architecture = m.string("general.architecture").value_or("qwen4exp");
  facts.model_path = options.model_path;
  facts.context = network.params.context;
  if (options.context > 0) facts.context = options.context;
  facts.vocabulary = network.head.rows;
  facts.layers = network.params.layers;
  facts.parameters = network.parameters;
  facts.weight_bytes = network.weight_bytes;
  facts.threads = backend.threads();
  facts.parallel = options.parallel;
  facts.isa = backend.isa();
  facts.kv_type = to_string(options.kv_type);
  facts.token_bytes = backend.page_bytes() / backend.page_tokens();
  facts.has_draft_block = network.draft.has_value();
  facts.default_sampling = default_sampling(m);
  const auto stop = [&](std::int64_t id) {
    if (id < 0 || id >= std::int64_t{facts.vocabulary}) return;
    const auto token = static_cast<TokenId>(id);
    if (std::find(facts.stop_ids.begin(), facts.stop_ids.end(), token) == facts.stop_ids.end())
      facts.stop_ids.push_back(token);
  };
  if (const auto ids = m.integers("strata.stop_token_ids")) {
    for (const std::int64_t id : *ids) stop(id);
  } else {
    stop(m.integer("tokenizer.ggml.eos_token_id").value_or(-1));
    for (const char* literal : {"<|im_end|>", "<|endoftext|>"})
      if (const auto id = tokenizer.special(literal)) stop(*id);
  }
  return facts;
}

// The tokens that the model file names must be in the vocabulary. Where those that end an answer
// are not, no answer would end as the model was taught to; the others are not used.
Status check_tokens(const Network& network, const Tokenizer& tokenizer) {
  const Metadata& m = network.file->metadata;
  const std::uint64_t vocabulary = network.head.rows;
  if (tokenizer.size() > vocabulary) {
    return fail(ErrorCode::corrupt,
                "the tokenizer has {} tokens but the network's vocabulary only {}",
                tokenizer.size(), vocabulary);
  }
  const auto inside = [&](std::int64_t id) {
    return id >= 0 && static_cast<std::uint64_t>(id) < vocabulary;
  };
  for (const auto& [key, value] : m.entries()) {
    if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id")) continue;
    STRATA_ASSIGN(const std::int64_t id, m.integer(key));
    if (inside(id)) continue;
    if (key == "tokenizer.ggml.eos_token_id") {
      return fail(ErrorCode::corrupt, "key '{}' is {}, outside the vocabulary of {} tokens", key,
                  id, vocabulary);
    }
    log_warning("key '{}' is {}, outside the vocabulary of {} tokens; it is ignored", key, id,
                vocabulary);
  }
  constexpr std::string_view kStops = "strata.stop_token_ids";
  if (!m.contains(kStops)) return {};
  STRATA_ASSIGN(const MetaValue::Integers stops, m.integers(kStops));
  const auto outside = std::find_if_not(stops.begin(), stops.end(), inside);
  if (outside == stops.end()) return {};
  return fail(ErrorCode::corrupt, "key '{}' holds {}, outside the vocabulary of {} tokens", kStops,
              *outside, vocabulary);
}

// Biases and what is asked about probabilities.
Status check_scores(const Request& request, const EngineFacts& facts) {
  if (request.logprobs.value_or(0) > kMaxTopLogprobs) {
    return fail(ErrorCode::invalid_argument, "{} alternatives for each token; at most {} are given",
                *request.logprobs, kMaxTopLogprobs);
  }
  std::vector<bool> seen(request.logit_bias.empty() ? 0 : facts.vocabulary);
  std::size_t banned = 0;
  for (const LogitBias& bias : request.logit_bias) {
    if (bias.id < 0 || static_cast<std::uint32_t>(bias.id) >= facts.vocabulary) {
      return fail(ErrorCode::invalid_argument,
                  "logit_bias names the token id {}, outside the vocabulary of {}", bias.id,
                  facts.vocabulary);
    }
    if (!std::isfinite(bias.bias))
      return fail(ErrorCode::invalid_argument, "logit_bias of token {} is no number", bias.id);
    if (seen[static_cast<std::size_t>(bias.id)])
      return fail(ErrorCode::invalid_argument, "logit_bias names token {} twice", bias.id);
    seen[static_cast<std::size_t>(bias.id)] = true;
    if (bias.bias <= kBan) ++banned;
  }
  if (banned > 0 && banned == facts.vocabulary)
    return fail(ErrorCode::invalid_argument, "logit_bias bans every token of the vocabulary");
  return {};
}

}  // namespace

namespace {

Status check_thinking(const ThinkingLimit& limit, const EngineFacts& facts) {
  for (const auto* tokens : {&limit.wrap_up, &limit.closing}) {
    if (tokens == &limit.closing && tokens->empty()) continue;
    if (tokens->size() > kMaxWrapUp) {
      return fail(ErrorCode::invalid_argument, "a wrap-up of {} tokens; at most {} are allowed",
                  tokens->size(), kMaxWrapUp);
    }
    if (std::find(tokens->begin(), tokens->end(), limit.close) == tokens->end())
      return fail(ErrorCode::invalid_argument, "the wrap-up does not end the thinking");
    for (const TokenId id : *tokens) {
      if (id < 0 || static_cast<std::uint32_t>(id) >= facts.vocabulary) {
        return fail(ErrorCode::invalid_argument,
                    "the wrap-up holds token id {}, outside the vocabulary of {}", id,
                    facts.vocabulary);
      }
    }
  }
  return {};
}

}  // namespace

Status check_request(const Request& request, const EngineFacts& facts) {
  STRATA_TRY(validate(request.sampling));
  STRATA_TRY(validate(request.dry));
  if (request.thinking) STRATA_TRY(check_thinking(*request.thinking, facts));
  if (request.banned_strings.size() > kMaxBannedStrings) {
    return fail(ErrorCode::invalid_argument, "{} banned strings; at most {} are allowed",
                request.banned_strings.size(), kMaxBannedStrings);
  }
  for (const std::string& text : request.banned_strings) {
    if (text.empty() || text.size() > kMaxBannedBytes) {
      return fail(ErrorCode::invalid_argument, "a banned string of {} bytes; allowed is 1 to {}",
                  text.size(), kMaxBannedBytes);
    }
  }
  if (request.grammar.size() > constrain::kMaxGrammarBytes) {
    return fail(ErrorCode::invalid_argument, "the constraint has {} bytes; at most {} are allowed",
                request.grammar.size(), constrain::kMaxGrammarBytes);
  }
  STRATA_TRY(check_scores(request, facts));
  if (request.drafts.value_or(0) > kMaxDrafts) {
    return fail(ErrorCode::invalid_argument, "{} drafts; at most {} tokens are guessed at a time",
                *request.drafts, kMaxDrafts);
  }
  if (request.prompt.empty())
    return fail(ErrorCode::invalid_argument, "the prompt is empty; at least one token is needed");
  for (const std::vector<TokenId>* ids : {&request.prompt, &request.stop_ids}) {
    for (const TokenId id : *ids) {
      if (id < 0 || static_cast<std::uint32_t>(id) >= facts.vocabulary) {
        return fail(ErrorCode::invalid_argument, "token id {} is outside the vocabulary of {}", id,
                    facts.vocabulary);
      }
    }
  }
  const std::size_t prompt = request.prompt.size();
  if (prompt >= facts.context) {
    return fail(ErrorCode::exhausted,
                "the prompt has {} tokens but the context holds {}, and an answer needs at least "
                "one of them; shorten the prompt or start with a larger --ctx",
                prompt, facts.context);
  }
  const std::size_t room = facts.context - prompt;
  if (request.max_tokens > room) {
    return fail(ErrorCode::exhausted,
                "the prompt's {} tokens and max_tokens {} exceed the context of {}; ask for at "
                "most {}",
                prompt, request.max_tokens, facts.context, room);
  }
  return {};
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "error";
}

std::string_view to_string(LoopGuard guard) {
  constexpr std::string_view kWords[] = {"off", "stop", "recover"};
  return kWords[static_cast<std::size_t>(guard)];
}

std::string_view to_string(ThinkingCut cut) {
  constexpr std::string_view kWords[] = {"none", "budget", "loop", "stop"};
  return kWords[static_cast<std::size_t>(cut)];
}

std::string_view to_string(StoppedBy guard) {
  constexpr std::string_view kWords[] = {"none", "repeat", "loop"};
  return kWords[static_cast<std::size_t>(guard)];
}

std::string_view to_string(DraftSource source) {
  switch (source) {
    case DraftSource::mtp:
      return "mtp";
    case DraftSource::lookup:
      return "lookup";
    case DraftSource::both:
      return "both";
  }
  return "both";
}

Result<DraftSource> parse_draft_source(std::string_view text) {
  for (const DraftSource source : {DraftSource::mtp, DraftSource::lookup, DraftSource::both})
    if (text == to_string(source)) return source;
  return fail(ErrorCode::invalid_argument, "draft source '{}'; there are mtp, lookup and both",
              text);
}

namespace {

Status check_options(const EngineOptions& options) {
  if (options.prompt_chunk == 0 || options.prompt_chunk > kMaxChunk) {
    return fail(ErrorCode::invalid_argument, "a prompt chunk of {} tokens; allowed is 1 to {}",
                options.prompt_chunk, kMaxChunk);
  }
  if (options.parallel == 0 || options.parallel > kMaxParallel) {
    return fail(ErrorCode::invalid_argument, "{} parallel requests; allowed is 1 to {}",
                options.parallel, kMaxParallel);
  }
  if (options.drafts.depth.value_or(0) > kMaxDrafts) {
    return fail(ErrorCode::invalid_argument, "{} drafts; allowed is 0 to {}", *options.drafts.depth,
                kMaxDrafts);
  }
  return {};
}

// The draft block's vocabulary, if there is a draft block and it is to be used.
Result<std::optional<DraftVocabulary>> open_drafts(FileSystem& files, const Network& network,
                                                   const DraftOptions& options) {
  if (!network.draft && options.depth != 0u && options.source == DraftSource::mtp)
    return fail(ErrorCode::unsupported, "the model has no draft (MTP) block to guess tokens with");
  if (!wants_draft_block(network, options)) return std::optional<DraftVocabulary>();
  if (options.vocabulary_path.empty()) {
    STRATA_ASSIGN(auto usual, DraftVocabulary::usual(network));
    return std::optional(std::move(usual));
  }
  STRATA_ASSIGN(const auto file, files.open(options.vocabulary_path));
  if (file->size() % sizeof(std::int32_t) != 0 ||
      file->size() > network.head.rows * sizeof(std::int32_t)) {
    return fail(ErrorCode::invalid_argument,
                "draft vocabulary '{}' of {} bytes; it must be 32-bit token ids, at most {}",
                options.vocabulary_path, file->size(), network.head.rows);
  }
  std::vector<std::int32_t> ids(file->size() / sizeof(std::int32_t));
  STRATA_TRY(file->read_exact(0, std::as_writable_bytes(std::span(ids))));
  auto some = DraftVocabulary::of(network, std::move(ids));
  if (!some) {
    return with_context(std::move(some).error(),
                        fmt::format("draft vocabulary '{}'", options.vocabulary_path));
  }
  return std::optional(std::move(*some));
}

std::string drafts_in_words(const DraftOptions& options, bool block) {
  if (options.depth == 0u) return "off";
  std::string words = options.depth ? fmt::format("{} each round", *options.depth) : "auto";
  if (!block) return words + ", from lookup";
  return words + (options.source == DraftSource::mtp ? ", from mtp" : ", from mtp and lookup");
}

// What is asked for must be what the model's positions allow.
Status check_context(const HyperParams& params, std::uint32_t wanted) {
  const std::uint32_t most = scaled_context(params.context, params.rope_scale);
  if (wanted <= most) return {};
  const std::string how =
      params.rope_scale.type == RopeScaling::none
          ? "its file declares no scaling of positions (rope.scaling.type linear or yarn)"
          : fmt::format("its file declares {} scaling by {} of {} positions",
                        to_string(params.rope_scale.type), params.rope_scale.factor,
                        params.rope_scale.original_context);
  return fail(ErrorCode::invalid_argument,
              "a context of {} tokens is more than the model's {} positions; {}", wanted, most,
              how);
}

// What an engine needs of a model beside memory, before anything is loaded. The errors do not name
// the model.
Result<Tokenizer> check_model(const EngineOptions& options, const Network& mapped) {
  STRATA_TRY(check_context(mapped.params, options.context));
  auto tokenizer = Tokenizer::from_gguf(mapped.file->metadata);
  if (!tokenizer) return with_context(std::move(tokenizer).error(), "it cannot be served");
  STRATA_TRY(check_tokens(mapped, *tokenizer));
  return tokenizer;
}

Result<std::unique_ptr<Engine>> open_engine(FileSystem& files, const EngineOptions& options) {
  STRATA_TRY(check_options(options));
  if (const auto notice = cpu::slow_cpu_notice(); !notice.empty()) log_warning("{}", notice);
  std::unique_ptr<Backend> backend;
  std::optional<Tokenizer> tokenizer;
  PlannedMemory planned;
  OpenOptions open;
  open.load.table = options.ngram_table;
  // Before anything is loaded: the tokenizer, whether the rest fits, and room to work in.
  open.plan = [&](const Network& mapped) -> Result<MemoryPlan> {
    STRATA_ASSIGN(tokenizer, check_model(options, mapped));
    STRATA_ASSIGN(backend, make_cpu_backend(engine_shape(mapped, options), options.threads));
    STRATA_ASSIGN(planned, plan_engine_memory(options, mapped, *backend));
    STRATA_TRY(backend->reserve(most_rows(options)));
    return planned.plan;
  };
  open.expert_profile = options.expert_profile;
  open.look_ahead = options.expert_look_ahead;
  open.lock_memory = options.lock_memory;
  open.progress = options.progress;
  STRATA_ASSIGN(Network network, open_network(files, options.model_path, std::move(open)));
  LocalEngine::Parts parts{
      std::move(network), std::move(*tokenizer), std::move(backend), {}, nullptr};
  if (!options.test_memory) parts.memory_floor = planned.plan.system;
  STRATA_ASSIGN(parts.drafts, open_drafts(files, parts.network, options.drafts));
  if (!options.trace_path.empty()) {
    STRATA_ASSIGN(parts.trace, Trace::open(files, options.trace_path, options.trace_append));
  }
  EngineFacts facts = facts_of(parts.network, parts.tokenizer, *parts.backend, options);
  facts.drafts = drafts_in_words(options.drafts, parts.drafts.has_value());
  EngineOptions chosen = options;
  chosen.cache.ram_bytes = planned.plan.conversations;
  return std::make_unique<LocalEngine>(std::move(parts), std::move(facts), chosen);
}

}  // namespace

Result<PlannedMemory> plan_engine_memory(FileSystem& files, const EngineOptions& options) {
  STRATA_TRY(check_options(options));
  STRATA_ASSIGN(const Network mapped, open_mapped_network(files, options.model_path));
  if (const auto fit = check_model(options, mapped); !fit)
    return with_context(fit.error(), fmt::format("model '{}'", options.model_path));
  STRATA_TRY(open_drafts(files, mapped, options.drafts));
  STRATA_ASSIGN(const auto backend,
                make_cpu_backend(engine_shape(mapped, options), options.threads));
  return plan_engine_memory(options, mapped, *backend);
}

Result<std::unique_ptr<Engine>> Engine::open(FileSystem& files, const EngineOptions& options) {
  try {
    return open_engine(files, options);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted,
                "there is not enough memory to start with model '{}'; --plan says what it takes",
                options.model_path);
  } catch (const std::system_error& refused) {
    return fail(ErrorCode::exhausted, "the system refuses what an engine needs: {}",
                refused.what());
  }
}

}  // namespace strata
