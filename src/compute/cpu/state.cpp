#include "compute/cpu/state.h"

#include <cstring>
#include <new>

#include "base/hash.h"
#include "compute/cpu/kernels.h"

namespace strata::cpu {
namespace {

// "SSQ1", a fingerprint of the shape, the token count, then the layers' rows as floats, and a hash.
struct Header {
  std::uint32_t magic = 0x31515353;
  std::uint32_t tokens = 0;
  std::uint64_t shape = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t payload_hash = 0;
};

}  // namespace

bool PagedRows::reserve(std::size_t rows) {
  while (pages_.size() * kPageRows < rows) {
    std::unique_ptr<float[]> page(new (std::nothrow) float[kPageRows * width_]);
    if (!page) return false;
    pages_.push_back(std::move(page));
  }
  return true;
}

std::size_t padded(std::size_t width) {
  return (width + kLanes - 1) / kLanes * kLanes;
}

CpuSequence::CpuSequence(const NetworkShape& shape) : shape_(shape), layers_(shape.layers.size()) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const NetworkShape::Layer& kind = shape.layers[l];
    LayerState& state = layers_[l];
    if (kind.attention) {
      const AttentionShape& s = kind.attention_shape;
      state.keys = PagedRows(std::size_t{s.kv_heads} * s.head_dim);
      state.values = PagedRows(std::size_t{s.kv_heads} * s.head_dim);
      if (s.block > 0) {
        state.block_keys = PagedRows(s.indexer_dim);
        state.raw_index_keys = RowRing(s.block, s.indexer_dim);
      }
    } else {
      const DeltaNetShape& s = kind.delta_net;
      state.conv = RowRing(s.conv_kernel - 1, s.channels());
      state.delta.assign(std::size_t{s.value_heads} * s.key_dim * padded(s.value_dim), 0.0f);
    }
    if (kind.ngram) state.ngram = RowRing(kind.ngram_shape.history(), shape.residual.wide());
  }
}

std::size_t CpuSequence::bytes() const {
  std::size_t total = 0;
  for (const LayerState& s : layers_) {
    total += s.keys.bytes() + s.values.bytes() + s.block_keys.bytes();
    total += (s.conv.values.size() + s.delta.size() + s.raw_index_keys.values.size() +
              s.ngram.values.size()) *
             sizeof(float);
  }
  return total;
}

Status CpuSequence::reserve(std::uint32_t count) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (!shape_.layers[l].attention) continue;
    const std::uint32_t block = shape_.layers[l].attention_shape.block;
    LayerState& s = layers_[l];
    if (!s.keys.reserve(count) || !s.values.reserve(count) ||
        (block > 0 && !s.block_keys.reserve(count / block))) {
      return fail(ErrorCode::exhausted,
                  "no memory for the KV cache of {} tokens (the sequence holds {} MiB); use a "
                  "smaller --ctx or fewer parallel requests",
                  count, bytes() >> 20);
    }
  }
  return {};
}

std::uint64_t CpuSequence::fingerprint() const {
  std::vector<std::uint32_t> numbers = {shape_.residual.streams, shape_.residual.hidden};
  for (const NetworkShape::Layer& l : shape_.layers) {
    const DeltaNetShape& d = l.delta_net;
    const AttentionShape& a = l.attention_shape;
    for (const std::uint32_t n :
         {std::uint32_t{l.attention}, std::uint32_t{l.ngram}, d.key_heads, d.value_heads, d.key_dim,
          d.value_dim, d.conv_kernel, a.kv_heads, a.head_dim, a.block, a.indexer_dim,
          l.ngram_shape.conv_kernel, l.ngram_shape.dilation}) {
      numbers.push_back(n);
    }
  }
  return hash64(std::as_bytes(std::span(numbers)));
}

// Calls visitor(floats, count) for every run of values that makes up the state of `tokens` tokens,
// always in the same order.
template <class Visitor>
bool CpuSequence::visit(std::uint32_t tokens, Visitor&& visitor) {
  const auto paged = [&](PagedRows& rows, std::size_t count) {
    for (std::size_t i = 0; i < count; i += kPageRows)
      if (!visitor(rows.row(i), std::min(kPageRows, count - i) * rows.width())) return false;
    return true;
  };
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    LayerState& s = layers_[l];
    const std::uint32_t block = shape_.layers[l].attention_shape.block;
    if (shape_.layers[l].attention) {
      if (!paged(s.keys, tokens) || !paged(s.values, tokens)) return false;
      if (block > 0 && !paged(s.block_keys, tokens / block)) return false;
    }
    for (std::vector<float>* values :
         {&s.conv.values, &s.delta, &s.raw_index_keys.values, &s.ngram.values}) {
      if (!values->empty() && !visitor(values->data(), values->size())) return false;
    }
  }
  return true;
}

Bytes CpuSequence::save() const {
  auto& self = const_cast<CpuSequence&>(*this);  // visit() only reads here
  Bytes out(sizeof(Header));
  self.visit(tokens_, [&](const float* values, std::size_t count) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values);
    out.insert(out.end(), bytes, bytes + count * sizeof(float));
    return true;
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

Status CpuSequence::restore(std::span<const std::byte> saved) {
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
    return fail(ErrorCode::invalid_argument, "the saved state is of a model of another shape");
  if (header.payload_bytes != payload.size() || header.payload_hash != hash64(payload)) {
    return fail(ErrorCode::corrupt, "the saved state is damaged ({} of {} bytes)", payload.size(),
                header.payload_bytes);
  }
  // The token count decides how many rows are read, so it must agree with the size before any
  // memory is taken for it.
  std::size_t fixed = 0, per_token = 0;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const LayerState& s = layers_[l];
    fixed += s.conv.values.size() + s.delta.size() + s.raw_index_keys.values.size() +
             s.ngram.values.size();
    per_token += s.keys.width() + s.values.width();
  }
  if (payload.size() / sizeof(float) < fixed + std::size_t{header.tokens} * per_token) {
    return fail(ErrorCode::corrupt, "the saved state says {} tokens but holds {} bytes",
                header.tokens, payload.size());
  }
  STRATA_TRY(reserve(header.tokens));
  std::size_t total = 0;
  visit(header.tokens, [&](const float*, std::size_t count) {
    total += count * sizeof(float);
    return true;
  });
  if (total != payload.size()) {
    return fail(ErrorCode::corrupt, "the saved state of {} tokens has {} bytes, {} are needed",
                header.tokens, payload.size(), total);
  }
  std::size_t at = 0;
  visit(header.tokens, [&](float* values, std::size_t count) {
    std::memcpy(values, payload.data() + at, count * sizeof(float));
    at += count * sizeof(float);
    return true;
  });
  tokens_ = header.tokens;
  return {};
}

}  // namespace strata::cpu
