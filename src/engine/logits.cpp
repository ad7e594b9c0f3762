#include "engine/logits.h"

#include <algorithm>

#include "model/forward.h"
#include "model/open_network.h"
#include "model/reference.h"

namespace strata {
namespace {

Status reference_logits(const Network& network, std::span<const std::int32_t> ids,
                        const std::function<Status(std::span<const float>)>& rows,
                        const std::function<void(std::size_t)>& tell) {
  ReferenceWeights weights(network);
  ReferenceSequence sequence(weights);
  std::size_t done = 0;
  for (const std::int32_t id : ids) {
    STRATA_ASSIGN(const auto logits, sequence.read(id));
    STRATA_TRY(rows(logits));
    tell(++done);
  }
  return {};
}

}  // namespace

Status compute_logits(FileSystem& files, const LogitsOptions& options,
                      std::span<const std::int32_t> ids,
                      const std::function<Status(std::span<const float>)>& rows) {
  OpenOptions open;
  open.load.rule = options.cell_width ? SelectionRule::cell_width : SelectionRule::whole_blocks;
  open.progress = options.loading;
  STRATA_ASSIGN(const Network network, open_network(files, options.model_path, open));
  const auto tell = [&](std::size_t done) {
    if (options.progress) options.progress(done, ids.size());
  };
  tell(0);
  if (options.reference) return reference_logits(network, ids, rows, tell);

  NetworkShape shape = network.shape();
  shape.kv_type = options.kv_type;
  STRATA_ASSIGN(const auto backend, make_cpu_backend(shape, options.threads, options.isa));
  Forward forward(network, *backend);
  STRATA_ASSIGN(Sequence sequence, forward.new_sequence());
  const std::size_t chunk = options.chunk == 0 ? 512 : options.chunk;
  std::vector<std::uint32_t> wanted;
  std::vector<float> logits;
  for (std::size_t at = 0; at < ids.size(); at += chunk) {
    const auto window = ids.subspan(at, std::min(chunk, ids.size() - at));
    wanted.resize(window.size());
    for (std::uint32_t r = 0; r < wanted.size(); ++r) wanted[r] = r;
    logits.resize(window.size() * network.head.rows);
    const Forward::Rows part{&sequence, window};
    STRATA_TRY(forward.read({&part, 1}, wanted, logits));
    STRATA_TRY(rows(logits));
    tell(at + window.size());
  }
  return {};
}

}  // namespace strata
