#include "chat/call_reader.h"

#include <algorithm>

#include "base/json_number.h"

namespace strata::chat {

namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kCallEnd = "</tool_call>";
// Behind a newline it may end a value: what must not be streamed before it is decided.
constexpr std::string_view kValueEnd = "\n</parameter>";
// A call of this name wraps calls in a call.
constexpr std::string_view kEnvelope = "tool_call";
constexpr std::size_t kMaxName = 256;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::string trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

// Without a character at the end that a limit has cut.
void drop_cut_character(std::string& text) {
  std::size_t at = text.size();
  while (at > 0 && (static_cast<unsigned char>(text[at - 1]) & 0xC0) == 0x80) --at;
  if (at == 0) return;
  const auto lead = static_cast<unsigned char>(text[at - 1]);
  const std::size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() - (at - 1) < size) text.resize(at - 1);
}

}  // namespace

CallReader::CallReader(const ToolTypes& types, std::size_t first_index,
                       std::function<std::string()> new_id, const Options& options)
    : types_(types),
      index_(first_index),
      new_id_(std::move(new_id)),
      options_(options),
      must_declare_(options.bare) {}

std::size_t CallReader::feed(std::string_view text) {
  std::size_t taken = 0;
  while (taken < text.size() && status_ != Status::closed && status_ != Status::broken) {
    step(text[taken++]);
  }
  if (state_ == State::value) stream_value(safe_end());
  if (state_ == State::value_end) stream_value(value_end());
  return taken;
}

void CallReader::step(char c) {
  if (status_ == Status::undecided) {
    raw_ += c;
    if (raw_.size() > kMaxHeld) return break_off();
  }
  switch (state_) {
    case State::opening:
      return step_opening(c);
    case State::json:
      return step_json(c);
    case State::name:
      return step_name(c);
    case State::named:
      return step_named(c);
    case State::parameter_name:
      return step_parameter_name(c);
    case State::value:
      return step_value(c);
    case State::value_end:
      return step_value_end(c);
    case State::after:
      return step_after(c);
  }
}

void CallReader::step_opening(char c) {
  if (pending_.empty() && is_blank(c)) return;
  if (options_.recover && pending_.empty() && c == '{') {
    state_ = State::json;
    return step_json(c);
  }
  pending_ += c;
  if (options_.recover && pending_ == kParameter) {
    must_declare_ = true;
  } else if (pending_ != kFunction) {
    const bool opens =
        kFunction.starts_with(pending_) || (options_.recover && kParameter.starts_with(pending_));
    if (!opens) break_off();
    return;
  }
  pending_.clear();
  state_ = State::name;
}

void CallReader::step_json(char c) {
  pending_ += c;
  if (in_string_) {
    if (c == '"' && !escaped_) in_string_ = false;
    escaped_ = c == '\\' && !escaped_;
    return;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') --depth_;
  if (depth_ == 0 && !take_json()) break_off();
}

// The call that the JSON is; false if it is none.
bool callable_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && trim(name) == name &&
         name.find_first_of("<>\n") == name.npos;
}

bool CallReader::take_json() {
  namespace json = boost::json;
  auto parsed = parse_json_exact(std::exchange(pending_, {}), "the call");
  json::object* call = parsed ? object_of(*parsed) : nullptr;
  const json::value* name = call ? call->if_contains("name") : nullptr;
  if (!name || !name->is_string() || !types_.declares(name->get_string())) return false;
  json::value* given = call->if_contains("arguments");
  if (!given) given = call->if_contains("parameters");
  json::value arguments = given ? std::move(*given) : json::object();
  if (const json::string* text = arguments.if_string()) {
    auto inner = parse_json_exact(*text, "the arguments");
    if (!inner) return false;
    arguments = std::move(*inner);
  }
  if (!object_of(arguments)) return false;
  must_declare_ = true;
  call_.name = name->get_string();
  arguments_ = std::move(arguments.get_object());
  announce();
  const std::string text = write_json(arguments_);
  emit(text.substr(1, text.size() - 2));
  finish_function();
  return true;
}

void CallReader::step_name(char c) {
  if (c != '>') {
    call_.name += c;
    if (c == '<' || call_.name.size() > kMaxName) break_off();
    return;
  }
  call_.name = trim(call_.name);
  if (call_.name.empty() || call_.name.find('\n') != std::string::npos) return break_off();
  if (must_declare_ && !types_.declares(call_.name)) return break_off();
  if (call_.name == kEnvelope && !types_.declares(kEnvelope)) return break_off();
  state_ = State::named;
}

void CallReader::step_named(char c) {
  if (pending_.empty() && is_blank(c)) return;
  pending_ += c;
  if (pending_ == kParameter) {
    announce();
    pending_.clear();
    parameter_.clear();
    state_ = State::parameter_name;
  } else if (pending_ == kFunctionEnd) {
    announce();
    finish_function();
  } else if (!kParameter.starts_with(pending_) && !kFunctionEnd.starts_with(pending_)) {
    break_off();
  }
}

void CallReader::announce() {
  status_ = Status::announced;
  fresh_ = false;
  raw_.clear();
  call_.id = new_id_();
  events_.push_back({OutputEvent::Kind::tool_call_begin, index_, call_.id, call_.name, {}});
  emit("{");
}

void CallReader::emit(std::string text) {
  if (text.empty()) return;
  if (!events_.empty() && events_.back().kind == OutputEvent::Kind::tool_arguments) {
    events_.back().text += text;
  } else {
    events_.push_back({OutputEvent::Kind::tool_arguments, index_, {}, {}, std::move(text)});
  }
}

void CallReader::step_parameter_name(char c) {
  if (c != '>' && (c != '\n' || trim(parameter_).empty())) {
    if (parameter_.size() < kMaxName) parameter_ += c;
    return;
  }
  drop_cut_character(parameter_);
  parameter_ = trim(parameter_);
  value_.assign(c == '\n' ? 1 : 0, '\n');
  streamed_ = 0;
  state_ = State::value;
  start_parameter();
}

void CallReader::start_parameter() {
  type_ = &types_.parameter(call_.name, parameter_);
  json_ = type_->only_string() ? Json::none : Json::undecided;
  repeated_ = arguments_.contains(parameter_);
  if (repeated_) return;
  std::string key = arguments_.empty() ? "" : ",";
  key += boost::json::serialize(boost::json::value(parameter_));
  key += ':';
  if (type_->only_string()) key += '"';
  emit(std::move(key));
}

// What is no JSON (a line break in a string) is taken as text from there on.
void CallReader::follow_json(char c) {
  switch (json_) {
    case Json::none:
      return;
    case Json::undecided:
      if (!is_blank(c)) json_ = c == '[' || c == '{' ? Json::outside : Json::none;
      return;
    case Json::outside:
      if (c == '"') json_ = Json::string;
      return;
    case Json::string:
    case Json::escape:
      if (static_cast<unsigned char>(c) < 0x20) {
        json_ = Json::none;
      } else if (json_ == Json::escape) {
        json_ = Json::string;
      } else if (c == '\\') {
        json_ = Json::escape;
      } else if (c == '"') {
        json_ = Json::outside;
      }
  }
}

void CallReader::step_value(char c) {
  value_ += c;
  follow_json(c);
  if (c != '>' || !value_.ends_with(kParameterEnd)) return;
  value_stop_ = value_.size() - kParameterEnd.size();
  pending_.clear();
  state_ = State::value_end;
}

void CallReader::step_value_end(char c) {
  value_ += c;
  follow_json(c);
  if (pending_.empty() && is_blank(c)) {
    if (value_.size() - value_stop_ > kMaxHeld) state_ = State::value;
    return;
  }
  pending_ += c;
  const bool mark = pending_ == kParameter || pending_ == kFunctionEnd;
  if (mark && json_ != Json::string) {
    const bool more = pending_ == kParameter;
    finish_parameter();
    pending_.clear();
    parameter_.clear();
    state_ = State::parameter_name;
    if (!more) finish_function();
  } else if (mark || (!kParameter.starts_with(pending_) && !kFunctionEnd.starts_with(pending_))) {
    pending_.clear();
    state_ = State::value;  // it was part of the value
  }
}

// The value proper lies between one newline at the front and one at the end.
std::size_t CallReader::value_end() const {
  const std::size_t begin = value_begin();
  std::size_t end = value_stop_;
  if (end > begin && value_[end - 1] == '\n') --end;
  return std::max(begin, end);
}

// Up to where a value that has not ended is certain.
std::size_t CallReader::safe_end() const {
  const std::string_view value = value_;
  for (std::size_t held = std::min(kValueEnd.size(), value.size()); held > 0; --held) {
    const std::string_view tail = value.substr(value.size() - held);
    if (kValueEnd.starts_with(tail) || kParameterEnd.starts_with(tail)) return value.size() - held;
  }
  return value.size();
}

void CallReader::stream_value(std::size_t end) {
  if (repeated_ || !type_->only_string()) return;
  const std::size_t begin = std::max(value_begin(), streamed_);
  if (end <= begin) return;
  const std::string text = boost::json::serialize(
      boost::json::string(std::string_view(value_).substr(begin, end - begin)));
  emit(text.substr(1, text.size() - 2));
  streamed_ = end;
}

void CallReader::finish_parameter() {
  if (repeated_) return;
  const std::size_t begin = value_begin();
  const std::string_view text = std::string_view(value_).substr(begin, value_end() - begin);
  if (type_->only_string()) {
    stream_value(value_end());
    emit("\"");
    arguments_.emplace(parameter_, text);
  } else {
    boost::json::value value = argument_value(*type_, text);
    if (!value.is_string()) ++counts_.typed;
    if (value.is_string() && !type_->string && !type_->any) ++counts_.untyped;
    emit(write_json(value));
    arguments_.emplace(parameter_, std::move(value));
  }
}

void CallReader::finish_function() {
  emit("}");
  events_.push_back({OutputEvent::Kind::tool_call_end, index_, {}, {}, {}});
  call_.arguments = std::move(arguments_);
  arguments_ = {};
  calls_.push_back(call_);
  ++counts_.whole;
  if (must_declare_) ++counts_.recovered;
  ++index_;
  pending_.clear();
  status_ = Status::whole;
  state_ = State::after;
}

void CallReader::step_after(char c) {
  if (pending_.empty() && is_blank(c)) return;
  pending_ += c;
  if (pending_ == kCallEnd) {
    pending_.clear();
    status_ = Status::closed;
  } else if (pending_ == kFunction) {
    raw_ = std::exchange(pending_, {});
    call_ = {};
    must_declare_ = false;
    status_ = Status::undecided;
    state_ = State::name;
  } else if (!kCallEnd.starts_with(pending_) && !kFunction.starts_with(pending_)) {
    status_ = Status::closed;
  }
}

}  // namespace strata::chat
