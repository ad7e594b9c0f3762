// The parts of OpenAI's chat request that carry the conversation: messages and tools.
#pragma once

#include <boost/json.hpp>
#include <vector>

#include "chat/message.h"
#include "server/api_error.h"

namespace strata::server {

// `value` is an array of message objects, or such an array as a JSON string.
Answer<std::vector<chat::Message>> parse_openai_messages(const boost::json::value& value);

// `value` is an array of tools, or such an array as a JSON string. Bare functions {"name", ...}
// get OpenAI's wrapper.
Answer<boost::json::array> parse_openai_tools(const boost::json::value& value);

}  // namespace strata::server
