#include "chat/template.h"

#include <algorithm>
#include <utility>

#include "chat/jinja/jinja.h"

namespace strata::chat {

struct ChatTemplate::State {
  std::string source;
  TemplateTokens tokens;
  jinja::Template compiled;
  bool reads_reasoning = false;  // of messages; else think blocks stand in their content
};

namespace {

using jinja::Dict;
using jinja::Value;
using Variables = std::vector<std::pair<std::string, Value>>;

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
constexpr std::string_view kReserved[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                          "eos_token"};

Value foreign(std::string_view text) {
  return Value(jinja::Text(std::string(text), false));
}

Value list_of(jinja::Budget& budget, std::vector<Value> items) {
  return jinja::make_list(budget, std::move(items));
}

Value tool_call_value(jinja::Budget& budget, const ToolCall& call) {
  Dict function;
  function.set(Value::trusted("name"), foreign(call.name));
  function.set(Value::trusted("arguments"), Value::from_json(call.arguments));
  Dict dict;
  dict.set(Value::trusted("id"), foreign(call.id));
  dict.set(Value::trusted("type"), Value::trusted("function"));
  dict.set(Value::trusted("function"), jinja::make_dict(budget, std::move(function)));
  return jinja::make_dict(budget, std::move(dict));
}

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// An answer that starts with a whole think block, as clients send it back that know no other place
// for thinking. The block goes where the template looks for it, or is what it was when the model
// wrote it.
void set_content_with_block(Dict& dict, std::string_view content, bool reads_reasoning) {
  const std::size_t begin = content.find(kThink) + kThink.size();
  const std::size_t end = content.find(kThinkEnd);
  const std::string_view thought = content.substr(begin, end - begin);
  const std::string_view rest = content.substr(end + kThinkEnd.size());
  if (reads_reasoning) {
    dict.set(Value::trusted("content"), foreign(trim(rest)));
    if (!trim(thought).empty()) {
      dict.set(Value::trusted("reasoning_content"), foreign(trim(thought)));
    }
    return;
  }
  jinja::Text text(std::string(kThink), true);
  text.append(thought, false);
  text.append(kThinkEnd, true);
  text.append(rest, false);
  dict.set(Value::trusted("content"), Value(std::move(text)));
}

bool starts_with_block(const Message& message) {
  return message.role == "assistant" && message.reasoning_content.empty() &&
         trim(message.content).starts_with(kThink) &&
         message.content.find(kThinkEnd) != std::string::npos;
}

Value message_value(jinja::Budget& budget, const Message& message, bool reads_reasoning) {
  Dict dict;
  // Some templates build markers out of roles ("<|" + role + "|>"), so the known ones are trusted.
  const bool known = std::ranges::find(kRoles, message.role) != std::end(kRoles);
  dict.set(Value::trusted("role"), known ? Value::trusted(message.role) : foreign(message.role));
  if (starts_with_block(message)) {
    set_content_with_block(dict, message.content, reads_reasoning);
  } else {
    dict.set(Value::trusted("content"), foreign(message.content));
  }
  if (!message.reasoning_content.empty()) {
    dict.set(Value::trusted("reasoning_content"), foreign(message.reasoning_content));
  }
  if (!message.tool_calls.empty()) {
    std::vector<Value> calls;
    calls.reserve(message.tool_calls.size());
    for (const ToolCall& call : message.tool_calls) {
      calls.push_back(tool_call_value(budget, call));
    }
    dict.set(Value::trusted("tool_calls"), list_of(budget, std::move(calls)));
  }
  if (!message.tool_call_id.empty()) {
    dict.set(Value::trusted("tool_call_id"), foreign(message.tool_call_id));
  }
  return jinja::make_dict(budget, std::move(dict));
}

Result<Variables> make_variables(const Conversation& conversation, const TemplateTokens& tokens,
                                 bool reads_reasoning) {
  Variables variables;
  for (const auto& [name, value] : conversation.template_arguments) {
    if (std::ranges::find(kReserved, std::string_view(name)) != std::end(kReserved)) {
      return fail(ErrorCode::invalid_argument,
                  "'{}' cannot be a template argument: the conversation sets it",
                  std::string_view(name));
    }
    variables.emplace_back(std::string(name), Value::from_json(value));
  }
  try {
    jinja::Budget budget{jinja::Limits{}};
    std::vector<Value> messages;
    messages.reserve(conversation.messages.size());
    for (const Message& message : conversation.messages) {
      messages.push_back(message_value(budget, message, reads_reasoning));
    }
    variables.emplace_back("messages", list_of(budget, std::move(messages)));
  } catch (const jinja::Failure& failure) {
    return fail(failure.code, "{}", failure.message);
  }
  variables.emplace_back(
      "tools", conversation.tools.empty() ? Value::none() : Value::from_json(conversation.tools));
  variables.emplace_back("add_generation_prompt", Value(conversation.add_generation_prompt));
  variables.emplace_back("bos_token", Value::trusted(tokens.bos_token));
  variables.emplace_back("eos_token", Value::trusted(tokens.eos_token));
  return variables;
}

std::vector<Segment> segments_of(const jinja::Text& text) {
  std::vector<Segment> segments;
  std::size_t at = 0;
  const auto put = [&](std::size_t end, bool trusted) {
    if (end > at) segments.push_back({text.bytes().substr(at, end - at), trusted});
    at = end;
  };
  for (const auto& range : text.untrusted()) {
    put(range.begin, true);
    put(range.end, false);
  }
  put(text.size(), true);
  return segments;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, TemplateTokens tokens) {
  STRATA_ASSIGN(auto compiled, jinja::Template::parse(source));
  return ChatTemplate(std::make_unique<const State>(
      State{std::string(source), std::move(tokens), std::move(compiled),
            source.find("reasoning_content") != std::string_view::npos}));
}

Result<std::vector<Segment>> ChatTemplate::render(const Conversation& conversation) const {
  STRATA_ASSIGN(const Variables variables,
                make_variables(conversation, state_->tokens, state_->reads_reasoning));
  STRATA_ASSIGN(const jinja::Text text, state_->compiled.render(variables));
  return segments_of(text);
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

Prompt join(std::span<const Segment> segments) {
  Prompt prompt;
  std::size_t size = 0;
  for (const Segment& segment : segments) size += segment.text.size();
  prompt.text.reserve(size);
  for (const Segment& segment : segments) {
    const std::size_t begin = prompt.text.size();
    prompt.text += segment.text;
    if (!segment.trusted) continue;
    if (!prompt.trusted.empty() && prompt.trusted.back().end == begin) {
      prompt.trusted.back().end = prompt.text.size();
    } else {
      prompt.trusted.push_back({begin, prompt.text.size()});
    }
  }
  return prompt;
}

}  // namespace strata::chat
