// Answers of models, as they come and as they go wrong, with what a reader should make of them.
//
// Categories: act (calls that are meant), rescue (calls that are meant and stand in thinking that
// was never closed), mention (talk about calls), envelope (a call that wraps calls in a tool nobody
// declared), cut (answers that stop too early), miss (what would be a call to a kind reader, and is
// known not to be one here), recover (what such a kind reader makes of it), same (no call at all),
// types (values of arguments).
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace strata::chat {

struct Specimen {
  std::string_view category;
  std::string_view name;
  // <think>, </think>, <tool_call> and </tool_call> stand for the tokens, or for their letters in a
  // vocabulary that has no such tokens.
  std::string_view text;
  std::string_view content;
  std::string_view reasoning = {};
  std::vector<std::string_view> calls = {};  // "name arguments"
  bool thinking = false;                     // the prompt has opened a think block
  bool complete = true;                      // false: cut by a limit or by the client
  std::string_view open = {};                // begun and never finished: "name arguments"
  enum class Tools { usual, none, with_envelope } tools = Tools::usual;
  // tokens: only where the markers are tokens. letters: only where they are not. plain: letters
  // although there are such tokens.
  enum class Markers { both, tokens, letters, plain } markers = Markers::both;
  bool recover = false;  // calls of other shapes count
};

// How gtest calls it.
inline void PrintTo(const Specimen& specimen, std::ostream* out) {
  *out << specimen.category << ": " << specimen.name;
}

inline constexpr std::string_view kSpecimenTools = R"json([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "search", "parameters": {"type": "object",
    "properties": {
      "query": {"type": "string"}, "limit": {"type": ["integer", "null"]},
      "exact": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
      "where": {"$ref": "#/$defs/Where"}, "version": {"type": ["string", "number"]},
      "order": {"enum": ["1", "up", "down"]}, "ratio": {"type": "number"},
      "id": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
      "name": {"allOf": [{"type": "string"}, {"minLength": 1}]}},
    "$defs": {"Where": {"type": "object", "properties": {"year": {"type": "integer"},
      "near": {"$ref": "#/$defs/Where"}}}},
    "additionalProperties": {"type": "string"}}}},
  {"type": "function", "function": {"name": "nothing"}}])json";

inline constexpr std::string_view kEnvelopeTool = R"json(
  {"type": "function", "function": {"name": "tool_call", "parameters": {"type": "object",
    "properties": {"calls": {"type": "array"}}}}})json";

// Parts that many specimens have; specimens.h ends them.
#define STRATA_OSLO                                                                          \
  "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n" \
  "</tool_call>"
#define STRATA_OSLO_CALL R"(get_weather {"city":"Oslo"})"
#define STRATA_SEARCH(name, value)                               \
  "<tool_call>\n<function=search>\n<parameter=" name ">\n" value \
  "\n</parameter>\n</function>\n"                                \
  "</tool_call>"

}  // namespace strata::chat
