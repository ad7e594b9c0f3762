// The CPU backend. Each weight is read once a window: by rows that stay in registers for a few
// tokens, by unpacked panels for more, with the same bits (kernels.h). Block formats are multiplied
// in exact integers with activations in bytes, Q8_0 residual gates with activations of 16 bits
// (int_blocks.h); F32, F16 and BF16, and all other matrices whose inputs must not be bytes, in
// float32.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/huge_memory.h"
#include "base/thread_pool.h"
#include "compute/backend.h"
#include "compute/cpu/int_blocks.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/registry.h"
#include "compute/cpu/state.h"

namespace strata::cpu {

// Windows of so many rows are worked through a cache's content at a time; in smaller ones all
// matrices of a step are one sweep over memory.
constexpr std::size_t kManyRows = 64;
constexpr std::size_t kPieceRows = 256;  // that go through several steps while they are in a cache
constexpr std::size_t kStreamedBytes = std::size_t{32} << 20;  // of results that no cache keeps

// Row-major values of a window. It only grows: resize() within it does nothing to the values. Rows
// are at least `least_stride` apart: with the largest width of all, a row's place does not depend
// on what the buffer is used for, and rows of different uses do not meet.
struct Rows {
  std::size_t width = 0, stride = 0, least_stride = 0;
  std::vector<float, HugeAllocator<float>> values;
  void resize(std::size_t rows, std::size_t row_width) {
    width = row_width;
    stride = std::max(row_width, least_stride);
    if (values.size() < rows * stride) values.resize(rows * stride);
  }
  float* row(std::size_t i) { return values.data() + i * stride; }
  const float* row(std::size_t i) const { return values.data() + i * stride; }
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const NetworkShape& shape, std::uint32_t threads, const Kernels& kernels)
      : shape_(shape),
        layout_(shape_),
        kernels_(kernels),
        pool_(threads),
        turns_(is_small(shape)) {}

  std::string isa() const override { return std::string(kernels_.isa); }
  std::uint32_t threads() const override { return static_cast<std::uint32_t>(pool_.threads()); }
  Result<std::unique_ptr<SequenceState>> new_sequence() override;
  std::uint32_t page_tokens() const override { return kPageTokens; }
  std::size_t page_bytes() const override { return layout_.bytes; }
  std::size_t state_bytes() const override;
  void settle(SequenceState& state) override;
  std::uint64_t workspace_bytes(std::uint32_t rows) override;
  Status reserve(std::uint32_t rows) override;
  Status begin(const Window& window) override;
  void end() override;
  void embed(const Matrix& embedding) override;
  void embed_draft(const DraftWeights& weights, const Matrix& embedding,
                   std::span<const float> wide) override;
  void inject_ngram(const NgramWeights& weights, std::uint32_t layer,
                    std::span<const float> rows) override;
  void read(const ResidualWeights& weights) override;
  void delta_net(const DeltaNetWeights& weights, std::uint32_t layer) override;
  void attention(const AttentionWeights& weights, std::uint32_t layer) override;
  void attention_cells(const AttentionWeights& weights, std::uint32_t layer) override;
  void experts(const ExpertsWeights& weights) override;
  void write() override;
  void pick(std::span<const std::uint32_t> rows) override;
  void head(const ResidualWeights& mixer, const Matrix& head, std::span<const std::uint32_t> rows,
            std::span<float> out) override;
  Status failure(std::uint32_t part) const override { return failures_[part]; }
  std::vector<KernelUse> kernels() const override;
  void copy_residual(std::uint32_t first_row, std::span<float> out) override;

 private:
  struct Part {
    CpuSequence* state = nullptr;
    std::size_t first_row = 0, rows = 0;
    std::uint32_t position = 0;  // of the first row
    std::size_t tentative = 0;   // of the rows
  };
  // Some heads of those that share keys and values.
  struct HeadRange {
    std::size_t kv_head = 0, begin = 0, end = 0;  // of the group
  };
  // Some rows of a part.
  static constexpr std::size_t kAttentionRows = 4;  // share the keys and values they read
  struct RowBlock {
    std::uint32_t part = 0;  // index into parts_
    std::size_t row = 0, rows = 0;
  };
  // Rows of inputs in bytes or words.
  struct ByteInputs {
    const QuantizedRow* of[kBlockKinds] = {};  // by BlockKind; null where no matrix of the kind is
    const QuantizedRow* operator[](BlockKind kind) const {
      return of[static_cast<std::size_t>(kind)];
    }
    // The inputs from row `first` on.
    ByteInputs from(std::size_t first) const {
      ByteInputs inputs;
      for (std::size_t kind = 0; kind < kBlockKinds; ++kind)
        if (of[kind]) inputs.of[kind] = of[kind] + first;
      return inputs;
    }
  };
  // One product of a step; all products of a step run as one batch of panels.
  struct Product {
    Matrix matrix;
    const float* const* x = nullptr;  // one row of inputs for each token
    float* const* y = nullptr;
    std::size_t tokens = 0;
    // The same inputs in integers: a format of that kind is then multiplied in integers. Only
    // words for the residual gates, empty for router, alpha, beta and indexer.
    ByteInputs bytes = {};
    bool streamed = false;              // the results are more than the caches hold
    const std::byte* turned = nullptr;  // the matrix' rows as turn_rows() makes them, if there
  };
  // A product for rows of buffers, the first one's inputs at `x` and its outputs at `y`.
  struct RowProduct {
    Matrix matrix;
    const float* x = nullptr;
    std::size_t x_stride = 0;
    float* y = nullptr;
    std::size_t y_stride = 0;
    ByteInputs bytes;
    const std::byte* turned = nullptr;

    RowProduct(const Matrix& m, const Rows& in, Rows& out) : RowProduct(m, in, out, ByteInputs()) {}
    RowProduct(const Matrix& m, const Rows& in, Rows& out, const ByteInputs& integers)
        : RowProduct(m, in.row(0), in.stride, out.row(0), out.stride, integers) {}
    RowProduct(const Matrix& m, const float* in, std::size_t in_stride, float* out,
               std::size_t out_stride)
        : RowProduct(m, in, in_stride, out, out_stride, ByteInputs()) {}
    RowProduct(const Matrix& m, const float* in, std::size_t in_stride, float* out,
               std::size_t out_stride, const ByteInputs& integers)
        : matrix(m), x(in), x_stride(in_stride), y(out), y_stride(out_stride), bytes(integers) {}
    std::size_t weight_bytes() const { return matrix.rows * matrix.row_bytes; }
  };
  // Some rows of one expert through all of its matrices; the shared one's are rows of the window.
  struct ExpertPiece {
    Matrix gate, up, down;
    bool shared = false;
    std::size_t first = 0, rows = 0;  // places in group_, or rows
    const std::byte* turned[3] = {};  // of the matrices, where that is there
  };
  // Their storage and views, by BlockKind.
  struct Quantized {
    QuantizedRows rows[kBlockKinds];
    std::vector<QuantizedRow> views[kBlockKinds];
    std::size_t width[kBlockKinds] = {};
  };
  // Row pointers of a buffer, kept for the length of a step.
  using Pointers = std::vector<float*>;

  // What is to be done with each row of a window, or with some of them: a function of a row, or of
  // the rows [begin, end). Trivial to copy: what it holds must live until it has run.
  class RowStep {
   public:
    template <class Body>
      requires(std::is_trivially_copyable_v<Body> && sizeof(Body) <= 112)
    RowStep(std::size_t first, std::size_t count, std::size_t grain, const Body& body)
        : first_(first),
          count_(count),
          grain_(grain),
          call_([](const void* held, std::size_t begin, std::size_t end) {
            const Body& run = *static_cast<const Body*>(held);
            if constexpr (std::invocable<const Body&, std::size_t, std::size_t>) {
              run(begin, end);
            } else {
              for (std::size_t row = begin; row < end; ++row) run(row);
            }
          }) {
      std::memcpy(body_, &body, sizeof body);
    }
    bool same_rows(const RowStep& o) const { return first_ == o.first_ && count_ == o.count_; }
    // The same for some of its rows.
    RowStep of(std::size_t first, std::size_t count) const {
      RowStep some = *this;
      some.first_ = first;
      some.count_ = count;
      return some;
    }
    std::size_t first() const { return first_; }
    std::size_t count() const { return count_; }
    std::size_t grain() const { return grain_; }
    void operator()(std::size_t begin, std::size_t end) const { call_(body_, begin, end); }

   private:
    std::size_t first_, count_, grain_;
    void (*call_)(const void* held, std::size_t begin, std::size_t end);
    alignas(std::max_align_t) std::byte body_[112];
  };

  static bool is_small(const NetworkShape& shape);
  // Calls visit(buffer, rows, width) for every buffer of a window, at its largest.
  template <class Visit>
  void each_buffer(std::size_t rows, const Visit& visit);
  void allocate(std::size_t rows);
  static void point(Pointers& pointers, Rows& rows, std::size_t count);
  void multiply(std::span<const Product> products);
  // Products of the same `count` rows from `first` on, which are the first ones of their buffers.
  // In a window of few rows they wait like other steps of rows where their weights are small: each
  // thread then multiplies its own rows, and nobody waits for anybody between the steps.
  void project(std::span<const RowProduct> products, std::size_t first, std::size_t count);
  void project(std::initializer_list<RowProduct> products) {
    project({products.begin(), products.size()}, 0, rows_);
  }
  bool is_apart(std::size_t bytes, std::size_t rows) const;
  const std::byte* turned_of(const Matrix& matrix, Inputs inputs);
  void multiply_rows(const RowProduct& product, std::size_t begin, std::size_t end);
  void count_parts(const Matrix& matrix, Inputs inputs, std::size_t tokens, std::size_t parts) {
    parts_run_[static_cast<std::size_t>(matrix.type)][static_cast<std::size_t>(inputs)]
              [tokens <= kernels_.few_tokens] += parts;
  }
  static Inputs inputs_of(TensorType type, const ByteInputs& bytes);
  // A product of a step, cut into parts: panels x turns, turns of tokens outermost.
  struct Cut {
    std::size_t first = 0;   // number of the product's first part
    std::size_t height = 0;  // outputs of a part
    // So many panels have this height; the others are low, so that all threads have one.
    std::size_t tall = 0, low = 0;
    std::size_t panels = 0, turns = 0;
    std::size_t panel(std::size_t part) const { return (part - first) % panels; }
    std::size_t row(std::size_t part) const {
      const std::size_t i = panel(part);
      return i < tall ? i * height : tall * height + (i - tall) * low;
    }
    std::size_t rows(std::size_t part) const { return panel(part) < tall ? height : low; }
  };
  Cut cut_of(const Product& product, std::size_t first, std::size_t step_bytes) const;
  // At most `height` outputs from `first_row` on; `after` is what will be read next.
  void panel(const Product& product, std::size_t first_row, std::size_t height,
             const std::byte* after);
  void whole(const Product& product, const std::byte* after) {
    panel(product, 0, product.matrix.rows, after);
  }
  void float_panel(const Product& product, std::size_t first_row, std::size_t rows,
                   const std::byte* after);
  void int_panel(const Product& product, const IntFormat& format, std::size_t first_row,
                 std::size_t rows, const std::byte* after);
  // The first rows of a buffer in bytes, for each kind that one of the matrices is of, when their
  // turn comes.
  ByteInputs quantize_later(std::span<const Matrix> matrices, const Rows& x, std::size_t count,
                            Quantized& into);
  // Room for that, and one row of it.
  ByteInputs room(std::span<const Matrix> matrices, std::size_t count, Quantized& into);
  void make_room(BlockKind kind, std::size_t width, std::size_t count, Quantized& into,
                 ByteInputs& inputs);
  void quantize_row(const ByteInputs& inputs, std::size_t row, const float* x,
                    std::size_t width) const;
  // Room for inputs in 16 bits, if one of the matrices is of a format for that.
  ByteInputs word_room(std::span<const Matrix> matrices, std::size_t count, Quantized& into);
  // Steps that rows take by themselves wait for each other, until a product or whatever else looks
  // at other rows comes: then flush() takes each row through all of them. body(row), or
  // body(begin, end), for rows `first` to first + count; `grain` as for for_rows(). In a window of
  // few rows each thread takes the same rows through all steps.
  template <class Body>
  void then(std::size_t first, std::size_t count, std::size_t grain, const Body& body) {
    const RowStep step(first, count, grain, body);
    if (!steps_.empty() && !steps_.back().same_rows(step)) flush();
    steps_.push_back(step);
  }
  template <class Body>
  void then(std::size_t grain, const Body& body) {
    then(0, rows_, grain, body);
  }
  void flush();
  void cut_rows();
  // Calls body(part) for the parts of these rows; only where threads have whole parts.
  template <class Body>
  void each_part(std::size_t begin, std::size_t end, const Body& body) const {
    for (std::size_t p = row_part_[begin]; p < parts_.size() && parts_[p].first_row < end; ++p)
      body(parts_[p]);
  }
  // `grain` rows a part: what takes less than a thread needs to join is not handed out.
  void for_rows(std::size_t rows, std::size_t grain, ThreadPool::Body body);
  void for_rows(std::size_t rows, ThreadPool::Body body) { for_rows(rows, 4, body); }
  void draft_row(const DraftWeights& weights, const Matrix& embedding, const float* wide,
                 const ByteInputs& bytes, std::size_t row);
  void read_rows(const ResidualWeights& weights, const Rows& wide, std::size_t first,
                 std::size_t count);
  void norm_row(const ResidualWeights& weights, const float* wide, std::size_t place,
                const ByteInputs& words);
  void norm_and_inject(const ResidualWeights& weights, const Rows& wide, std::size_t first,
                       std::size_t count, const ByteInputs& words);
  void open_gates(std::size_t row);
  void open_streams(const Matrix& up, const float* const* low, const ByteInputs& words,
                    std::size_t first, std::size_t count);
  void convolve_part(const Part& part, RowRing& history, const Rows& input, const Vector& taps,
                     std::size_t kernel, std::size_t dilation, std::size_t row, std::size_t first,
                     std::size_t channels, float* out) const;
  static void remember(const Part& part, RowRing& history, const Rows& input);
  void delta_inputs(const DeltaNetWeights& weights, std::uint32_t layer, std::size_t row,
                    std::size_t first, std::size_t heads);
  void delta_heads(const DeltaNetWeights& weights, std::uint32_t layer);
  void delta_head(const DeltaNetWeights& weights, const Part& part, std::uint32_t layer,
                  std::size_t head);
  void delta_rows(const DeltaNetWeights& weights, const Part& part, std::uint32_t layer,
                  std::size_t head, std::size_t first, std::size_t count);
  void delta_slice(float* state, std::size_t key_dim, std::size_t width,
                   std::span<const DeltaStep> settled, std::span<const DeltaStep> tentative);
  void keep_inputs(const DeltaNetShape& shape, const Part& part, LayerState& state) const;
  void delta_part(const DeltaNetWeights& weights, const Part& part, std::uint32_t layer);
  void gate_ngram(const NgramWeights& weights, std::size_t row, std::size_t place);
  void add_ngram(const NgramWeights& weights, std::uint32_t layer, std::size_t row,
                 std::size_t place);
  void attention_inputs(const AttentionWeights& weights, std::uint32_t layer, bool queries);
  void store_cell(const AttentionWeights& weights, std::uint32_t layer, std::size_t row);
  void store_block_keys(const AttentionWeights& weights, const Part& part, std::uint32_t layer);
  std::size_t visible(std::size_t row) const;  // cells, the row's own included
  // Else the row attends to all it sees.
  bool selects(const AttentionShape& shape, std::size_t row) const {
    return shape.block > 0 && visible(row) >= std::size_t{shape.budget} + shape.block;
  }
  void prepare_queries(const AttentionWeights& weights, std::size_t row);
  std::size_t score_batch() const { return std::max<std::size_t>(pool_.threads(), 8); }
  void select(const AttentionWeights& weights, std::uint32_t layer);
  void score_piece(const AttentionWeights& weights, std::uint32_t layer, std::size_t first,
                   std::size_t number, std::size_t from);
  void attend_all(const AttentionWeights& weights, std::uint32_t layer);
  void attend_part(const AttentionWeights& weights, std::uint32_t layer, const Part& part);
  void attend(const AttentionWeights& weights, std::uint32_t layer, const RowBlock& block,
              const HeadRange& range);
  void fill_rotation(const AttentionShape& shape, std::size_t position, float* cos_sin) const;
  void norm_rotate(float* x, const float* gain, std::size_t n, const float* cos_sin,
                   std::size_t half) const;
  void route(const ExpertsWeights& weights, std::size_t row);
  void sort_slots(const ExpertsWeights& weights);
  bool in_pieces(const ExpertsWeights& weights) const;
  void begin_experts(const ExpertsWeights& weights);
  void ask_ahead(const ExpertsWeights& weights);
  void run_experts(const ExpertsWeights& weights, const ByteInputs& bytes);
  void sum_experts(const ExpertsWeights& weights, std::size_t row);
  void group_slots(const ExpertsWeights& weights, std::span<const ExpertBlob> blobs);
  void run_group(const ExpertsWeights& weights, std::span<const ExpertBlob> blobs,
                 const ByteInputs& bytes, bool shared);
  void run_pieces(const ExpertsWeights& weights, std::span<const ExpertBlob> blobs,
                  const ByteInputs& bytes, bool shared);
  void run_piece(const ExpertPiece& piece, const ByteInputs& bytes, const std::byte* after);
  const Part& part_of(std::size_t row) const { return parts_[row_part_[row]]; }

  NetworkShape shape_;
  PageLayout layout_;
  bool draft_ = false;   // the window is the draft block's
  bool decode_ = false;  // few rows of each sequence
  const Kernels& kernels_;
  ThreadPool pool_;
  static constexpr std::size_t kTypes = 64;
  std::uint64_t parts_run_[kTypes][3][2] = {};  // by type, inputs, whether the tokens are few

  // Rows turned beforehand, by the place of the matrix, in memory from larger pieces.
  const bool turns_;
  struct Turned {
    std::uint32_t rows = 0, cols = 0;
    const std::byte* data = nullptr;
  };
  std::unordered_map<const std::byte*, Turned> turned_;
  std::vector<std::vector<std::byte, HugeAllocator<std::byte>>> turned_memory_;
  std::size_t turned_left_ = 0;  // of the last piece

  // The window
  std::size_t rows_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<Part> parts_;
  std::vector<std::size_t> row_part_;  // [rows] index into parts_
  // Few rows: thread i takes rows [row_cuts_[i], row_cuts_[i + 1]) through the steps that wait.
  bool few_ = false;
  bool whole_parts_ = false;  // these are whole parts, and every thread has some
  std::vector<std::size_t> row_cuts_;

  std::vector<RowStep> steps_;  // that wait

  // The step's products
  std::vector<Cut> cuts_;
  std::vector<std::uint32_t> part_cuts_;  // of each part, index into cuts_
  std::vector<RowProduct> row_products_;
  std::vector<Product> products_;
  std::vector<std::vector<const float*>> inputs_;  // of products_
  std::vector<Pointers> outputs_;

  // Workspace, one row a token
  Rows wide_;                 // R
  Rows mixed_, gates_, out_;  // m, w, y
  Rows normed_, low_, up_;    // gated residual: norm, low rank, gate
  Rows head_wide_;            // rows picked for the head
  Rows a_, b_, c_, d_, e_;    // projections of the block at hand
  Rows index_q_, index_k_, rotation_;
  Rows draft_inputs_;
  Rows zeros_;                        // a row before the start of a sequence
  std::vector<RowBlock> row_blocks_;  // of attention
  Rows index_scores_;                 // [score_batch() * kAttentionRows x blocks of the indexer]
  std::vector<std::vector<std::uint32_t>> selected_;  // [rows] cells, ascending
  Quantized bytes_mixed_, bytes_inner_, bytes_hidden_, bytes_shared_, bytes_normed_, bytes_low_;
  Quantized bytes_ngram_, bytes_draft_;
  std::vector<QuantizedRow> slot_rows_[kBlockKinds];  // of the experts' inputs, in order of slots
  struct Routed {
    std::uint32_t row = 0, expert = 0;
    float weight = 0;
  };
  std::vector<Routed> chosen_, routed_;   // by row, then by expert; by expert, then by row
  std::vector<std::uint32_t> row_slots_;  // [rows x used]: places in routed_, ascending expert
  Rows expert_hidden_, expert_up_, expert_out_, ahead_;
  std::vector<ExpertUse> expert_uses_;      // of the pass
  std::vector<std::uint32_t> first_slots_;  // by expert: place in routed_; and behind all
  std::vector<std::uint32_t> group_;        // slots whose weights are there
  std::vector<ExpertPiece> pieces_;
  std::vector<Status> failures_;  // by part of the window
};

}  // namespace strata::cpu
