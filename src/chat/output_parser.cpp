#include "chat/output_parser.h"

#include <algorithm>
#include <utility>

namespace strata::chat {

namespace {

constexpr std::string_view kLiterals[] = {"<think>", "</think>", "<tool_call>", "</tool_call>",
                                          "<function="};
constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kQuotationMarks = "\"'`";

template <class Marker>
std::string_view literal(Marker marker) {
  return kLiterals[static_cast<std::size_t>(marker)];
}

bool all_spaces(std::string_view text) {
  return text.find_first_not_of(kSpaces) == std::string_view::npos;
}

}  // namespace

OutputParser::OutputParser(const Tokenizer& tokenizer, ParserOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), types_(options_.tools) {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  random_.seed(seed);
  markers_ = options_.recover_calls && options_.parse_calls ? kMarkers : kMarkers - 1;
  for (std::size_t i = 0; i < markers_; ++i) {
    ids_[i] = tokenizer.special(kLiterals[i]);
    text_markers_ = text_markers_ || !ids_[i];
  }
  message_.role = "assistant";
  exact_ = options_.exact;
  state_ = options_.starts_in_thinking ? State::thinking : State::content;
}

std::string OutputParser::new_id() {
  static constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::uniform_int_distribution<std::size_t> pick(0, kAlphabet.size() - 1);
  std::string id = options_.call_id_prefix;
  for (int i = 0; i < 24; ++i) id += kAlphabet[pick(random_)];
  return id;
}

std::vector<OutputEvent> OutputParser::feed(TokenId id) {
  for (std::size_t i = 0; i < markers_; ++i) {
    if (ids_[i] != id) continue;
    take_text(utf8_.flush());
    if (state_ != State::call) {
      // The possible beginning of another marker was text after all.
      put_text(std::exchange(pending_, {}));
    }
    take_marker(static_cast<Marker>(i));
    return std::exchange(events_, {});
  }
  if (tokenizer_.kind(id) != TokenKind::control) take_text(utf8_.feed(tokenizer_.bytes(id)));
  return std::exchange(events_, {});
}

// --- text ---

// Whether a marker in letters may stand so far behind the text that was taken.
bool OutputParser::may_stand(Marker marker, std::size_t at) const {
  if (!exact_ || state_ != State::content) return true;
  return marker == Marker::call && options_.parse_calls && at == 0 && !content_.started;
}

std::optional<std::pair<std::size_t, OutputParser::Marker>> OutputParser::find_marker(
    std::string_view text) const {
  std::optional<std::pair<std::size_t, Marker>> first;
  for (std::size_t i = 0; i < markers_; ++i) {
    if (ids_[i]) continue;
    const std::size_t at = text.find(kLiterals[i]);
    if (at != std::string_view::npos && (!first || at < first->first) &&
        may_stand(static_cast<Marker>(i), at)) {
      first = {at, static_cast<Marker>(i)};
    }
  }
  return first;
}

// Bytes at the end of `text` that may become a marker.
std::size_t OutputParser::unfinished_marker(std::string_view text) const {
  std::size_t longest = 0;
  for (std::size_t i = 0; i < markers_; ++i) {
    if (ids_[i]) continue;
    for (std::size_t held = std::min(kLiterals[i].size() - 1, text.size()); held > longest;
         --held) {
      const std::size_t at = text.size() - held;
      if (kLiterals[i].starts_with(text.substr(at)) && may_stand(static_cast<Marker>(i), at))
        longest = held;
    }
  }
  return longest;
}

// Without tokens of their own, markers may be quoted: "the </think>" ends nothing. A function
// counts at the start of a line of the answer.
OutputParser::Quoted OutputParser::quoted(std::size_t at, Marker marker) const {
  if (marker == Marker::function) {
    CodeTracker code = content_.code;
    code.feed(std::string_view(pending_).substr(0, at));
    const bool counts = state_ == State::content && code.at_line_start() && !code.in_code();
    return counts ? Quoted::no : Quoted::yes;
  }
  if (marker != Marker::think_end || state_ != State::thinking) return Quoted::no;
  const char before = at > 0 ? pending_[at - 1] : last_;
  if (before == 0 || kQuotationMarks.find(before) == std::string_view::npos) return Quoted::no;
  const std::size_t next = at + literal(marker).size();
  if (next == pending_.size()) return Quoted::undecided;
  return pending_[next] == '\n' || pending_[next] == '\r' ? Quoted::no : Quoted::yes;
}

void OutputParser::take_text(std::string_view text) {
  pending_ += text;
  while (!pending_.empty()) {
    if (state_ == State::call) {
      feed_call();
      continue;
    }
    const auto marker = text_markers_ ? find_marker(pending_) : std::nullopt;
    const Quoted quote = marker ? quoted(marker->first, marker->second) : Quoted::no;
    std::size_t end = marker ? marker->first : pending_.size();
    if (!marker && text_markers_) end -= unfinished_marker(pending_);
    if (quote == Quoted::yes) end += literal(marker->second).size();
    const bool taken = marker && quote == Quoted::no;
    const std::string plain = pending_.substr(0, end);
    pending_.erase(0, end + (taken ? literal(marker->second).size() : 0));
    if (!plain.empty()) last_ = plain.back();
    put_text(plain);
    if (taken) {
      last_ = '>';
      take_marker(marker->second);
    } else if (quote != Quoted::yes) {
      return;
    }
  }
}

void OutputParser::feed_call() {
  std::size_t size = pending_.size();
  if (call_in_thinking_) {
    // Up to the limit of what is held, so that the limit does not depend on how the text is cut.
    size = std::min(size, kMaxHeld + 1 - std::min(kMaxHeld, held_text_.size()));
    while (size < pending_.size() && (pending_[size] & 0xC0) == 0x80) ++size;
  }
  const std::size_t taken = reader_->feed(std::string_view(pending_).substr(0, size));
  if (taken > 0) last_ = pending_[taken - 1];
  if (call_in_thinking_) held_text_ += std::string_view(pending_).substr(0, taken);
  pending_.erase(0, taken);
  after_call_text();
}

void OutputParser::put(Channel& channel, std::string_view text) {
  channel.code.feed(text);
  if (exact_ && &channel == &content_) return put_exact(text);
  if (!channel.started) {
    const std::size_t begin = text.find_first_not_of("\r\n");
    text.remove_prefix(std::min(begin, text.size()));
    if (text.empty()) return;
    channel.started = true;
    if (!channel.whole.empty()) channel.held = "\n\n";
  }
  const std::size_t last = text.find_last_not_of(kSpaces);
  if (last == std::string_view::npos) {
    channel.held += text;
  } else {
    channel.held += text.substr(0, last + 1);
    put_held(channel);
    channel.held = text.substr(last + 1);
  }
  while (channel.held.size() > kMaxHeld) {
    std::string rest = channel.held.substr(kMaxHeld + 1);
    channel.held.resize(kMaxHeld + 1);
    put_held(channel);
    channel.held = std::move(rest);
  }
}

void OutputParser::put_exact(std::string_view text) {
  for (; separator_ > 0 && text.starts_with('\n'); --separator_) text.remove_prefix(1);
  if (text.empty()) return;
  separator_ = 0;
  content_.started = true;
  content_.held += text;
  put_held(content_);
}

void OutputParser::put_held(Channel& channel) {
  std::string out = std::exchange(channel.held, {});
  if (out.empty()) return;
  channel.whole += out;
  if (!events_.empty() && events_.back().kind == channel.kind) {
    events_.back().text += out;
  } else {
    events_.push_back({channel.kind, 0, {}, {}, std::move(out)});
  }
}

// Text inside thinking; behind a held call it decides what that call was.
void OutputParser::put_thinking(std::string_view text) {
  if (held_text_.empty()) return put(thinking_, text);
  held_text_ += text;
  if (!all_spaces(text) || held_text_.size() > kMaxHeld) release_held_calls();
}

void OutputParser::restart(Channel& channel) {
  channel.started = false;
  channel.held.clear();
  channel.code.reset();
}

// --- markers ---

void OutputParser::take_marker(Marker marker) {
  if (state_ == State::call) {
    const CallReader::Status status = reader_->status();
    // A second opener: behind a whole call its closer was forgotten, in front of any call the first
    // opener was prose. Everywhere else a marker is part of a value.
    const bool reopens = marker == Marker::call && (status == CallReader::Status::whole ||
                                                    status == CallReader::Status::undecided);
    if (!reopens && !(call_in_thinking_ && marker == Marker::think_end)) {
      return take_text(literal(marker));
    }
    if (status == CallReader::Status::undecided && !call_in_thinking_) break_call();
    if (state_ == State::call) put_text(leave_call());
    put_text(std::exchange(pending_, {}));
  }
  state_ == State::thinking ? take_thinking_marker(marker) : take_content_marker(marker);
}

bool OutputParser::at_line_start() const {
  return !held_text_.empty() || !thinking_.started ||
         thinking_.held.find('\n') != std::string::npos;
}

void OutputParser::take_thinking_marker(Marker marker) {
  if (marker == Marker::think_end) {
    deliver_held_calls();
    restart(thinking_);
    if (exact_ && content_.whole.empty()) separator_ = 2;
    state_ = State::content;
  } else if (marker == Marker::call && options_.parse_calls && !types_.empty() && at_line_start() &&
             !thinking_.code.in_code()) {
    call_in_thinking_ = true;
    held_text_ += literal(Marker::call);
    open_call(false);
  } else if (marker != Marker::think || thinking_.started) {
    put_thinking(literal(marker));
  }
}

void OutputParser::take_content_marker(Marker marker) {
  const bool opens = marker == Marker::call || marker == Marker::think;
  const bool text =
      opens && ((marker == Marker::call && !options_.parse_calls) || content_.code.in_code());
  if (marker == Marker::function) {
    pending_.insert(0, literal(marker));
    open_call(true);
  } else if (marker == Marker::call && !text) {
    open_call(false);
  } else if (marker == Marker::think && !text) {
    restart(content_);
    state_ = State::thinking;
  } else if (content_.started || text) {
    put(content_, literal(marker));
  }
}

// --- calls ---

void OutputParser::open_call(bool bare) {
  bare_ = bare;
  reader_.emplace(
      types_, message_.tool_calls.size() + held_calls_.size(), [this] { return new_id(); },
      CallReader::Options{options_.recover_calls, bare});
  state_ = State::call;
}

// Moves what the reader has found to where it belongs, and leaves the call if it is over.
void OutputParser::after_call_text() {
  std::vector<OutputEvent> events = reader_->take_events();
  std::vector<ToolCall> calls = reader_->take_calls();
  (call_in_thinking_ ? held_counts_ : counts_) += reader_->take_counts();
  if (call_in_thinking_) {
    std::ranges::move(events, std::back_inserter(held_events_));
    std::ranges::move(calls, std::back_inserter(held_calls_));
    hold_call_in_thinking();
    return;
  }
  if (!events.empty()) {
    restart(content_);
    exact_ = false;
  }
  std::ranges::move(events, std::back_inserter(events_));
  std::ranges::move(calls, std::back_inserter(message_.tool_calls));
  if (reader_->status() == CallReader::Status::broken) {
    break_call();
  } else if (reader_->status() == CallReader::Status::closed) {
    pending_.insert(0, leave_call());
  }
}

// The block outside of thinking was no call (any more): its text is the answer's. What stands
// behind the opener is looked at again.
void OutputParser::break_call() {
  ++counts_.text;
  std::string_view again = reader_->raw();
  if (reader_->fresh()) {
    const std::string_view opener = literal(bare_ ? Marker::function : Marker::call);
    put(content_, opener);
    if (bare_) again.remove_prefix(std::min(opener.size(), again.size()));
  }
  pending_.insert(0, again);
  reader_.reset();
  state_ = State::content;
}

// The current call is over (or given up, if it was inside thinking that ends here). Returns text
// that was read behind it.
std::string OutputParser::leave_call() {
  const CallReader::Status status = reader_->status();
  const bool whole = status == CallReader::Status::whole || status == CallReader::Status::closed;
  std::string leftover = whole ? reader_->leftover() : "";
  reader_.reset();
  state_ = call_in_thinking_ ? State::thinking : State::content;
  if (!std::exchange(call_in_thinking_, false)) return leftover;
  if (whole) {
    held_text_.resize(held_text_.size() - leftover.size());
  } else {
    release_held_calls();
  }
  return leftover;
}

void OutputParser::hold_call_in_thinking() {
  const CallReader::Status status = reader_->status();
  const bool broken = status == CallReader::Status::broken;
  const bool undeclared =
      status != CallReader::Status::undecided && !types_.declares(reader_->name());
  if (broken || undeclared || held_text_.size() > kMaxHeld) {
    // What stands behind the opener of no call is looked at again.
    const std::string again = broken ? reader_->raw() : "";
    held_text_.resize(held_text_.size() - again.size());
    reader_.reset();
    call_in_thinking_ = false;
    state_ = State::thinking;
    release_held_calls();
    pending_.insert(0, again);
  } else if (status == CallReader::Status::closed) {
    pending_.insert(0, leave_call());
  }
}

void OutputParser::deliver_held_calls() {
  if (!held_events_.empty()) restart(content_);
  held_counts_.rescued = held_calls_.size();
  counts_ += std::exchange(held_counts_, {});
  std::ranges::move(held_events_, std::back_inserter(events_));
  std::ranges::move(held_calls_, std::back_inserter(message_.tool_calls));
  held_events_.clear();
  held_calls_.clear();
  held_text_.clear();
}

// They were quotes: their text is thinking.
void OutputParser::release_held_calls() {
  ++counts_.text;
  held_counts_ = {};
  held_events_.clear();
  held_calls_.clear();
  put(thinking_, std::exchange(held_text_, {}));
}

// --- the end ---

std::vector<OutputEvent> OutputParser::finish(bool complete) {
  take_text(utf8_.flush());
  if (state_ == State::call) {
    const bool undecided = reader_->status() == CallReader::Status::undecided;
    undecided && !call_in_thinking_ ? break_call() : put_text(leave_call());
  }
  put_text(std::exchange(pending_, {}));
  if (state_ == State::content) {
    put_held(content_);
  } else if (complete) {
    deliver_held_calls();
  } else if (!held_text_.empty()) {
    release_held_calls();
  }
  return std::exchange(events_, {});
}

}  // namespace strata::chat
