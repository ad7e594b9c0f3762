// The network on one screen: every tensor of a qwen4exp model with its place. Shapes stand in
// compute/weights.h; GGUF names in network.cpp; the mathematics in reference.cpp.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "compute/backend.h"
#include "compute/weights.h"
#include "gguf/gguf.h"
#include "model/hyperparams.h"
#include "ple/ngram.h"
#include "ple/open_table.h"

namespace strata {

struct Block {
  LayerKind kind = LayerKind::gdn;
  std::optional<NgramWeights> ngram;    // injected before the first read
  std::optional<NgramHash> ngram_hash;  // with it: which rows of the table
  std::shared_ptr<RowTable> ngram_table;
  ResidualWeights attention_residual;
  DeltaNetWeights delta_net;   // kind gdn
  AttentionWeights attention;  // kind qsa
  ResidualWeights experts_residual;
  ExpertsWeights experts;
};

// The MTP block: cell i takes the wide residual of position i and token i+1, drafts token i+2.
struct DraftBlock {
  DraftWeights input;
  Block block;  // dense attention, no n-gram
  ResidualWeights mixer;
};

struct Network {
  HyperParams params;
  ResidualShape residual;
  Matrix embedding;  // [vocabulary x hidden]
  Matrix head;       // [vocabulary x hidden]; the embedding when tied
  ResidualWeights mixer;
  std::vector<Block> blocks;
  std::optional<DraftBlock> draft;

  std::uint64_t parameters = 0;                     // all tensors
  std::uint64_t weight_bytes = 0;                   // as stored
  std::shared_ptr<const GgufModel> file;            // keeps the views alive
  std::shared_ptr<ExpertSource> experts;            // of all blocks
  std::vector<std::unique_ptr<float[]>> converted;  // vectors the file does not store as F32

  // The experts of all blocks, the draft block's last: in the order in which a source counts them.
  std::vector<ExpertsWeights*> expert_layers();
  // Takes the bytes of all experts from there.
  void take_experts_from(std::shared_ptr<ExpertSource> source);

  // `drafts`: with the draft block, if there is one.
  NetworkShape shape(bool drafts = false) const;
};

struct LoadOptions {
  SelectionRule rule = SelectionRule::whole_blocks;
  // Where n-gram tables are read from if not from the mapped file; null: mapped.
  FileSystem* files = nullptr;
  TableOptions table;      // the cache is shared out among the layers that have one
  bool in_memory = false;  // the file's weights were copied to memory
};

// Checks every tensor: present, of the right shape and of a type that can be decoded. Errors name
// the tensor with both shapes; tensors that no rule asks for are an error too.
Result<Network> load_network(std::shared_ptr<const GgufModel> file,
                             const LoadOptions& options = {});

}  // namespace strata
