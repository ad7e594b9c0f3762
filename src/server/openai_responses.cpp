#include "server/openai_responses.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/json.h"
#include "base/log.h"
#include "server/query.h"

namespace strata::server {

namespace json = boost::json;

namespace {

std::int64_t now() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

ApiError store_error(const Error& error, std::string_view param = {}) {
  ApiError answer = api_error(error, param);
  if (error.code == ErrorCode::not_found) answer.code = "response_not_found";
  if (error.code == ErrorCode::exhausted) answer.status = 400;
  return answer;
}

// Of what the store holds; that was written by us.
json::value parsed(const std::string& text) {
  auto value = parse_json(text, "a stored response", 2 * kJsonDepth);
  return value ? std::move(*value) : json::value(json::object());
}

void append(json::array& items, const json::value& more) {
  if (!more.is_array()) return;
  for (const json::value& item : more.get_array()) items.push_back(item);
}

}  // namespace

// What the responses before this one were asked and answered goes before its own input; their
// instructions do not.
Answer<void> Responses::add_history(ResponsesRequest& request) {
  std::vector<chat::Message>& messages = request.chat.conversation.messages;
  json::array items;
  if (!request.previous.empty()) {
    auto chain = store_->chain(request.previous, now());
    if (!chain) {
      return tl::unexpected<ApiError>(store_error(chain.error(), "previous_response_id"));
    }
    for (const StoredResponse& one : *chain) {
      const json::value body = parsed(one.body);
      const std::string_view status = view(body.at("status").get_string());
      if (status == "queued" || status == "in_progress") {
        return refuse(400, "previous_response_id", "the response '{}' is not complete yet", one.id);
      }
      append(items, parsed(one.input));
      append(items, body.at("output"));
    }
  }
  messages.clear();
  if (const json::value* instructions = given(request.echo, "instructions")) {
    chat::Message message;
    message.role = "system";
    message.content = std::string(view(instructions->get_string()));
    messages.push_back(std::move(message));
  }
  append(items, request.input);
  return append_items(items, "input", messages);
}

void Responses::save(const ResponsesRequest& request, const json::object& response) {
  if (!request.store) return;
  const StoredResponse stored{std::string(view(response.at("id").get_string())), request.previous,
                              json::serialize(response), json::serialize(request.input)};
  if (auto status = store_->put(stored, now()); !status) {
    log_warning("a response is not stored: {}", status.error().message);
  }
}

// The answer is over: it is stored, unless it was deleted meanwhile.
void Responses::ended(const ResponsesRequest& request, const json::object& response) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(std::string(view(response.at("id").get_string())));
  const bool forget = found != running_.end() && found->second.forget;
  if (found != running_.end()) running_.erase(found);
  if (!forget) save(request, response);
}

void Responses::create(const ServicePtr& service, const HttpRequest& http, const Writer& writer) {
  auto parsed_request = parse_openai_responses(http.body, defaults_of(*service));
  if (!parsed_request) return send_openai_error(*writer, parsed_request.error());
  auto request = std::make_shared<ResponsesRequest>(std::move(*parsed_request));
  if (auto done = add_history(*request); !done) return send_openai_error(*writer, done.error());
  for (const std::string& type : request->left_out) {
    const std::lock_guard lock(mutex_);
    if (told_.insert(type).second) {
      log_info("tools of the type '{}' run at OpenAI; requests are answered without them", type);
    }
  }
  auto prepared = service->prepare(std::move(request->chat));
  if (!prepared) {
    ApiError error = std::move(prepared).error();
    if (error.param == "messages") error.param = "input";
    return send_openai_error(*writer, error);
  }
  request->chat.logprobs = prepared->work.logprobs;

  const bool background = request->background;
  const bool stream = request->stream;
  ResponseBuilder::Send send = [](std::string_view, const json::object&) {};
  if (stream) {
    send = [writer](std::string_view name, const json::object& data) {
      writer->write(sse_event(name, data));
    };
  }
  auto end = [self = shared_from_this(), request, writer, background,
              stream](const ResponseBuilder& builder) {
    self->ended(*request, builder.response());
    if (background) return;
    if (stream) return writer->end_stream();
    if (builder.failure()) return send_openai_error(*writer, *builder.failure());
    send_json(*writer, builder.response());
  };
  auto builder =
      std::make_shared<ResponseBuilder>(*request, service->answer_name(request->model),
                                        service->tokenizer(), std::move(send), std::move(end));
  auto shared = std::make_shared<Prepared>(std::move(*prepared));
  auto work = [self = shared_from_this(), service, request, writer, builder, shared, background,
               stream] {
    {
      const std::lock_guard lock(self->mutex_);
      const auto waiting = std::count_if(self->running_.begin(), self->running_.end(),
                                         [](const auto& entry) { return entry.second.background; });
      if (background && static_cast<std::size_t>(waiting) >= kMaxBackground) {
        return send_openai_error(
            *writer, {503,
                      fmt::format("{} background responses run or wait, the limit; try again later",
                                  waiting),
                      "background",
                      {}});
      }
    }
    const Executor executor = background ? Executor([self](std::function<void()> function) {
      self->worker_.post(std::move(function));
    })
                                         : executor_of(writer);
    auto ids = service->start(std::move(*shared), executor, {builder});
    if (!ids) return send_openai_error(*writer, ids.error());
    self->save(*request, builder->response());
    {
      const std::lock_guard lock(self->mutex_);
      self->running_[builder->id()] = {service, *ids, background, false};
    }
    if (background) return send_json(*writer, builder->response());
    cancel_on_close(service, writer, *ids);
    // Before the answer's first event: those wait on the strand until this function returns.
    if (!stream) return;
    writer->begin_stream(stream_head(""), [builder] { return builder->still_here(); });
    builder->begin();
  };
  background ? worker_.post(std::move(work)) : work();
}

void Responses::get(const std::string& id, const Writer& writer) {
  auto found = store_->get(id, now());
  if (!found) return send_openai_error(*writer, store_error(found.error(), "response_id"));
  HttpResponse response;
  response.body = std::move(found->body);
  writer->send(std::move(response));
}

namespace {

// "limit" and "after" of a list.
Answer<json::object> page_of(json::array items, std::string_view query) {
  const std::string order = query_value(query, "order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return refuse(400, "order", "'order' must be asc or desc");
  }
  std::size_t limit = 20;
  if (const auto text = query_value(query, "limit")) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (error != std::errc() || end != text->data() + text->size() || limit < 1 || limit > 100) {
      return refuse(400, "limit", "'limit' must be a whole number from 1 to 100");
    }
  }
  if (order == "desc") std::reverse(items.begin(), items.end());
  const auto id_of = [](const json::value& item) { return view(item.at("id").get_string()); };
  if (const auto after = query_value(query, "after")) {
    const auto at = std::find_if(items.begin(), items.end(),
                                 [&](const json::value& item) { return id_of(item) == *after; });
    if (at == items.end()) return refuse(400, "after", "'after' names no item of this response");
    items.erase(items.begin(), at + 1);
  }
  const bool more = items.size() > limit;
  if (more) items.erase(items.begin() + static_cast<std::ptrdiff_t>(limit), items.end());
  json::value first, last;
  if (!items.empty()) {
    first = items.front().at("id");
    last = items.back().at("id");
  }
  return json::object{{"object", "list"},
                      {"data", std::move(items)},
                      {"first_id", std::move(first)},
                      {"last_id", std::move(last)},
                      {"has_more", more}};
}

}  // namespace

void Responses::input_items(const std::string& id, std::string_view query, const Writer& writer) {
  auto found = store_->get(id, now());
  if (!found) return send_openai_error(*writer, store_error(found.error(), "response_id"));
  json::value items = parsed(found->input);
  auto page = page_of(items.is_array() ? std::move(items.get_array()) : json::array(), query);
  if (!page) return send_openai_error(*writer, page.error());
  send_json(*writer, *page);
}

void Responses::remove(const std::string& id, const Writer& writer) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = running_.find(id); found != running_.end()) {
      found->second.forget = true;
      found->second.service->cancel(found->second.ids);
    }
  }
  if (auto status = store_->remove(id); !status) {
    return send_openai_error(*writer, store_error(status.error(), "response_id"));
  }
  send_json(*writer, {{"id", id}, {"object", "response"}, {"deleted", true}});
}

void Responses::cancel(const std::string& id, const Writer& writer) {
  auto found = store_->get(id, now());
  if (!found) return send_openai_error(*writer, store_error(found.error(), "response_id"));
  json::value body = parsed(found->body);
  if (!is_true(body.at("background"))) {
    return send_openai_error(
        *writer, {400,
                  "only a background response can be cancelled; close the connection of others",
                  "response_id",
                  {}});
  }
  const std::lock_guard lock(mutex_);
  if (const auto running = running_.find(id); running != running_.end()) {
    running->second.service->cancel(running->second.ids);
    body.at("status") = "cancelled";  // what it wrote so far follows with its end
  }
  send_json(*writer, body);
}

}  // namespace strata::server
