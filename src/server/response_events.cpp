#include "server/response_events.h"

#include <atomic>

#include "base/json_number.h"
#include "server/answer_json.h"
#include "server/request_fields.h"

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;  // read at a time, before the system must take it

std::string event_text(std::string_view type, std::uint64_t number, std::string_view members,
                       const std::optional<std::string>& delta) {
  members = members.substr(1, members.size() - 2);  // without the braces
  std::string text =
      fmt::format("event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1}{2}{3}", type,
                  number, members.empty() ? "" : ",", members);
  if (delta) text.append(",\"delta\":").append(json::serialize(json::string(*delta)));
  return text.append("}\n\n");
}

}  // namespace

std::string response_event(std::string_view type, std::uint64_t number, const json::object& data) {
  return event_text(type, number, write_json(data), std::nullopt);
}

// One client. Runs on its connection's strand but for wake().
class ResponseEvents::Reader : public std::enable_shared_from_this<Reader> {
 public:
  Reader(std::shared_ptr<ResponseEvents> events, Writer writer, std::uint64_t from)
      : events_(std::move(events)), writer_(std::move(writer)), at_(from) {}

  void wake() {
    if (woken_.exchange(true)) return;
    writer_->post([self = shared_from_this()] { self->go_on(); });
  }
  void go_on() {
    woken_ = false;
    if (sending_ || over_) return;
    std::string piece;
    {
      const std::lock_guard lock(events_->mutex_);
      const std::uint64_t end = events_->first_event_ + events_->events_.size();
      if (at_ < events_->first_event_) {
        over_ = true;
        piece = response_event("error", at_,
                               {{"code", "events_lost"},
                                {"message",
                                 "the client read so slowly that the next events are "
                                 "no longer kept; ask for the response without stream"},
                                {"param", nullptr}});
      }
      while (!over_ && at_ < end && piece.size() < kPieceBytes) {
        piece += events_->text(
            events_->events_[static_cast<std::size_t>(at_ - events_->first_event_)], at_);
        ++at_;
      }
      over_ = over_ || (events_->ended_ && at_ >= end);
    }
    if (!piece.empty()) writer_->write(std::move(piece));
    if (over_) return writer_->end_stream();
    sending_ = true;
    writer_->when_sent([self = shared_from_this()] {
      self->sending_ = false;
      self->look();
    });
  }

 private:
  // Goes on if there is something to read; else the next event wakes it.
  void look() {
    {
      const std::lock_guard lock(events_->mutex_);
      const std::uint64_t end = events_->first_event_ + events_->events_.size();
      if (at_ >= end && !events_->ended_) return;
    }
    go_on();
  }

  const std::shared_ptr<ResponseEvents> events_;
  const Writer writer_;
  std::uint64_t at_;      // the next event
  bool sending_ = false;  // the system has not taken all yet
  bool over_ = false;
  std::atomic<bool> woken_{false};
};

void ResponseEvents::add(std::string_view type, json::object data) {
  std::optional<std::string> delta;
  if (const auto found = data.find("delta"); found != data.end() && found->value().is_string()) {
    delta = std::string(view(found->value().get_string()));
    data.stable_erase(found);
  }
  const std::lock_guard lock(mutex_);
  push({std::string(type), write_json(data)}, std::move(delta));
  std::erase_if(readers_, [](const auto& known) { return known.expired(); });
  for (const auto& known : readers_) {
    if (const auto reader = known.lock()) reader->wake();
  }
}

void ResponseEvents::push(Frame frame, std::optional<std::string> delta) {
  if (frames_.empty() || frames_.back() != frame) {
    bytes_ += sizeof(Frame) + frame.type.size() + frame.members.size();
    frames_.push_back(std::move(frame));
  }
  bytes_ += sizeof(Event) + (delta ? delta->size() : 0);
  events_.push_back({first_frame_ + frames_.size() - 1, std::move(delta)});
  while (bytes_ > limit_ && events_.size() > 1) drop_oldest();
}

void ResponseEvents::drop_oldest() {
  const auto& delta = events_.front().delta;
  bytes_ -= sizeof(Event) + (delta ? delta->size() : 0);
  events_.pop_front();
  ++first_event_;
  while (first_frame_ < events_.front().frame) {
    const Frame& frame = frames_.front();
    bytes_ -= sizeof(Frame) + frame.type.size() + frame.members.size();
    frames_.pop_front();
    ++first_frame_;
  }
}

std::string ResponseEvents::text(const Event& event, std::uint64_t number) const {
  const Frame& frame = frames_[static_cast<std::size_t>(event.frame - first_frame_)];
  return event_text(frame.type, number, frame.members, event.delta);
}

void ResponseEvents::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (const auto& known : readers_) {
    if (const auto reader = known.lock()) reader->wake();
  }
}

std::uint64_t ResponseEvents::first() const {
  const std::lock_guard lock(mutex_);
  return first_event_;
}

std::uint64_t ResponseEvents::next() const {
  const std::lock_guard lock(mutex_);
  return first_event_ + events_.size();
}

void ResponseEvents::stream(const Writer& writer, std::uint64_t from) {
  auto reader = std::make_shared<Reader>(shared_from_this(), writer, from);
  writer->begin_stream(stream_head(""), [] { return std::string(": keep-alive\n\n"); });
  writer->on_close([reader] {});  // owns it for as long as its client is there
  {
    const std::lock_guard lock(mutex_);
    readers_.push_back(reader);
  }
  reader->wake();
}

std::string ResponseEvents::stored() const {
  const std::lock_guard lock(mutex_);
  std::string text = fmt::format("{{\"first\":{},\"frames\":[", first_event_);
  const auto string = [](const std::string& value) { return json::serialize(json::string(value)); };
  for (const Frame& frame : frames_) {
    text += fmt::format("{}[{},{}]", text.back() == '[' ? "" : ",", string(frame.type),
                        string(frame.members));
  }
  text += "],\"events\":[";
  for (const Event& event : events_) {
    if (text.back() != '[') text += ',';
    text += std::to_string(event.frame - first_frame_);
    if (event.delta) text.append(",").append(string(*event.delta));
  }
  return text.append("]}");
}

Result<std::shared_ptr<ResponseEvents>> ResponseEvents::from(std::string_view stored) {
  STRATA_ASSIGN(const json::value value, parse_json(stored, "stored events", 4));
  auto events = std::make_shared<ResponseEvents>(SIZE_MAX);
  const auto bad = [] {
    return fail(ErrorCode::invalid_argument, "the stored events are damaged");
  };
  const auto* object = value.if_object();
  if (object == nullptr) return bad();
  const json::value* first = object->if_contains("first");
  const json::value* frames = object->if_contains("frames");
  const json::value* list = object->if_contains("events");
  if (first == nullptr || !first->is_int64() || first->get_int64() < 0 || frames == nullptr ||
      !frames->is_array() || list == nullptr || !list->is_array()) {
    return bad();
  }
  events->first_event_ = static_cast<std::uint64_t>(first->get_int64());
  for (const json::value& frame : frames->get_array()) {
    const auto* pair = frame.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_string() || (*pair)[1].get_string().size() < 2) {
      return bad();
    }
    events->frames_.push_back(
        {std::string(view((*pair)[0].get_string())), std::string(view((*pair)[1].get_string()))});
  }
  // Numbers of frames; a string is the delta of the one before it.
  for (const json::value& one : list->get_array()) {
    if (one.is_string() && !events->events_.empty()) {
      events->events_.back().delta = std::string(view(one.get_string()));
    } else if (one.is_int64() && one.get_int64() >= 0 &&
               static_cast<std::uint64_t>(one.get_int64()) < events->frames_.size()) {
      events->events_.push_back({static_cast<std::uint64_t>(one.get_int64()), std::nullopt});
    } else {
      return bad();
    }
  }
  events->ended_ = true;
  return events;
}

}  // namespace strata::server
