// What a compiled grammar is. Immutable but for what is found out about it on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "constrain/automata.h"
#include "constrain/mask_cache.h"
#include "constrain/matcher.h"
#include "constrain/spans.h"

namespace strata::constrain {

struct CompiledGrammar::Tables {
  Tables(std::shared_ptr<const Vocabulary> texts, const CompileLimits& most, Automata compiled)
      : vocabulary(std::move(texts)),
        limits(most),
        automata(std::move(compiled)),
        masks(most.mask_cache_bytes),
        spans_(automata) {}

  Span span_of(std::uint32_t state) const {
    const std::lock_guard guard(lock_);
    return spans_.of(state);
  }

  const std::shared_ptr<const Vocabulary> vocabulary;
  const CompileLimits limits;
  const Automata automata;
  mutable MaskCache masks;

 private:
  mutable std::mutex lock_;
  mutable Spans spans_;
};

}  // namespace strata::constrain
