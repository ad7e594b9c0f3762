#include "server/engine_sums.h"

#include <algorithm>
#include <utility>

namespace strata::server {

EngineCounters sum_of(EngineCounters before, const EngineCounters& now) {
  before.ngram_tables.resize(std::max(before.ngram_tables.size(), now.ngram_tables.size()));
  for (std::size_t i = 0; i < now.ngram_tables.size(); ++i) {
    TableStats sum = now.ngram_tables[i];
    const TableStats& past = before.ngram_tables[i];
    sum.rows += past.rows;
    sum.requests += past.requests;
    sum.prefetched += past.prefetched;
    sum.prefetch_dropped += past.prefetch_dropped;
    sum.reads += past.reads;
    sum.read_bytes += past.read_bytes;
    sum.retries += past.retries;
    sum.cancelled += past.cancelled;
    sum.keep_alive += past.keep_alive;
    before.ngram_tables[i] = std::move(sum);
  }
  before.drafts.rounds += now.drafts.rounds;
  before.drafts.drafted += now.drafts.drafted;
  before.drafts.accepted += now.drafts.accepted;
  for (std::size_t i = 0; i < kMaxDrafts; ++i) {
    before.drafts.drafted_at[i] += now.drafts.drafted_at[i];
    before.drafts.accepted_at[i] += now.drafts.accepted_at[i];
  }
  EngineCounters::Cache cache = now.cache;
  cache.tokens += before.cache.tokens;
  cache.disk_tokens += before.cache.disk_tokens;
  cache.evicted += before.cache.evicted;
  cache.disk_misses += before.cache.disk_misses;
  before.cache = cache;
  before.reserved_bytes = now.reserved_bytes;
  before.experts = now.experts + before.experts;
  before.grammars.compiled += now.grammars.compiled;
  before.grammars.reused += now.grammars.reused;
  before.grammars.refused += now.grammars.refused;
  before.grammars.microseconds += now.grammars.microseconds;
  return before;
}

}  // namespace strata::server
