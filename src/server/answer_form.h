// What an answer has to be: the fields of requests that say so (response_format, grammars, forced
// and strict calls), and the one grammar (constrain/gbnf.h) over thinking, calls and text that the
// engine keeps. Schemas and grammars that cannot be enforced are refused by name; none is ignored.
#pragma once

#include <span>
#include <string>

#include "server/neutral.h"
#include "server/request_fields.h"
#include "tokenizer/tokenizer.h"

namespace strata::server {

// Fields of read_form, for the tables of dialects.
inline constexpr Field kFormFields[] = {
    Field{"response_format"}, Field{"grammar"},       Field{"json_schema"},    Field{"guided_json"},
    Field{"guided_regex"},    Field{"guided_choice"}, Field{"guided_grammar"},
};
// At most one of them: OpenAI's `response_format`, llama.cpp's `grammar` and `json_schema`, and
// `guided_*` as vLLM has them.
Answer<void> read_form(const boost::json::object& body, Generation& request);
// {"type": "text" | "json_object" | "json_schema" | "grammar" | "regex", ...}; `field` is its name
// in messages. `flat`: schema and strict stand beside the type (Responses, Anthropic).
Answer<void> read_format(const boost::json::value& format, std::string_view field, bool flat,
                         Generation& request);
// OpenAI's tool_choice, of chat and of responses: none, auto, required, one function, or
// allowed_tools. The tools must have been read.
Answer<void> read_tool_choice(const boost::json::value& choice, ChatRequest& request);
// Makes the answer call one of the tools, or the one of that name.
Answer<void> force_call(ChatRequest& request, std::string_view name = {});
// No two tools have one name, and the schemas of strict ones can be enforced.
Answer<void> check_tools(const ChatRequest& request);

// Where a prompt leaves the answer.
enum class PromptEnd {
  in_thinking,  // inside an open block of it
  thought,      // behind a closed one: the answer has none
  open,         // the model may think
};
// Empty: anything. Built from fields that were read by the above.
std::string answer_grammar(const ChatRequest& request, PromptEnd end, const Tokenizer& tokenizer);
std::string answer_grammar(const Generation& request);

}  // namespace strata::server
