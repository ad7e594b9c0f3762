// The places in which answers run, as llama.cpp's API names them: which are taken, and which
// conversation each held last. The engine knows conversations by their tokens and has no places.
// Thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tokenizer/token.h"

namespace strata::server {

class Slots : public std::enable_shared_from_this<Slots> {
 public:
  explicit Slots(std::size_t count) : slots_(count) {}

  // A taken place; free again at its end.
  class Place {
   public:
    Place(std::shared_ptr<Slots> slots, std::size_t number)
        : slots_(std::move(slots)), number_(number) {}
    ~Place() { slots_->release(number_); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    std::size_t number() const { return number_; }
    // What it holds from now on: a prompt and what was written after it.
    void hold(std::vector<TokenId> tokens, std::size_t prompt) const {
      slots_->hold(number_, std::move(tokens), prompt);
    }

   private:
    std::shared_ptr<Slots> slots_;
    std::size_t number_;
  };
  // The free place whose conversation is the longest that the prompt begins with, else an empty
  // one, else the one that was used the longest time ago. None where all are taken: the engine and
  // the server do not see the end of an answer at the same moment.
  std::shared_ptr<const Place> take(std::span<const TokenId> prompt);

  struct Held {
    bool taken = false;
    std::vector<TokenId> tokens;  // empty: nothing
    std::size_t prompt = 0;       // of them, the prompt's
  };
  Held held(std::size_t number) const;
  std::size_t held_tokens(std::size_t number) const;
  void hold(std::size_t number, std::vector<TokenId> tokens, std::size_t prompt);

 private:
  void release(std::size_t number);

  struct Slot : Held {
    std::uint64_t used = 0;
  };
  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  std::uint64_t clock_ = 0;
};

}  // namespace strata::server
