// The neutral form of a chat request: what every dialect is translated to and every template
// renders from.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace strata::chat {

struct ToolCall {
  std::string id;
  std::string name;
  boost::json::value arguments;  // normally an object, key order kept
};

struct Message {
  std::string role;  // system, developer, user, assistant, tool
  std::string content;
  std::string reasoning_content;     // of assistant messages
  std::vector<ToolCall> tool_calls;  // of assistant messages
  std::string tool_call_id;          // of tool messages
};

struct Conversation {
  std::vector<Message> messages;
  boost::json::array tools;                // OpenAI's form: {"type":"function","function":{...}}
  boost::json::object template_arguments;  // enable_thinking, reasoning_effort, ...
  bool add_generation_prompt = true;
};

}  // namespace strata::chat
