#include "server/request_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "base/decimal.h"
#include "base/json_number.h"
#include "base/nearest.h"

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::string_view kBody = "the request body";

double number_of(const json::value& value) {
  return is_number(value) ? nearest_double(number_text(value)) : std::nan("");
}

tl::unexpected<ApiError> wrong_field(const Error& error, std::string_view key) {
  ApiError answer = api_error(error, key);
  answer.status = 400;
  return tl::unexpected<ApiError>(std::move(answer));
}

template <class T>
Answer<T> answer_of(Result<T> result, std::string_view key) {
  if (!result) return wrong_field(result.error(), key);
  return std::move(*result);
}

}  // namespace

bool is_false(const json::value& value) {
  return value.is_bool() && !value.get_bool();
}
bool is_true(const json::value& value) {
  return value.is_bool() && value.get_bool();
}
bool is_zero(const json::value& value) {
  return number_of(value) == 0;
}
bool is_one(const json::value& value) {
  return number_of(value) == 1;
}

bool is_empty(const json::value& value) {
  return (value.is_object() && value.get_object().empty()) ||
         (value.is_array() && value.get_array().empty());
}
std::string_view view(const json::string& text) {
  return {text.data(), text.size()};
}

const json::value* given(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

Answer<json::object> parse_body(std::string_view text) {
  auto parsed = parse_written_json_exact(text, kBody);
  if (!parsed) return wrong_field(parsed.error(), "");
  auto* object = object_of(*parsed);
  if (object == nullptr) return refuse(400, "", "the request body must be a JSON object");
  return std::move(*object);
}

Answer<void> check_fields(const json::object& object, std::span<const Field> fields,
                          std::string_view where) {
  for (const auto& [key, value] : object) {
    if (value.is_null()) continue;
    const std::string_view name(key.data(), key.size());
    const std::string place = std::string(where) + std::string(name);
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& known) { return known.name == name; });
    if (field == fields.end()) {
      std::vector<std::string_view> names;
      for (const Field& known : fields) {
        if (known.use != Field::Use::refused) names.push_back(known.name);
      }
      const auto near = nearest(name, names);
      return refuse(
          400, place, "the field '{}' is not known here; {}", place,
          near ? fmt::format("did you mean '{}{}'?", where, *near) : std::string("leave it out"));
    }
    if (field->use == Field::Use::refused) return refuse(400, place, "{}", field->reason);
    if (field->use == Field::Use::neutral_only && !field->neutral(value)) {
      return refuse(400, place, "this value of '{}' is not supported; leave the field out", place);
    }
  }
  return {};
}

Answer<std::optional<std::int64_t>> read_integer(const json::object& body, std::string_view key) {
  return answer_of(find_integer(body, key, kBody), key);
}

Answer<std::optional<double>> read_number(const json::object& body, std::string_view key) {
  return answer_of(find_number(body, key, kBody), key);
}

Answer<std::optional<bool>> read_bool(const json::object& body, std::string_view key) {
  return answer_of(find_bool(body, key, kBody), key);
}

Answer<std::optional<std::string>> read_string(const json::object& body, std::string_view key) {
  return answer_of(find_string(body, key, kBody), key);
}

Answer<const json::object*> read_object(const json::object& body, std::string_view key) {
  return answer_of(find_object(body, key, kBody), key);
}

// Sampling ----------------------------------------------------------------------------------

namespace {

Answer<void> read_float(const json::object& body, std::string_view key, float& out) {
  auto number = read_number(body, key);
  if (!number) return passed_on(number);
  if (!*number) return {};
  const double value = **number;
  if (std::fabs(value) > 1e6) {
    return refuse(400, key, "'{}' is {}, which is out of range", key, value);
  }
  out = static_cast<float>(value);
  return {};
}

// A whole number from -1 (which becomes `minus_one`) on.
Answer<void> read_count(const json::object& body, std::string_view key, std::int32_t minus_one,
                        std::int32_t& out) {
  auto number = read_integer(body, key);
  if (!number) return passed_on(number);
  if (!*number) return {};
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  const std::int64_t value = **number;
  if (value < -1 || value > kLargest) {
    return refuse(400, key, "'{}' is {}, allowed is -1 to {}", key, value, kLargest);
  }
  out = value == -1 ? minus_one : static_cast<std::int32_t>(value);
  return {};
}

std::uint64_t fresh_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

Answer<Sampling> read_sampling(const json::object& body, Sampling sampling) {
  for (const auto& [key, out] :
       {std::pair{"temperature", &sampling.temperature}, std::pair{"top_p", &sampling.top_p},
        std::pair{"min_p", &sampling.min_p},
        std::pair{"presence_penalty", &sampling.presence_penalty},
        std::pair{"frequency_penalty", &sampling.frequency_penalty},
        std::pair{"repeat_penalty", &sampling.repetition_penalty},
        std::pair{"repetition_penalty", &sampling.repetition_penalty}}) {
    if (auto done = read_float(body, key, *out); !done) return passed_on(done);
  }
  if (auto done = read_count(body, "top_k", 0, sampling.top_k); !done) return passed_on(done);
  for (const std::string_view key : {"repeat_last_n", "penalty_last_n"}) {
    if (auto done = read_count(body, key, -1, sampling.penalty_last_n); !done) {
      return passed_on(done);
    }
  }
  auto seed = read_integer(body, "seed");
  if (!seed) return passed_on(seed);
  if (const std::int64_t value = seed->value_or(-1); value != -1) {
    sampling.seed = static_cast<std::uint64_t>(value);
  } else if (sampling.temperature > 0 && sampling.seed == 0) {
    sampling.seed = fresh_seed();
  }
  if (auto valid = validate(sampling); !valid) {
    const std::string& message = valid.error().message;
    return wrong_field(valid.error(), std::string_view(message).substr(0, message.find(' ')));
  }
  return sampling;
}

namespace {

constexpr std::string_view kBias = "logit_bias";

Answer<LogitBias> bias_of(std::optional<std::int64_t> id, const json::value& value,
                          bool false_bans) {
  if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
    return refuse(400, kBias, "'logit_bias' names tokens by their ids, whole numbers from 0 on");
  }
  LogitBias bias;
  bias.id = static_cast<TokenId>(*id);
  if (false_bans && is_false(value)) {
    bias.bias = kBan;
    return bias;
  }
  const double number = number_of(value);
  if (!(number >= -100 && number <= 100)) {
    return refuse(400, kBias, "the bias of token {} must be a number from -100 to 100", *id);
  }
  bias.bias = static_cast<float>(number);
  return bias;
}

std::optional<std::int64_t> digits(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Answer<std::vector<LogitBias>> read_logit_bias(const json::object& body) {
  std::vector<LogitBias> biases;
  const json::value* value = given(body, kBias);
  if (value == nullptr) return biases;
  const auto* object = object_of(*value);
  const auto* array = value->if_array();
  if (object == nullptr && array == nullptr) {
    return refuse(400, kBias, "'logit_bias' must be an object of token ids and biases");
  }
  const std::size_t count = object != nullptr ? object->size() : array->size();
  if (count > kMaxBiases) {
    return refuse(400, kBias, "'logit_bias' has {} entries, at most {} are allowed", count,
                  kMaxBiases);
  }
  biases.reserve(count);
  const auto add = [&](Answer<LogitBias> bias) -> Answer<void> {
    if (!bias) return passed_on(bias);
    biases.push_back(*bias);
    return {};
  };
  if (object != nullptr) {
    for (const auto& [key, bias] : *object) {
      if (auto done = add(bias_of(digits({key.data(), key.size()}), bias, false)); !done) {
        return passed_on(done);
      }
    }
  } else {
    for (const json::value& entry : *array) {
      const auto* pair = entry.if_array();
      if (pair == nullptr || pair->size() != 2) {
        return refuse(400, kBias, "'logit_bias' as an array must hold pairs [id, bias]");
      }
      json::error_code code;
      const json::value& id = pair->front();
      const auto number = id.is_number() ? id.to_number<std::int64_t>(code) : -1;
      const auto known = code ? std::nullopt : std::optional<std::int64_t>(number);
      if (auto done = add(bias_of(known, pair->back(), true)); !done) return passed_on(done);
    }
  }
  std::sort(biases.begin(), biases.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.id < b.id; });
  const auto twice =
      std::adjacent_find(biases.begin(), biases.end(),
                         [](const LogitBias& a, const LogitBias& b) { return a.id == b.id; });
  if (twice != biases.end()) {
    return refuse(400, kBias, "'logit_bias' names token {} twice", twice->id);
  }
  return biases;
}

Answer<std::vector<std::string>> read_stops(const json::object& body, std::string_view key,
                                            std::size_t most) {
  std::vector<std::string> stops;
  const json::value* value = given(body, key);
  if (value == nullptr) return stops;
  const auto add = [&stops](const json::value& stop) {
    if (!stop.is_string()) return false;
    if (!stop.get_string().empty()) stops.emplace_back(view(stop.get_string()));
    return true;
  };
  bool texts = true;
  if (const auto* array = value->if_array()) {
    if (array->size() > most) {
      return refuse(400, key, "'{}' has {} strings, at most {} are allowed", key, array->size(),
                    most);
    }
    for (const json::value& stop : *array) texts = texts && add(stop);
  } else {
    texts = add(*value);
  }
  if (!texts) return refuse(400, key, "'{}' must be a string or an array of strings", key);
  for (const std::string& stop : stops) {
    if (stop.size() > kMaxStopBytes) {
      return refuse(400, key, "a stop string has {} bytes, at most {} are allowed", stop.size(),
                    kMaxStopBytes);
    }
  }
  return stops;
}

Answer<void> read_max_tokens(const json::object& body, std::span<const std::string_view> keys,
                             Generation& request) {
  for (const std::string_view key : keys) {
    auto read = read_integer(body, key);
    if (!read) return passed_on(read);
    if (!*read) continue;
    const std::int64_t value = **read;
    if (value < -1) {
      return refuse(400, key, "'{}' is {}; it must be positive, or 0 or -1 for no limit of its own",
                    key, value);
    }
    request.max_tokens = value <= 0 ? 0 : static_cast<std::uint64_t>(value);
    request.own_limit = true;
    return {};
  }
  return {};
}

Answer<std::uint32_t> read_choices(const json::object& body) {
  auto number = read_integer(body, "n");
  if (!number) return passed_on(number);
  const std::int64_t count = number->value_or(1);
  if (count < 1 || count > kMaxChoices) {
    return refuse(400, "n", "'n' is {}, allowed is 1 to {}", count, kMaxChoices);
  }
  return static_cast<std::uint32_t>(count);
}

Answer<void> read_speed(const json::object& body, Generation& request) {
  for (const std::string_view key : {"cache_prompt", "strata_checkpoint"}) {
    auto kept = read_bool(body, key);
    if (!kept) return passed_on(kept);
    if (!kept->value_or(true)) request.one_shot = true;
  }
  const json::value* drafts = given(body, "drafts");
  if (drafts == nullptr) return {};
  const std::string_view word = drafts->is_string() ? view(drafts->get_string()) : "";
  if (word == "auto") return {};
  const double number = word == "off" ? 0 : number_of(*drafts);
  if (!(number >= 0 && number <= kMaxDrafts) || number != std::floor(number)) {
    return refuse(400, "drafts",
                  "'drafts' is {}; it must be \"auto\", \"off\" or a whole number from 0 to {}",
                  write_json(*drafts).substr(0, 40), kMaxDrafts);
  }
  request.drafts = static_cast<std::uint32_t>(number);
  return {};
}

namespace {

// An array of texts, none empty.
Answer<void> read_texts(const json::object& body, std::string_view key, std::size_t most,
                        std::size_t most_bytes, std::vector<std::string>& out) {
  const json::value* value = given(body, key);
  if (value == nullptr) return {};
  const auto* array = value->if_array();
  if (array == nullptr) return refuse(400, key, "'{}' must be an array of strings", key);
  if (array->size() > most) {
    return refuse(400, key, "'{}' has {} strings, at most {} are allowed", key, array->size(),
                  most);
  }
  std::vector<std::string> texts;
  for (const json::value& text : *array) {
    if (!text.is_string()) return refuse(400, key, "'{}' must be an array of strings", key);
    if (text.get_string().empty() || text.get_string().size() > most_bytes) {
      return refuse(400, key, "a string of '{}' has {} bytes; allowed is 1 to {}", key,
                    text.get_string().size(), most_bytes);
    }
    texts.emplace_back(view(text.get_string()));
  }
  out = std::move(texts);
  return {};
}

Answer<void> read_dry(const json::object& body, DryPenalty& dry) {
  if (auto done = read_float(body, "dry_multiplier", dry.multiplier); !done) return done;
  if (auto done = read_float(body, "dry_base", dry.base); !done) return done;
  if (auto done = read_count(body, "dry_allowed_length", -1, dry.allowed_length); !done)
    return done;
  if (auto done = read_count(body, "dry_penalty_last_n", -1, dry.last_n); !done) return done;
  if (auto done =
          read_texts(body, "dry_sequence_breakers", kMaxBreakers, kMaxBreakerBytes, dry.breakers);
      !done)
    return done;
  if (auto valid = validate(dry); !valid) {
    const std::string& message = valid.error().message;
    return wrong_field(valid.error(), std::string_view(message).substr(0, message.find(' ')));
  }
  return {};
}

Answer<void> read_loop_guard(const json::object& body, LoopGuard& guard) {
  auto word = read_string(body, "loop_guard");
  if (!word) return passed_on(word);
  if (!*word) return {};
  for (const LoopGuard known : {LoopGuard::off, LoopGuard::stop, LoopGuard::recover}) {
    if (**word != to_string(known)) continue;
    guard = known;
    return {};
  }
  return refuse(400, "loop_guard", "'loop_guard' is '{}'; it must be off, stop or recover", **word);
}

Answer<void> read_flag(const json::object& body, std::string_view key, bool& flag) {
  auto wanted = read_bool(body, key);
  if (!wanted) return passed_on(wanted);
  flag = wanted->value_or(flag);
  return {};
}

}  // namespace

Answer<void> read_generation(const json::object& body, Generation& request) {
  if (auto done = assign(request.sampling, read_sampling(body, request.sampling)); !done)
    return done;
  if (auto done = read_dry(body, request.dry); !done) return done;
  if (auto done = read_texts(body, "banned_strings", kMaxBannedStrings, kMaxBannedBytes,
                             request.banned_strings);
      !done)
    return done;
  if (auto done = assign(request.logit_bias, read_logit_bias(body)); !done) return done;
  if (auto done = read_loop_guard(body, request.loop_guard); !done) return done;
  return read_speed(body, request);
}

Answer<void> read_chat_fields(const json::object& body, ChatRequest& request) {
  if (auto done = read_generation(body, request); !done) return done;
  auto budget = read_integer(body, "reasoning_budget_tokens");
  if (!budget) return passed_on(budget);
  if (*budget) request.thinking_budget = *budget;
  if (auto done = read_flag(body, "reasoning_close_retry", request.close_thinking); !done)
    return done;
  return read_flag(body, "tool_call_recovery", request.recover_calls);
}

// Thinking ----------------------------------------------------------------------------------

Answer<std::string> effort_level(std::string_view word, std::string_view field) {
  struct Spelling {
    std::string_view word, level;
  };
  constexpr std::array kSpellings = {
      Spelling{"none", "none"},     Spelling{"off", "none"},   Spelling{"minimal", "none"},
      Spelling{"disabled", "none"}, Spelling{"false", "none"}, Spelling{"low", "low"},
      Spelling{"medium", "medium"}, Spelling{"high", "high"},  Spelling{"xhigh", "xhigh"},
      Spelling{"max", "max"},       Spelling{"maximum", "max"}};
  for (const Spelling& spelling : kSpellings) {
    if (spelling.word == word) return std::string(spelling.level);
  }
  return refuse(400, field, "'{}' is '{}'; it must be none, low, medium, high, xhigh or max", field,
                word);
}

namespace {

// reasoning_effort, else reasoning.effort, else chat_template_kwargs.reasoning_effort.
Answer<std::optional<std::string>> read_effort(const json::object& body,
                                               const json::object& template_arguments) {
  const json::value* value = given(body, "reasoning_effort");
  std::string_view field = "reasoning_effort";
  if (const json::value* reasoning = given(body, "reasoning")) {
    const auto* object = object_of(*reasoning);
    if (object == nullptr) return refuse(400, "reasoning", "'reasoning' must be an object");
    // The summary is a wish about how the thinking is shown; it is shown whole.
    constexpr std::array kFields = {Field{"effort"}, Field{"summary", Field::Use::harmless},
                                    Field{"generate_summary", Field::Use::harmless}};
    if (auto done = check_fields(*object, kFields, "reasoning."); !done) return passed_on(done);
    if (value == nullptr) {
      value = given(*object, "effort");
      field = "reasoning.effort";
    }
  }
  if (value == nullptr) {
    value = given(template_arguments, "reasoning_effort");
    field = "chat_template_kwargs.reasoning_effort";
  }
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return refuse(400, field, "'{}' must be a string", field);
  auto level = effort_level(view(value->get_string()), field);
  if (!level) return passed_on(level);
  return std::optional(std::move(*level));
}

}  // namespace

Answer<json::object> read_template_arguments(const json::object& body,
                                             const json::object& defaults) {
  json::object arguments;
  if (const json::value* value = given(body, "chat_template_kwargs")) {
    const auto* object = object_of(*value);
    if (object == nullptr) {
      return refuse(400, "chat_template_kwargs", "'chat_template_kwargs' must be an object");
    }
    for (const std::string_view reserved : {"messages", "tools", "add_generation_prompt"}) {
      if (object->contains(json::string_view(reserved.data(), reserved.size()))) {
        return refuse(400, "chat_template_kwargs",
                      "'chat_template_kwargs' may not hold '{}', which the request itself sets",
                      reserved);
      }
    }
    arguments = *object;
  }
  for (const std::string_view flag : {"enable_thinking", "preserve_thinking"}) {
    const json::value* value = given(arguments, flag);
    if (value != nullptr && !value->is_bool()) {
      return refuse(400, "chat_template_kwargs", "'chat_template_kwargs.{}' must be true or false",
                    flag);
    }
  }
  auto read = read_effort(body, arguments);
  if (!read) return passed_on(read);
  const bool silent = !*read && given(arguments, "enable_thinking") == nullptr;
  if (silent) {
    for (const auto& [key, value] : defaults) arguments[key] = value;
  }
  if (const std::optional<std::string>& effort = *read) {
    arguments["reasoning_effort"] = *effort;
    if (*effort == "none") arguments["enable_thinking"] = false;
  }
  return arguments;
}

}  // namespace strata::server
