// The demo model's tokenizer, template and evaluation lines.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "chat/template.h"

namespace strata::chat {

inline std::string read_golden(const std::string& name) {
  std::ifstream file(STRATA_GOLDEN_DIR "/" + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

inline const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer =
      Tokenizer::from_tokenizer_json(read_golden("demo-tokenizer/tokenizer.json")).value();
  return tokenizer;
}

inline const ChatTemplate& demo_template() {
  static const ChatTemplate compiled = [] {
    const auto config = boost::json::parse(read_golden("demo-tokenizer/tokenizer_config.json"));
    return ChatTemplate::compile(config.at("chat_template").as_string()).value();
  }();
  return compiled;
}

inline std::vector<boost::json::object> demo_lines() {
  std::vector<boost::json::object> lines;
  std::istringstream text(read_golden("demo-eval.jsonl"));
  for (std::string line; std::getline(text, line);) {
    if (!line.empty()) lines.push_back(boost::json::parse(line).as_object());
  }
  EXPECT_EQ(lines.size(), 200u);
  return lines;
}

inline Conversation demo_conversation(const boost::json::object& line) {
  Conversation conversation;
  for (const auto& item : line.at("messages").as_array()) {
    const auto& object = item.as_object();
    Message message;
    message.role = object.at("role").as_string();
    message.content = object.at("content").as_string();
    if (const auto* reasoning = object.if_contains("reasoning_content")) {
      message.reasoning_content = reasoning->as_string();
    }
    if (const auto* calls = object.if_contains("tool_calls"); calls && calls->is_array()) {
      for (const auto& call : calls->get_array()) {
        message.tool_calls.push_back(
            {"", std::string(call.at("name").as_string()), call.at("arguments")});
      }
    }
    conversation.messages.push_back(std::move(message));
  }
  if (line.at("tools").is_array()) conversation.tools = line.at("tools").as_array();
  conversation.template_arguments["enable_thinking"] = line.at("enable_thinking");
  conversation.template_arguments["reasoning_effort"] = line.at("reasoning_effort");
  return conversation;
}

}  // namespace strata::chat
