#include "ple/row_table.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/latency_histogram.h"
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

// What requests and their table share.
struct MappedRows {
  std::shared_ptr<const GgufModel> model;  // keeps data alive
  std::span<const std::byte> data;
  std::uint64_t rows = 0;
  RowFormat format;
  std::string how;

  std::mutex mutex;  // guards what follows
  TableStats totals;
  LatencyHistogram waits;
};

class MappedTable final : public RowTable {
 public:
  explicit MappedTable(std::shared_ptr<MappedRows> shared) : shared_(std::move(shared)) {}

  std::uint64_t rows() const override { return shared_->rows; }
  std::uint32_t width() const override { return shared_->format.width(); }
  Result<std::unique_ptr<RowRequest>> request(std::span<const std::uint64_t> ids) override;
  TableStats stats() const override {
    const std::lock_guard lock(shared_->mutex);
    TableStats stats = shared_->totals;
    stats.how = shared_->how;
    stats.wait_p50 = std::min(shared_->waits.percentile(0.5), stats.wait_max);
    stats.wait_p99 = std::min(shared_->waits.percentile(0.99), stats.wait_max);
    return stats;
  }
  void reset() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->totals = {};
    shared_->waits.clear();
  }

 private:
  std::shared_ptr<MappedRows> shared_;
};

// Reads when it is collected: a mapping has no way to ask ahead of time.
class MappedRequest final : public RowRequest {
 public:
  MappedRequest(std::shared_ptr<MappedRows> shared, std::span<const std::uint64_t> ids)
      : shared_(std::move(shared)), ids_(ids.begin(), ids.end()) {
    counts_.requested = ids.size();
  }

  Status collect(std::span<float> out) override {
    const std::size_t width = shared_->format.width();
    if (out.size() != ids_.size() * width) {
      return fail(ErrorCode::internal, "n-gram rows: {} places for {} rows of {}", out.size(),
                  ids_.size(), width);
    }
    wait_for_pages();
    for (std::size_t i = 0; i < ids_.size(); ++i)
      STRATA_TRY(shared_->format.decode_row(row(ids_[i]), out.subspan(i * width, width)));
    return {};
  }
  const RowCounts& counts() const override { return counts_; }

 private:
  std::span<const std::byte> row(std::uint64_t id) const {
    return shared_->data.subspan(id * shared_->format.row_bytes(), shared_->format.row_bytes());
  }

  void wait_for_pages() {
    const double start = monotonic_seconds();
    for (const std::uint64_t id : ids_) {
      const volatile std::byte *first = &row(id).front(), *last = &row(id).back();
      (void)*first, (void)*last;
    }
    counts_.wait_seconds = monotonic_seconds() - start;
    const auto waited = static_cast<std::uint64_t>(counts_.wait_seconds * 1e6);
    const std::lock_guard lock(shared_->mutex);
    ++shared_->totals.requests;
    shared_->totals.rows += counts_;
    shared_->totals.wait_max = std::max(shared_->totals.wait_max, waited);
    shared_->waits.add(waited);
  }

  std::shared_ptr<MappedRows> shared_;
  std::vector<std::uint64_t> ids_;
  RowCounts counts_;
};

Result<std::unique_ptr<RowRequest>> MappedTable::request(std::span<const std::uint64_t> ids) {
  for (const std::uint64_t id : ids) {
    if (id >= shared_->rows) {
      return fail(ErrorCode::corrupt, "n-gram row {} asked of a table of {} rows", id,
                  shared_->rows);
    }
  }
  return std::make_unique<MappedRequest>(shared_, ids);
}

}  // namespace

Result<std::shared_ptr<RowTable>> open_mapped_table(std::shared_ptr<const GgufModel> model,
                                                    const TensorView& tensor, std::string how) {
  auto shared = std::make_shared<MappedRows>();
  STRATA_ASSIGN(shared->format, RowFormat::of(model->metadata, tensor));
  shared->model = std::move(model);
  shared->data = tensor.data;
  shared->rows = tensor.ne[1];
  shared->how = std::move(how);
  return std::make_shared<MappedTable>(std::move(shared));
}

}  // namespace strata
