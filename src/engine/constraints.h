// Grammars of requests: compiled beside the model's work, and kept for the next request with the
// same text. Internal to the engine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "base/serial_worker.h"
#include "constrain/matcher.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace strata {

using Grammars = Result<std::shared_ptr<const constrain::CompiledGrammar>>;

// A grammar on its way. Any thread.
class PendingGrammar {
 public:
  bool ready() const;
  bool failed() const;      // it is ready, and an error
  Grammars result() const;  // once it is ready

 private:
  friend class Constraints;
  void set(Grammars grammar);

  mutable std::mutex mutex_;
  std::optional<Grammars> grammar_;
  std::vector<std::function<void()>> waiting_;
};

// What clients wait for: one of each client in turns, of one client in the order it came.
template <class Item>
class ClientQueue {
 public:
  void push(std::uint64_t client, Item item) {
    const auto known = std::ranges::find(clients_, client, &Waiting::client);
    Waiting& waiting =
        known != clients_.end() ? *known : clients_.emplace_back(Waiting{client, {}});
    waiting.items.push_back(std::move(item));
  }
  Item pop() {  // not of an empty queue
    Waiting next = std::move(clients_.front());
    clients_.pop_front();
    Item item = std::move(next.items.front());
    next.items.pop_front();
    if (!next.items.empty()) clients_.push_back(std::move(next));
    return item;
  }
  bool empty() const { return clients_.empty(); }

 private:
  struct Waiting {
    std::uint64_t client;
    std::deque<Item> items;
  };
  std::deque<Waiting> clients_;
};

// Any thread. Grammars are compiled in turns: each gets a moment, which is enough for nearly all. A
// second thread begins those again that need more, for a longer turn, and what needs more than that
// behind all others. Clients take turns, too. So a grammar waits a moment for each that its own
// client sent before it, and as often for one of every other client, however slow those are and
// however many. No more than kMaxOpen are open, and a client that has as many of them as there are
// places left gets no further one. One that nobody waits for any more is left out.
class Constraints {
 public:
  static constexpr std::size_t kMaxKept = 64;
  static constexpr std::size_t kMaxKeptBytes = std::size_t{256} << 20;
  static constexpr std::size_t kMaxOpen = 64;  // texts that are compiled or wait for it
  using Turns = std::array<double, 3>;         // seconds; the last is the limit
  static constexpr Turns kTurns = {0.05, 0.25, 2};

  explicit Constraints(const Tokenizer& tokenizer,  // which must outlive this
                       const Turns& turns = kTurns);

  // `ready` is called by another thread when the result is there, unless it is there at once.
  // `exhausted` where there is no place for another one. A text that is open already takes none.
  Result<std::shared_ptr<const PendingGrammar>> compile(const std::string& text,
                                                        std::uint64_t client,
                                                        std::function<void()> ready);
  EngineCounters::Grammars counters() const;
  void stop();  // no `ready` is called any more

 private:
  struct Order {
    std::weak_ptr<PendingGrammar> pending;
    std::string text;
    std::uint64_t client = 0;
  };
  struct Open {
    std::weak_ptr<PendingGrammar> pending;
    std::uint64_t client = 0;
  };
  Grammars make(const std::string& text, double seconds, bool& out_of_time);
  Result<std::shared_ptr<const constrain::Vocabulary>> vocabulary();
  Status find_place(std::uint64_t client);
  void next_turn(std::size_t turn);
  void take_turn(const Order& order, std::size_t turn);
  std::shared_ptr<PendingGrammar> find(const std::string& text);
  void keep(const std::string& text, const std::shared_ptr<PendingGrammar>& grammar);

  struct Entry {
    std::shared_ptr<PendingGrammar> grammar;
    std::list<std::string>::iterator age;
    std::size_t bytes = 0;
  };

  const Tokenizer& tokenizer_;
  const Turns turns_;
  mutable std::mutex mutex_;
  std::shared_ptr<const constrain::Vocabulary> vocabulary_;  // made when first needed
  std::unordered_map<std::string, Entry> kept_;              // by text
  std::unordered_map<std::string, Open> open_;               // being compiled, by text
  std::list<std::string> ages_;                              // the least recently used first
  std::size_t kept_bytes_ = 0;
  EngineCounters::Grammars counters_;
  std::array<ClientQueue<Order>, std::tuple_size_v<Turns>> waiting_;  // by how many turns they had
  // Last: nothing runs when the rest is gone. `worker_` gives first turns, `later_worker_` the
  // others.
  SerialWorker later_worker_, worker_;
};

}  // namespace strata
