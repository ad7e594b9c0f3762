// Reads the inside of one <tool_call> block while it streams:
//   <function=NAME> <parameter=P> VALUE </parameter> ... </function> </tool_call>
//
// A call is announced when a parameter or </function> follows its name; until then it can still
// turn out to be prose (`broken`). It is whole at </function>. Text is looked at once, so the time
// is linear.
//
// A parameter ends at the first </parameter> that is followed, behind white space, by another
// <parameter= or by </function>; the same letters elsewhere belong to the value. In a string of a
// JSON array or object they belong to it, too, where no line break is among them: none can stand
// there. One newline at each end of a value is dropped. Of a repeated parameter the first value
// stays. A line break ends a parameter's name whose '>' is missing. A call of "tool_call" itself,
// where no tool has that name, is an envelope that the model made up: prose.
//
// Leniency, where it is asked for (`recover`), reads two more shapes of calls of declared tools:
// <parameter=NAME> in place of <function=NAME>, and JSON, {"name": ..., "arguments": {...}}, where
// "parameters" is as good and the arguments may be JSON in a string.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/message.h"
#include "chat/output_event.h"
#include "chat/tool_types.h"

namespace strata::chat {

// Whether a call can carry it: the name of a tool. And what to say if not.
bool callable_name(std::string_view name);
inline constexpr std::string_view kNoCallableName =
    "the name of a tool has at most 256 bytes, no '<', '>' or line break, and no white space "
    "around it";

class CallReader {
 public:
  enum class Status {
    undecided,  // not announced
    announced,
    whole,   // </function> was read; </tool_call> or another <function= may follow
    closed,  // all of the block was read
    broken,  // not a call
  };

  struct Options {
    bool recover = false;
    bool bare = false;  // <tool_call> is missing: the tool must be declared
  };
  // `new_id` gives ids for calls; the first call of this block has index `first_index`.
  CallReader(const ToolTypes& types, std::size_t first_index, std::function<std::string()> new_id,
             const Options& options);

  // Most text that is held back undecided: in front of a call's announcement, and white space
  // behind a possible end of a value. More of it decides for prose and for the value.
  static constexpr std::size_t kMaxHeld = 32768;

  // Reads at most `text`, which must be whole characters; the number of bytes it took. Less than
  // all only when it is closed or broken.
  std::size_t feed(std::string_view text);
  Status status() const { return status_; }

  // No call of this block was announced yet.
  bool fresh() const { return fresh_; }
  // All text of the current call so far, if it is not announced: what to print of a broken one.
  const std::string& raw() const { return raw_; }
  // Behind a whole call: text read in search of </tool_call> that was something else.
  const std::string& leftover() const { return pending_; }

  // Events since the last time.
  std::vector<OutputEvent> take_events() { return std::exchange(events_, {}); }
  // Whole calls since the last time.
  std::vector<ToolCall> take_calls() { return std::exchange(calls_, {}); }
  // Since the last time: whole calls, recovered ones, and their arguments.
  CallCounts take_counts() { return std::exchange(counts_, {}); }
  const std::string& name() const { return call_.name; }

 private:
  enum class State { opening, json, name, named, parameter_name, value, value_end, after };
  // How far a value has come that is a JSON array or object.
  enum class Json { undecided, none, outside, string, escape };

  void step(char c);
  void step_opening(char c);
  void step_json(char c);
  bool take_json();
  void step_name(char c);
  void step_named(char c);
  void step_parameter_name(char c);
  void step_value(char c);
  void step_value_end(char c);
  void follow_json(char c);
  void step_after(char c);
  void announce();
  void start_parameter();
  void stream_value(std::size_t end);
  void finish_parameter();
  void finish_function();
  void break_off() { status_ = Status::broken; }
  void emit(std::string text);
  std::size_t value_begin() const { return !value_.empty() && value_.front() == '\n' ? 1 : 0; }
  std::size_t value_end() const;
  std::size_t safe_end() const;

  const ToolTypes& types_;
  std::size_t index_;
  std::function<std::string()> new_id_;
  Options options_;
  bool must_declare_ = false;  // a shape that only leniency reads
  bool fresh_ = true;
  State state_ = State::opening;
  Status status_ = Status::undecided;
  std::string raw_;
  std::string pending_;     // the possible beginning of a tag, or JSON
  std::size_t depth_ = 0;   // open brackets of the JSON
  bool in_string_ = false;  // of the JSON
  bool escaped_ = false;
  ToolCall call_;
  boost::json::object arguments_;
  std::string parameter_;
  const ParameterType* type_ = nullptr;
  bool repeated_ = false;  // the parameter was given before: the first value stays
  std::string value_;      // all text since the parameter's tag
  Json json_ = Json::none;
  std::size_t value_stop_ = 0;  // where the candidate </parameter> begins (state value_end)
  std::size_t streamed_ = 0;    // bytes of a string value that went out
  std::vector<OutputEvent> events_;
  std::vector<ToolCall> calls_;
  CallCounts counts_;
};

}  // namespace strata::chat
