#include "model/convert_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "quant/quant.h"

namespace strata {
namespace {

constexpr std::uint64_t slice_values = 1u << 20;
constexpr std::size_t piece_bytes = std::size_t{8} << 20;

// Takes the runs of a tensor from front to back.
class RunCursor {
 public:
  explicit RunCursor(const std::vector<ValueRun>& runs) : runs_(runs) {}

  // Calls `use` with the pieces that make the next `count` values.
  template <class Use>
  void take(std::uint64_t count, Use use) {
    while (count > 0) {
      const ValueRun& run = runs_[index_];
      const std::uint64_t part = std::min(count, run.count - at_);
      if (part > 0) use(ValueRun{run.view, run.first + at_, part});
      count -= part;
      at_ += part;
      if (at_ == run.count) {
        ++index_;
        at_ = 0;
      }
    }
  }

 private:
  const std::vector<ValueRun>& runs_;
  std::size_t index_ = 0;
  std::uint64_t at_ = 0;
};

std::span<const std::byte> bytes_of_run(const ValueRun& run) {
  const std::size_t size = size_of(run.view->type);
  return run.view->data.subspan(run.first * size, run.count * size);
}

template <class Stored, class Convert>
void widen(std::span<const std::byte> bytes, float* out, Convert convert) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(Stored); ++i) {
    Stored value;  // the file promises no alignment
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof value);
    out[i] = convert(value);
  }
}

// Planning admits exactly these types.
void decode_run(const ValueRun& run, float scale, float* out) {
  const std::span<const std::byte> bytes = bytes_of_run(run);
  switch (run.view->type) {
    case SafetensorType::F64:
      widen<double>(bytes, out, [](double v) { return static_cast<float>(v); });
      return;
    case SafetensorType::F16:
      widen<std::uint16_t>(bytes, out, half_to_float);
      return;
    case SafetensorType::BF16:
      widen<std::uint16_t>(bytes, out, bf16_to_float);
      return;
    case SafetensorType::F8_E4M3:
      widen<std::uint8_t>(bytes, out,
                          [scale](std::uint8_t v) { return f8_e4m3_to_float(v) * scale; });
      return;
    default:
      std::memcpy(out, bytes.data(), bytes.size());
  }
}

// Blocks of every row of `from` into the written order.
void reorder_columns(const PlannedTensor& tensor, std::size_t value_bytes,
                     std::span<const std::byte> from, std::span<std::byte> to) {
  const std::size_t block = tensor.column_block * value_bytes;
  const std::size_t row = tensor.ne[0] * value_bytes;
  for (std::size_t at = 0; at < from.size(); at += row)
    for (std::size_t i = 0; i < tensor.column_order.size(); ++i)
      std::memcpy(to.data() + at + i * block, from.data() + at + tensor.column_order[i] * block,
                  block);
}

void transform_values(ValueTransform transform, std::span<float> values) {
  switch (transform) {
    case ValueTransform::none:
      return;
    case ValueTransform::plus_one:
      for (float& v : values) v = 1.0f + v;
      return;
    case ValueTransform::negative_exp:
      for (float& v : values) v = static_cast<float>(-std::exp(double{v}));
      return;
  }
}

std::uint64_t rows_of(const PlannedTensor& tensor) {
  std::uint64_t rows = 1;
  for (std::size_t d = 1; d < tensor.ne.size(); ++d) rows *= tensor.ne[d];
  return rows;
}

// Whether the checkpoint's bits are already those of the file.
bool keeps_bits(const PlannedTensor& tensor, TensorType type) {
  const auto stored_as = [](SafetensorType t) {
    switch (t) {
      case SafetensorType::F16:
        return TensorType::F16;
      case SafetensorType::BF16:
        return TensorType::BF16;
      case SafetensorType::F8_E4M3:
        return TensorType::I8;
      case SafetensorType::F64:
        return TensorType::F64;
      default:
        return TensorType::F32;
    }
  };
  return tensor.transform == ValueTransform::none &&
         std::all_of(tensor.runs.begin(), tensor.runs.end(),
                     [&](const ValueRun& run) { return stored_as(run.view->type) == type; });
}

Status copy_bits(const PlannedTensor& tensor, const ByteSink& sink) {
  RunCursor cursor(tensor.runs);
  if (tensor.column_order.empty()) {  // straight from the mapped file
    for (const ValueRun& run : tensor.runs) {
      std::span<const std::byte> rest = bytes_of_run(run);
      while (!rest.empty()) {
        const std::size_t part = std::min(rest.size(), piece_bytes);
        STRATA_TRY(sink(rest.first(part)));
        rest = rest.subspan(part);
      }
    }
    return {};
  }
  const std::size_t value_bytes = size_of(tensor.runs[0].view->type);
  const std::uint64_t width = tensor.ne[0];
  const std::uint64_t slice = std::max<std::uint64_t>(1, slice_values / width);
  std::vector<std::byte> gathered, ordered;
  std::uint64_t rows = rows_of(tensor);
  while (rows > 0) {
    const std::uint64_t part = std::min(rows, slice);
    gathered.resize(part * width * value_bytes);
    ordered.resize(gathered.size());
    std::byte* out = gathered.data();
    cursor.take(part * width, [&](const ValueRun& run) {
      const std::span<const std::byte> bytes = bytes_of_run(run);
      std::memcpy(out, bytes.data(), bytes.size());
      out += bytes.size();
    });
    reorder_columns(tensor, value_bytes, gathered, ordered);
    STRATA_TRY(sink(ordered));
    rows -= part;
  }
  return {};
}

// Whole rows of one slice, by the threads of the pool.
Status encode_rows(TensorType type, std::uint64_t width, std::span<const float> values,
                   std::span<std::byte> out, ThreadPool& pool) {
  if (type == TensorType::F32) {
    std::memcpy(out.data(), values.data(), out.size());
    return {};
  }
  const std::size_t rows = values.size() / width;
  const std::size_t row_bytes = out.size() / rows;
  const std::size_t parts = std::min<std::size_t>(rows, 4 * pool.threads());
  std::vector<Status> results(parts);
  pool.run(parts, [&](std::size_t part) {
    const std::size_t first = rows * part / parts;
    const std::size_t count = rows * (part + 1) / parts - first;
    results[part] = encode(type, values.subspan(first * width, count * width),
                           out.subspan(first * row_bytes, count * row_bytes));
  });
  for (Status& result : results) STRATA_TRY(std::move(result));
  return {};
}

// The largest finite half is 65504; from the middle to the next step on values round to infinity.
Status check_half_range(std::span<const float> values) {
  for (const float v : values)
    if (std::isfinite(v) && std::fabs(v) >= 65520.0f)
      return fail(ErrorCode::unsupported, "the value {} does not fit F16; choose BF16 or F32", v);
  return {};
}

// Encoders of blocks take finite values only; the sentence says where the other one is.
Status check_finite(std::span<const float> values, std::uint64_t first_row, std::uint64_t width) {
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return {};
  const auto at = static_cast<std::uint64_t>(bad - values.begin());
  return fail(ErrorCode::corrupt, "row {}, column {} is {}, not a finite number",
              first_row + at / width, at % width, *bad);
}

Status convert_values(const PlannedTensor& tensor, TensorType type, ThreadPool& pool,
                      const ByteSink& sink) {
  const std::uint64_t width = tensor.ne[0];
  const std::uint64_t slice = std::max<std::uint64_t>(1, slice_values / width);
  RunCursor cursor(tensor.runs);
  std::vector<float> values, ordered;
  std::vector<std::byte> encoded;
  std::uint64_t rows = rows_of(tensor);
  while (rows > 0) {
    const std::uint64_t part = std::min(rows, slice);
    values.resize(part * width);
    float* out = values.data();
    cursor.take(part * width, [&](const ValueRun& run) {
      decode_run(run, tensor.scale, out);
      out += run.count;
    });
    if (!tensor.column_order.empty()) {
      ordered.resize(values.size());
      reorder_columns(tensor, sizeof(float), std::as_bytes(std::span(values)),
                      std::as_writable_bytes(std::span(ordered)));
      values.swap(ordered);
    }
    transform_values(tensor.transform, values);
    if (type == TensorType::F16) STRATA_TRY(check_half_range(values));
    if (traits(type).block_values > 1)
      STRATA_TRY(check_finite(values, rows_of(tensor) - rows, width));
    STRATA_ASSIGN(const std::uint64_t bytes, bytes_of(type, values.size()));
    encoded.resize(bytes);
    STRATA_TRY(encode_rows(type, width, values, encoded, pool));
    STRATA_TRY(sink(encoded));
    rows -= part;
  }
  return {};
}

}  // namespace

Status stream_tensor(const PlannedTensor& tensor, TensorType type, ThreadPool& pool,
                     const ByteSink& sink) {
  Status status =
      keeps_bits(tensor, type) ? copy_bits(tensor, sink) : convert_values(tensor, type, pool, sink);
  if (!status)
    return with_context(std::move(status).error(), fmt::format("tensor '{}'", tensor.name));
  return {};
}

}  // namespace strata
