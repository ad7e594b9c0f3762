#include "server/openai_completions.h"
#include "base/json_number.h"
#include "server/answer_form.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <map>

#include "server/openai_chat.h"
#include "tokenizer/utf8_stream.h"

namespace strata::server {

namespace json = boost::json;

namespace {

using Use = Field::Use;

bool is_no_text(const json::value& value) {
  return value.is_string() && value.get_string().empty();
}

constexpr std::array kFields = {
    Field{"model"},
    Field{"prompt"},
    Field{"max_tokens"},
    Field{"temperature"},
    Field{"top_p"},
    Field{"top_k"},
    Field{"min_p"},
    Field{"presence_penalty"},
    Field{"frequency_penalty"},
    Field{"repetition_penalty"},
    Field{"repeat_penalty"},
    Field{"penalty_last_n"},
    Field{"repeat_last_n"},
    Field{"seed"},
    Field{"n"},
    Field{"logprobs"},
    Field{"logit_bias"},
    Field{"response_format"},
    Field{"grammar"},
    Field{"json_schema"},
    Field{"guided_json"},
    Field{"guided_regex"},
    Field{"guided_choice"},
    Field{"guided_grammar"},
    Field{"dry_multiplier"},
    Field{"dry_base"},
    Field{"dry_allowed_length"},
    Field{"dry_penalty_last_n"},
    Field{"dry_sequence_breakers"},
    Field{"banned_strings"},
    Field{"loop_guard"},
    Field{"stop"},
    Field{"echo"},
    Field{"stream"},
    Field{"stream_options"},
    Field{"user", Use::harmless},
    Field{"cache_prompt"},
    Field{"strata_checkpoint"},
    Field{"drafts"},
    Field{"best_of", Use::neutral_only, is_one},
    Field{"suffix", Use::neutral_only, is_no_text},
};

// Code points; `text` is valid UTF-8.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

Answer<void> add_prompt(const json::value& value, const Tokenizer& tokenizer,
                        OpenAiCompletionRequest& request) {
  if (const auto* text = value.if_string()) {
    request.prompts.emplace_back(std::string(view(*text)));
    request.echoes.emplace_back(view(*text));
    return {};
  }
  const auto* array = value.if_array();
  if (array == nullptr) {
    return refuse(400, "prompt",
                  "'prompt' must be a string, an array of strings, an array of token ids or an "
                  "array of such arrays");
  }
  auto ids = read_token_ids(*array, "prompt", tokenizer.size());
  if (!ids) return passed_on(ids);
  Utf8Stream stream;
  std::string text = stream.feed(tokenizer.decode(*ids));
  request.echoes.push_back(text + stream.flush());
  request.prompts.emplace_back(std::move(*ids));
  return {};
}

Answer<void> read_prompts(const json::object& body, const Tokenizer& tokenizer,
                          OpenAiCompletionRequest& request) {
  const json::value* value = given(body, "prompt");
  if (value == nullptr) return refuse(400, "prompt", "'prompt' is missing");
  const auto* array = value->if_array();
  const bool many = array != nullptr && !array->empty() && !is_number(array->front());
  if (!many) return add_prompt(*value, tokenizer, request);
  if (array->size() > kMaxPrompts) {
    return refuse(400, "prompt", "'prompt' holds {} prompts, at most {} are allowed", array->size(),
                  kMaxPrompts);
  }
  for (const json::value& one : *array) {
    if (auto done = add_prompt(one, tokenizer, request); !done) return done;
  }
  return {};
}

Answer<void> read_limit(const json::object& body, OpenAiCompletionRequest& request) {
  auto limit = read_integer(body, "max_tokens");
  if (!limit) return passed_on(limit);
  const std::int64_t value = limit->value_or(static_cast<std::int64_t>(kCompletionTokens));
  if (value < -1) {
    return refuse(400, "max_tokens",
                  "'max_tokens' is {}; it must be positive, 0 for none or -1 for no limit of its "
                  "own",
                  value);
  }
  request.score_only = value == 0;
  request.text.own_limit = true;
  request.text.max_tokens = value == 0 ? 1 : (value == -1 ? 0 : static_cast<std::uint64_t>(value));
  return {};
}

Answer<void> read_logprobs(const json::object& body, OpenAiCompletionRequest& request) {
  auto count = read_integer(body, "logprobs");
  if (!count) return passed_on(count);
  if (!*count) return {};
  if (**count < 0 || **count > kMaxTopLogprobs) {
    return refuse(400, "logprobs", "'logprobs' is {}, allowed is 0 to {}", **count,
                  kMaxTopLogprobs);
  }
  request.text.logprobs = static_cast<std::uint32_t>(**count);
  request.text.prompt_logprobs = request.echo;
  if (request.echo && request.stream) {
    return refuse(400, "echo", "'echo' with 'logprobs' cannot be streamed; leave one of them out");
  }
  return {};
}

// "logprobs" of a choice: parallel arrays over its tokens.
class TokenColumns {
 public:
  TokenColumns(const Tokenizer& tokenizer, std::size_t offset)
      : tokenizer_(tokenizer), offset_(offset) {}

  void add_first(TokenId id) { add(id, nullptr, nullptr); }
  void add(const TokenChances& chances) {
    json::object top;
    const auto put = [&](const TokenChances::Chance& chance) {
      const std::string text = token_text(tokenizer_, chance.id);
      if (!top.contains(text)) top[text] = chance.logprob;  // the likeliest comes first
    };
    for (const auto& chance : chances.top) put(chance);
    put(chances.chosen);
    add(chances.chosen.id, chances.chosen.logprob, std::move(top));
  }
  bool empty() const { return tokens_.empty(); }
  std::size_t offset() const { return offset_; }
  json::object take() {
    return {{"tokens", std::exchange(tokens_, {})},
            {"token_logprobs", std::exchange(logprobs_, {})},
            {"top_logprobs", std::exchange(top_, {})},
            {"text_offset", std::exchange(offsets_, {})}};
  }

 private:
  void add(TokenId id, json::value logprob, json::value top) {
    tokens_.push_back(json::value(token_text(tokenizer_, id)));
    logprobs_.push_back(std::move(logprob));
    top_.push_back(std::move(top));
    offsets_.push_back(offset_);
    offset_ += characters(text_.feed(tokenizer_.bytes(id)));
  }

  const Tokenizer& tokenizer_;
  std::size_t offset_;
  Utf8Stream text_;
  json::array tokens_, logprobs_, top_, offsets_;
};

// The answer to one request: the choices of all its prompts.
class TextAnswer : public std::enable_shared_from_this<TextAnswer> {
 public:
  TextAnswer(ServicePtr service, Writer writer, OpenAiCompletionRequest request)
      : service_(std::move(service)),
        writer_(std::move(writer)),
        request_(std::move(request)),
        model_(service_->answer_name(request_.model)),
        created_(std::time(nullptr)),
        results_(request_.prompts.size() * request_.text.choices),
        waiting_(results_.size()) {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const std::size_t echoed = request_.echo ? characters(request_.echoes[prompt_of(i)]) : 0;
      // Whole answers list the prompt's tokens themselves.
      columns_.emplace_back(service_->tokenizer(), request_.stream ? echoed : 0);
    }
  }

  void start();
  void queued(std::uint32_t ahead) {
    release();
    place_->ahead = ahead;
  }
  void started() {
    release();
    place_->ahead.reset();
  }
  void event(std::size_t choice, const chat::OutputEvent& event) {
    if (!request_.stream || request_.score_only || failed_) return;
    release();
    writer_->write(piece(choice, event.text));
  }
  void chances(std::size_t choice, const TokenChances& chances) {
    if (request_.stream && !request_.score_only) columns_[choice].add(chances);
  }
  void finished(std::size_t choice, const ChatResult& result);

 private:
  std::size_t prompt_of(std::size_t choice) const { return choice / request_.text.choices; }
  json::object head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_},
            {"system_fingerprint", nullptr}};
  }
  json::object choice_json(std::size_t choice, std::string text, json::value reason) {
    json::value logprobs;
    if (!columns_[choice].empty()) logprobs = columns_[choice].take();
    const bool over = !reason.is_null();
    json::object object = {{"text", std::move(text)},
                           {"index", choice},
                           {"logprobs", std::move(logprobs)},
                           {"finish_reason", std::move(reason)}};
    if (over) add_guards(object, results_[choice]);
    return object;
  }
  std::string piece(std::size_t choice, std::string text, json::value reason = nullptr,
                    const ChatResult* timed = nullptr) {
    json::object chunk = head();
    chunk["choices"] = json::array{choice_json(choice, std::move(text), std::move(reason))};
    if (request_.include_usage) chunk["usage"] = nullptr;
    if (timed != nullptr) chunk["timings"] = timings_json(*timed);
    return sse_data(chunk);
  }
  void release();
  void fill_columns(std::size_t choice);
  json::object usage() const;
  void end();
  void fail(const ApiError& error);

  ServicePtr service_;
  Writer writer_;
  OpenAiCompletionRequest request_;
  std::string id_ = new_id("cmpl-");
  std::string model_;
  std::int64_t created_;
  std::vector<TokenId> first_ids_;  // of the prompts
  std::vector<ChatResult> results_;
  std::vector<TokenColumns> columns_;
  std::vector<RequestId> ids_;
  std::shared_ptr<QueuePlace> place_ = std::make_shared<QueuePlace>();
  std::size_t waiting_;
  bool failed_ = false;
};

class TextChoice final : public ChatObserver {
 public:
  TextChoice(std::shared_ptr<TextAnswer> answer, std::size_t index)
      : answer_(std::move(answer)), index_(index) {}
  void queued(std::uint32_t ahead) override {
    if (index_ == 0) answer_->queued(ahead);
  }
  void started(std::uint32_t) override {
    if (index_ == 0) answer_->started();
  }
  void chances(const TokenChances& chances) override { answer_->chances(index_, chances); }
  void event(const chat::OutputEvent& event) override { answer_->event(index_, event); }
  void finished(const ChatResult& result) override { answer_->finished(index_, result); }

 private:
  std::shared_ptr<TextAnswer> answer_;
  std::size_t index_;
};

void TextAnswer::start() {
  const auto refuse_all = [this](const ApiError& error) {
    failed_ = true;
    service_->cancel(ids_);
    send_openai_error(*writer_, error);
  };
  bool held = false;
  for (std::size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    TextRequest text = request_.text;
    text.prompt = std::move(request_.prompts[prompt]);
    std::vector<std::shared_ptr<ChatObserver>> observers;
    for (std::size_t i = 0; i < text.choices; ++i) {
      observers.push_back(
          std::make_shared<TextChoice>(shared_from_this(), prompt * text.choices + i));
    }
    auto prepared = service_->prepare(std::move(text));
    if (!prepared) return refuse_all(prepared.error());
    held = !prepared->work.grammar.empty();
    first_ids_.push_back(prepared->work.prompt.front());
    auto ids = service_->start(std::move(*prepared), executor_of(writer_), observers);
    if (!ids) return refuse_all(ids.error());
    ids_.insert(ids_.end(), ids->begin(), ids->end());
  }
  cancel_on_close(service_, writer_, ids_);
  if (!request_.stream) return;
  std::string echoes;
  for (std::size_t i = 0; request_.echo && i < results_.size(); ++i)
    echoes += piece(i, request_.echoes[prompt_of(i)]);
  open_stream(*writer_, std::move(echoes), place_, held,
              [place = place_] { return place->comment(); });
}

void TextAnswer::release() {
  if (request_.stream) release_head(*writer_, *place_);
}

void TextAnswer::finished(std::size_t choice, const ChatResult& result) {
  if (failed_) return;
  results_[choice] = result;
  if (result.finish == ChatFinish::error) return fail(failure_of(result));
  if (request_.score_only) {
    results_[choice].completion_tokens = 0;
    results_[choice].message.content.clear();
    results_[choice].chances.clear();
    results_[choice].finish = ChatFinish::length;
  }
  if (request_.stream) {
    release();
    writer_->write(piece(choice, "",
                         json::value(std::string(finish_reason(results_[choice].finish))),
                         &results_[choice]));
  }
  if (--waiting_ == 0) end();
}

// Of a whole answer: the prompt's tokens, if they are echoed, and the generated ones.
void TextAnswer::fill_columns(std::size_t choice) {
  if (!request_.text.logprobs) return;
  if (request_.echo) {
    columns_[choice].add_first(first_ids_[prompt_of(choice)]);
    for (const TokenChances& one : results_[choice].prompt_chances) columns_[choice].add(one);
  }
  for (const TokenChances& one : results_[choice].chances) columns_[choice].add(one);
}

json::object TextAnswer::usage() const {
  std::uint64_t prompt = 0, cached = 0, completion = 0;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    completion += results_[i].completion_tokens;
    if (i % request_.text.choices != 0) continue;
    prompt += results_[i].prompt_tokens;
    cached += results_[i].cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", 0}}}};
}

void TextAnswer::end() {
  if (request_.stream) {
    std::string text;
    if (request_.include_usage) {
      json::object chunk = head();
      chunk["choices"] = json::array();
      chunk["usage"] = usage();
      text = sse_data(chunk);
    }
    writer_->write(text + "data: [DONE]\n\n");
    return writer_->end_stream();
  }
  json::object body = head();
  json::array choices;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    fill_columns(i);
    std::string text = request_.echo ? request_.echoes[prompt_of(i)] : std::string();
    text += results_[i].message.content;
    choices.push_back(choice_json(i, std::move(text),
                                  json::value(std::string(finish_reason(results_[i].finish)))));
  }
  body["choices"] = std::move(choices);
  body["usage"] = usage();
  body["timings"] = timings_json(results_.front());
  send_json(*writer_, body);
}

void TextAnswer::fail(const ApiError& error) {
  failed_ = true;
  if (waiting_ > 1) service_->cancel(ids_);
  if (!request_.stream || place_->held) return send_openai_error(*writer_, error);
  writer_->write(fmt::format("data: {}\n\ndata: [DONE]\n\n", openai_error_body(error)));
  writer_->end_stream();
}

}  // namespace

Answer<std::vector<TokenId>> read_token_ids(const json::array& values, std::string_view key,
                                            std::size_t vocabulary) {
  std::vector<TokenId> ids;
  ids.reserve(values.size());
  for (const json::value& value : values) {
    json::error_code code;
    const auto id = value.is_number() ? value.to_number<std::int64_t>(code) : -1;
    if (code || id < 0 || static_cast<std::uint64_t>(id) >= vocabulary) {
      return refuse(400, key, "'{}' holds {}, which is no token id of the vocabulary of {}", key,
                    write_json(value).substr(0, 40), vocabulary);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

std::span<const Field> openai_completion_fields() {
  return kFields;
}

Answer<OpenAiCompletionRequest> parse_openai_completion(std::string_view text,
                                                        const Generation& defaults,
                                                        const Tokenizer& tokenizer) {
  auto body = parse_body(text);
  if (!body) return passed_on(body);
  if (auto done = check_fields(*body, kFields); !done) return passed_on(done);
  OpenAiCompletionRequest request;
  static_cast<Generation&>(request.text) = defaults;
  auto model = read_string(*body, "model");
  if (!model) return passed_on(model);
  request.model = model->value_or("");
  auto echo = read_bool(*body, "echo");
  if (!echo) return passed_on(echo);
  request.echo = echo->value_or(false);
  if (auto done = read_openai_stream(*body, request.stream, request.include_usage); !done)
    return passed_on(done);
  if (auto done = read_limit(*body, request); !done) return passed_on(done);
  if (auto done = read_generation(*body, request.text); !done) return passed_on(done);
  if (auto done = assign(request.text.stops, read_stops(*body, "stop", kMaxStops)); !done)
    return passed_on(done);
  if (auto done = assign(request.text.choices, read_choices(*body)); !done) return passed_on(done);
  if (auto done = read_form(*body, request.text); !done) return passed_on(done);
  if (auto done = read_logprobs(*body, request); !done) return passed_on(done);
  if (auto done = read_prompts(*body, tokenizer, request); !done) return passed_on(done);
  if (request.prompts.size() * request.text.choices > kMaxPrompts) {
    return refuse(400, "n", "{} prompts with {} choices each; at most {} answers are made at once",
                  request.prompts.size(), request.text.choices, kMaxPrompts);
  }
  return request;
}

void serve_openai_completions(const ServicePtr& service, const HttpRequest& request,
                              const Writer& writer) {
  auto parsed =
      parse_openai_completion(request.body, service->defaults()->request, service->tokenizer());
  if (!parsed) return send_openai_error(*writer, parsed.error());
  parsed->text.client = request.client;
  std::make_shared<TextAnswer>(service, writer, std::move(*parsed))->start();
}

}  // namespace strata::server
