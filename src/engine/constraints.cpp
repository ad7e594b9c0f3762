#include "engine/constraints.h"

#include "base/clock.h"
#include "constrain/gbnf.h"
#include "constrain/time_limit.h"

namespace strata {

bool PendingGrammar::ready() const {
  const std::lock_guard lock(mutex_);
  return grammar_.has_value();
}

bool PendingGrammar::failed() const {
  const std::lock_guard lock(mutex_);
  return grammar_ && !*grammar_;
}

Grammars PendingGrammar::result() const {
  const std::lock_guard lock(mutex_);
  if (!grammar_) return fail(ErrorCode::internal, "a grammar was used before it was compiled");
  return *grammar_;
}

void PendingGrammar::set(Grammars grammar) {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    grammar_ = std::move(grammar);
    waiting.swap(waiting_);
  }
  for (const auto& ready : waiting) ready();
}

Constraints::Constraints(const Tokenizer& tokenizer, const Turns& turns)
    : tokenizer_(tokenizer), turns_(turns) {}

void Constraints::stop() {
  worker_.stop();  // first: it gives the other one work
  later_worker_.stop();
}

Result<std::shared_ptr<const PendingGrammar>> Constraints::compile(const std::string& text,
                                                                   std::uint64_t client,
                                                                   std::function<void()> ready) {
  std::shared_ptr<PendingGrammar> pending;
  {
    const std::lock_guard lock(mutex_);
    if (auto kept = find(text)) {
      ++counters_.reused;
      return kept;
    }
    const auto open = open_.find(text);
    if (open != open_.end()) pending = open->second.pending.lock();
    if (pending) {
      const std::lock_guard inner(pending->mutex_);
      if (!pending->grammar_) pending->waiting_.push_back(std::move(ready));
      ++counters_.reused;
      return pending;
    }
    STRATA_TRY(find_place(client));
    pending = std::make_shared<PendingGrammar>();
    pending->waiting_.push_back(std::move(ready));
    open_[text] = {pending, client};
    waiting_[0].push(client, {pending, text, client});
  }
  worker_.post([this] { next_turn(0); });
  return pending;
}

// Under the lock.
Status Constraints::find_place(std::uint64_t client) {
  std::erase_if(open_, [](const auto& entry) { return entry.second.pending.expired(); });
  const std::size_t left = kMaxOpen - open_.size();
  const auto own = static_cast<std::size_t>(std::ranges::count_if(
      open_, [&](const auto& entry) { return entry.second.client == client; }));
  if (own < left) return {};
  if (left == 0) {
    return fail(ErrorCode::exhausted,
                "{} other constraints wait to be compiled, the limit; try again later", kMaxOpen);
  }
  return fail(ErrorCode::exhausted,
              "{} constraints of this client wait to be compiled, as many as places are left for "
              "all others; try again later",
              own);
}

// The first turn of one, or a later one of the one that had the fewest.
void Constraints::next_turn(std::size_t turn) {
  Order order;
  {
    const std::lock_guard lock(mutex_);
    while (turn > 0 && turn + 1 < waiting_.size() && waiting_[turn].empty()) ++turn;
    order = waiting_[turn].pop();
  }
  take_turn(order, turn);
}

void Constraints::take_turn(const Order& order, std::size_t turn) {
  const std::string& text = order.text;
  const std::shared_ptr<PendingGrammar> pending = order.pending.lock();
  if (!pending) {  // cancelled meanwhile
    const std::lock_guard lock(mutex_);
    const auto open = open_.find(text);
    if (open != open_.end() && open->second.pending.expired()) open_.erase(open);
    return;
  }
  const double start = monotonic_seconds();
  bool out_of_time = false;
  Grammars grammar = make(text, turns_[turn], out_of_time);
  const bool again = out_of_time && turn + 1 < turns_.size();
  {
    const std::lock_guard lock(mutex_);
    counters_.microseconds += static_cast<std::uint64_t>(1e6 * (monotonic_seconds() - start));
    if (again) {
      waiting_[turn + 1].push(order.client, order);
    } else {
      ++(grammar ? counters_.compiled : counters_.refused);
      open_.erase(text);
    }
  }
  if (again) return later_worker_.post([this] { next_turn(1); });
  pending->set(grammar);
  if (grammar) keep(text, pending);
}

Grammars Constraints::make(const std::string& text, double seconds, bool& out_of_time) {
  STRATA_ASSIGN(auto words, vocabulary());
  const constrain::TimeLimit time(seconds);
  const auto compiled = [&]() -> Grammars {
    STRATA_ASSIGN(const constrain::Grammar grammar,
                  constrain::parse_gbnf(text, [this](std::string_view literal) {
                    return tokenizer_.special(literal);
                  }));
    return constrain::CompiledGrammar::compile(grammar, std::move(words));
  };
  try {
    Grammars grammar = compiled();
    out_of_time = !grammar && time.passed();
    return grammar;
  } catch (const std::exception& failure) {
    // No memory. Whoever waits for it must hear so.
    return fail(ErrorCode::exhausted, "the constraint could not be compiled: {}", failure.what());
  }
}

Result<std::shared_ptr<const constrain::Vocabulary>> Constraints::vocabulary() {
  {
    const std::lock_guard lock(mutex_);
    if (vocabulary_) return vocabulary_;
  }
  std::vector<std::string> texts(tokenizer_.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = tokenizer_.kind(id);
    if (kind == TokenKind::normal || kind == TokenKind::byte) texts[i] = tokenizer_.bytes(id);
  }
  STRATA_ASSIGN(auto made, constrain::Vocabulary::make(std::move(texts)));
  const std::lock_guard lock(mutex_);
  return vocabulary_ = std::move(made);
}

std::shared_ptr<PendingGrammar> Constraints::find(const std::string& text) {
  const auto it = kept_.find(text);
  if (it == kept_.end()) return nullptr;
  ages_.splice(ages_.end(), ages_, it->second.age);
  return it->second.grammar;
}

void Constraints::keep(const std::string& text, const std::shared_ptr<PendingGrammar>& grammar) {
  const std::size_t bytes = text.size() + (*grammar->result())->bytes();
  const std::lock_guard lock(mutex_);
  if (bytes > kMaxKeptBytes || kept_.contains(text)) return;
  ages_.push_back(text);
  kept_[text] = {grammar, std::prev(ages_.end()), bytes};
  kept_bytes_ += bytes;
  while (kept_bytes_ > kMaxKeptBytes || kept_.size() > kMaxKept) {
    const auto oldest = kept_.find(ages_.front());
    kept_bytes_ -= oldest->second.bytes;
    kept_.erase(oldest);
    ages_.pop_front();
  }
}

EngineCounters::Grammars Constraints::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace strata
