// llama.cpp's small paths around the tokenizer: text to ids, ids to text, messages to a prompt.
#pragma once

#include "server/answer_json.h"

namespace strata::server {

void serve_tokenize(const ServicePtr& service, const HttpRequest& request, const Writer& writer);
void serve_detokenize(const ServicePtr& service, const HttpRequest& request, const Writer& writer);
void serve_apply_template(const ServicePtr& service, const HttpRequest& request,
                          const Writer& writer);

}  // namespace strata::server
