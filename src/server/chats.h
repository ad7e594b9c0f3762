// /v1/chats: conversations that clients keep on the server. docs/api.md has the paths. Each belongs
// to the key it was made with (`owner`, see Access::owner). The database is used on a thread of its
// own, so that a large chat holds up nobody's stream.
#pragma once

#include <memory>
#include <string>

#include "base/serial_worker.h"
#include "server/answer_json.h"
#include "server/chat_store.h"

namespace strata::server {

inline constexpr std::size_t kMaxChatBytes = std::size_t{8} << 20;  // of a content's JSON
inline constexpr std::size_t kMaxChatTitle = 1000;                  // bytes
inline constexpr std::size_t kMaxSearchBytes = 1000;
inline constexpr std::size_t kMaxSearchWords = 32;

class Chats : public std::enable_shared_from_this<Chats> {
 public:
  // Without a store every request is answered 501: chats are switched off.
  explicit Chats(std::unique_ptr<ChatStore> store) : store_(std::move(store)) {}

  void list(const std::string& owner, std::string_view query, const Writer& writer);
  void add(const std::string& owner, std::string_view body, const Writer& writer);
  void get(const std::string& owner, const std::string& id, const Writer& writer);
  void change(const std::string& owner, const std::string& id, std::string_view body,
              const Writer& writer);
  void remove(const std::string& owner, const std::string& id, const Writer& writer);
  void stop() { worker_.stop(); }  // finishes what has come

 private:
  bool off(const Writer& writer) const;
  template <class Work>
  void run(Work work);  // work(store) on the worker

  std::unique_ptr<ChatStore> store_;
  SerialWorker worker_;
};

}  // namespace strata::server
