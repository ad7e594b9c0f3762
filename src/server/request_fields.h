// Reading the members of a request's JSON, for all dialects. Nothing is ignored silently: a dialect
// lists every field it knows, and what happens to it; any other is refused by name.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/neutral.h"

namespace strata::server {

inline constexpr std::size_t kMaxStops = 4;  // of OpenAI's requests
inline constexpr std::size_t kMaxStopBytes = 1024;
inline constexpr std::size_t kMaxBiases = 262'144;
inline constexpr std::uint32_t kMaxChoices = 16;  // answers of one request

// What a request may say of a field.
struct Field {
  enum class Use {
    honoured,
    harmless,      // accepted, changes nothing
    neutral_only,  // accepted with the value that changes nothing
    refused,       // known, with a reason of its own
  };
  std::string_view name;
  Use use = Use::honoured;
  bool (*neutral)(const boost::json::value&) = nullptr;  // of neutral_only
  std::string_view reason = {};                          // of refused: the whole sentence
};

// Values that change nothing.
bool is_false(const boost::json::value& value);
bool is_true(const boost::json::value& value);
bool is_zero(const boost::json::value& value);
bool is_one(const boost::json::value& value);
bool is_empty(const boost::json::value& value);  // {} or []

std::string_view view(const boost::json::string& text);
// Absent and null are both "not given".
const boost::json::value* given(const boost::json::object& object, std::string_view key);

// The body as a JSON object; all that is wrong with it is 400.
Answer<boost::json::object> parse_body(std::string_view text);
// 400 for the first member that the table does not allow; `where` goes before its name in messages
// ("stream_options.").
Answer<void> check_fields(const boost::json::object& object, std::span<const Field> fields,
                          std::string_view where = {});

// Members by type; absent and null give nothing. `key` is the field in messages.
Answer<std::optional<std::int64_t>> read_integer(const boost::json::object& body,
                                                 std::string_view key);
Answer<std::optional<double>> read_number(const boost::json::object& body, std::string_view key);
Answer<std::optional<bool>> read_bool(const boost::json::object& body, std::string_view key);
Answer<std::optional<std::string>> read_string(const boost::json::object& body,
                                               std::string_view key);
Answer<const boost::json::object*> read_object(const boost::json::object& body,
                                               std::string_view key);  // nullptr: not given

// temperature, top_p, top_k, min_p, seed and the penalties over `defaults`. A request that samples
// without a seed, its own or a default (not 0), gets a fresh one.
Answer<Sampling> read_sampling(const boost::json::object& body, Sampling defaults);
// {"ID": bias} or [[ID, bias], ...]; `false` as a bias bans. Whether the ids exist is the engine's
// to say.
Answer<std::vector<LogitBias>> read_logit_bias(const boost::json::object& body);
// A string or at most `most` of them, none empty.
Answer<std::vector<std::string>> read_stops(const boost::json::object& body, std::string_view key,
                                            std::size_t most);
// The answer's limit from the first of `keys` that is given; 0 and -1 are 0: the room that is left.
Answer<void> read_max_tokens(const boost::json::object& body,
                             std::span<const std::string_view> keys, Generation& request);
Answer<std::uint32_t> read_choices(const boost::json::object& body);  // "n"
// Everything that all dialects call by the same names, over what stands in `request` already: the
// fields of sampling, DRY, "banned_strings", "logit_bias", "loop_guard" and those of the speed.
Answer<void> read_generation(const boost::json::object& body, Generation& request);
// And of conversations: "reasoning_budget_tokens", "reasoning_close_retry", "tool_call_recovery".
Answer<void> read_chat_fields(const boost::json::object& body, ChatRequest& request);
// "drafts", "cache_prompt" and "strata_checkpoint": what changes the speed only.
Answer<void> read_speed(const boost::json::object& body, Generation& request);

// "none", "low", "medium", "high", "xhigh" or "max" for every accepted spelling.
Answer<std::string> effort_level(std::string_view word, std::string_view field);
// chat_template_kwargs and OpenAI's spellings of the effort as arguments of the template.
Answer<boost::json::object> read_template_arguments(const boost::json::object& body,
                                                    const boost::json::object& defaults);

// target = value, or the refusal.
template <class T>
Answer<void> assign(T& target, Answer<T> value) {
  if (!value) return tl::unexpected<ApiError>(std::move(value).error());
  target = std::move(*value);
  return {};
}

template <class T>
tl::unexpected<ApiError> passed_on(Answer<T>& failed) {
  return tl::unexpected<ApiError>(std::move(failed).error());
}

}  // namespace strata::server
