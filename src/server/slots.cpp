#include "server/slots.h"

#include <algorithm>
#include <tuple>

namespace strata::server {

std::shared_ptr<const Slots::Place> Slots::take(std::span<const TokenId> prompt) {
  const std::lock_guard lock(mutex_);
  Slot* best = nullptr;
  const auto worth = [&](const Slot& slot) {
    const bool goes_on = slot.tokens.size() <= prompt.size() &&
                         std::equal(slot.tokens.begin(), slot.tokens.end(), prompt.begin());
    return std::tuple(goes_on ? slot.tokens.size() : 0, slot.tokens.empty(), ~slot.used);
  };
  for (Slot& slot : slots_) {
    if (!slot.taken && (best == nullptr || worth(slot) > worth(*best))) best = &slot;
  }
  if (best == nullptr) return nullptr;
  best->taken = true;
  best->used = ++clock_;
  return std::make_shared<const Place>(shared_from_this(),
                                       static_cast<std::size_t>(best - slots_.data()));
}

void Slots::release(std::size_t number) {
  const std::lock_guard lock(mutex_);
  slots_.at(number).taken = false;
}

Slots::Held Slots::held(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return slots_.at(number);
}

std::size_t Slots::held_tokens(std::size_t number) const {
  const std::lock_guard lock(mutex_);
  return slots_.at(number).tokens.size();
}

void Slots::hold(std::size_t number, std::vector<TokenId> tokens, std::size_t prompt) {
  const std::lock_guard lock(mutex_);
  slots_.at(number).tokens = std::move(tokens);
  slots_.at(number).prompt = prompt;
}

}  // namespace strata::server
