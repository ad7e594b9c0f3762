#include "ple/ngram.h"

#include <limits>

#include "quant/quant.h"

namespace strata {

Result<NgramHash> NgramHash::create(std::vector<std::uint64_t> multipliers,
                                    std::vector<std::uint64_t> head_vocab_sizes,
                                    std::vector<std::uint64_t> head_offsets, std::int32_t eos) {
  if (multipliers.size() < 2) {
    return fail(ErrorCode::corrupt, "the n-gram hash has {} multipliers, at least 2 are needed",
                multipliers.size());
  }
  const std::size_t orders = multipliers.size() - 1;
  const std::size_t heads = head_vocab_sizes.size();
  if (heads == 0 || heads % orders != 0) {
    return fail(ErrorCode::corrupt, "the n-gram hash has {} heads, no multiple of its {} orders",
                heads, orders);
  }
  if (head_offsets.size() != heads) {
    return fail(ErrorCode::corrupt, "the n-gram hash has {} head sizes but {} offsets", heads,
                head_offsets.size());
  }
  NgramHash hash;
  for (std::size_t h = 0; h < heads; ++h) {
    constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
    if (head_vocab_sizes[h] == 0 || head_vocab_sizes[h] > limit || head_offsets[h] > limit) {
      return fail(ErrorCode::corrupt, "n-gram head {} has size {} and offset {}", h,
                  head_vocab_sizes[h], head_offsets[h]);
    }
    hash.table_rows_ = std::max(hash.table_rows_, head_vocab_sizes[h] + head_offsets[h]);
  }
  hash.heads_per_ngram_ = heads / orders;
  hash.multipliers_ = std::move(multipliers);
  hash.head_vocab_sizes_ = std::move(head_vocab_sizes);
  hash.head_offsets_ = std::move(head_offsets);
  hash.eos_ = eos;
  return hash;
}

void NgramHash::rows(std::int32_t token, std::span<const std::int32_t> previous,
                     std::span<std::uint64_t> rows) const {
  const auto id = [](std::int32_t t) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(t));
  };
  std::uint64_t mixed = id(token) * multipliers_[0];
  bool cut = false;
  std::size_t head = 0;
  for (std::size_t k = 1; k < multipliers_.size(); ++k) {
    cut = cut || k > previous.size() || previous[k - 1] == eos_;
    mixed ^= id(cut ? eos_ : previous[k - 1]) * multipliers_[k];
    for (std::size_t i = 0; i < heads_per_ngram_; ++i, ++head)
      rows[head] = mixed % head_vocab_sizes_[head] + head_offsets_[head];
  }
}

namespace {

class MappedTable final : public RowTable {
 public:
  MappedTable(std::shared_ptr<const GgufModel> model, const TensorView& tensor, bool fp8,
              float scale)
      : model_(std::move(model)),
        data_(tensor.data),
        type_(tensor.type),
        width_(static_cast<std::uint32_t>(tensor.ne[0])),
        rows_(tensor.ne[1]),
        row_bytes_(tensor.data.size() / tensor.ne[1]),
        fp8_(fp8),
        scale_(scale) {}

  std::uint64_t rows() const override { return rows_; }
  std::uint32_t width() const override { return width_; }

  Status gather(std::span<const std::uint64_t> ids, std::span<float> out) const override {
    if (out.size() != ids.size() * width_) {
      return fail(ErrorCode::internal, "n-gram rows: {} places for {} rows of {}", out.size(),
                  ids.size(), width_);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= rows_) {
        return fail(ErrorCode::corrupt, "n-gram row {} asked of a table of {} rows", ids[i], rows_);
      }
      const auto row = data_.subspan(ids[i] * row_bytes_, row_bytes_);
      const auto into = out.subspan(i * width_, width_);
      if (fp8_) {
        for (std::size_t d = 0; d < width_; ++d)
          into[d] = f8_e4m3_to_float(std::to_integer<std::uint8_t>(row[d])) * scale_;
      } else {
        STRATA_TRY(decode(type_, row, into));
      }
    }
    return {};
  }

 private:
  std::shared_ptr<const GgufModel> model_;  // keeps data_ alive
  std::span<const std::byte> data_;
  TensorType type_;
  std::uint32_t width_;
  std::uint64_t rows_;
  std::size_t row_bytes_;
  bool fp8_;
  float scale_;
};

}  // namespace

Result<std::shared_ptr<RowTable>> open_row_table(std::shared_ptr<const GgufModel> model,
                                                 const TensorView& tensor) {
  if (tensor.dims != 2) {
    return fail(ErrorCode::corrupt, "n-gram table '{}' has shape {}, two dimensions are needed",
                tensor.name, shape_text(tensor));
  }
  bool fp8 = false;
  float scale = 1.0f;
  if (tensor.type == TensorType::I8) {
    STRATA_ASSIGN(const auto format, model->metadata.string("strata.ple.format"));
    if (format != "f8_e4m3") {
      return fail(ErrorCode::unsupported, "strata.ple.format is '{}', only 'f8_e4m3' is known",
                  format);
    }
    STRATA_ASSIGN(const double value, model->metadata.number("strata.ple.scale"));
    fp8 = true;
    scale = static_cast<float>(value);
  } else if (!can_decode(tensor.type)) {
    return fail(ErrorCode::unsupported, "n-gram table '{}' is stored as {}, which has no decoder",
                tensor.name, to_string(tensor.type));
  } else if (tensor.ne[0] % traits(tensor.type).block_values != 0) {
    return fail(ErrorCode::corrupt,
                "n-gram table '{}' has rows of {} values, no whole blocks of {}", tensor.name,
                tensor.ne[0], to_string(tensor.type));
  }
  return std::make_shared<MappedTable>(std::move(model), tensor, fp8, scale);
}

}  // namespace strata
