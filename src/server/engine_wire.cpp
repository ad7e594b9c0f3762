#include "server/engine_wire.h"

#include <bit>
#include <cmath>

namespace strata::server {

// Writing ------------------------------------------------------------------------------------

WireWriter::WireWriter(FrameKind kind) {
  u32(0);  // the length, known at the end
  u8(static_cast<std::uint8_t>(kind));
}

WireWriter& WireWriter::u8(std::uint8_t value) {
  bytes_ += static_cast<char>(value);
  return *this;
}

WireWriter& WireWriter::u32(std::uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 255u);
  return *this;
}

WireWriter& WireWriter::u64(std::uint64_t value) {
  return u32(static_cast<std::uint32_t>(value)).u32(static_cast<std::uint32_t>(value >> 32));
}

WireWriter& WireWriter::f32(float value) {
  return u32(std::bit_cast<std::uint32_t>(value));
}

WireWriter& WireWriter::f64(double value) {
  return u64(std::bit_cast<std::uint64_t>(value));
}

WireWriter& WireWriter::text(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

WireWriter& WireWriter::chances(const TokenChances& value) {
  u32(static_cast<std::uint32_t>(value.chosen.id)).f32(value.chosen.logprob);
  u32(static_cast<std::uint32_t>(value.top.size()));
  for (const auto& chance : value.top) {
    u32(static_cast<std::uint32_t>(chance.id)).f32(chance.logprob);
  }
  return *this;
}

namespace {

void put_sampling(WireWriter& writer, const Sampling& s) {
  writer.f32(s.temperature).u32(static_cast<std::uint32_t>(s.top_k)).f32(s.top_p).f32(s.min_p);
  writer.u64(s.seed).f32(s.repetition_penalty).f32(s.frequency_penalty).f32(s.presence_penalty);
  writer.u32(static_cast<std::uint32_t>(s.penalty_last_n));
}

Sampling get_sampling(WireReader& reader) {
  Sampling s;
  s.temperature = reader.f32();
  s.top_k = static_cast<std::int32_t>(reader.u32());
  s.top_p = reader.f32();
  s.min_p = reader.f32();
  s.seed = reader.u64();
  s.repetition_penalty = reader.f32();
  s.frequency_penalty = reader.f32();
  s.presence_penalty = reader.f32();
  s.penalty_last_n = static_cast<std::int32_t>(reader.u32());
  return s;
}

void put_ids(WireWriter& writer, const std::vector<TokenId>& ids) {
  writer.u32(static_cast<std::uint32_t>(ids.size()));
  for (const TokenId id : ids) writer.u32(static_cast<std::uint32_t>(id));
}

void put_texts(WireWriter& writer, const std::vector<std::string>& texts) {
  writer.u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) writer.text(text);
}

constexpr std::uint32_t kNone = 0xffffffff;

// Every whole number of a table's counters, in one order for both directions.
template <class Stats, class Function>
void each_count(Stats& stats, Function function) {
  for (auto* value : {&stats.requests,
                      &stats.rows.requested,
                      &stats.rows.cache_hits,
                      &stats.rows.joined,
                      &stats.rows.prefetched_used,
                      &stats.rows.read,
                      &stats.rows.failed,
                      &stats.prefetched,
                      &stats.prefetch_dropped,
                      &stats.reads,
                      &stats.read_bytes,
                      &stats.retries,
                      &stats.cancelled,
                      &stats.keep_alive,
                      &stats.read_p50,
                      &stats.read_p99,
                      &stats.wait_p50,
                      &stats.wait_p99,
                      &stats.wait_max,
                      &stats.cache_rows,
                      &stats.memory_bytes,
                      &stats.depth}) {
    function(*value);
  }
}
template <class Counters, class Function>
void each_count_of_engine(Counters& counters, Function function) {
  auto& drafts = counters.drafts;
  auto& cache = counters.cache;
  auto& grammars = counters.grammars;
  for (auto* value : {&counters.requests, &counters.prompt_tokens,  &counters.generated_tokens,
                      &drafts.rounds,     &drafts.drafted,          &drafts.accepted,
                      &cache.tokens,      &cache.disk_tokens,       &cache.bytes,
                      &cache.limit,       &cache.checkpoints,       &cache.evicted,
                      &cache.disk_bytes,  &cache.disk_limit,        &cache.disk_checkpoints,
                      &cache.disk_misses, &counters.reserved_bytes, &grammars.compiled,
                      &grammars.reused,   &grammars.refused,        &grammars.microseconds}) {
    function(*value);
  }
  for (const auto count : kExpertCounts) function(counters.experts.*count);
  function(counters.experts.resident_bytes);
  function(counters.experts.total_bytes);
  for (auto& value : drafts.drafted_at) function(value);
  for (auto& value : drafts.accepted_at) function(value);
}
constexpr std::size_t kTableBytes = 4 + 22 * 8 + 8;  // of one without its text

}  // namespace

WireWriter& WireWriter::request(const Request& value) {
  put_ids(*this, value.prompt);
  put_sampling(*this, value.sampling);
  u32(value.max_tokens);
  put_ids(*this, value.stop_ids);
  u32(static_cast<std::uint32_t>(value.logit_bias.size()));
  for (const LogitBias& bias : value.logit_bias) {
    u32(static_cast<std::uint32_t>(bias.id)).f32(bias.bias);
  }
  u32(value.logprobs.value_or(kNone)).u8(value.prompt_logprobs ? 1 : 0);
  u32(value.drafts.value_or(kNone)).u8(value.keep ? 1 : 0).u32(value.repeat_limit);
  u8(static_cast<std::uint8_t>(value.loop_guard));
  f32(value.dry.multiplier).f32(value.dry.base);
  u32(static_cast<std::uint32_t>(value.dry.allowed_length));
  u32(static_cast<std::uint32_t>(value.dry.last_n));
  put_texts(*this, value.dry.breakers);
  put_texts(*this, value.banned_strings);
  text(value.grammar).u64(value.client);
  u8(value.thinking ? 1 : 0);
  if (!value.thinking) return *this;
  const ThinkingLimit& limit = *value.thinking;
  for (const TokenId id : {limit.open, limit.close, limit.call_open, limit.call_close})
    u32(static_cast<std::uint32_t>(id));
  u8(limit.begun ? 1 : 0).u32(limit.budget);
  put_ids(*this, limit.wrap_up);
  put_ids(*this, limit.closing);
  return *this;
}

WireWriter& WireWriter::task(const ConversationTask& value) {
  u8(static_cast<std::uint8_t>(value.kind));
  put_ids(*this, value.tokens);
  return text(value.path);
}

WireWriter& WireWriter::result(const Result<ConversationResult>& value) {
  if (!value) return u8(0).error(value.error());
  u8(1);
  put_ids(*this, value->tokens);
  return u64(value->bytes);
}

WireWriter& WireWriter::error(const Error& value) {
  return u8(static_cast<std::uint8_t>(value.code)).text(value.message);
}

WireWriter& WireWriter::completion(const Completion& value) {
  u8(static_cast<std::uint8_t>(value.reason)).error(value.error);
  u32(value.prompt_tokens).u32(value.cached_tokens).u32(value.cached_disk_tokens);
  u32(value.generated_tokens).u32(value.rounds).u32(value.drafted).u32(value.accepted);
  u8(static_cast<std::uint8_t>(value.thinking_cut)).u8(static_cast<std::uint8_t>(value.stopped_by));
  return f64(value.queue_seconds).f64(value.prompt_seconds).f64(value.decode_seconds);
}

WireWriter& WireWriter::facts(const EngineFacts& value) {
  text(value.model_name).text(value.architecture).text(value.model_path);
  u32(value.context).u32(value.vocabulary).u32(value.layers);
  u64(value.parameters).u64(value.weight_bytes);
  u32(value.threads).u32(value.parallel).text(value.isa);
  text(value.kv_type).u64(value.token_bytes);
  u8(value.has_draft_block ? 1 : 0).text(value.drafts);
  put_sampling(*this, value.default_sampling);
  put_ids(*this, value.stop_ids);
  return *this;
}

WireWriter& WireWriter::counters(const EngineCounters& value) {
  u32(value.running).u32(value.waiting);
  each_count_of_engine(value, [&](std::uint64_t count) { u64(count); });
  u32(static_cast<std::uint32_t>(value.ngram_tables.size()));
  for (const TableStats& table : value.ngram_tables) {
    text(table.how).f64(table.rows.wait_seconds);
    each_count(table, [&](std::uint64_t count) { u64(count); });
  }
  return *this;
}

std::string WireWriter::frame() && {
  const auto length = static_cast<std::uint32_t>(bytes_.size() - 4);
  for (std::size_t i = 0; i < 4; ++i) bytes_[i] = static_cast<char>(length >> (8 * i) & 255u);
  return std::move(bytes_);
}

// Reading ------------------------------------------------------------------------------------

std::string_view WireReader::take(std::size_t size) {
  if (failed_ || size > bytes_.size()) {
    failed_ = true;
    return {};
  }
  const std::string_view taken = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return taken;
}

std::uint8_t WireReader::u8() {
  const std::string_view byte = take(1);
  return byte.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(byte[0]);
}

std::uint32_t WireReader::u32() {
  std::uint32_t value = 0;
  const std::string_view bytes = take(4);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

std::uint64_t WireReader::u64() {
  const std::uint64_t low = u32();
  return low | std::uint64_t{u32()} << 32;
}

float WireReader::f32() {
  return std::bit_cast<float>(u32());
}

double WireReader::f64() {
  return std::bit_cast<double>(u64());
}

std::string WireReader::text() {
  return std::string(take(u32()));
}

std::uint32_t WireReader::count(std::size_t each) {
  const std::uint32_t number = u32();
  if (number > bytes_.size() / each) failed_ = true;
  return failed_ ? 0 : number;
}

TokenChances WireReader::chances() {
  TokenChances value;
  value.chosen.id = static_cast<TokenId>(u32());
  value.chosen.logprob = f32();
  value.top.resize(count(8));
  for (auto& chance : value.top) {
    chance.id = static_cast<TokenId>(u32());
    chance.logprob = f32();
  }
  return value;
}

Request WireReader::request() {
  Request value;
  value.prompt.resize(count(4));
  for (TokenId& id : value.prompt) id = static_cast<TokenId>(u32());
  value.sampling = get_sampling(*this);
  value.max_tokens = u32();
  value.stop_ids.resize(count(4));
  for (TokenId& id : value.stop_ids) id = static_cast<TokenId>(u32());
  value.logit_bias.resize(count(8));
  for (LogitBias& bias : value.logit_bias) {
    bias.id = static_cast<TokenId>(u32());
    bias.bias = f32();
  }
  if (const std::uint32_t top = u32(); top != kNone) value.logprobs = top;
  value.prompt_logprobs = u8() != 0;
  if (const std::uint32_t drafts = u32(); drafts != kNone) value.drafts = drafts;
  value.keep = u8() != 0;
  value.repeat_limit = u32();
  value.loop_guard = word(LoopGuard::recover);
  value.dry.multiplier = f32();
  value.dry.base = f32();
  value.dry.allowed_length = static_cast<std::int32_t>(u32());
  value.dry.last_n = static_cast<std::int32_t>(u32());
  for (auto* texts : {&value.dry.breakers, &value.banned_strings}) {
    texts->resize(count(4));
    for (std::string& one : *texts) one = text();
  }
  value.grammar = text();
  value.client = u64();
  if (u8() == 0) return value;
  ThinkingLimit& limit = value.thinking.emplace();
  for (TokenId* id : {&limit.open, &limit.close, &limit.call_open, &limit.call_close})
    *id = static_cast<TokenId>(u32());
  limit.begun = u8() != 0;
  limit.budget = u32();
  for (auto* tokens : {&limit.wrap_up, &limit.closing}) {
    tokens->resize(count(4));
    for (TokenId& id : *tokens) id = static_cast<TokenId>(u32());
  }
  return value;
}

ConversationTask WireReader::task() {
  ConversationTask value;
  const std::uint8_t kind = u8();
  if (kind > static_cast<std::uint8_t>(ConversationTask::Kind::erase)) failed_ = true;
  value.kind = failed_ ? ConversationTask::Kind::save : static_cast<ConversationTask::Kind>(kind);
  value.tokens.resize(count(4));
  for (TokenId& id : value.tokens) id = static_cast<TokenId>(u32());
  value.path = text();
  return value;
}

Result<ConversationResult> WireReader::result() {
  if (u8() == 0) return tl::unexpected<Error>(error());
  ConversationResult value;
  value.tokens.resize(count(4));
  for (TokenId& id : value.tokens) id = static_cast<TokenId>(u32());
  value.bytes = u64();
  return value;
}

Error WireReader::error() {
  Error value;
  const std::uint8_t code = u8();
  if (code > static_cast<std::uint8_t>(ErrorCode::internal)) failed_ = true;
  value.code = failed_ ? ErrorCode::internal : static_cast<ErrorCode>(code);
  value.message = text();
  return value;
}

Completion WireReader::completion() {
  Completion value;
  const std::uint8_t reason = u8();
  if (reason > static_cast<std::uint8_t>(FinishReason::error)) failed_ = true;
  value.reason = failed_ ? FinishReason::error : static_cast<FinishReason>(reason);
  value.error = error();
  value.prompt_tokens = u32();
  for (std::uint32_t* count :
       {&value.cached_tokens, &value.cached_disk_tokens, &value.generated_tokens, &value.rounds,
        &value.drafted, &value.accepted})
    *count = u32();
  value.thinking_cut = word(ThinkingCut::stop);
  value.stopped_by = word(StoppedBy::loop);
  for (double* seconds : {&value.queue_seconds, &value.prompt_seconds, &value.decode_seconds}) {
    *seconds = f64();
    if (!(std::isfinite(*seconds) && *seconds >= 0)) failed_ = true;
  }
  return value;
}

EngineFacts WireReader::facts() {
  EngineFacts value;
  value.model_name = text();
  value.architecture = text();
  value.model_path = text();
  value.context = u32();
  value.vocabulary = u32();
  value.layers = u32();
  value.parameters = u64();
  value.weight_bytes = u64();
  value.threads = u32();
  value.parallel = u32();
  value.isa = text();
  value.kv_type = text();
  value.token_bytes = u64();
  value.has_draft_block = u8() != 0;
  value.drafts = text();
  value.default_sampling = get_sampling(*this);
  value.stop_ids.resize(count(4));
  for (TokenId& id : value.stop_ids) id = static_cast<TokenId>(u32());
  return value;
}

EngineCounters WireReader::counters() {
  EngineCounters value;
  value.running = u32();
  value.waiting = u32();
  each_count_of_engine(value, [&](std::uint64_t& count) { count = u64(); });
  value.ngram_tables.resize(count(kTableBytes));
  for (TableStats& table : value.ngram_tables) {
    table.how = text();
    table.rows.wait_seconds = f64();
    if (!(std::isfinite(table.rows.wait_seconds) && table.rows.wait_seconds >= 0)) failed_ = true;
    each_count(table, [&](std::uint64_t& count) { count = u64(); });
  }
  return value;
}

Status WireReader::done() const {
  if (!failed_ && bytes_.empty()) return {};
  return fail(ErrorCode::corrupt, "a frame between server and engine is {}",
              failed_ ? "cut off or malformed" : "longer than its content");
}

// Frames -------------------------------------------------------------------------------------

void FrameCutter::feed(std::string_view bytes) {
  if (at_ > 0 && at_ >= held_.size() / 2) {
    held_.erase(0, at_);
    at_ = 0;
  }
  held_ += bytes;
}

Result<std::optional<Frame>> FrameCutter::next() {
  const std::string_view left = std::string_view(held_).substr(at_);
  if (left.size() < 4) return std::optional<Frame>();
  const std::uint32_t length = WireReader(left.substr(0, 4)).u32();
  if (length == 0 || length > kMaxFrame) {
    return fail(ErrorCode::corrupt,
                "a frame of {} bytes between server and engine; 1 to {} are "
                "possible",
                length, kMaxFrame);
  }
  if (left.size() - 4 < length) return std::optional<Frame>();
  Frame frame{static_cast<FrameKind>(left[4]), std::string(left.substr(5, length - 1))};
  at_ += 4 + std::size_t{length};
  return std::optional(std::move(frame));
}

}  // namespace strata::server
