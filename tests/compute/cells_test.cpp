// The cells of attention: what is stored, and the kernels that read it, in every format and on
// every instruction set, against the plainest arithmetic.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "compute/cpu/cells.h"
#include "compute/cpu/registry.h"
#include "quant/quant.h"

namespace strata::cpu {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

Floats random_floats(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& v : values) v = normal(random);
  return values;
}

Bytes stored(CellFormat format, const Floats& values) {
  Bytes cell(cell_bytes(format, values.size()));
  store_head(format, values.data(), values.size(), cell.data());
  return cell;
}

// By the formats' definitions, with the decoders of model files where there are some.
Floats values_of(CellFormat format, const Bytes& cell, std::size_t dim) {
  Floats values(format == CellFormat::q4_0 ? (dim + 31) / 32 * 32 : dim);
  switch (format) {
    case CellFormat::f32:
      std::memcpy(values.data(), cell.data(), cell.size());
      break;
    case CellFormat::f16:
      EXPECT_TRUE(decode(TensorType::F16, cell, values));
      break;
    case CellFormat::q4_0:
      EXPECT_TRUE(decode(TensorType::Q4_0, cell, values));
      break;
    case CellFormat::int8:
      for (std::size_t i = 0; i < dim; ++i) {
        const std::byte* block = cell.data() + i / 64 * 66;
        std::uint16_t scale = 0;
        std::memcpy(&scale, block, 2);
        values[i] =
            half_to_float(scale) * static_cast<float>(static_cast<signed char>(block[2 + i % 64]));
      }
  }
  values.resize(dim);
  return values;
}

constexpr std::size_t kDims[] = {1, 8, 16, 20, 32, 48, 64, 80, 96, 128, 256};

TEST(StoredCells, TakeTheBytesTheyShould) {
  // Of a token and layer with two heads of 256.
  const std::pair<KvType, std::size_t> table[] = {{KvType::f32, 4096},
                                                  {KvType::f16, 2048},
                                                  {KvType::int8, 1056},
                                                  {KvType::k8v4, 816},
                                                  {KvType::q4_0, 576}};
  for (const auto& [type, bytes] : table) {
    EXPECT_EQ(2 * (cell_bytes(key_format(type), 256) + cell_bytes(value_format(type), 256)), bytes);
    EXPECT_EQ(kv_type_named(to_string(type)).value(), type);
  }
  EXPECT_EQ(kv_type_named("q8").error().message,
            "'q8' is no type of keys and values; it must be f32, f16, int8, q4_0 or k8v4");
}

TEST(StoredCells, TurnedTypesNeedAPowerOfTwo) {
  for (const KvType type : {KvType::q4_0, KvType::k8v4}) {
    for (const std::size_t dim : {16u, 64u, 256u}) EXPECT_TRUE(check_kv_type(type, dim));
    EXPECT_EQ(check_kv_type(type, 96).error().message,
              fmt::format("keys and values of type {} need heads whose size is a power of two, and "
                          "the model's have 96; use f32, f16 or int8",
                          to_string(type)));
  }
  for (const KvType type : {KvType::f32, KvType::f16, KvType::int8})
    EXPECT_TRUE(check_kv_type(type, 96));
}

TEST(StoredCells, AreNearTheValues) {
  std::mt19937 random(1);
  for (const std::size_t dim : kDims) {
    for (const float size : {1e-2f, 1.0f, 300.0f}) {
      Floats values = random_floats(dim, random);
      for (float& v : values) v *= size;
      EXPECT_EQ(values_of(CellFormat::f32, stored(CellFormat::f32, values), dim), values);
      const Floats halves = values_of(CellFormat::f16, stored(CellFormat::f16, values), dim);
      for (std::size_t i = 0; i < dim; ++i)
        EXPECT_EQ(halves[i], half_to_float(float_to_half(values[i])));
      const Floats bytes = values_of(CellFormat::int8, stored(CellFormat::int8, values), dim);
      const Floats nibbles = values_of(CellFormat::q4_0, stored(CellFormat::q4_0, values), dim);
      for (std::size_t i = 0; i < dim; ++i) {
        const auto most = [&](std::size_t width) {
          float largest = 0;
          for (std::size_t k = i / width * width; k < std::min(dim, i / width * width + width); ++k)
            largest = std::max(largest, std::fabs(values[k]));
          return largest;
        };
        // Half a step, and what rounding the scale to a half costs at the ends.
        EXPECT_NEAR(bytes[i], values[i], most(64) * (0.5f / 127 + 1e-3f) + 1e-7f) << dim;
        EXPECT_NEAR(nibbles[i], values[i], most(32) * (1.0f / 8 + 1e-3f) + 1e-6f) << dim;
      }
    }
  }
}

TEST(StoredCells, WholeNumbersOfStepsAreExact) {
  Floats values(64);
  for (int i = 0; i < 64; ++i)
    values[static_cast<std::size_t>(i)] = 0.5f * static_cast<float>(2 * i - 63);
  values[0] = 63.5f;  // 127 steps of a half
  EXPECT_EQ(values_of(CellFormat::int8, stored(CellFormat::int8, values), 64), values);
  const Floats zeros(64);
  for (std::size_t f = 0; f < kCellFormats; ++f) {
    const auto format = static_cast<CellFormat>(f);
    EXPECT_EQ(values_of(format, stored(format, zeros), 64), zeros);
  }
}

TEST(StoredCells, WhatCannotBeStoredIsNoNumber) {
  std::mt19937 random(2);
  for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    Floats values = random_floats(256, random);
    values[130] = bad;
    for (const CellFormat format : {CellFormat::f16, CellFormat::int8, CellFormat::q4_0}) {
      const Floats read = values_of(format, stored(format, values), 256);
      EXPECT_FALSE(std::isfinite(read[130])) << to_string(format) << " " << bad;
      EXPECT_TRUE(std::isfinite(read[0])) << to_string(format) << " another block";
    }
  }
}

class CellKernels : public testing::TestWithParam<CellEntry> {
 protected:
  const Kernels& kernels() const { return *GetParam().kernels; }
  CellFormat format() const { return GetParam().format; }

  // Random cells of one head.
  struct Cells {
    std::vector<Bytes> bytes;
    std::vector<Floats> values;
    std::vector<const std::byte*> places;
  };
  Cells make_cells(std::size_t count, std::size_t dim, std::mt19937& random) const {
    Cells cells;
    for (std::size_t i = 0; i < count; ++i) {
      cells.bytes.push_back(stored(format(), random_floats(dim, random)));
      cells.values.push_back(values_of(format(), cells.bytes[i], dim));
    }
    for (const Bytes& b : cells.bytes) cells.places.push_back(b.data());
    return cells;
  }
};

template <class T>
std::vector<T*> rows_of(std::vector<std::vector<float>>& rows) {
  std::vector<T*> places;
  for (auto& row : rows) places.push_back(row.data());
  return places;
}

TEST_P(CellKernels, ScoresAreProductsInTheOneOrder) {
  std::mt19937 random(3);
  for (const std::size_t dim : kDims) {
    for (const std::size_t count : {1u, 7u, 16u, 33u}) {
      const Cells cells = make_cells(count, dim, random);
      for (const std::size_t queries : {1u, 3u, 4u, 12u, 17u, 48u}) {
        std::vector<Floats> x, scores(queries, Floats((count + 15) / 16 * 16));
        for (std::size_t q = 0; q < queries; ++q) x.push_back(random_floats(dim, random));
        const auto in = rows_of<const float>(x);
        const auto out = rows_of<float>(scores);
        kernels().score_cells(format(), cells.places.data(), count, dim, in.data(), queries, 0.25f,
                              out.data());
        for (std::size_t q = 0; q < queries; ++q)
          for (std::size_t c = 0; c < count; ++c)
            ASSERT_EQ(scores[q][c], kPortable.dot(cells.values[c].data(), x[q].data(), dim) * 0.25f)
                << dim << " " << count << " " << queries;
      }
    }
  }
}

TEST_P(CellKernels, SumsAreInTheOrderOfTheCells) {
  std::mt19937 random(4);
  for (const std::size_t dim : kDims) {
    for (const std::size_t count : {1u, 5u, 32u, 70u}) {
      const Cells cells = make_cells(count, dim, random);
      for (const std::size_t heads : {1u, 2u, 6u, 12u, 13u}) {
        std::vector<Floats> weights, out(heads, Floats(dim, NAN));
        for (std::size_t h = 0; h < heads; ++h) weights.push_back(random_floats(count, random));
        const auto places = rows_of<float>(out);
        for (std::size_t at = 0; at < count;) {  // in pieces
          const std::size_t some = std::min<std::size_t>(count - at, 1 + random() % 40);
          std::vector<const float*> from;
          for (const Floats& w : weights) from.push_back(w.data() + at);
          kernels().weigh_cells(format(), cells.places.data() + at, some, count - at - some, dim,
                                from.data(), heads, places.data(), at == 0);
          at += some;
        }
        for (std::size_t h = 0; h < heads; ++h)
          for (std::size_t d = 0; d < dim; ++d) {
            float sum = 0;
            for (std::size_t c = 0; c < count; ++c)
              sum = std::fma(cells.values[c][d], weights[h][c], sum);
            ASSERT_EQ(out[h][d], sum) << dim << " " << count << " " << heads;
          }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, CellKernels,
                         testing::ValuesIn(cell_registry(supported_kernels())),
                         [](const auto& tested) {
                           return fmt::format("{}_{}", tested.param.kernels->isa,
                                              to_string(tested.param.format));
                         });

TEST(TurnHead, IsTheOrthonormalTransformAndItsOwnInverse) {
  std::mt19937 random(5);
  for (std::size_t n = 1; n <= 512; n *= 2) {
    const Floats x = random_floats(n, random);
    Floats first;
    for (const Kernels* kernels : supported_kernels()) {
      Floats y = x;
      kernels->turn_head(y.data(), n);
      if (first.empty()) first = y;
      ASSERT_EQ(y, first) << kernels->isa << " " << n;
      for (std::size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k)
          sum += (std::popcount(i & k) % 2 == 0 ? 1.0 : -1.0) * double{x[k]};
        ASSERT_NEAR(y[i], sum / std::sqrt(double(n)), 1e-5);
      }
      kernels->turn_head(y.data(), n);
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], x[i], 1e-5);
    }
  }
}

}  // namespace
}  // namespace strata::cpu
