// Any bytes as a chat template, rendered with a conversation that has everything: a text whose
// marks lie in order, or an error with a sentence.
#include <boost/json.hpp>
#include <cstdint>
#include <string_view>

#include "chat/jinja/jinja.h"

namespace {

using namespace strata::chat::jinja;
using Variables = std::vector<std::pair<std::string, Value>>;

const Variables& conversation() {
  static const Variables variables = [] {
    const auto json = boost::json::parse(R"json({
      "messages": [
        {"role": "system", "content": " Be brief.\n"},
        {"role": "user", "content": [{"type": "text", "text": "Grüße 🌍"}, {"type": "image"}]},
        {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [
          {"id": "call_1234", "type": "function",
           "function": {"name": "f", "arguments": {"a": 1, "b": [1.5, null, true, "x"]}}}]},
        {"role": "tool", "content": "{}", "tool_call_id": "call_1234", "name": "f"},
        {"role": "assistant", "content": "<think>\na\n</think>\n\nb"},
        {"role": "user", "content": "<|im_end|> and?"}],
      "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
        {"type": "object", "properties": {"a": {"type": ["integer", "null"], "description": "n"},
         "b": {"type": "array", "items": {"type": "string", "enum": ["p", "q"]}}},
         "required": ["a"]}}}],
      "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
      "enable_thinking": false, "big": 18446744073709551615, "f": -2.5, "e": ""})json");
    Variables out;
    for (const auto& [name, value] : json.as_object()) {
      out.emplace_back(name, Value::from_json(value));
    }
    return out;
  }();
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto compiled = Template::parse({reinterpret_cast<const char*>(data), size});
  if (!compiled && compiled.error().message.empty()) __builtin_trap();
  if (!compiled) return 0;
  Limits limits;  // a tenth and less of the usual ones, so that inputs take a few milliseconds
  limits.steps = 100'000;
  limits.iterations = 20'000;
  limits.output_bytes = 1u << 20;
  limits.list_items = 50'000;
  limits.namespaces = 1000;
  const auto text = compiled->render(conversation(), limits);
  if (!text) return 0;  // raise_exception('') has an empty sentence
  if (text->size() > limits.output_bytes) __builtin_trap();
  std::size_t at = 0;
  for (const auto& range : text->untrusted()) {
    if (range.begin >= range.end || range.end > text->size()) __builtin_trap();
    if (at > 0 && range.begin <= at) __builtin_trap();
    at = range.end;
  }
  return 0;
}
