// What the output parser tells: pieces of thinking and text, and tool calls as they grow.
#pragma once

#include <cstddef>
#include <string>

namespace strata::chat {

struct OutputEvent {
  enum class Kind {
    reasoning,        // text
    content,          // text
    tool_call_begin,  // index, id, name
    tool_arguments,   // index, text: a piece of the JSON text of the arguments
    tool_call_end,    // index
  };
  Kind kind = Kind::content;
  std::size_t index = 0;
  std::string id;
  std::string name;
  std::string text;
  bool operator==(const OutputEvent&) const = default;
};

}  // namespace strata::chat
