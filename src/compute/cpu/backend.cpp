#include "compute/cpu/backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "quant/quant.h"

namespace strata::cpu {
namespace {

// Tokens whose inputs and sums stay in a second cache while they meet all panels of a product; of
// one with fewer panels than there are threads.
constexpr std::size_t kCachedTokens = 384, kTurnTokens = 128;
constexpr std::size_t kReadRows = kPieceRows;  // of a gated read

// Weights of a step that each thread reads for its own rows: they lie in the caches, and reading
// them twice costs less than waiting for the other threads. And of one that is not worth handing
// out where there are fewer rows than threads.
constexpr std::size_t kApartBytes = std::size_t{512} << 10, kAloneBytes = std::size_t{16} << 10;

// Bytes of a part of a sweep over memory: some tens of kilobytes, enough to hand out, not so much
// that threads would wait for the last one. With more tokens a byte takes longer.
std::size_t part_bytes(std::size_t total, std::size_t tokens, std::size_t threads) {
  constexpr std::size_t most = std::size_t{96} << 10, least = std::size_t{24} << 10;
  const std::size_t floor = 4 * least / (4 + tokens);
  return std::clamp(total / (4 * threads), floor, std::max(most / tokens, floor));
}
// Whole panels where tokens are enough for them.
std::size_t sweep_height(std::size_t row_bytes, std::size_t part, std::size_t tokens) {
  const std::size_t step = tokens > kFewTokens ? kPanelRows / 2 : kLanes;
  return std::clamp(part / row_bytes / step * step, step, 32 * kLanes);
}

}  // namespace

Result<std::unique_ptr<SequenceState>> CpuBackend::new_sequence() {
  try {
    return std::make_unique<CpuSequence>(shape_, layout_);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for the state of another sequence");
  }
}

std::size_t CpuBackend::state_bytes() const {
  return CpuSequence(shape_, layout_).save().size();
}

Status CpuBackend::begin(const Window& window) {
  rows_ = window.tokens.size();
  draft_ = window.draft;
  steps_.clear();  // of a window that failed
  try {
    tokens_.assign(window.tokens.begin(), window.tokens.end());
    parts_.clear();
    row_part_.resize(rows_);
    failures_.assign(window.parts.size(), Status());
    decode_ = std::all_of(window.parts.begin(), window.parts.end(),
                          [](const WindowPart& part) { return part.rows <= kMaxTentative + 1; });
    std::size_t next = 0;
    for (const WindowPart& part : window.parts) {
      if (part.first_row != next || part.rows == 0 || part.rows > rows_ - next) {
        return fail(ErrorCode::internal, "window part at row {} of {} rows does not follow row {}",
                    part.first_row, part.rows, next);
      }
      if (part.tentative > std::min(part.rows - 1, kMaxTentative)) {
        return fail(ErrorCode::internal, "{} tentative rows of {}", part.tentative, part.rows);
      }
      auto* state = static_cast<CpuSequence*>(part.state);
      STRATA_TRY(state->prepare(part));
      std::fill_n(row_part_.begin() + static_cast<std::ptrdiff_t>(next), part.rows, parts_.size());
      parts_.push_back({state, part.first_row, part.rows, part.position, part.tentative});
      next += part.rows;
    }
    if (next != rows_)
      return fail(ErrorCode::internal, "the window's parts cover {} of {} rows", next, rows_);
    cut_rows();
    allocate(rows_);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for a window of {} rows; use a smaller chunk",
                rows_);
  }
  return {};
}

// Which thread takes which rows of a window of few: whole parts where that is fair.
void CpuBackend::cut_rows() {
  const std::size_t threads = pool_.threads(), ranges = std::min(rows_, threads);
  few_ = rows_ < kManyRows && rows_ <= kTurnedTokens * threads;
  whole_parts_ = false;
  row_cuts_.clear();
  if (!few_) return;
  for (std::size_t i = 0; i <= ranges; ++i) row_cuts_.push_back(rows_ * i / ranges);
  if (ranges < threads) return;
  std::vector<std::size_t> cuts;
  for (const std::size_t wanted : row_cuts_) {
    std::size_t nearest = wanted == rows_ ? rows_ : 0;
    const auto off = [wanted](std::size_t row) {
      return row > wanted ? row - wanted : wanted - row;
    };
    for (const Part& part : parts_)
      if (off(part.first_row) < off(nearest)) nearest = part.first_row;
    cuts.push_back(nearest);
  }
  for (std::size_t i = 0; i < ranges; ++i)
    if (cuts[i + 1] <= cuts[i] || 4 * ranges * (cuts[i + 1] - cuts[i]) > 5 * rows_) return;
  row_cuts_ = std::move(cuts);
  whole_parts_ = true;
}

template <class Visit>
void CpuBackend::each_buffer(std::size_t rows, const Visit& visit) {
  const std::size_t hidden = shape_.residual.hidden, wide = shape_.residual.wide();
  std::size_t in = std::max<std::size_t>(shape_.shared_ff, wide), middle = shape_.shared_ff;
  std::size_t inner = hidden;
  std::size_t small = shape_.experts, index_q = 0, index_k = 0, half = 0;
  bool drafts = false;
  for (const NetworkShape::Layer& l : shape_.layers) {
    drafts = drafts || l.draft;
    if (l.attention) {
      const AttentionShape& s = l.attention_shape;
      const std::size_t q = std::size_t{s.heads} * s.head_dim;
      const std::size_t kv = std::size_t{s.kv_heads} * s.head_dim;
      in = std::max(in, 2 * q);
      middle = std::max(middle, kv);
      inner = std::max({inner, q, kv});
      index_q = std::max(index_q, std::size_t{s.indexer_heads} * s.indexer_dim);
      index_k = std::max(index_k, std::size_t{s.indexer_dim});
      half = std::max(half, std::size_t{s.rotary_dims});
    } else {
      in = std::max(in, std::size_t{l.delta_net.channels()});
      middle = std::max(middle, std::size_t{l.delta_net.inner()});
      inner = std::max(inner, std::size_t{l.delta_net.inner()});
      small = std::max(small, std::size_t{l.delta_net.value_heads});
    }
  }
  visit(wide_, rows, wide);
  visit(normed_, rows, wide);
  visit(up_, rows, wide);
  visit(low_, rows, shape_.stream_rank);
  visit(mixed_, rows, hidden);
  visit(out_, rows, hidden);
  visit(gates_, rows, shape_.residual.streams);
  visit(head_wide_, rows, wide);
  visit(zeros_, 1, std::max(in, wide));
  visit(a_, rows, in);
  visit(b_, rows, middle);
  visit(c_, rows, inner);
  visit(d_, rows, 2 * small);
  visit(e_, rows, in);
  visit(index_q_, rows, index_q);
  visit(index_k_, rows, index_k);
  visit(rotation_, rows, half);
  const std::size_t slots = rows * shape_.experts_used;
  const std::size_t together = std::min(rows, kManyRows) * shape_.experts_used;
  visit(expert_hidden_, together, shape_.expert_ff);
  visit(expert_up_, together, shape_.expert_ff);
  visit(expert_out_, slots, hidden);
  if (drafts) visit(draft_inputs_, rows * shape_.residual.streams, 2 * hidden);
}

// Every buffer that an operation of this window will use, at its largest.
void CpuBackend::allocate(std::size_t rows) {
  each_buffer(rows, [&](Rows& buffer, std::size_t count, std::size_t width) {
    buffer.least_stride = few_ ? width : 0;
    if (&buffer != &draft_inputs_ || draft_) buffer.resize(count, width);
  });
  std::fill_n(zeros_.row(0), zeros_.width, 0.0f);
  selected_.resize(std::max(selected_.size(), rows));
  std::size_t cells = 0, blocks = 0;
  for (const Part& part : parts_) cells = std::max(cells, part.position + part.rows);
  for (const NetworkShape::Layer& l : shape_.layers) {
    const AttentionShape& s = l.attention_shape;
    if (l.attention && s.block > 0 && cells >= std::size_t{s.budget} + s.block)
      blocks = std::max(blocks, cells / s.block);
  }
  if (blocks > 0) index_scores_.resize(score_batch() * kAttentionRows, padded(blocks));
  const std::size_t slots = rows * shape_.experts_used;
  chosen_.reserve(slots);
  routed_.reserve(slots);
  row_slots_.resize(slots);
}

std::uint64_t CpuBackend::workspace_bytes(std::uint32_t rows) {
  std::uint64_t values = 0;
  each_buffer(rows, [&](const Rows&, std::size_t count, std::size_t width) {
    values += std::uint64_t{count} * width;
  });
  // Inputs in integers: bytes in two forms with their scales and sums, words of the residual gates.
  const std::uint64_t hidden = shape_.residual.hidden, wide = shape_.residual.wide();
  const std::uint64_t each = 3 * hidden + 3 * wide + 3 * std::uint64_t{shape_.shared_ff} +
                             3 * std::uint64_t{shape_.experts_used} * shape_.expert_ff;
  // What a thread works on of an expert and of the gates, in windows of many rows.
  const std::uint64_t own = std::min<std::uint64_t>(rows, kPieceRows) *
                            (11 * std::max(shape_.expert_ff, shape_.shared_ff) +
                             shape_.residual.streams * kPanelRows * sizeof(float));
  return values * sizeof(float) + each * rows + own * pool_.threads();
}

Status CpuBackend::reserve(std::uint32_t rows) {
  try {
    allocate(rows);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted,
                "no {} MiB of memory for windows of {} rows; use a smaller chunk",
                (workspace_bytes(rows) >> 20) + 1, rows);
  }
  return {};
}

void CpuBackend::end() {
  flush();
  for (const Part& part : parts_) {
    if (draft_) break;
    part.state->advance(static_cast<std::uint32_t>(part.rows),
                        static_cast<std::uint32_t>(part.tentative));
  }
  parts_.clear();
}

void CpuBackend::copy_residual(std::uint32_t first_row, std::span<float> out) {
  flush();
  std::memcpy(out.data(), wide_.row(first_row), out.size() * sizeof(float));
}

void CpuBackend::for_rows(std::size_t rows, std::size_t grain, ThreadPool::Body body) {
  pool_.run_near((rows + grain - 1) / grain, [&](std::size_t part) {
    for (std::size_t r = part * grain; r < std::min(rows, (part + 1) * grain); ++r) body(r);
  });
}

void CpuBackend::flush() {
  if (steps_.empty()) return;
  const std::size_t first = steps_.front().first(), count = steps_.front().count();
  std::size_t grain = steps_.front().grain();
  for (const RowStep& step : steps_) grain = std::min(grain, step.grain());
  const std::size_t parts = (count + grain - 1) / grain;
  if (few_) {
    const std::size_t ranges = std::min(parts, pool_.threads());
    const bool usual = count == rows_ && ranges + 1 == row_cuts_.size();
    const auto cut = [&](std::size_t i) { return usual ? row_cuts_[i] : count * i / ranges; };
    pool_.run(ranges, [&](std::size_t i) {
      for (const RowStep& step : steps_) step(first + cut(i), first + cut(i + 1));
    });
  } else {
    pool_.run_near(parts, [&](std::size_t part) {
      for (std::size_t r = part * grain; r < std::min(count, (part + 1) * grain); ++r)
        for (const RowStep& step : steps_) step(first + r, first + r + 1);
    });
  }
  steps_.clear();
}

// --- matrix products ----------------------------------------------------------------------------

void CpuBackend::point(Pointers& pointers, Rows& rows, std::size_t count) {
  pointers.resize(count);
  for (std::size_t i = 0; i < count; ++i) pointers[i] = rows.row(i);
}

CpuBackend::Cut CpuBackend::cut_of(const Product& p, std::size_t first, std::size_t total) const {
  Cut cut{.first = first, .turns = 1};
  if (p.tokens == 0) return cut;
  const std::size_t threads = pool_.threads(), rows = p.matrix.rows;
  if (p.tokens <= kernels_.few_tokens) {
    cut.height = sweep_height(p.matrix.row_bytes, part_bytes(total, p.tokens, threads), p.tokens);
    cut.panels = cut.tall = (rows + cut.height - 1) / cut.height;
    return cut;
  }
  constexpr std::size_t step = kPanelRows / 2;  // lower ones cost too much
  cut.height = kPanelRows;
  cut.tall = rows / (threads * kPanelRows) * threads;
  const std::size_t rest = rows - cut.tall * kPanelRows;
  cut.low = std::max(step, (rest + threads * step - 1) / (threads * step) * step);
  cut.panels = cut.tall + (rest + cut.low - 1) / cut.low;
  const std::size_t turn = cut.panels < threads ? kTurnTokens : kCachedTokens;
  cut.turns = (p.tokens + turn - 1) / turn;
  return cut;
}

// The panels of all products, one after the other: a sweep over memory of which each thread gets a
// run. A product of many tokens with few panels is cut by tokens too.
void CpuBackend::multiply(std::span<const Product> products) {
  flush();
  cuts_.clear();
  part_cuts_.clear();
  std::size_t bytes = 0;
  for (const Product& p : products) bytes += p.matrix.rows * p.matrix.row_bytes;
  for (const Product& p : products) {
    const Cut cut = cut_of(p, part_cuts_.size(), bytes);
    const std::size_t parts = cut.panels * cut.turns;
    count_parts(p.matrix, inputs_of(p.matrix.type, p.bytes), p.tokens, parts);
    part_cuts_.resize(part_cuts_.size() + parts, static_cast<std::uint32_t>(cuts_.size()));
    cuts_.push_back(cut);
  }
  const std::size_t total = part_cuts_.size();
  // Parts of many tokens take long, and so does waiting for the last one: threads take them in
  // turn. Others are read from memory, where each thread has a run of it.
  const bool many = std::any_of(products.begin(), products.end(),
                                [](const Product& p) { return p.tokens >= kManyRows; });
  const std::size_t step = many ? pool_.threads() : 1;
  const auto run = [&](std::size_t part) {
    const std::size_t next = std::min(part + step, total - 1);
    const Cut &cut = cuts_[part_cuts_[part]], &then = cuts_[part_cuts_[next]];
    const std::byte* after = products[part_cuts_[next]].matrix.row(then.row(next));
    const Product& whole = products[part_cuts_[part]];
    if (cut.turns == 1) return panel(whole, cut.row(part), cut.rows(part), after);
    const std::size_t turn = (part - cut.first) / cut.panels;
    const std::size_t t = whole.tokens * turn / cut.turns;
    Product some = whole;
    some.x += t;
    some.y += t;
    some.bytes = whole.bytes.from(t);
    some.streamed = whole.tokens * whole.matrix.rows * sizeof(float) >= kStreamedBytes;
    some.tokens = whole.tokens * (turn + 1) / cut.turns - t;
    panel(some, cut.row(part), cut.rows(part), after);
  };
  if (many) {
    pool_.run(total, run);
  } else {
    pool_.run_near(total, run);
  }
}

// Whether all matrices but the experts' lie in the caches.
bool CpuBackend::is_small(const NetworkShape& shape) {
  constexpr std::size_t most = std::size_t{8} << 20;  // values
  const ResidualShape& r = shape.residual;
  std::size_t values = 0;
  for (const NetworkShape::Layer& layer : shape.layers) {
    values += 4 * r.wide() * shape.stream_rank;
    if (layer.attention) {
      const AttentionShape& s = layer.attention_shape;
      values += std::size_t{r.hidden} * s.head_dim * (3 * s.heads + 2 * s.kv_heads);
    } else {
      const DeltaNetShape& s = layer.delta_net;
      values += std::size_t{r.hidden} * (s.channels() + 2 * s.inner());
    }
    values += 3 * std::size_t{r.hidden} * shape.shared_ff;
  }
  return values <= most;
}

// Null where there is no such thing, or no memory for it. Weights stay as they are as long as the
// backend.
const std::byte* CpuBackend::turned_of(const Matrix& matrix, Inputs inputs) {
  constexpr std::size_t most = std::size_t{16} << 20, piece = kHugePage;
  const IntFormat* format = format_for(matrix.type, inputs);
  if (!turns_ || !format) return nullptr;
  const auto found = turned_.find(matrix.data);
  if (found != turned_.end()) {
    const Turned& turned = found->second;
    return turned.rows == matrix.rows && turned.cols == matrix.cols ? turned.data : nullptr;
  }
  const std::size_t bytes = kernels_.turned_bytes(*format, matrix.rows, matrix.cols);
  if (bytes == 0) return nullptr;
  try {
    if (bytes > turned_left_) {
      std::size_t held = std::max(bytes, piece);
      for (const auto& memory : turned_memory_) held += memory.size();
      if (held > most) return nullptr;
      turned_memory_.emplace_back(std::max(bytes, piece));
      turned_left_ = turned_memory_.back().size();
    }
    std::byte* into = turned_memory_.back().data() + turned_memory_.back().size() - turned_left_;
    kernels_.turn_rows(*format, matrix.data, matrix.row_bytes, matrix.rows, matrix.cols, into);
    turned_.emplace(matrix.data, Turned{matrix.rows, matrix.cols, into});
    turned_left_ -= bytes;
    return into;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Whether each thread multiplies its own rows with weights of so many bytes.
bool CpuBackend::is_apart(std::size_t bytes, std::size_t rows) const {
  return few_ && bytes <= (rows >= pool_.threads() ? kApartBytes : kAloneBytes);
}

void CpuBackend::project(std::span<const RowProduct> products, std::size_t first,
                         std::size_t count) {
  std::size_t bytes = 0;
  for (const RowProduct& p : products) bytes += p.weight_bytes();
  const auto turned = [&](const RowProduct& p) {
    return few_ ? turned_of(p.matrix, inputs_of(p.matrix.type, p.bytes)) : nullptr;
  };
  if (is_apart(bytes, count)) {
    for (RowProduct p : products) {
      count_parts(p.matrix, inputs_of(p.matrix.type, p.bytes), count / pool_.threads(), 1);
      p.turned = turned(p);
      then(first, count, 1, [this, p, first](std::size_t begin, std::size_t end) {
        multiply_rows(p, begin - first, end - first);
      });
    }
    return;
  }
  inputs_.resize(std::max(inputs_.size(), products.size()));
  outputs_.resize(inputs_.size());
  products_.clear();
  for (std::size_t i = 0; i < products.size(); ++i) {
    const RowProduct& p = products[i];
    inputs_[i].resize(count);
    outputs_[i].resize(count);
    for (std::size_t r = 0; r < count; ++r) {
      inputs_[i][r] = p.x + r * p.x_stride;
      outputs_[i][r] = p.y + r * p.y_stride;
    }
    products_.push_back(
        {p.matrix, inputs_[i].data(), outputs_[i].data(), count, p.bytes, false, turned(p)});
  }
  multiply(products_);
}

// Rows begin to end of a product on this thread.
void CpuBackend::multiply_rows(const RowProduct& product, std::size_t begin, std::size_t end) {
  const float* x[kTurnedTokens];
  float* y[kTurnedTokens];
  for (std::size_t at = begin; at < end; at += kTurnedTokens) {
    const std::size_t count = std::min(kTurnedTokens, end - at);
    for (std::size_t i = 0; i < count; ++i) {
      x[i] = product.x + (at + i) * product.x_stride;
      y[i] = product.y + (at + i) * product.y_stride;
    }
    whole({product.matrix, x, y, count, product.bytes.from(at), false, product.turned},
          product.matrix.data);
  }
}

Inputs CpuBackend::inputs_of(TensorType type, const ByteInputs& bytes) {
  for (const Inputs inputs : {Inputs::bytes, Inputs::words}) {
    const IntFormat* format = format_for(type, inputs);
    if (format && bytes[format->kind]) return inputs;
  }
  return Inputs::floats;
}

std::vector<KernelUse> CpuBackend::kernels() const {
  std::vector<KernelUse> uses;
  for (const KernelEntry& e : kernel_registry(supported_kernels())) {
    const auto& run = parts_run_[static_cast<std::size_t>(e.type)];
    uses.push_back({std::string(e.kernels->isa), std::string(to_string(e.type)),
                    std::string(to_string(e.inputs)), e.few, std::string(e.way),
                    e.kernels == &kernels_ ? run[static_cast<std::size_t>(e.inputs)][e.few] : 0});
  }
  return uses;
}

void CpuBackend::panel(const Product& product, std::size_t first_row, std::size_t height,
                       const std::byte* after) {
  const std::size_t rows = std::min<std::size_t>(height, product.matrix.rows - first_row);
  const Inputs inputs = inputs_of(product.matrix.type, product.bytes);
  if (const IntFormat* format = format_for(product.matrix.type, inputs))
    return int_panel(product, *format, first_row, rows, after);
  float_panel(product, first_row, rows, after);
}

// Steps that wait may use what is there.
void CpuBackend::make_room(BlockKind kind, std::size_t width, std::size_t count, Quantized& into,
                           ByteInputs& inputs) {
  const auto k = static_cast<std::size_t>(kind);
  std::vector<QuantizedRow>& views = into.views[k];
  if (into.width[k] != width || views.size() < count) {
    flush();
    into.width[k] = width;
    into.rows[k].resize(count, width, kind);
    views.resize(count);
    for (std::size_t r = 0; r < count; ++r) views[r] = into.rows[k].row(r);
  }
  inputs.of[k] = views.data();
}

CpuBackend::ByteInputs CpuBackend::room(std::span<const Matrix> matrices, std::size_t count,
                                        Quantized& into) {
  ByteInputs inputs;
  for (const Matrix& m : matrices) {
    const IntFormat* format = int_format(m.type);
    if (format && !inputs[format->kind]) make_room(format->kind, m.cols, count, into, inputs);
  }
  return inputs;
}

void CpuBackend::quantize_row(const ByteInputs& inputs, std::size_t row, const float* x,
                              std::size_t width) const {
  for (const BlockKind kind : {BlockKind::group_integers, BlockKind::group_floats})
    if (inputs[kind]) kernels_.quantize_row(x, width, scale_width(kind), inputs[kind][row]);
}

CpuBackend::ByteInputs CpuBackend::quantize_later(std::span<const Matrix> matrices, const Rows& x,
                                                  std::size_t count, Quantized& into) {
  const ByteInputs inputs = room(matrices, count, into);
  const std::size_t width = matrices.front().cols;
  then(0, count, 8,
       [this, inputs, &x, width](std::size_t r) { quantize_row(inputs, r, x.row(r), width); });
  return inputs;
}

CpuBackend::ByteInputs CpuBackend::word_room(std::span<const Matrix> matrices, std::size_t count,
                                             Quantized& into) {
  ByteInputs inputs;
  const auto words = std::find_if(matrices.begin(), matrices.end(),
                                  [](const Matrix& m) { return word_format(m.type) != nullptr; });
  if (words != matrices.end()) make_room(BlockKind::group_words, words->cols, count, into, inputs);
  return inputs;
}

// Some outputs, in integers.
void CpuBackend::int_panel(const Product& product, const IntFormat& format, std::size_t first_row,
                           std::size_t rows, const std::byte* after) {
  thread_local std::vector<float*> y;
  const Matrix& m = product.matrix;
  y.resize(product.tokens);
  for (std::size_t t = 0; t < product.tokens; ++t) y[t] = product.y[t] + first_row;
  if (product.turned && product.tokens <= kTurnedTokens && first_row % kLanes == 0) {
    const std::byte* from = product.turned + kernels_.turned_bytes(format, first_row, m.cols);
    return kernels_.turned_gemm(format, from, rows, m.cols, product.bytes[format.kind], y.data(),
                                product.tokens);
  }
  kernels_.int_gemm(format, m.row(first_row), m.row_bytes, rows, m.cols, product.bytes[format.kind],
                    y.data(), product.tokens, after, product.streamed);
}

// Some outputs, in floats. Rows of types that cannot be multiplied as they are are decoded some
// at a time.
void CpuBackend::float_panel(const Product& product, std::size_t first_row, std::size_t rows,
                             const std::byte* after) {
  struct Scratch {
    alignas(64) float decoded[kPanelRows * kRun];
    std::vector<const float*> x;
    std::vector<float*> y;
  };
  thread_local const std::unique_ptr<Scratch> own = std::make_unique<Scratch>();
  Scratch& scratch = *own;
  const Matrix& m = product.matrix;
  const std::size_t tokens = product.tokens;
  scratch.x.resize(tokens);
  scratch.y.resize(tokens);
  for (std::size_t t = 0; t < tokens; ++t) scratch.y[t] = product.y[t] + first_row;
  if (kernels_.float_gemm(m.type, m.row(first_row), m.row_bytes, rows, m.cols, product.x,
                          scratch.y.data(), tokens, after, true))
    return;
  const TypeTraits& type = traits(m.type);
  for (std::size_t row = 0; row < rows; row += kPanelRows) {
    const std::size_t height = std::min(kPanelRows, rows - row);
    for (std::size_t k = 0; k < m.cols; k += kRun) {
      const std::size_t depth = std::min<std::size_t>(kRun, m.cols - k);
      const std::size_t bytes = depth / type.block_values * type.block_bytes;
      for (std::size_t r = 0; r < height; ++r)
        // The loader has checked type and sizes: this cannot fail.
        (void)decode(m.type,
                     {m.row(first_row + row + r) + k / type.block_values * type.block_bytes, bytes},
                     {scratch.decoded + r * kRun, depth});
      for (std::size_t t = 0; t < tokens; ++t) {
        scratch.x[t] = product.x[t] + k;
        scratch.y[t] = product.y[t] + first_row + row;
      }
      const auto* decoded = reinterpret_cast<const std::byte*>(scratch.decoded);
      kernels_.float_gemm(TensorType::F32, decoded, kRun * sizeof(float), height, depth,
                          scratch.x.data(), scratch.y.data(), tokens, decoded, k == 0);
    }
  }
}

// --- embedding, gated residual, head ------------------------------------------------------------

void CpuBackend::embed(const Matrix& embedding) {
  then(4, [this, &embedding](std::size_t r) {
    float* into = wide_.row(r);
    const std::size_t hidden = shape_.residual.hidden;
    (void)decode(embedding.type,
                 {embedding.row(static_cast<std::size_t>(tokens_[r])), embedding.row_bytes},
                 {into, hidden});
    for (std::size_t s = 1; s < shape_.residual.streams; ++s)
      std::memcpy(into + s * hidden, into, hidden * sizeof(float));
  });
}

void CpuBackend::embed_draft(const DraftWeights& weights, const Matrix& embedding,
                             std::span<const float> wide) {
  const ResidualShape& s = shape_.residual;
  const std::size_t inputs = rows_ * s.streams;  // of the product: one for each stream of each row
  draft_inputs_.resize(inputs, 2 * std::size_t{s.hidden});
  const ByteInputs bytes = room({&weights.combine, 1}, inputs, bytes_draft_);
  then(4, [this, w = &weights, of = &embedding, from = wide.data(), bytes](std::size_t r) {
    draft_row(*w, *of, from, bytes, r);
  });
  RowProduct product(weights.combine, draft_inputs_.row(0), draft_inputs_.stride, wide_.row(0),
                     s.hidden, bytes);
  if (!is_apart(product.weight_bytes(), rows_)) return project({&product, 1}, 0, inputs);
  product.turned = turned_of(weights.combine, inputs_of(weights.combine.type, bytes));
  count_parts(weights.combine, inputs_of(weights.combine.type, bytes), s.streams, 1);
  then(1, [this, product](std::size_t begin, std::size_t end) {
    multiply_rows(product, begin * shape_.residual.streams, end * shape_.residual.streams);
  });
}

// What the draft block's product takes of a row.
void CpuBackend::draft_row(const DraftWeights& weights, const Matrix& embedding, const float* wide,
                           const ByteInputs& bytes, std::size_t row) {
  const ResidualShape& s = shape_.residual;
  float* into = draft_inputs_.row(row * s.streams);
  const std::byte* stored = embedding.row(static_cast<std::size_t>(tokens_[row]));
  (void)decode(embedding.type, {stored, embedding.row_bytes}, {into, s.hidden});
  kernels_.rms_norm(into, weights.embedding_norm.data(), s.hidden, s.epsilon, into);
  kernels_.rms_norm(wide + row * s.wide(), weights.hidden_norm.data(), s.wide(), s.epsilon,
                    normed_.row(row));
  for (std::size_t stream = 0; stream < s.streams; ++stream) {
    float* both = into + stream * draft_inputs_.stride;
    if (stream > 0) std::memcpy(both, into, s.hidden * sizeof(float));
    std::memcpy(both + s.hidden, normed_.row(row) + stream * s.hidden, s.hidden * sizeof(float));
    quantize_row(bytes, row * s.streams + stream, both, draft_inputs_.width);
  }
}

void CpuBackend::read(const ResidualWeights& weights) {
  if (rows_ <= kReadRows) return read_rows(weights, wide_, 0, rows_);
  // What waits for all rows is done for some at a time: the read finds them in a cache.
  if (!steps_.empty() && steps_.front().count() != rows_) flush();
  const std::vector<RowStep> waiting = std::exchange(steps_, {});
  for (std::size_t r = 0; r < rows_; r += kReadRows) {
    const std::size_t count = std::min(kReadRows, rows_ - r);
    for (const RowStep& step : waiting) steps_.push_back(step.of(r, count));
    read_rows(weights, wide_, r, count);
  }
}

// Rows from `first` on; what lies between the steps has the same places for all of them.
void CpuBackend::read_rows(const ResidualWeights& weights, const Rows& wide, std::size_t first,
                           std::size_t count) {
  const ResidualWeights* const w = &weights;
  const Rows* const from = &wide;
  const bool many = count >= kManyRows, gated = !weights.inject.empty();
  // Inputs are never bytes.
  const ByteInputs words =
      word_room(std::array{weights.down, weights.inject}, count, bytes_normed_);
  const bool injected = many && gated && !word_format(weights.inject.type);
  if (injected) {
    norm_and_inject(weights, wide, first, count, words);
  } else {
    then(first, count, 4, [this, w, from, first, words](std::size_t row) {
      norm_row(*w, from->row(row), row - first, words);
    });
  }
  const RowProduct inject(weights.inject, normed_.row(0), normed_.stride, gates_.row(first),
                          gates_.stride, words);
  const RowProduct down(weights.down, normed_, low_, words);
  const std::array both = {down, inject};
  project(std::span(both).first(many && gated && !injected ? 2 : 1), first, count);
  const ByteInputs narrow = word_room({&weights.up, 1}, count, bytes_low_);
  then(first, count, 8, [this, first, narrow, open = many && gated](std::size_t row) {
    float* values = low_.row(row - first);
    kernels_.silu_divided(values, low_.width, static_cast<float>(shape_.residual.streams));
    if (const QuantizedRow* rows = narrow[BlockKind::group_words])
      kernels_.quantize_words(values, low_.width, rows[row - first]);
    if (open) open_gates(row);
  });
  if (many) {
    Pointers low;
    point(low, low_, count);
    return open_streams(weights.up, low.data(), narrow, first, count);
  }
  // The few outputs of `inject` are wanted no sooner, and here threads share the work best.
  const std::array last = {inject, RowProduct(weights.up, low_, up_, narrow)};
  project(std::span(last).subspan(gated ? 0 : 1), first, count);
  then(first, count, 2, [this, first, gated](std::size_t row) {
    const ResidualShape& s = shape_.residual;
    kernels_.mix_streams(up_.row(row - first), s.hidden, normed_.row(row - first), s.hidden,
                         s.streams, s.hidden, mixed_.row(row));
    if (gated) open_gates(row);
  });
}

void CpuBackend::norm_row(const ResidualWeights& weights, const float* wide, std::size_t place,
                          const ByteInputs& words) {
  const ResidualShape& s = shape_.residual;
  float* normed = normed_.row(place);
  kernels_.rms_norms(wide, weights.norm.data(), s.streams, s.hidden, s.epsilon, normed);
  if (const QuantizedRow* rows = words[BlockKind::group_words])
    kernels_.quantize_words(normed, s.wide(), rows[place]);
}

// What waits, the norm of some rows, and their injecting gates while the norm is in a cache: from
// further away it takes longer than all of the multiplications.
void CpuBackend::norm_and_inject(const ResidualWeights& weights, const Rows& wide,
                                 std::size_t first, std::size_t count, const ByteInputs& words) {
  constexpr std::size_t together = 8;
  if (!steps_.empty() && (steps_.front().first() != first || steps_.front().count() != count))
    flush();
  pool_.run_near((count + together - 1) / together, [&](std::size_t part) {
    const std::size_t from = part * together, rows = std::min(together, count - from);
    const float* x[together];
    float* y[together];
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t row = first + from + i;
      for (const RowStep& step : steps_) step(row, row + 1);
      norm_row(weights, wide.row(row), from + i, words);
      x[i] = normed_.row(from + i);
      y[i] = gates_.row(row);
    }
    float_panel({weights.inject, x, y, rows, {}}, 0, weights.inject.rows, weights.inject.data);
  });
  count_parts(weights.inject, Inputs::floats, count, 1);
  steps_.clear();
}

void CpuBackend::open_gates(std::size_t row) {
  const std::size_t streams = shape_.residual.streams;
  kernels_.open_gates(gates_.row(row), streams, static_cast<float>(streams));
}

// The last step of a gated read of many rows: some columns of all streams at a time, whose gates
// never leave the second cache.
void CpuBackend::open_streams(const Matrix& up, const float* const* low, const ByteInputs& words,
                              std::size_t first, std::size_t count) {
  flush();
  const ResidualShape& s = shape_.residual;
  const std::size_t parts = (s.hidden + kPanelRows - 1) / kPanelRows,
                    width = s.streams * kPanelRows;
  const Product product{up, low, nullptr, count, words};
  count_parts(up, inputs_of(up.type, words), count, parts * s.streams);
  pool_.run_near(parts, [&](std::size_t part) {
    struct Scratch {
      Rows gates;  // [count x streams x kPanelRows]
      Pointers y;
    };
    thread_local Scratch scratch;
    scratch.gates.resize(count, width);
    scratch.y.resize(count);
    const std::size_t column = part * kPanelRows, next = part + 1 < parts ? column + kPanelRows : 0;
    const std::size_t columns = std::min<std::size_t>(kPanelRows, s.hidden - column);
    for (std::size_t stream = 0; stream < s.streams; ++stream) {
      Product some = product;
      some.matrix.data = up.row(stream * s.hidden + column);
      some.matrix.rows = static_cast<std::uint32_t>(columns);
      for (std::size_t r = 0; r < count; ++r)
        scratch.y[r] = scratch.gates.row(r) + stream * kPanelRows;
      some.y = scratch.y.data();
      const bool last = stream + 1 == s.streams;
      whole(some, up.row(last ? next : (stream + 1) * s.hidden + column));
    }
    constexpr std::size_t ahead = 6;  // rows: short pieces, far from each other
    for (std::size_t r = 0; r < count; ++r) {
      const float* later = normed_.row(std::min(r + ahead, count - 1)) + column;
      for (std::size_t stream = 0; stream < s.streams; ++stream)
        for (std::size_t i = 0; i < columns; i += kLanes)
          __builtin_prefetch(later + stream * s.hidden + i);
      kernels_.mix_streams(scratch.gates.row(r), kPanelRows, normed_.row(r) + column, s.hidden,
                           s.streams, columns, mixed_.row(first + r) + column);
    }
  });
}

void CpuBackend::write() {
  then(2, [this](std::size_t r) {
    const ResidualShape& s = shape_.residual;
    for (std::size_t i = 0; i < s.streams; ++i)
      kernels_.add_scaled(wide_.row(r) + i * s.hidden, out_.row(r), gates_.row(r)[i], s.hidden);
  });
}

void CpuBackend::pick(std::span<const std::uint32_t> rows) {
  flush();
  for (Rows* kept : {&wide_, &out_, &gates_})
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memmove(kept->row(i), kept->row(rows[i]), kept->width * sizeof(float));
  for (std::size_t i = 0; i < rows.size(); ++i) row_part_[i] = row_part_[rows[i]];
  rows_ = rows.size();
  if (!few_) return;
  // Rows no longer lie as the window's parts do; buffers stay as they are.
  const std::size_t ranges = std::min(rows_, pool_.threads());
  whole_parts_ = false;
  row_cuts_.clear();
  for (std::size_t i = 0; i <= ranges; ++i) row_cuts_.push_back(rows_ * i / ranges);
}

void CpuBackend::head(const ResidualWeights& mixer, const Matrix& head,
                      std::span<const std::uint32_t> rows, std::span<float> out) {
  flush();
  if (rows.empty()) return;
  head_wide_.resize(rows.size(), shape_.residual.wide());
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(head_wide_.row(i), wide_.row(rows[i]), head_wide_.width * sizeof(float));
  for (std::size_t r = 0; r < rows.size(); r += kReadRows)
    read_rows(mixer, head_wide_, r, std::min(kReadRows, rows.size() - r));
  const ByteInputs bytes = quantize_later({&head, 1}, mixed_, rows.size(), bytes_mixed_);
  const RowProduct product(head, mixed_.row(0), mixed_.stride, out.data(), head.rows, bytes);
  project({&product, 1}, 0, rows.size());
  flush();
}

}  // namespace strata::cpu

namespace strata {

Result<std::unique_ptr<Backend>> make_cpu_backend(const NetworkShape& shape, std::uint32_t threads,
                                                  const std::string& isa) {
  STRATA_ASSIGN(const cpu::Kernels* const chosen, cpu::kernels_of(isa));
  for (const NetworkShape::Layer& layer : shape.layers)
    if (layer.attention) STRATA_TRY(check_kv_type(shape.kv_type, layer.attention_shape.head_dim));
  return std::make_unique<cpu::CpuBackend>(shape, threads, *chosen);
}

}  // namespace strata
