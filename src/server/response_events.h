// The events of one response that runs in the background: told by what makes the response, read by
// any number of clients, each from where it likes and as fast as it likes. Thread safe.
//
// What callers may rely on
// - Events have the numbers 0, 1, 2 and so on, and each has the same bytes whoever reads it when,
//   also after stored() and from(): a client that lost its connection goes on without a gap.
// - A reader that is slow makes nobody wait and takes no memory: it is behind, and reads on when
// the
//   system has taken what it got.
// - The memory is bounded: beyond kMaxEventBytes the oldest events go. A reader that still needed
//   them is told so and ends.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http.h"

namespace strata::server {

inline constexpr std::size_t kMaxEventBytes = std::size_t{8} << 20;  // of one response

// One event as a stream carries it: "type" and "sequence_number", then the members of `data`.
std::string response_event(std::string_view type, std::uint64_t number,
                           const boost::json::object& data);

class ResponseEvents : public std::enable_shared_from_this<ResponseEvents> {
 public:
  explicit ResponseEvents(std::size_t bytes = kMaxEventBytes) : limit_(bytes) {}

  void add(std::string_view type, boost::json::object data);
  void end();                   // the last one was told
  std::uint64_t first() const;  // the oldest that is kept
  std::uint64_t next() const;   // the number of the next one

  // Answers with the events from `from` on, and those that come, to the end.
  void stream(const std::shared_ptr<ResponseWriter>& writer, std::uint64_t from);

  // All of it as text, and back, ended.
  std::string stored() const;
  static Result<std::shared_ptr<ResponseEvents>> from(std::string_view stored);

 private:
  // What the many deltas of one text have in common is kept once.
  struct Frame {
    std::string type;
    std::string members;  // of the event's data but for "delta", as JSON
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  struct Event {
    std::uint64_t frame;
    std::optional<std::string> delta;
  };
  class Reader;

  void push(Frame frame, std::optional<std::string> delta);
  void drop_oldest();
  std::string text(const Event& event, std::uint64_t number) const;

  mutable std::mutex mutex_;
  const std::size_t limit_;
  std::deque<Frame> frames_;
  std::deque<Event> events_;
  std::uint64_t first_frame_ = 0, first_event_ = 0;  // numbers of the front ones
  std::size_t bytes_ = 0;
  bool ended_ = false;
  std::vector<std::weak_ptr<Reader>> readers_;
};

}  // namespace strata::server
