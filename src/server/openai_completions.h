// OpenAI's text completions: prompts as text or token ids, continued without a template. Special
// tokens spelled out in a prompt are tokens: whoever uses this path writes the whole prompt.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/answer_json.h"
#include "server/request_fields.h"

namespace strata::server {

inline constexpr std::size_t kMaxPrompts = 64;          // prompts times choices of one request
inline constexpr std::uint64_t kCompletionTokens = 16;  // OpenAI's default limit

struct OpenAiCompletionRequest {
  std::vector<TextPrompt> prompts;
  std::vector<std::string> echoes;  // the prompts' texts, if they are wanted back
  TextRequest text;                 // without its prompt
  bool score_only = false;          // max_tokens 0: nothing is written
  std::string model;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
};

std::span<const Field> openai_completion_fields();
Answer<OpenAiCompletionRequest> parse_openai_completion(std::string_view body,
                                                        const Generation& defaults,
                                                        const Tokenizer& tokenizer);

// POST /v1/completions.
void serve_openai_completions(const ServicePtr& service, const HttpRequest& request,
                              const Writer& writer);

// Token ids of a JSON array; 400 for what is no id of the vocabulary.
Answer<std::vector<TokenId>> read_token_ids(const boost::json::array& values, std::string_view key,
                                            std::size_t vocabulary);

}  // namespace strata::server
