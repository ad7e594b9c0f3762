#include "compute/cpu/state.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/hash.h"
#include "compute/cpu/kernels.h"

namespace strata::cpu {
namespace {

// "SSQ2", a fingerprint of the shape, the token count, then the layers' rows as floats, and a hash.
struct Header {
  std::uint32_t magic = 0x32515353;
  std::uint32_t tokens = 0;
  std::uint64_t shape = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_hash = 0;
};

// Zeros that begin at a cache line. Memory of large pages is taken when it is written.
std::shared_ptr<std::byte[]> new_page(std::size_t bytes) {
  constexpr std::size_t line = 64;
  void* memory = std::calloc(bytes + line, 1);
  if (!memory) return nullptr;
  const std::shared_ptr<void> owner(memory, std::free);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  auto* start = static_cast<std::byte*>(memory) + (line - address % line) % line;
  return {owner, start};
}

}  // namespace

std::size_t padded(std::size_t width) {
  return (width + kLanes - 1) / kLanes * kLanes;
}

// --- pages --------------------------------------------------------------------------------------

PageLayout::PageLayout(const NetworkShape& shape) {
  constexpr std::size_t line = 64;
  const auto take = [this](std::size_t size) {
    const std::size_t at = bytes;
    bytes += (size + line - 1) / line * line;
    return at;
  };
  for (const NetworkShape::Layer& kind : shape.layers) {
    Layer layer;
    if (kind.attention) {
      const AttentionShape& s = kind.attention_shape;
      layer.heads = s.kv_heads;
      layer.key_head = cell_bytes(key_format(shape.kv_type), s.head_dim);
      layer.value_head = cell_bytes(value_format(shape.kv_type), s.head_dim);
      layer.keys = take(kPageTokens * layer.heads * layer.key_head);
      layer.values = take(kPageTokens * layer.heads * layer.value_head);
      layer.block = s.block;
      layer.shift = kind.draft ? 1 : 0;
      if (s.block > 0) {
        layer.indexer_width = s.indexer_dim;
        const std::size_t blocks = (kPageTokens + s.block - 1) / s.block;
        layer.block_keys = take(blocks * s.indexer_dim * sizeof(float));
      }
    }
    layers.push_back(layer);
  }
}

bool CellPages::reserve(std::size_t positions) {
  try {
    while (pages_.size() * kPageTokens < positions) {
      auto page = new_page(layout_->bytes);
      if (!page) return false;
      pages_.push_back(std::move(page));
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool CellPages::own(std::size_t from, std::size_t to) {
  try {
    for (std::size_t p = from / kPageTokens; p * kPageTokens < to; ++p) {
      if (pages_[p].use_count() == 1) continue;
      auto page = new_page(layout_->bytes);
      if (!page) return false;
      std::memcpy(page.get(), pages_[p].get(), layout_->bytes);
      pages_[p] = std::move(page);
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void CellPages::trim(std::size_t positions) {
  const std::size_t needed = (positions + kPageTokens - 1) / kPageTokens;
  if (pages_.size() > needed) pages_.resize(needed);
}

std::vector<SequenceState::Page> CellPages::pages(std::size_t positions) const {
  const std::size_t needed = (positions + kPageTokens - 1) / kPageTokens;
  return {pages_.begin(), pages_.begin() + static_cast<std::ptrdiff_t>(needed)};
}

void CellPages::take(std::span<const SequenceState::Page> pages) {
  pages_.clear();
  // Held by others too, so never written through this pointer.
  for (const SequenceState::Page& page : pages)
    pages_.push_back(std::const_pointer_cast<std::byte[]>(page));
}

// --- the state of a sequence --------------------------------------------------------------------

CpuSequence::CpuSequence(const NetworkShape& shape, const PageLayout& layout)
    : shape_(shape), layout_(layout), cells_(layout), layers_(shape.layers.size()) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const NetworkShape::Layer& kind = shape.layers[l];
    LayerState& state = layers_[l];
    if (kind.attention) {
      const AttentionShape& s = kind.attention_shape;
      if (s.block > 0) state.raw_index_keys = RowRing(s.block, s.indexer_dim);
    } else {
      const DeltaNetShape& s = kind.delta_net;
      state.conv = RowRing(s.conv_kernel - 1, s.channels());
      state.delta.assign(std::size_t{s.value_heads} * s.key_dim * padded(s.value_dim), 0.0f);
    }
    if (kind.ngram) state.ngram = RowRing(kind.ngram_shape.history(), shape.residual.wide());
  }
}

std::size_t CpuSequence::own_bytes() const {
  std::size_t floats = 0;
  for (const LayerState& s : layers_) {
    floats += s.conv.values.size() + s.delta.size() + s.waiting.size() +
              s.raw_index_keys.values.size() + s.ngram.values.size();
  }
  return floats * sizeof(float);
}

Result<std::unique_ptr<SequenceState>> CpuSequence::fork(std::uint32_t before) const {
  if (waiting_ != before)
    return fail(ErrorCode::internal, "a state with {} rows to settle is copied without {}",
                waiting_, before);
  try {
    auto copy = std::make_unique<CpuSequence>(shape_, layout_);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const LayerState& from = layers_[l];
      LayerState& to = copy->layers_[l];
      to.conv = from.conv;
      to.delta = from.delta;
      to.raw_index_keys = from.raw_index_keys;
      to.ngram = from.ngram;
    }
    copy->tokens_ = tokens_ - before;
    copy->cells_.take(cells_.pages(copy->tokens_));
    return copy;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::exhausted, "no memory for a copy of a sequence's state ({} MiB)",
                own_bytes() >> 20);
  }
}

void CpuSequence::take_back(std::uint32_t rows) {
  tokens_ -= rows;
  waiting_ -= rows;
}

Status CpuSequence::reserve(std::uint32_t tokens) {
  if (cells_.reserve(tokens)) return {};
  return fail(ErrorCode::exhausted,
              "no memory for the KV cache of {} tokens ({} MiB); use a smaller --ctx or fewer "
              "parallel requests",
              tokens, (std::size_t{tokens} / kPageTokens + 1) * layout_.bytes >> 20);
}

void CpuSequence::trim() {
  cells_.trim(tokens_);
  if (waiting_ > 0) return;
  for (LayerState& layer : layers_) layer.waiting = {};
}

Status CpuSequence::prepare(const WindowPart& part) {
  // One more: the draft block's cells lie a position further on.
  const std::uint32_t end = part.position + part.rows + 1;
  STRATA_TRY(reserve(end));
  if (!cells_.own(part.position, end))
    return fail(ErrorCode::exhausted, "no memory for a copy of the KV cache's last page");
  if (part.tentative == 0) return {};
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (shape_.layers[l].attention) continue;
    const DeltaInputs inputs(shape_.layers[l].delta_net);
    layers_[l].waiting.resize(kMaxTentative * inputs.width);  // bad_alloc is the caller's
  }
  return {};
}

std::uint64_t CpuSequence::fingerprint() const {
  std::vector<std::uint32_t> numbers = {shape_.residual.streams, shape_.residual.hidden,
                                        kPageTokens, kDeltaSlice,
                                        static_cast<std::uint32_t>(shape_.kv_type)};
  for (const NetworkShape::Layer& l : shape_.layers) {
    const DeltaNetShape& d = l.delta_net;
    const AttentionShape& a = l.attention_shape;
    for (const std::uint32_t n :
         {std::uint32_t{l.attention}, std::uint32_t{l.draft}, std::uint32_t{l.ngram}, d.key_heads,
          d.value_heads, d.key_dim, d.value_dim, d.conv_kernel, a.kv_heads, a.head_dim, a.block,
          a.indexer_dim, l.ngram_shape.conv_kernel, l.ngram_shape.dilation}) {
      numbers.push_back(n);
    }
  }
  return hash64(std::as_bytes(std::span(numbers)));
}

// Calls visitor(floats, count) for every run of values that makes up the state of `tokens` tokens,
// always in the same order.
template <class Visitor>
void CpuSequence::visit(std::uint32_t tokens, Visitor&& visitor) {
  const auto ring = [&](RowRing& rows) {  // the kept ones, oldest first
    for (std::size_t i = 0; i < rows.kept; ++i)
      visitor(rows.row(tokens + rows.rows() - rows.kept + i), rows.width);
  };
  for (LayerState& s : layers_) {
    ring(s.conv);
    if (!s.delta.empty()) visitor(s.delta.data(), s.delta.size());
    ring(s.raw_index_keys);
    ring(s.ngram);
  }
}

Bytes CpuSequence::save() const {
  auto& self = const_cast<CpuSequence&>(*this);  // visit() only reads here
  std::size_t floats = 0;
  self.visit(tokens_, [&](const float*, std::size_t count) { floats += count; });
  Bytes out(sizeof(Header) + floats * sizeof(float));
  std::byte* into = out.data() + sizeof(Header);
  self.visit(tokens_, [&](const float* values, std::size_t count) {
    std::memcpy(into, values, count * sizeof(float));
    into += count * sizeof(float);
  });
  const auto payload = std::span<const std::byte>(out).subspan(sizeof(Header));
  Header header;
  header.tokens = tokens_;
  header.shape = fingerprint();
  header.payload_bytes = payload.size();
  header.payload_hash = hash64(payload);
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

Status CpuSequence::restore(std::span<const std::byte> saved, std::span<const Page> pages) {
  Header header;
  if (saved.size() < sizeof header) {
    return fail(ErrorCode::corrupt, "a saved state of {} bytes is shorter than its header",
                saved.size());
  }
  std::memcpy(&header, saved.data(), sizeof header);
  const auto payload = saved.subspan(sizeof header);
  if (header.magic != Header{}.magic)
    return fail(ErrorCode::corrupt, "this is no saved state (magic {:#x})", header.magic);
  if (header.shape != fingerprint())
    return fail(
        ErrorCode::invalid_argument,
        "the saved state is of a model of another shape, or of other keys and values than {}",
        to_string(shape_.kv_type));
  if (header.payload_bytes != payload.size() || header.payload_hash != hash64(payload)) {
    return fail(ErrorCode::corrupt, "the saved state is damaged ({} of {} bytes)", payload.size(),
                header.payload_bytes);
  }
  std::size_t floats = 0;
  visit(header.tokens, [&](const float*, std::size_t count) { floats += count; });
  if (floats * sizeof(float) != payload.size()) {
    return fail(ErrorCode::corrupt, "the saved state has {} bytes, {} are needed", payload.size(),
                floats * sizeof(float));
  }
  if (pages.size() != (std::size_t{header.tokens} + kPageTokens - 1) / kPageTokens) {
    return fail(ErrorCode::corrupt, "the saved state of {} tokens comes with {} pages",
                header.tokens, pages.size());
  }
  cells_.take(pages);
  std::size_t at = 0;
  visit(header.tokens, [&](float* values, std::size_t count) {
    std::memcpy(values, payload.data() + at, count * sizeof(float));
    at += count * sizeof(float);
  });
  tokens_ = header.tokens;
  waiting_ = 0;
  return {};
}

}  // namespace strata::cpu
