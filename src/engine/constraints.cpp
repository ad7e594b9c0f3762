#include "engine/constraints.h"

#include "base/clock.h"
#include "constrain/gbnf.h"

namespace strata {

bool PendingGrammar::ready() const {
  const std::lock_guard lock(mutex_);
  return grammar_.has_value();
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

Constraints::Constraints(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

void Constraints::stop() {
  worker_.stop();
}

std::shared_ptr<const PendingGrammar> Constraints::compile(const std::string& text,
                                                           std::function<void()> ready) {
  std::shared_ptr<PendingGrammar> pending;
  {
    const std::lock_guard lock(mutex_);
    if (auto kept = find(text)) {
      ++counters_.reused;
      return kept;
    }
    std::weak_ptr<PendingGrammar>& open = open_[text];
    pending = open.lock();
    if (pending) {
      const std::lock_guard inner(pending->mutex_);
      if (!pending->grammar_) pending->waiting_.push_back(std::move(ready));
      ++counters_.reused;
      return pending;
    }
    pending = std::make_shared<PendingGrammar>();
    pending->waiting_.push_back(std::move(ready));
    open = pending;
  }
  worker_.post([this, weak = std::weak_ptr(pending), text] { run(weak, text); });
  return pending;
}

void Constraints::run(const std::weak_ptr<PendingGrammar>& weak, const std::string& text) {
  const std::shared_ptr<PendingGrammar> pending = weak.lock();
  if (!pending) {  // cancelled meanwhile
    const std::lock_guard lock(mutex_);
    const auto open = open_.find(text);
    if (open != open_.end() && open->second.expired()) open_.erase(open);
    return;
  }
  const double start = monotonic_seconds();
  Grammars grammar = make(text);
  {
    const std::lock_guard lock(mutex_);
    counters_.microseconds += static_cast<std::uint64_t>(1e6 * (monotonic_seconds() - start));
    ++(grammar ? counters_.compiled : counters_.refused);
    open_.erase(text);
  }
  pending->set(grammar);
  if (grammar) keep(text, pending);
}

Grammars Constraints::make(const std::string& text) {
  STRATA_ASSIGN(auto words, vocabulary());
  STRATA_ASSIGN(const constrain::Grammar grammar,
                constrain::parse_gbnf(text, [this](std::string_view literal) {
                  return tokenizer_.special(literal);
                }));
  return constrain::CompiledGrammar::compile(grammar, std::move(words));
}

Result<std::shared_ptr<const constrain::Vocabulary>> Constraints::vocabulary() {
  if (vocabulary_) return vocabulary_;
  std::vector<std::string> texts(tokenizer_.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenKind kind = tokenizer_.kind(id);
    if (kind == TokenKind::normal || kind == TokenKind::byte) texts[i] = tokenizer_.bytes(id);
  }
  STRATA_ASSIGN(vocabulary_, constrain::Vocabulary::make(std::move(texts)));
  return vocabulary_;
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
