#include "server/defaults.h"

#include <array>
#include <map>

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::array kFields = {
    Field{"temperature"},
    Field{"top_p"},
    Field{"top_k"},
    Field{"min_p"},
    Field{"seed"},
    Field{"presence_penalty"},
    Field{"frequency_penalty"},
    Field{"repetition_penalty"},
    Field{"repeat_penalty"},
    Field{"penalty_last_n"},
    Field{"repeat_last_n"},
    Field{"dry_multiplier"},
    Field{"dry_base"},
    Field{"dry_allowed_length"},
    Field{"dry_penalty_last_n"},
    Field{"dry_sequence_breakers"},
    Field{"banned_strings"},
    Field{"max_tokens"},
    Field{"reasoning_effort"},
    Field{"reasoning_budget_tokens"},
    Field{"loop_guard"},
    Field{"reasoning_close_retry"},
    Field{"tool_call_recovery"},
};

// Second names of the same thing.
std::string_view first_name(std::string_view name) {
  if (name == "repeat_penalty") return "repetition_penalty";
  if (name == "repeat_last_n") return "penalty_last_n";
  return name;
}

json::array texts_json(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.push_back(json::value(text));
  return array;
}

// Lays places over each other, the weakest first.
class Layers {
 public:
  explicit Layers(Defaults& defaults) : defaults_(defaults) {}

  Answer<void> add(const json::object& fields, const std::string& source) {
    if (auto done = check_fields(fields, kFields); !done) return done;
    ChatRequest& request = defaults_.request;
    // A seed is drawn for each request, not here.
    const std::uint64_t seed = request.sampling.seed;
    if (auto done = read_chat_fields(fields, request); !done) return done;
    if (given(fields, "seed") == nullptr) request.sampling.seed = seed;
    if (request.thinking_budget) defaults_.thinking.budget = *request.thinking_budget;
    request.thinking_budget.reset();
    constexpr std::array<std::string_view, 1> kLimits = {"max_tokens"};
    if (auto done = read_max_tokens(fields, kLimits, request); !done) return done;
    request.own_limit = false;
    if (auto done = read_effort(fields); !done) return done;
    for (const auto& [key, value] : fields) {
      if (!value.is_null()) sources_[std::string(first_name(key))] = source;
    }
    return {};
  }
  // Where the value comes from, if one of the places gave it.
  std::string source(const std::string& name, std::string otherwise) const {
    const auto known = sources_.find(name);
    return known == sources_.end() ? std::move(otherwise) : known->second;
  }

 private:
  Answer<void> read_effort(const json::object& fields) {
    auto effort = read_string(fields, "reasoning_effort");
    if (!effort) return passed_on(effort);
    if (!*effort) return {};
    auto level = effort_level(**effort, "reasoning_effort");
    if (!level) return passed_on(level);
    json::object& arguments = defaults_.request.conversation.template_arguments;
    arguments = {{"reasoning_effort", *level}};
    if (*level == "none") arguments["enable_thinking"] = false;
    return {};
  }

  Defaults& defaults_;
  std::map<std::string, std::string> sources_;
};

Defaults built_in(const DefaultOptions& options, const Sampling& of_model) {
  Defaults defaults;
  defaults.thinking = options.thinking;
  if (options.parity) {
    defaults.thinking.budget = 0;
    defaults.thinking.answer_room = false;
    return defaults;
  }
  defaults.request.sampling = of_model;
  defaults.repeat_stop_tokens = options.repeat_stop_tokens;
  defaults.fit_max_tokens = options.fit_max_tokens;
  defaults.encoder_replies = static_cast<std::uint32_t>(options.encoder.replies);
  return defaults;
}

void list_settings(const DefaultOptions& options, const Sampling& of_model, const Layers& layers,
                   Defaults& defaults) {
  const auto put = [&](std::string name, json::value value, std::string source) {
    if (options.parity) source = "parity";
    defaults.settings.push_back({std::move(name), std::move(value), std::move(source)});
  };
  const auto add = [&](const char* name, json::value value, std::string otherwise = "built-in") {
    put(name, std::move(value), layers.source(name, std::move(otherwise)));
  };
  const Sampling built;
  const ChatRequest& request = defaults.request;
  const Sampling& s = request.sampling;
  const auto sampled = [&](const char* name, auto value, auto model, auto own) {
    add(name, value, model != own ? "model file" : "built-in");
  };
  sampled("temperature", s.temperature, of_model.temperature, built.temperature);
  sampled("top_p", s.top_p, of_model.top_p, built.top_p);
  sampled("top_k", s.top_k, of_model.top_k, built.top_k);
  sampled("min_p", s.min_p, of_model.min_p, built.min_p);
  sampled("repetition_penalty", s.repetition_penalty, of_model.repetition_penalty,
          built.repetition_penalty);
  sampled("presence_penalty", s.presence_penalty, of_model.presence_penalty,
          built.presence_penalty);
  sampled("frequency_penalty", s.frequency_penalty, of_model.frequency_penalty,
          built.frequency_penalty);
  sampled("penalty_last_n", s.penalty_last_n, of_model.penalty_last_n, built.penalty_last_n);
  add("seed", s.seed == 0 ? json::value("fresh") : json::value(s.seed));
  add("dry_multiplier", request.dry.multiplier);
  add("dry_base", request.dry.base);
  add("dry_allowed_length", request.dry.allowed_length);
  add("dry_penalty_last_n", request.dry.last_n);
  add("dry_sequence_breakers", texts_json(request.dry.breakers));
  add("banned_strings", texts_json(request.banned_strings));
  const json::value* effort = given(request.conversation.template_arguments, "reasoning_effort");
  add("reasoning_effort", effort == nullptr ? json::value(nullptr) : *effort, "model file");
  const ThinkingOptions& thinking = defaults.thinking;
  add("reasoning_budget_tokens", thinking.budget, thinking.budget_source);
  put("answer_room", thinking.answer_room, thinking.answer_room_source);
  put("thinking_wrap_up", json::value(thinking.wrap_up), thinking.wrap_up_source);
  add("reasoning_close_retry", request.close_thinking);
  add("loop_guard", json::value(std::string(to_string(request.loop_guard))));
  put("repeat_stop_tokens", defaults.repeat_stop_tokens, options.repeat_stop_tokens_source);
  add("tool_call_recovery", request.recover_calls);
  put("fit_max_tokens", defaults.fit_max_tokens, options.fit_max_tokens_source);
  add("max_tokens",
      request.max_tokens == 0 ? json::value(nullptr) : json::value(request.max_tokens));
  put("encoder_replies", defaults.encoder_replies, options.encoder_source);
}

}  // namespace

std::span<const Field> setting_fields() {
  return kFields;
}

Answer<Defaults> make_defaults(const DefaultOptions& options, const Sampling& of_model,
                               const json::object& shared) {
  Defaults defaults = built_in(options, of_model);
  Layers layers(defaults);
  if (!options.parity) {
    if (auto done = layers.add(options.sampling, options.sampling_source); !done)
      return passed_on(done);
    for (const Setting& field : options.fields) {
      if (auto done = layers.add({{field.name, field.value}}, field.source); !done)
        return passed_on(done);
    }
    if (options.reasoning_effort) {
      const json::object effort = {{"reasoning_effort", *options.reasoning_effort}};
      if (auto done = layers.add(effort, options.reasoning_effort_source); !done)
        return passed_on(done);
    }
    if (auto done = layers.add(shared, "shared settings"); !done) return passed_on(done);
  }
  list_settings(options, options.parity ? Sampling() : of_model, layers, defaults);
  return defaults;
}

}  // namespace strata::server
