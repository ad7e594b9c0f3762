// Routing and experts of the CPU backend. Rows are grouped by expert, so that each expert's weights
// are decoded once a window, in whatever order the source has them; a row's results are summed in
// ascending expert id, then the shared one.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "compute/cpu/backend.h"

namespace strata::cpu {

// Fills a row's chosen_ from the router's logits in d_, ascending.
void CpuBackend::route(const ExpertsWeights& weights, std::size_t row) {
  const std::size_t used = weights.shape.used, experts = weights.router.rows;
  thread_local std::vector<std::uint32_t> order;
  order.resize(experts);
  std::iota(order.begin(), order.end(), 0u);
  const float* logits = d_.row(row);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(used);
  std::partial_sort(order.begin(), middle, order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  const float top = logits[order[0]];
  std::sort(order.begin(), middle);
  thread_local std::vector<float> powers;  // of all experts, or of those that are used
  powers.resize(experts);
  const bool all = !weights.shape.normalize;
  for (std::size_t i = 0; i < used; ++i) powers[i] = logits[order[i]];
  if (all) std::copy_n(logits, experts, powers.begin());
  kernels_.exp_above(powers.data(), all ? experts : used, top);
  const float total = std::accumulate(
      powers.begin(), powers.begin() + static_cast<std::ptrdiff_t>(all ? experts : used), 0.0f);
  for (std::size_t i = 0; i < used; ++i) {
    const float weight = powers[all ? order[i] : i] / total;
    chosen_[row * used + i] = {static_cast<std::uint32_t>(row), order[i], weight};
  }
}

// Fills routed_ (by expert, then row), first_slots_ and row_slots_ from chosen_: places by
// counting, behind those of an expert come those of the next one.
void CpuBackend::sort_slots(const ExpertsWeights& weights) {
  routed_.resize(chosen_.size());
  row_slots_.resize(chosen_.size());
  first_slots_.assign(weights.router.rows + 1, 0);
  for (const Routed& slot : chosen_) ++first_slots_[slot.expert + 1];
  std::partial_sum(first_slots_.begin(), first_slots_.end(), first_slots_.begin());
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    std::uint32_t& place = first_slots_[chosen_[i].expert];
    routed_[place] = chosen_[i];
    row_slots_[i] = place++;
  }
  // Each is now where the next one begins.
  std::copy_backward(first_slots_.begin(), first_slots_.end() - 1, first_slots_.end());
  first_slots_.front() = 0;
}

void CpuBackend::experts(const ExpertsWeights& weights) {
  d_.resize(rows_, weights.router.rows);
  const ByteInputs bytes = quantize_later(
      std::array{weights.shared_gate, weights.shared_up, weights.gate.first, weights.up.first},
      mixed_, rows_, bytes_mixed_);
  const bool look = decode_ && !weights.next_router.empty() && weights.source->looks_ahead();
  if (look) ahead_.resize(rows_, weights.next_router.rows);
  const std::array routers = {RowProduct(weights.router, mixed_, d_),
                              RowProduct(weights.next_router, mixed_, ahead_)};
  project(std::span(routers).first(look ? 2 : 1), 0, rows_);
  chosen_.resize(rows_ * weights.shape.used);
  then(4, [this, w = &weights](std::size_t row) { route(*w, row); });
  flush();
  sort_slots(weights);
  begin_experts(weights);
  if (look) ask_ahead(weights);
  run_experts(weights, bytes);
  then(2, [this, w = &weights](std::size_t row) { sum_experts(*w, row); });
}

// Of a row: its experts in ascending id, then the shared one.
void CpuBackend::sum_experts(const ExpertsWeights& weights, std::size_t row) {
  const std::size_t used = weights.shape.used, hidden = shape_.residual.hidden;
  thread_local std::vector<const std::byte*> results;  // cells of float32
  thread_local std::vector<float> shares;
  results.clear();
  shares.clear();
  for (std::size_t i = 0; i < used; ++i) {
    const std::uint32_t slot = row_slots_[row * used + i];
    results.push_back(reinterpret_cast<const std::byte*>(expert_out_.row(slot)));
    shares.push_back(routed_[slot].weight);
  }
  results.push_back(reinterpret_cast<const std::byte*>(c_.row(row)));
  shares.push_back(
      kernels_.sigmoid(kernels_.dot(weights.shared_router.data(), mixed_.row(row), hidden)));
  const float* weight = shares.data();
  float* y = out_.row(row);
  kernels_.weigh_cells(CellFormat::f32, results.data(), results.size(), 0, hidden, &weight, 1, &y,
                       true);
}

// Asks for the weights of all experts that have rows.
void CpuBackend::begin_experts(const ExpertsWeights& weights) {
  expert_uses_.clear();
  for (std::uint32_t expert = 0; expert < weights.router.rows; ++expert)
    if (const std::uint32_t uses = first_slots_[expert + 1] - first_slots_[expert]; uses > 0)
      expert_uses_.push_back({expert, uses});
  weights.source->begin(weights.layer, expert_uses_, decode_);
}

// The next layer's router on this layer's input: a guess of what it will choose.
void CpuBackend::ask_ahead(const ExpertsWeights& weights) {
  const std::size_t used = std::min<std::size_t>(weights.shape.used, ahead_.width);
  std::vector<std::uint32_t> wanted, order(ahead_.width);
  for (std::size_t r = 0; r < rows_; ++r) {
    const float* logits = ahead_.row(r);
    std::iota(order.begin(), order.end(), 0u);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(used), order.end(),
                      [&](std::uint32_t a, std::uint32_t b) {
                        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                      });
    wanted.insert(wanted.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(used));
  }
  weights.source->prefetch(weights.layer + 1, wanted);
}

// Whether a thread takes an expert's rows through all of its matrices: in windows of many rows,
// where nothing but the results leaves its caches then, and of few, if matrices are so small that
// waiting for the other threads between them costs more than an uneven end.
bool CpuBackend::in_pieces(const ExpertsWeights& weights) const {
  constexpr std::size_t kSmallExpert = std::size_t{128} << 10;
  if (rows_ >= kManyRows) return true;
  const std::size_t bytes = weights.gate.bytes() + weights.up.bytes() + weights.down.bytes();
  return bytes <= kSmallExpert && expert_uses_.size() >= 2 * pool_.threads();
}

// Routed experts into expert_out_, the shared one into c_.
void CpuBackend::run_experts(const ExpertsWeights& weights, const ByteInputs& bytes) {
  const std::size_t slots = routed_.size();
  const bool together = !in_pieces(weights);
  if (together) {
    expert_hidden_.resize(slots, weights.gate.first.rows);
    expert_up_.resize(slots, weights.gate.first.rows);
    a_.resize(rows_, weights.shared_gate.rows);
    b_.resize(rows_, weights.shared_gate.rows);
  }
  expert_out_.resize(slots, shape_.residual.hidden);
  c_.resize(rows_, shape_.residual.hidden);
  // In the order in which the weights come: no result depends on it.
  for (bool first = true;; first = false) {
    const auto blobs = weights.source->next();
    if (blobs.empty() && !first) return;
    group_slots(weights, blobs);
    if (together) {
      run_group(weights, blobs, bytes, first);
    } else {
      run_pieces(weights, blobs, bytes, first);
    }
  }
}

// Slots of the experts whose weights are there; those of the others have failed.
void CpuBackend::group_slots(const ExpertsWeights& weights, std::span<const ExpertBlob> blobs) {
  group_.clear();
  for (const ExpertBlob& blob : blobs) {
    for (std::uint32_t i = first_slots_[blob.expert]; i < first_slots_[blob.expert + 1]; ++i) {
      if (blob.gate) {
        group_.push_back(i);
        continue;
      }
      std::fill_n(expert_out_.row(i), expert_out_.width, 0.0f);
      Status& failure = failures_[row_part_[routed_[i].row]];
      if (failure) failure = weights.source->failure();
    }
  }
}

// The routed experts of `blobs`, and the shared one if `shared`, all products of a step together.
// `bytes`: mixed_ in integers.
void CpuBackend::run_group(const ExpertsWeights& weights, std::span<const ExpertBlob> blobs,
                           const ByteInputs& bytes, bool shared) {
  const std::size_t count = group_.size(), shared_rows = shared ? rows_ : 0;
  Pointers mixed, shared_gate, shared_up, shared_out, input(count), gate(count), up(count),
      out(count);
  point(mixed, mixed_, shared_rows);
  point(shared_gate, a_, shared_rows);
  point(shared_up, b_, shared_rows);
  point(shared_out, c_, shared_rows);
  ByteInputs slot_bytes;
  for (std::size_t kind = 0; kind < kBlockKinds; ++kind) {
    if (!bytes.of[kind]) continue;
    slot_rows_[kind].resize(count);
    slot_bytes.of[kind] = slot_rows_[kind].data();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t slot = group_[i], row = routed_[slot].row;
    input[i] = mixed_.row(row);
    gate[i] = expert_hidden_.row(slot);
    up[i] = expert_up_.row(slot);
    out[i] = expert_out_.row(slot);
    for (std::size_t kind = 0; kind < kBlockKinds; ++kind)
      if (bytes.of[kind]) slot_rows_[kind][i] = bytes.of[kind][row];
  }
  // Calls body(blob, place in the group, rows) for every expert.
  const auto each = [&](const auto& body) {
    std::size_t i = 0;
    for (const ExpertBlob& blob : blobs) {
      const std::size_t from = i;
      while (i < count && routed_[group_[i]].expert == blob.expert) ++i;
      if (i > from) body(blob, from, i - from);
    }
  };
  const auto placed = [](const ExpertMatrices& experts, const std::byte* data) {
    Matrix matrix = experts.first;
    matrix.data = data;
    return matrix;
  };
  std::vector<Product> products;
  if (shared) {
    products = {{weights.shared_gate, mixed.data(), shared_gate.data(), rows_, bytes},
                {weights.shared_up, mixed.data(), shared_up.data(), rows_, bytes}};
  }
  each([&](const ExpertBlob& blob, std::size_t i, std::size_t rows) {
    const ByteInputs inputs = slot_bytes.from(i);
    products.push_back({placed(weights.gate, blob.gate), &input[i], &gate[i], rows, inputs});
    products.push_back({placed(weights.up, blob.up), &input[i], &up[i], rows, inputs});
  });
  multiply(products);
  const ByteInputs hidden = room({&weights.down.first, 1}, count, bytes_hidden_);
  const ByteInputs shared_hidden = room({&weights.shared_down, 1}, shared_rows, bytes_shared_);
  for_rows(count + shared_rows, 8, [&](std::size_t i) {
    const bool routed = i < count;
    const std::size_t row = routed ? i : i - count;
    float* open = routed ? gate[row] : shared_gate[row];
    const std::size_t width = routed ? expert_hidden_.width : a_.width;
    kernels_.silu_product(open, routed ? up[row] : shared_up[row], width);
    quantize_row(routed ? hidden : shared_hidden, row, open, width);
  });
  products.clear();
  if (shared) {
    products.push_back(
        {weights.shared_down, shared_gate.data(), shared_out.data(), rows_, shared_hidden});
  }
  each([&](const ExpertBlob& blob, std::size_t i, std::size_t rows) {
    products.push_back({placed(weights.down, blob.down), &gate[i], &out[i], rows, hidden.from(i)});
  });
  multiply(products);
}

// The same piece by piece: a thread takes some rows of an expert through all of its matrices.
void CpuBackend::run_pieces(const ExpertsWeights& weights, std::span<const ExpertBlob> blobs,
                            const ByteInputs& bytes, bool shared) {
  pieces_.clear();
  const auto cut = [&](ExpertPiece piece, std::size_t first, std::size_t rows) {
    const std::size_t count = (rows + kPieceRows - 1) / kPieceRows;
    for (std::size_t i = 0; i < count; ++i) {
      piece.first = first + rows * i / count;
      piece.rows = rows * (i + 1) / count - rows * i / count;
      for (const Matrix& m : {piece.gate, piece.up, piece.down})
        count_parts(m, int_format(m.type) ? Inputs::bytes : Inputs::floats, piece.rows,
                    (m.rows + kPanelRows - 1) / kPanelRows);
      pieces_.push_back(piece);
    }
  };
  if (shared) {
    ExpertPiece piece{weights.shared_gate, weights.shared_up, weights.shared_down, true};
    const Matrix* matrices[] = {&piece.gate, &piece.up, &piece.down};
    for (std::size_t i = 0; i < 3 && few_; ++i)
      piece.turned[i] = turned_of(*matrices[i], Inputs::bytes);
    cut(piece, 0, rows_);
  }
  std::size_t i = 0;
  for (const ExpertBlob& blob : blobs) {
    const std::size_t from = i;
    while (i < group_.size() && routed_[group_[i]].expert == blob.expert) ++i;
    if (i == from) continue;
    ExpertPiece piece{weights.gate.first, weights.up.first, weights.down.first};
    piece.gate.data = blob.gate;
    piece.up.data = blob.up;
    piece.down.data = blob.down;
    cut(piece, from, i - from);
  }
  pool_.run_near(pieces_.size(), [&](std::size_t number) {
    run_piece(pieces_[number], bytes, pieces_[std::min(number + 1, pieces_.size() - 1)].gate.data);
  });
}

// `after` is what the thread will probably read next.
void CpuBackend::run_piece(const ExpertPiece& piece, const ByteInputs& bytes,
                           const std::byte* after) {
  struct Scratch {
    Rows gate, up;
    Pointers in, gates, ups, out;
    std::vector<QuantizedRow> inputs[kBlockKinds], hidden;
    QuantizedRows hidden_rows;
  };
  thread_local Scratch own;
  const std::size_t rows = piece.rows;
  own.gate.resize(rows, piece.gate.rows);
  own.up.resize(rows, piece.up.rows);
  own.in.resize(rows);
  own.out.resize(rows);
  point(own.gates, own.gate, rows);
  point(own.ups, own.up, rows);
  const auto row_of = [&](std::size_t i) {
    return piece.shared ? piece.first + i : routed_[group_[piece.first + i]].row;
  };
  for (std::size_t i = 0; i < rows; ++i) {
    own.in[i] = mixed_.row(row_of(i));
    own.out[i] = piece.shared ? c_.row(piece.first + i) : expert_out_.row(group_[piece.first + i]);
  }
  ByteInputs inputs;
  for (std::size_t kind = 0; kind < kBlockKinds; ++kind) {
    if (!bytes.of[kind]) continue;
    own.inputs[kind].resize(rows);
    for (std::size_t i = 0; i < rows; ++i) own.inputs[kind][i] = bytes.of[kind][row_of(i)];
    inputs.of[kind] = own.inputs[kind].data();
  }
  whole({piece.gate, own.in.data(), own.gates.data(), rows, inputs, false, piece.turned[0]},
        piece.up.data);
  whole({piece.up, own.in.data(), own.ups.data(), rows, inputs, false, piece.turned[1]},
        piece.down.data);
  const IntFormat* format = int_format(piece.down.type);
  ByteInputs hidden;
  if (format) {
    own.hidden_rows.resize(rows, piece.down.cols, format->kind);
    own.hidden.resize(rows);
    hidden.of[static_cast<std::size_t>(format->kind)] = own.hidden.data();
  }
  for (std::size_t i = 0; i < rows; ++i) {
    kernels_.silu_product(own.gates[i], own.ups[i], piece.gate.rows);
    if (!format) continue;
    own.hidden[i] = own.hidden_rows.row(i);
    kernels_.quantize_row(own.gates[i], piece.down.cols, scale_width(format->kind), own.hidden[i]);
  }
  const bool streamed = routed_.size() * expert_out_.width * sizeof(float) >= kStreamedBytes;
  whole({piece.down, own.gates.data(), own.out.data(), rows, hidden, streamed, piece.turned[2]},
        after);
}

}  // namespace strata::cpu
