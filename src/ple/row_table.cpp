#include "ple/row_table.h"

#include <vector>

#include "quant/quant.h"

namespace strata {

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  requested += other.requested;
  cache_hits += other.cache_hits;
  joined += other.joined;
  prefetched_used += other.prefetched_used;
  read += other.read;
  failed += other.failed;
  wait_seconds += other.wait_seconds;
  return *this;
}

Status RowTable::gather(std::span<const std::uint64_t> ids, std::span<float> out) {
  STRATA_ASSIGN(const std::unique_ptr<RowRequest> asked, request(ids));
  return asked->collect(out);
}

Result<RowFormat> RowFormat::of(const Metadata& metadata, const TensorView& tensor) {
  if (tensor.dims != 2 || tensor.ne[0] == 0 || tensor.ne[1] == 0 || tensor.ne[0] > UINT32_MAX) {
    return fail(ErrorCode::corrupt, "n-gram table '{}' has shape {}, two dimensions are needed",
                tensor.name, shape_text(tensor));
  }
  RowFormat format;
  if (tensor.type == TensorType::I8) {
    STRATA_ASSIGN(const auto name, metadata.string("strata.ple.format"));
    if (name != "f8_e4m3") {
      return fail(ErrorCode::unsupported, "strata.ple.format is '{}', only 'f8_e4m3' is known",
                  name);
    }
    STRATA_ASSIGN(const double scale, metadata.number("strata.ple.scale"));
    format.fp8_ = true;
    format.scale_ = static_cast<float>(scale);
  } else if (!can_decode(tensor.type)) {
    return fail(ErrorCode::unsupported, "n-gram table '{}' is stored as {}, which has no decoder",
                tensor.name, to_string(tensor.type));
  } else if (tensor.ne[0] % traits(tensor.type).block_values != 0) {
    return fail(ErrorCode::corrupt,
                "n-gram table '{}' has rows of {} values, no whole blocks of {}", tensor.name,
                tensor.ne[0], to_string(tensor.type));
  }
  STRATA_ASSIGN(const std::uint64_t row_bytes, bytes_of(tensor.type, tensor.ne[0]));
  format.type_ = tensor.type;
  format.width_ = static_cast<std::uint32_t>(tensor.ne[0]);
  format.row_bytes_ = row_bytes;
  return format;
}

Status RowFormat::decode_row(std::span<const std::byte> row, std::span<float> out) const {
  if (!fp8_) return decode(type_, row, out);
  for (std::size_t d = 0; d < width_; ++d)
    out[d] = f8_e4m3_to_float(std::to_integer<std::uint8_t>(row[d])) * scale_;
  return {};
}

namespace {

class MappedTable final : public RowTable {
 public:
  MappedTable(std::shared_ptr<const GgufModel> model, const TensorView& tensor, RowFormat format)
      : model_(std::move(model)), data_(tensor.data), rows_(tensor.ne[1]), format_(format) {}

  std::uint64_t rows() const override { return rows_; }
  std::uint32_t width() const override { return format_.width(); }
  Result<std::unique_ptr<RowRequest>> request(std::span<const std::uint64_t> ids) override;

 private:
  friend class MappedRequest;
  std::shared_ptr<const GgufModel> model_;  // keeps data_ alive
  std::span<const std::byte> data_;
  std::uint64_t rows_;
  RowFormat format_;
};

// Reads when it is collected: there is no way to ask a mapping ahead of time.
class MappedRequest final : public RowRequest {
 public:
  MappedRequest(const MappedTable& table, std::span<const std::uint64_t> ids)
      : model_(table.model_),
        data_(table.data_),
        format_(table.format_),
        ids_(ids.begin(), ids.end()) {
    counts_.requested = ids.size();
  }

  Status collect(std::span<float> out) override {
    const std::size_t width = format_.width(), bytes = format_.row_bytes();
    if (out.size() != ids_.size() * width) {
      return fail(ErrorCode::internal, "n-gram rows: {} places for {} rows of {}", out.size(),
                  ids_.size(), width);
    }
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      STRATA_TRY(
          format_.decode_row(data_.subspan(ids_[i] * bytes, bytes), out.subspan(i * width, width)));
    }
    return {};
  }
  const RowCounts& counts() const override { return counts_; }

 private:
  std::shared_ptr<const GgufModel> model_;
  std::span<const std::byte> data_;
  RowFormat format_;
  std::vector<std::uint64_t> ids_;
  RowCounts counts_;
};

Result<std::unique_ptr<RowRequest>> MappedTable::request(std::span<const std::uint64_t> ids) {
  for (const std::uint64_t id : ids) {
    if (id >= rows_)
      return fail(ErrorCode::corrupt, "n-gram row {} asked of a table of {} rows", id, rows_);
  }
  return std::make_unique<MappedRequest>(*this, ids);
}

}  // namespace

Result<std::shared_ptr<RowTable>> open_mapped_table(std::shared_ptr<const GgufModel> model,
                                                    const TensorView& tensor) {
  STRATA_ASSIGN(const RowFormat format, RowFormat::of(model->metadata, tensor));
  return std::make_shared<MappedTable>(std::move(model), tensor, format);
}

}  // namespace strata
