#include <ctime>

#include "base/base64.h"
#include "base/json_number.h"
#include "server/openai_responses.h"

namespace strata::server {

namespace json = boost::json;

using chat::OutputEvent;
using Kind = OutputEvent::Kind;

namespace {

constexpr std::string_view kReasoning = "reasoning";
constexpr std::string_view kMessage = "message";
constexpr std::string_view kCall = "function_call";
constexpr std::string_view kCustom = "custom_tool_call";

json::object usage_of(const ChatResult& result) {
  return {{"input_tokens", result.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", result.cached_tokens}}},
          {"output_tokens", result.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", result.reasoning_tokens}}},
          {"total_tokens", std::uint64_t{result.prompt_tokens} + result.completion_tokens}};
}

}  // namespace

ResponseBuilder::ResponseBuilder(const ResponsesRequest& request, std::string model,
                                 const Tokenizer& tokenizer, Send send, End end)
    : custom_tools_(request.custom_tools),
      namespaces_(request.namespaces),
      encrypted_reasoning_(request.encrypted_reasoning),
      logprobs_(request.chat.logprobs.has_value()),
      tokenizer_(tokenizer),
      send_(std::move(send)),
      end_(std::move(end)) {
  response_ = {{"id", id_},
               {"object", "response"},
               {"created_at", static_cast<std::int64_t>(std::time(nullptr))},
               {"status", request.background ? "queued" : "in_progress"},
               {"background", request.background},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"model", std::move(model)},
               {"output", json::array()},
               {"previous_response_id", nullptr},
               {"store", request.store},
               {"text", {{"format", {{"type", "text"}}}}},
               {"truncation", "disabled"},
               {"usage", nullptr}};
  if (!request.previous.empty()) response_["previous_response_id"] = request.previous;
  for (const auto& [key, value] : request.echo) response_[key] = value;
}

void ResponseBuilder::emit(std::string_view type, json::object data) {
  send_(type, sequence_++, std::move(data));
}

void ResponseBuilder::begin() {
  emit("response.created", {{"response", response_}});
  const bool queued = response_["status"] == "queued";
  emit(queued ? "response.queued" : "response.in_progress", {{"response", response_}});
}

void ResponseBuilder::catch_up() {
  if (std::exchange(late_, false)) begin();
}

void ResponseBuilder::queued(std::uint32_t ahead) {
  catch_up();
  place_.ahead = ahead;
}

void ResponseBuilder::started(std::uint32_t) {
  catch_up();
  place_.ahead.reset();
  if (response_["status"] != "queued") return;
  response_["status"] = "in_progress";
  emit("response.in_progress", {{"response", response_}});
}

std::string ResponseBuilder::still_here() {
  catch_up();
  return (place_.ahead ? place_.comment() : std::string()) +
         response_event("response.in_progress", sequence_++, {{"response", response_}});
}

// Members that say which part of the output an event is about.
json::object ResponseBuilder::place() const {
  const json::array& output = response_.at("output").get_array();
  return {{"item_id", output.back().at("id")}, {"output_index", output.size() - 1}};
}

void ResponseBuilder::open_item(std::string_view kind, json::object item) {
  close_item("completed");
  open_ = kind;
  text_.clear();
  item_logprobs_.clear();
  json::array& output = response_["output"].get_array();
  output.push_back(std::move(item));
  emit("response.output_item.added",
       {{"output_index", output.size() - 1}, {"item", output.back()}});
  if (kind != kReasoning && kind != kMessage) return;
  json::object data = place();
  data["content_index"] = 0;
  if (kind == kReasoning) {
    data["part"] = {{"type", "reasoning_text"}, {"text", ""}};
  } else {
    data["part"] = {{"type", "output_text"},
                    {"text", ""},
                    {"annotations", json::array()},
                    {"logprobs", json::array()}};
  }
  emit("response.content_part.added", std::move(data));
}

// The open item's text as a part of its content.
json::object ResponseBuilder::text_part() const {
  if (open_ == kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", json::array()},
          {"logprobs", item_logprobs_}};
}

json::object ResponseBuilder::so_far() const {
  json::object response = response_;
  if (open_.empty()) return response;
  json::object& item = response.at("output").get_array().back().get_object();
  if (open_ == kReasoning || open_ == kMessage) item["content"] = json::array{text_part()};
  if (open_ == kCall) item["arguments"] = text_;
  return response;
}

// The done events, whose values are the deltas joined.
void ResponseBuilder::close_item(std::string_view status) {
  if (open_.empty()) return;
  json::array& output = response_["output"].get_array();
  json::object& item = output.back().get_object();
  json::object data = place();
  if (open_ == kReasoning || open_ == kMessage) {
    const bool message = open_ == kMessage;
    data["content_index"] = 0;
    json::object part = text_part();
    json::object done = data;
    done["text"] = text_;
    if (message) done["logprobs"] = item_logprobs_;
    emit(message ? "response.output_text.done" : "response.reasoning_text.done", std::move(done));
    data["part"] = part;
    emit("response.content_part.done", std::move(data));
    item["content"] = json::array{std::move(part)};
    if (!message && encrypted_reasoning_) item["encrypted_content"] = base64_encoded(text_);
  } else if (open_ == kCall) {
    data["arguments"] = text_;
    data["name"] = item["name"];
    emit("response.function_call_arguments.done", std::move(data));
    item["arguments"] = text_;
  } else {
    auto parsed = parse_json_exact(text_, "the arguments");
    const json::value* input =
        parsed && object_of(*parsed) ? given(parsed->get_object(), "input") : nullptr;
    const std::string text =
        input != nullptr && input->is_string() ? std::string(view(input->get_string())) : text_;
    json::object delta = data;
    delta["delta"] = text;
    emit("response.custom_tool_call_input.delta", std::move(delta));
    data["input"] = text;
    emit("response.custom_tool_call_input.done", std::move(data));
    item["input"] = text;
  }
  item["status"] = std::string(status);
  open_.clear();
  emit("response.output_item.done", {{"output_index", output.size() - 1}, {"item", item}});
}

void ResponseBuilder::add_text(std::string_view kind, const std::string& text) {
  if (open_ != kind) {
    if (kind == kReasoning) {
      open_item(kind, {{"id", new_id("rs_")},
                       {"type", "reasoning"},
                       {"status", "in_progress"},
                       {"summary", json::array()},
                       {"content", json::array()}});
    } else {
      open_item(kind, {{"id", new_id("msg_")},
                       {"type", "message"},
                       {"status", "in_progress"},
                       {"role", "assistant"},
                       {"content", json::array()}});
    }
  }
  text_ += text;
  json::object data = place();
  data["content_index"] = 0;
  const bool message = kind == kMessage;
  if (message) {
    for (const json::value& one : pending_logprobs_) item_logprobs_.push_back(one);
    data["logprobs"] = std::exchange(pending_logprobs_, {});
  }
  data["delta"] = text;
  emit(message ? "response.output_text.delta" : "response.reasoning_text.delta", std::move(data));
}

void ResponseBuilder::begin_call(const OutputEvent& event) {
  const bool custom = custom_tools_.contains(event.name);
  json::object item = {{"id", new_id(custom ? "ctc_" : "fc_")},
                       {"type", std::string(custom ? kCustom : kCall)},
                       {"status", "in_progress"},
                       {"call_id", event.id},
                       {"name", event.name},
                       {custom ? "input" : "arguments", ""}};
  if (const auto space = namespaces_.find(event.name); space != namespaces_.end()) {
    item["namespace"] = space->second;
    item["name"] = event.name.substr(space->second.size() + 1);
  }
  open_item(custom ? kCustom : kCall, std::move(item));
}

void ResponseBuilder::add_arguments(const std::string& text) {
  text_ += text;
  if (open_ != kCall || text.empty()) return;  // a custom tool's input is known at its end
  json::object data = place();
  data["delta"] = text;
  emit("response.function_call_arguments.delta", std::move(data));
}

void ResponseBuilder::chances(const TokenChances& chances) {
  if (logprobs_) pending_logprobs_.push_back(logprob_json(tokenizer_, chances));
}

void ResponseBuilder::event(const OutputEvent& event) {
  catch_up();
  switch (event.kind) {
    case Kind::reasoning:
      pending_logprobs_.clear();  // only the answer's text has a place for them
      return add_text(kReasoning, event.text);
    case Kind::content:
      return add_text(kMessage, event.text);
    case Kind::tool_call_begin:
      return begin_call(event);
    case Kind::tool_arguments:
      return add_arguments(event.text);
    case Kind::tool_call_end:
      return close_item("completed");
  }
}

void ResponseBuilder::finished(const ChatResult& result) {
  if (result.finish != ChatFinish::error) catch_up();
  const bool whole = result.finish == ChatFinish::stop || result.finish == ChatFinish::tool_calls;
  if (open_ == kCall || open_ == kCustom) {
    // Cut: a client would run it. Its pieces went out, its completion does not.
    response_["output"].get_array().pop_back();
    open_.clear();
  }
  close_item(whole ? "completed" : "incomplete");
  response_["usage"] = usage_of(result);
  response_["timings"] = timings_json(result);
  add_guards(response_, result);
  std::string_view terminal = "response.completed";
  response_["status"] = "completed";
  if (result.finish == ChatFinish::length) {
    terminal = "response.incomplete";
    response_["status"] = "incomplete";
    response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  } else if (result.finish == ChatFinish::cancelled) {
    terminal = "response.incomplete";
    response_["status"] = "cancelled";
  } else if (result.finish == ChatFinish::error) {
    failure_ = failure_of(result);
    terminal = "response.failed";
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"}, {"message", presentable(failure_->message)}};
  } else {
    response_["completed_at"] = static_cast<std::int64_t>(std::time(nullptr));
  }
  if (begun()) emit(terminal, {{"response", response_}});
  end_(*this);
}

}  // namespace strata::server
