#include <array>

#include "server/answer_form.h"
#include "server/openai_chat.h"
#include "server/openai_messages.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using Use = Field::Use;

bool is_text_modality(const json::value& value) {
  const auto* array = value.if_array();
  return array != nullptr && array->size() == 1 && array->front().is_string() &&
         array->front().get_string() == "text";
}
bool is_medium(const json::value& value) {
  return value.is_string() && value.get_string() == "medium";
}
bool is_own_reasoning_format(const json::value& value) {
  return value.is_string() && (value.get_string() == "auto" || value.get_string() == "deepseek");
}

constexpr std::array kFields = {
    Field{"model"},
    Field{"messages"},
    Field{"tools"},
    Field{"tool_choice"},
    Field{"parallel_tool_calls"},
    Field{"stream"},
    Field{"stream_options"},
    Field{"max_tokens"},
    Field{"max_completion_tokens"},
    Field{"temperature"},
    Field{"top_p"},
    Field{"top_k"},
    Field{"min_p"},
    Field{"presence_penalty"},
    Field{"frequency_penalty"},
    Field{"repetition_penalty"},
    Field{"repeat_penalty"},
    Field{"penalty_last_n"},
    Field{"repeat_last_n"},
    Field{"seed"},
    Field{"n"},
    Field{"logprobs"},
    Field{"top_logprobs"},
    Field{"logit_bias"},
    Field{"dry_multiplier"},
    Field{"dry_base"},
    Field{"dry_allowed_length"},
    Field{"dry_penalty_last_n"},
    Field{"dry_sequence_breakers"},
    Field{"banned_strings"},
    Field{"loop_guard"},
    Field{"stop"},
    Field{"reasoning_effort"},
    Field{"reasoning"},
    Field{"chat_template_kwargs"},
    Field{"reasoning_budget_tokens"},
    Field{"reasoning_close_retry"},
    Field{"tool_call_recovery"},
    Field{"return_progress"},
    // Bookkeeping of OpenAI's platform and hints about caches.
    Field{"user", Use::harmless},
    Field{"store", Use::harmless},
    Field{"metadata", Use::harmless},
    Field{"service_tier", Use::harmless},
    Field{"safety_identifier", Use::harmless},
    Field{"prompt_cache_key", Use::harmless},
    Field{"prompt_cache_retention", Use::harmless},
    Field{"prediction", Use::harmless},
    Field{"cache_prompt"},
    Field{"strata_checkpoint"},
    Field{"drafts"},
    Field{"timings_per_token", Use::harmless},
    Field{"response_format"},
    Field{"grammar"},
    Field{"json_schema"},
    Field{"guided_json"},
    Field{"guided_regex"},
    Field{"guided_choice"},
    Field{"guided_grammar"},
    Field{"modalities", Use::neutral_only, is_text_modality},
    Field{"verbosity", Use::neutral_only, is_medium},
    Field{"reasoning_format", Use::neutral_only, is_own_reasoning_format},
    Field{"functions", Use::refused, nullptr, "'functions' is no longer used; send 'tools'"},
    Field{"function_call", Use::refused, nullptr,
          "'function_call' is no longer used; send 'tool_choice'"},
    Field{"audio", Use::refused, nullptr, "'audio' is not supported; the model writes text only"},
    Field{"web_search_options", Use::refused, nullptr,
          "'web_search_options' is not supported; this server searches nothing"},
};

Answer<void> read_tools(const json::object& body, ChatRequest& chat) {
  if (const json::value* value = given(body, "tools")) {
    if (auto done = assign(chat.conversation.tools, parse_openai_tools(*value)); !done) return done;
  }
  auto parallel = read_bool(body, "parallel_tool_calls");
  if (!parallel) return passed_on(parallel);
  chat.one_call = !parallel->value_or(true);
  if (auto done = read_form(body, chat); !done) return done;
  if (auto done = check_tools(chat); !done) return done;
  const json::value* choice = given(body, "tool_choice");
  return choice == nullptr ? Answer<void>() : read_tool_choice(*choice, chat);
}

Answer<void> read_logprobs(const json::object& body, ChatRequest& chat) {
  auto wanted = read_bool(body, "logprobs");
  if (!wanted) return passed_on(wanted);
  auto top = read_integer(body, "top_logprobs");
  if (!top) return passed_on(top);
  const std::int64_t count = top->value_or(0);
  if (count < 0 || count > kMaxTopLogprobs) {
    return refuse(400, "top_logprobs", "'top_logprobs' is {}, allowed is 0 to {}", count,
                  kMaxTopLogprobs);
  }
  if (wanted->value_or(false)) {
    chat.logprobs = static_cast<std::uint32_t>(count);
  } else if (count > 0) {
    return refuse(400, "top_logprobs", "'top_logprobs' needs \"logprobs\": true");
  }
  return {};
}

}  // namespace

std::span<const Field> openai_chat_fields() {
  return kFields;
}

Answer<void> read_openai_stream(const json::object& body, bool& stream, bool& include_usage) {
  auto wanted = read_bool(body, "stream");
  if (!wanted) return passed_on(wanted);
  stream = wanted->value_or(false);
  auto options = read_object(body, "stream_options");
  if (!options) return passed_on(options);
  if (*options == nullptr) return {};
  if (!stream) return refuse(400, "stream_options", "'stream_options' needs \"stream\": true");
  // Padding against eavesdroppers of encrypted connections; there is none to pad.
  constexpr std::array kOptions = {Field{"include_usage"},
                                   Field{"include_obfuscation", Use::harmless}};
  if (auto done = check_fields(**options, kOptions, "stream_options."); !done) return done;
  auto usage = read_bool(**options, "include_usage");
  if (!usage) return passed_on(usage);
  include_usage = usage->value_or(false);
  return {};
}

Answer<OpenAiChatRequest> parse_openai_chat(std::string_view text, const ChatRequest& defaults) {
  auto body = parse_body(text);
  if (!body) return passed_on(body);
  if (auto done = check_fields(*body, kFields); !done) return passed_on(done);

  OpenAiChatRequest request;
  ChatRequest& chat = request.chat;
  chat = defaults;
  auto model = read_string(*body, "model");
  if (!model) return passed_on(model);
  request.model = model->value_or("");
  const json::value* messages = given(*body, "messages");
  if (messages == nullptr) return refuse(400, "messages", "'messages' is missing");
  constexpr std::array<std::string_view, 2> kLimits = {"max_completion_tokens", "max_tokens"};
  auto progress = read_bool(*body, "return_progress");
  if (!progress) return passed_on(progress);
  request.progress = progress->value_or(false);

  if (auto done = assign(chat.conversation.messages, parse_openai_messages(*messages)); !done)
    return passed_on(done);
  if (auto done = read_tools(*body, chat); !done) return passed_on(done);
  if (auto done = assign(chat.conversation.template_arguments,
                         read_template_arguments(*body, defaults.conversation.template_arguments));
      !done)
    return passed_on(done);
  if (auto done = read_chat_fields(*body, chat); !done) return passed_on(done);
  if (auto done = read_max_tokens(*body, kLimits, chat); !done) return passed_on(done);
  if (auto done = assign(chat.stops, read_stops(*body, "stop", kMaxStops)); !done)
    return passed_on(done);
  if (auto done = assign(chat.choices, read_choices(*body)); !done) return passed_on(done);
  if (auto done = read_logprobs(*body, chat); !done) return passed_on(done);
  if (auto done = read_openai_stream(*body, request.stream, request.include_usage); !done)
    return passed_on(done);
  return request;
}

}  // namespace strata::server
