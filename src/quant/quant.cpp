// The public face: finds the decoder or encoder and checks the sizes and values.
#include "quant/quant.h"

#include <cmath>
#include <optional>
#include <string>

#include "quant/decoders.h"
#include "quant/encoders.h"

namespace strata {
namespace {

// The type's name, or its number if it is none of TensorType's.
std::string type_label(TensorType type) {
  const auto id = static_cast<std::uint32_t>(type);
  if (!type_from_id(id)) return fmt::format("number {}", id);
  return std::string(to_string(type));
}

quant::RowEncoder row_encoder(TensorType type) {
  if (auto encoder = quant::exact_encoder(type)) return encoder;
  if (auto encoder = quant::searched_encoder(type)) return encoder;
  return quant::k_encoder(type);
}

// The number of blocks, if `values` values are whole blocks that take `bytes` bytes.
Result<std::size_t> count_blocks(TensorType type, std::size_t values, std::size_t bytes) {
  const TypeTraits& layout = traits(type);
  if (values % layout.block_values != 0) {
    return fail(ErrorCode::invalid_argument, "{} values are no whole number of {} blocks of {}",
                values, layout.name, layout.block_values);
  }
  const std::size_t blocks = values / layout.block_values;
  if (bytes % layout.block_bytes != 0 || bytes / layout.block_bytes != blocks) {
    return fail(ErrorCode::invalid_argument,
                "{} values of {} are {} blocks of {} bytes, but the block data has {} bytes",
                values, layout.name, blocks, layout.block_bytes, bytes);
  }
  return blocks;
}

std::optional<std::size_t> first_not_finite(std::span<const float> values) {
  constexpr std::size_t chunk = 64;  // a test without branches for each chunk
  for (std::size_t begin = 0; begin < values.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, values.size());
    std::uint32_t found = 0;
    for (std::size_t i = begin; i < end; ++i) {
      found |= (std::bit_cast<std::uint32_t>(values[i]) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
    }
    for (std::size_t i = begin; found != 0 && i < end; ++i) {
      if (!std::isfinite(values[i])) return i;
    }
  }
  return std::nullopt;
}

std::size_t index_of_largest(std::span<const float> values) {
  std::size_t largest = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (std::abs(values[i]) > std::abs(values[largest])) largest = i;
  }
  return largest;
}

}  // namespace

RowDecoder row_decoder(TensorType type) {
  if (auto decoder = quant::plain_decoder(type)) return decoder;
  if (auto decoder = quant::simple_decoder(type)) return decoder;
  if (auto decoder = quant::k_decoder(type)) return decoder;
  return quant::codebook_decoder(type);
}

bool can_decode(TensorType type) {
  return row_decoder(type) != nullptr;
}

Status decode(TensorType type, std::span<const std::byte> blocks, std::span<float> out) {
  const RowDecoder decoder = row_decoder(type);
  if (decoder == nullptr) {
    return fail(ErrorCode::unsupported, "there is no decoder for tensor type {}", type_label(type));
  }
  STRATA_ASSIGN(const std::size_t count, count_blocks(type, out.size(), blocks.size()));
  decoder(blocks.data(), out.data(), count);
  return {};
}

Status decode_f8_e4m3(std::span<const std::byte> bytes, float scale, std::span<float> out) {
  if (bytes.size() != out.size()) {
    return fail(ErrorCode::invalid_argument, "{} bytes of F8_E4M3 cannot fill {} values",
                bytes.size(), out.size());
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = f8_e4m3_to_float(static_cast<std::uint8_t>(bytes[i])) * scale;
  }
  return {};
}

bool can_encode(TensorType type) {
  return row_encoder(type) != nullptr;
}

Status encode(TensorType type, std::span<const float> values, std::span<std::byte> blocks) {
  const quant::RowEncoder encoder = row_encoder(type);
  if (encoder == nullptr) {
    return fail(ErrorCode::unsupported, "there is no encoder for tensor type {}", type_label(type));
  }
  STRATA_ASSIGN(const std::size_t count, count_blocks(type, values.size(), blocks.size()));
  if (const auto index = first_not_finite(values)) {
    return fail(ErrorCode::invalid_argument, "value {} is {}; {} holds finite values only", *index,
                values[*index], to_string(type));
  }
  const std::size_t written = encoder(values.data(), blocks.data(), count);
  if (written == count) return {};
  const std::size_t block_values = traits(type).block_values;
  const std::size_t begin = written * block_values;
  const std::size_t index = begin + index_of_largest(values.subspan(begin, block_values));
  return fail(ErrorCode::invalid_argument, "value {} is {}, which is too large for {}", index,
              values[index], to_string(type));
}

}  // namespace strata
