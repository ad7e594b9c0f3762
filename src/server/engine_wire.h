// What the server and the engine process say to each other: frames of a length, a kind and a
// payload over a stream socket. Both sides are the same program, but neither trusts the other's
// bytes: a process may be half dead.
//
//   frame    u32 length of kind and payload, u8 kind, payload; little-endian
//   version  the first frame of both sides; other versions are refused
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace strata::server {

inline constexpr std::uint32_t kWireVersion = 5;
inline constexpr std::uint32_t kMaxFrame = std::uint32_t{64} << 20;

enum class FrameKind : std::uint8_t {
  // To the engine.
  hello = 1,   // u32 version
  submit = 2,  // u64 id, request
  cancel = 3,  // u64 id
  ping = 4,    // u64 number
  quit = 5,
  conversation = 6,  // u64 id, task
  // From the engine.
  loading = 16,         // text
  ready = 17,           // u32 version, facts
  failed = 18,          // error: it cannot start, or not go on; the last frame
  pong = 19,            // u64 number, counters
  progress = 20,        // u64 id, u32 read, u32 total
  prompt_chances = 21,  // u64 id, chances
  token = 22,           // u64 id, i32 token, u8 whether chances follow, chances
  finished = 23,        // u64 id, completion
  queued = 24,          // u64 id, u32 requests before it
  started = 25,         // u64 id, u32 tokens of its prompt that need not be read
  conversed = 26,       // u64 id, u8 whether it is done, what was done or the error
};

struct Frame {
  FrameKind kind{};
  std::string payload;
};

// Appends plain values.
class WireWriter {
 public:
  explicit WireWriter(FrameKind kind);
  WireWriter& u8(std::uint8_t value);
  WireWriter& u32(std::uint32_t value);
  WireWriter& u64(std::uint64_t value);
  WireWriter& f32(float value);
  WireWriter& f64(double value);
  WireWriter& text(std::string_view value);
  WireWriter& chances(const TokenChances& value);
  WireWriter& request(const Request& value);
  WireWriter& completion(const Completion& value);
  WireWriter& task(const ConversationTask& value);
  WireWriter& result(const Result<ConversationResult>& value);
  WireWriter& error(const Error& value);
  WireWriter& facts(const EngineFacts& value);
  WireWriter& counters(const EngineCounters& value);
  std::string frame() &&;  // with its length

 private:
  std::string bytes_;
};

// Reads them back. After a failure every value is zero; check done() at the end.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  std::uint8_t u8();
  std::uint32_t u32();
  std::uint64_t u64();
  float f32();
  double f64();
  std::string text();
  TokenChances chances();
  Request request();
  Completion completion();
  ConversationTask task();
  Result<ConversationResult> result();
  Error error();
  EngineFacts facts();
  EngineCounters counters();
  // Nothing was missing, nothing is left.
  Status done() const;

 private:
  std::string_view take(std::size_t size);
  // One of an enumeration's values.
  template <class Enum>
  Enum word(Enum last) {
    const std::uint8_t value = u8();
    if (value > static_cast<std::uint8_t>(last)) failed_ = true;
    return failed_ ? Enum{} : static_cast<Enum>(value);
  }
  // A count of things that take at least `each` bytes.
  std::uint32_t count(std::size_t each);

  std::string_view bytes_;
  bool failed_ = false;
};

// Cuts a stream of bytes into frames.
class FrameCutter {
 public:
  void feed(std::string_view bytes);
  // The next whole frame; none yet; or `corrupt` for a length that no frame has.
  Result<std::optional<Frame>> next();

 private:
  std::string held_;
  std::size_t at_ = 0;
};

}  // namespace strata::server
