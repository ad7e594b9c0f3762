// What a device must do for the forward pass: the coarse operations of the network on one window of
// token rows. The forward pass (model/forward.h) calls them in the network's order; a backend may
// fuse, reorder and place as it likes as long as each row's result depends on that row's sequence
// alone (same tokens whatever the window).
//
// Between begin() and end() the backend holds, for the T rows of the window:
//   R [T x streams * hidden]  the wide residual
//   m [T x hidden]            what read() made of it, the input of a block
//   w [T x streams]           the gates of the next write()
//   y [T x hidden]            the output of the last block
// One window at a time; a Backend belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "compute/kv_type.h"
#include "compute/weights.h"

namespace strata {

// The kinds and sizes of all layers: what state a sequence needs.
struct NetworkShape {
  struct Layer {
    bool attention = false;  // else a delta net
    // Of the draft block, which stands last. Its cell i takes token i + 1; it is stored with that
    // token's page, so that what a page holds depends on the tokens up to its end alone.
    bool draft = false;
    DeltaNetShape delta_net;
    AttentionShape attention_shape;
    bool ngram = false;
    NgramShape ngram_shape;
  };
  ResidualShape residual;
  std::vector<Layer> layers;
  KvType kv_type = KvType::f32;    // of the cells of attention
  std::uint32_t stream_rank = 0;   // of the read gates
  std::uint32_t experts = 0;       // most that any layer has
  std::uint32_t experts_used = 0;  // per token
  std::uint32_t expert_ff = 0, shared_ff = 0;
};

// Most rows at the end of a window that may be taken back.
inline constexpr std::uint32_t kMaxTentative = 15;

// Caches and recurrent states of one sequence on one backend. Belongs to one thread at a time.
//
// Cells of attention lie in pages of page_tokens() positions that hold all layers. A page that is
// shared with another state is copied before it is written, so a fork costs its recurrent states
// only. The content of a page whose positions all have been read, and settled, depends on the
// tokens up to its end alone.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  virtual std::uint32_t tokens() const = 0;  // positions that stand in the caches

  // A state of the same contents, without the last `before` rows, that goes on by itself. These
  // must be all of the last window's tentative rows, or none: then the state must be settled.
  virtual Result<std::unique_ptr<SequenceState>> fork(std::uint32_t before = 0) const = 0;
  // The last rows of the last window were not to be; at most its tentative ones.
  virtual void take_back(std::uint32_t rows) = 0;

  // Memory for the cells of `tokens` positions in all: from now on none is taken for them. On
  // failure (`exhausted`) what was there stays.
  virtual Status reserve(std::uint32_t tokens) = 0;
  virtual void trim() = 0;  // gives back what was reserved beyond tokens()

  virtual std::size_t own_bytes() const = 0;  // all but pages
  using Page = std::shared_ptr<const std::byte[]>;
  virtual std::vector<Page> pages() const = 0;  // of the positions up to tokens()
  // Everything but pages, self-describing, of a settled state. Restoring it together with the pages
  // gives the same bits as having read the tokens. restore() checks sizes and shape and leaves the
  // state as it was on failure.
  virtual Bytes save() const = 0;
  virtual Status restore(std::span<const std::byte> saved, std::span<const Page> pages) = 0;
};

// Consecutive rows of one sequence inside a window.
struct WindowPart {
  SequenceState* state = nullptr;
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint32_t position = 0;   // of the first row: state->tokens(), or the draft block's cell
  std::uint32_t tentative = 0;  // of the rows, the last ones, that may be taken back
};

struct Window {
  std::span<const std::int32_t> tokens;  // T ids, inside the vocabulary
  std::span<const WindowPart> parts;     // cover all rows in order, each state once
  bool draft = false;                    // rows of the draft block: states do not move on
};

// A matrix product that a backend has, and how often it ran.
struct KernelUse {
  std::string isa, format, inputs;  // "avx2", "Q4_K", "bytes"
  bool few_tokens = false;          // for decoding, else for prompts
  std::string way;                  // the backend's word for how
  std::uint64_t parts = 0;          // pieces of work since the backend was made
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string isa() const = 0;  // of the kernels in use, "avx512"
  virtual std::uint32_t threads() const = 0;

  virtual Result<std::unique_ptr<SequenceState>> new_sequence() = 0;
  // Of the pages of all states.
  virtual std::uint32_t page_tokens() const = 0;
  virtual std::size_t page_bytes() const = 0;
  virtual std::size_t state_bytes() const = 0;  // SequenceState::save().size(), the same for all
  // Does what was put off: the rows of the last window that stayed enter the recurrent states now
  // instead of with the next window.
  virtual void settle(SequenceState& state) = 0;

  // Memory that windows of so many rows work in, and taking it before the first one comes.
  virtual std::uint64_t workspace_bytes(std::uint32_t rows) = 0;
  virtual Status reserve(std::uint32_t rows) = 0;

  // Makes room in the states and the workspace: the only calls that can fail.
  virtual Status begin(const Window& window) = 0;
  // The states have read the window's tokens.
  virtual void end() = 0;

  virtual void embed(const Matrix& embedding) = 0;
  // The draft block's R: `wide` holds R of the rows' positions, the window the tokens after them.
  virtual void embed_draft(const DraftWeights& weights, const Matrix& embedding,
                           std::span<const float> wide) = 0;
  // `rows` holds the table's rows of each token: [T x width of key and value].
  virtual void inject_ngram(const NgramWeights& weights, std::uint32_t layer,
                            std::span<const float> rows) = 0;
  virtual void read(const ResidualWeights& weights) = 0;                             // R -> m, w
  virtual void delta_net(const DeltaNetWeights& weights, std::uint32_t layer) = 0;   // m -> y
  virtual void attention(const AttentionWeights& weights, std::uint32_t layer) = 0;  // m -> y
  // Only what attention leaves in the caches for rows to come; y stays as it is.
  virtual void attention_cells(const AttentionWeights& weights, std::uint32_t layer) = 0;
  virtual void experts(const ExpertsWeights& weights) = 0;  // m -> y
  virtual void write() = 0;                                 // R += w y
  // Goes on with some of the window's rows only, ascending: they are its rows from now on. For
  // operations that look at no other rows.
  virtual void pick(std::span<const std::uint32_t> rows) = 0;
  // Final mixer and head of the given rows; out is [rows.size() x head.rows].
  virtual void head(const ResidualWeights& mixer, const Matrix& head,
                    std::span<const std::uint32_t> rows, std::span<float> out) = 0;
  // Why the rows of a part of the last window mean nothing: an expert that could not be read.
  virtual Status failure(std::uint32_t part) const = 0;
  // Every matrix product there is for this machine.
  virtual std::vector<KernelUse> kernels() const = 0;
  // A copy of R of the rows from `first_row` on: [out.size() / (streams * hidden) rows].
  virtual void copy_residual(std::uint32_t first_row, std::span<float> out) = 0;
};

// The CPU backend. `threads` 0 means usable_cpus(). `isa` forces "portable", "avx2" or "avx512"
// (empty: the best this CPU has); one that the CPU lacks is refused by name, as is a type of keys
// and values that does not go with the heads.
Result<std::unique_ptr<Backend>> make_cpu_backend(const NetworkShape& shape, std::uint32_t threads,
                                                  const std::string& isa = "");

}  // namespace strata
