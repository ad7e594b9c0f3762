// What the output parser tells: pieces of thinking and text, and tool calls as they grow.
#pragma once

#include <cstddef>
#include <cstdint>
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

// What became of the calls of an answer.
struct CallCounts {
  std::uint64_t whole = 0;      // delivered
  std::uint64_t recovered = 0;  // of them in another shape than the family's
  std::uint64_t rescued = 0;    // of them out of thinking that was never closed
  std::uint64_t cut = 0;        // announced, and the answer ended inside them
  std::uint64_t text = 0;       // began as a call and was text after all
  std::uint64_t typed = 0;      // arguments that the schema made something else than a string
  std::uint64_t untyped = 0;    // that are not of the type the schema asks for, and stayed text

  CallCounts& operator+=(const CallCounts& other) {
    whole += other.whole;
    recovered += other.recovered;
    rescued += other.rescued;
    cut += other.cut;
    text += other.text;
    typed += other.typed;
    untyped += other.untyped;
    return *this;
  }
};

}  // namespace strata::chat
