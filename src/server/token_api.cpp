#include "server/token_api.h"

#include <array>

#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_messages.h"
#include "server/request_fields.h"
#include "tokenizer/utf8_stream.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using Use = Field::Use;

json::value piece_of(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.bytes(id);
  Utf8Stream stream;
  std::string text = stream.feed(bytes);
  text += stream.flush();
  if (text == bytes) return json::value(text);
  json::array numbers;
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return numbers;
}

Answer<json::object> tokenized(const Service& service, const std::string& text) {
  constexpr std::array kFields = {Field{"content"}, Field{"parse_special"}, Field{"with_pieces"},
                                  Field{"add_special", Use::harmless},  // this family adds none
                                  Field{"model", Use::harmless}};
  auto body = parse_body(text);
  if (!body) return passed_on(body);
  if (auto done = check_fields(*body, kFields); !done) return passed_on(done);
  auto content = read_string(*body, "content");
  if (!content) return passed_on(content);
  if (!*content) return refuse(400, "content", "'content' is missing");
  auto special = read_bool(*body, "parse_special");
  if (!special) return passed_on(special);
  auto pieces = read_bool(*body, "with_pieces");
  if (!pieces) return passed_on(pieces);
  const Tokenizer& tokenizer = service.tokenizer();
  json::array tokens;
  for (const TokenId id :
       tokenizer.encode(**content, special->value_or(true) ? Specials::all : Specials::none)) {
    if (pieces->value_or(false)) {
      tokens.push_back({{"id", id}, {"piece", piece_of(tokenizer, id)}});
    } else {
      tokens.push_back(id);
    }
  }
  return json::object{{"tokens", std::move(tokens)}};
}

Answer<json::object> detokenized(const Service& service, const std::string& text) {
  constexpr std::array kFields = {Field{"tokens"}, Field{"model", Use::harmless}};
  auto body = parse_body(text);
  if (!body) return passed_on(body);
  if (auto done = check_fields(*body, kFields); !done) return passed_on(done);
  const json::value* tokens = given(*body, "tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    return refuse(400, "tokens", "'tokens' must be an array of token ids");
  }
  auto ids = read_token_ids(tokens->get_array(), "tokens", service.tokenizer().size());
  if (!ids) return passed_on(ids);
  Utf8Stream stream;
  std::string content = stream.feed(service.tokenizer().decode(*ids));
  content += stream.flush();
  return json::object{{"content", std::move(content)}};
}

Answer<json::object> templated(const Service& service, const std::string& text) {
  auto parsed = parse_openai_chat(text, service.defaults()->request);
  if (!parsed) return passed_on(parsed);
  auto prompt = service.render(std::move(parsed->chat.conversation));
  if (!prompt) return passed_on(prompt);
  return json::object{{"prompt", std::move(*prompt)}};
}

void send(ResponseWriter& writer, const Answer<json::object>& answer) {
  if (!answer) return send_openai_error(writer, answer.error());
  send_json(writer, *answer);
}

}  // namespace

void serve_tokenize(const ServicePtr& service, const HttpRequest& request, const Writer& writer) {
  send(*writer, tokenized(*service, request.body));
}

void serve_detokenize(const ServicePtr& service, const HttpRequest& request, const Writer& writer) {
  send(*writer, detokenized(*service, request.body));
}

void serve_apply_template(const ServicePtr& service, const HttpRequest& request,
                          const Writer& writer) {
  send(*writer, templated(*service, request.body));
}

}  // namespace strata::server
