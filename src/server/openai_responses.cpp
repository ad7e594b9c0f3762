#include "server/openai_responses.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/json_number.h"
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
  auto value = parse_json_exact(text, "a stored response", 2 * kJsonDepth);
  return value ? std::move(*value) : json::value(json::object());
}

bool runs(const json::object& body) {
  const std::string_view status = view(body.at("status").get_string());
  return status == "queued" || status == "in_progress";
}

std::string_view terminal_event(std::string_view status) {
  if (status == "completed") return "response.completed";
  return status == "failed" ? "response.failed" : "response.incomplete";
}

// Of a request for events: the first one's number. None: the response is asked for.
Answer<std::optional<std::uint64_t>> first_event_of(std::string_view query) {
  const std::string stream = query_value(query, "stream").value_or("false");
  if (stream != "true" && stream != "false") {
    return refuse(400, "stream", "'stream' must be true or false");
  }
  const auto after = query_value(query, "starting_after");
  if (stream == "false") {
    if (!after) return std::optional<std::uint64_t>();
    return refuse(400, "starting_after",
                  "'starting_after' is about events; send it with stream=true or leave it out");
  }
  if (!after) return std::optional<std::uint64_t>(0);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(after->data(), after->data() + after->size(), number);
  if (error != std::errc() || end != after->data() + after->size() || number > INT64_MAX) {
    return refuse(400, "starting_after", "'starting_after' must be the number of an event");
  }
  return std::optional<std::uint64_t>(number + 1);
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
    auto chain = store_->chain(request.previous, request.owner, now());
    if (!chain) {
      return tl::unexpected<ApiError>(store_error(chain.error(), "previous_response_id"));
    }
    for (const StoredResponse& one : *chain) {
      const json::value body = parsed(one.body);
      if (runs(body.as_object())) {
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

void Responses::tell_left_out(const ResponsesRequest& request) {
  const std::lock_guard lock(mutex_);
  for (const std::string& type : request.left_out) {
    if (told_.insert(type).second) {
      log_info("tools of the type '{}' run at OpenAI; requests are answered without them", type);
    }
  }
}

// Storing ------------------------------------------------------------------------------------

Status Responses::save(const ResponsesRequest& request, const json::object& response,
                       const ResponseEvents* events) {
  if (!request.store) return {};
  return store_->put({std::string(view(response.at("id").get_string())), request.owner,
                      request.previous, write_json(response), write_json(request.input),
                      events == nullptr ? std::string() : events->stored()},
                     now());
}

// One that does not fit must not stay as it was when it began.
void Responses::save_last(const ResponsesRequest& request, json::object response,
                          const ResponseEvents* events) {
  Status status = save(request, response, events);
  if (!status && events != nullptr) status = save(request, response);
  if (status) return;
  log_warning("a response is not stored: {}", status.error().message);
  response["status"] = "failed";
  response["output"] = json::array();
  response["error"] = {
      {"code", "server_error"},
      {"message", "the response could not be stored: " + presentable(status.error().message)}};
  if (auto again = save(request, response); !again) {
    log_warning("nor is its failure: {}", again.error().message);
  }
}

// The answer is over: it is stored, unless it was deleted meanwhile.
void Responses::ended(const ResponsesRequest& request, const json::object& response) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(std::string(view(response.at("id").get_string())));
  if (found == running_.end()) return save_last(request, response, nullptr);
  const Running running = std::move(found->second);
  running_.erase(found);
  if (running.forget) return;
  save_last(request, response, running.background ? running.background->events.get() : nullptr);
}

// Answers ------------------------------------------------------------------------------------

// A request that may start.
struct Responses::Begin {
  ServicePtr service;
  std::shared_ptr<ResponsesRequest> request;
  Writer writer;
  Prepared prepared;
};

void Responses::create(const ServicePtr& service, const HttpRequest& http, const std::string& owner,
                       const Writer& writer) {
  auto parsed_request = parse_openai_responses(http.body, service->defaults()->request);
  if (!parsed_request) return send_openai_error(*writer, parsed_request.error());
  auto request = std::make_shared<ResponsesRequest>(std::move(*parsed_request));
  request->owner = owner;
  request->chat.client = http.client;
  if (auto done = add_history(*request); !done) return send_openai_error(*writer, done.error());
  tell_left_out(*request);
  auto prepared = service->prepare(std::move(request->chat));
  if (!prepared) {
    ApiError error = std::move(prepared).error();
    if (error.param == "messages") error.param = "input";
    return send_openai_error(*writer, error);
  }
  request->chat.logprobs = prepared->work.logprobs;
  const auto begin_it =
      std::make_shared<Begin>(Begin{service, request, writer, std::move(*prepared)});
  if (!request->background) return begin(begin_it);
  worker_.post([self = shared_from_this(), begin_it] { self->begin_background(begin_it); });
}

// Ends with its client's connection.
void Responses::begin(const std::shared_ptr<Begin>& begin) {
  const auto& [service, request, writer, prepared] = *begin;
  const bool stream = request->stream;
  ResponseBuilder::Send send = [](std::string_view, std::uint64_t, const json::object&) {};
  if (stream) {
    send = [writer = writer](std::string_view type, std::uint64_t number,
                             const json::object& data) {
      writer->write(response_event(type, number, data));
    };
  }
  auto end = [self = shared_from_this(), request = request, writer = writer,
              stream](const ResponseBuilder& builder) {
    self->ended(*request, builder.response());
    if (stream && builder.begun()) return writer->end_stream();
    if (builder.failure()) return send_openai_error(*writer, *builder.failure());
    send_json(*writer, builder.response());
  };
  auto builder =
      std::make_shared<ResponseBuilder>(*request, service->answer_name(request->model),
                                        service->tokenizer(), std::move(send), std::move(end));
  const bool held = !begin->prepared.work.grammar.empty();
  auto ids = service->start(std::move(begin->prepared), executor_of(writer), {builder});
  if (!ids) return send_openai_error(*writer, ids.error());
  if (auto saved = save(*request, builder->response()); !saved) {
    log_warning("a response is not stored: {}", saved.error().message);
  }
  {
    const std::lock_guard lock(mutex_);
    running_[builder->id()] = {service, *ids, request->owner, std::nullopt};
  }
  cancel_on_close(service, writer, *ids);
  // Before the answer's first event: those wait on the strand until this function returns.
  if (!stream) return;
  const KeepAlive keep_alive = [builder] { return builder->still_here(); };
  if (held) {
    builder->begin_late();
    return writer->hold_stream(stream_head(""), keep_alive);
  }
  writer->begin_stream(stream_head(""), keep_alive);
  builder->begin();
}

Answer<void> Responses::check_background() {
  const std::lock_guard lock(mutex_);
  const auto running = std::count_if(running_.begin(), running_.end(), [](const auto& entry) {
    return entry.second.background.has_value();
  });
  if (static_cast<std::size_t>(running) < kMaxBackground) return {};
  return refuse(503, "background",
                "{} background responses run or wait, the limit; try again later", running);
}

// The worker's: goes on when its client has gone.
void Responses::begin_background(const std::shared_ptr<Begin>& begin) {
  const auto& [service, request, writer, prepared] = *begin;
  if (auto free = check_background(); !free) return send_openai_error(*writer, free.error());
  auto events = std::make_shared<ResponseEvents>();
  auto send = [events](std::string_view type, std::uint64_t, json::object data) {
    events->add(type, std::move(data));
  };
  auto end = [self = shared_from_this(), request = request,
              events](const ResponseBuilder& builder) {
    self->ended(*request, builder.response());
    events->end();
  };
  auto builder =
      std::make_shared<ResponseBuilder>(*request, service->answer_name(request->model),
                                        service->tokenizer(), std::move(send), std::move(end));
  const Executor executor = [self = shared_from_this()](std::function<void()> function) {
    self->worker_.post(std::move(function));
  };
  auto ids = service->start(std::move(begin->prepared), executor, {builder});
  if (!ids) return send_openai_error(*writer, ids.error());
  builder->begin();
  const Status saved = save(*request, builder->response());
  {
    const std::lock_guard lock(mutex_);
    running_[builder->id()] = {service, *ids, request->owner, Background{builder, events}, !saved};
  }
  if (!saved) {
    service->cancel(*ids);
    return send_openai_error(*writer, store_error(saved.error(), "background"));
  }
  if (request->stream) return events->stream(writer, 0);
  send_json(*writer, builder->response());
}

// Stored and running ones ---------------------------------------------------------------------

std::optional<Responses::Background> Responses::background(const std::string& id,
                                                           const std::string& owner, bool cancel) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(id);
  if (found == running_.end() || found->second.owner != owner || found->second.forget) return {};
  if (cancel) found->second.service->cancel(found->second.ids);
  if (cancel && found->second.background) found->second.background->cancelled = true;
  return found->second.background;
}

json::object Responses::Background::now() const {
  json::object body = builder->so_far();
  if (cancelled && runs(body)) body.at("status") = "cancelled";
  return body;
}

void Responses::get(const std::string& id, const std::string& owner, std::string_view query,
                    const Writer& writer) {
  auto from = first_event_of(query);
  if (!from) return send_openai_error(*writer, from.error());
  if (*from) return stream(id, owner, **from, writer);
  if (const auto running = background(id, owner)) {
    return worker_.post([running = *running, writer] {  // where it changes
      send_json(*writer, running.now());
    });
  }
  auto found = store_->get(id, owner, now());
  if (!found) return send_openai_error(*writer, store_error(found.error(), "response_id"));
  HttpResponse response;
  response.body = std::move(found->body);
  writer->send(std::move(response));
}

void Responses::stream(const std::string& id, const std::string& owner, std::uint64_t from,
                       const Writer& writer) {
  std::shared_ptr<ResponseEvents> events;
  if (const auto running = background(id, owner)) {
    events = running->events;
  } else {
    auto found = store_->get(id, owner, now());
    if (!found) return send_openai_error(*writer, store_error(found.error(), "response_id"));
    json::value body = parsed(found->body);
    if (!is_true(body.at("background"))) {
      return send_openai_error(
          *writer, {400,
                    "events are kept of background responses only; ask for this one without stream",
                    "stream",
                    {}});
    }
    auto text = store_->events(id, owner, now());
    if (!text) return send_openai_error(*writer, store_error(text.error(), "response_id"));
    if (text->empty()) {
      // The server was killed while it ran, or there was no room for them: its end is all to tell.
      const std::string_view type = terminal_event(view(body.at("status").get_string()));
      json::object data = {{"response", std::move(body)}};
      writer->begin_stream(stream_head(response_event(type, from, data)), nullptr);
      return writer->end_stream();
    }
    auto stored = ResponseEvents::from(*text);
    if (!stored) return send_openai_error(*writer, api_error(stored.error(), "response_id"));
    events = std::move(*stored);
  }
  if (const std::uint64_t first = events->first(); from < first) {
    return send_openai_error(
        *writer, {400,
                  fmt::format("the first {0} events of this response are no longer kept; ask for "
                              "those after {1}, or without stream for all that it wrote",
                              first, first - 1),
                  "starting_after",
                  {}});
  }
  events->stream(writer, from);
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

void Responses::input_items(const std::string& id, const std::string& owner, std::string_view query,
                            const Writer& writer) {
  auto found = store_->get(id, owner, now());
  if (!found) return send_openai_error(*writer, store_error(found.error(), "response_id"));
  json::value items = parsed(found->input);
  auto page = page_of(items.is_array() ? std::move(items.get_array()) : json::array(), query);
  if (!page) return send_openai_error(*writer, page.error());
  send_json(*writer, *page);
}

void Responses::remove(const std::string& id, const std::string& owner, const Writer& writer) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = running_.find(id);
        found != running_.end() && found->second.owner == owner) {
      found->second.forget = true;
      found->second.service->cancel(found->second.ids);
    }
  }
  if (auto status = store_->remove(id, owner); !status) {
    return send_openai_error(*writer, store_error(status.error(), "response_id"));
  }
  send_json(*writer, {{"id", id}, {"object", "response"}, {"deleted", true}});
}

void Responses::cancel(const std::string& id, const std::string& owner, const Writer& writer) {
  if (const auto running = background(id, owner, true)) {
    return worker_.post([running = *running, writer] { send_json(*writer, running.now()); });
  }
  auto found = store_->get(id, owner, now());
  if (!found) return send_openai_error(*writer, store_error(found.error(), "response_id"));
  const json::value body = parsed(found->body);
  if (!is_true(body.at("background"))) {
    return send_openai_error(
        *writer, {400,
                  "only a background response can be cancelled; close the connection of others",
                  "response_id",
                  {}});
  }
  send_json(*writer, body);
}

}  // namespace strata::server
