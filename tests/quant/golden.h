// Reads the golden files of the block formats (tests/golden/quant) and makes test data.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gguf/tensor_type.h"
#include "quant/quant.h"

namespace strata::testing {

inline std::vector<std::byte> read_golden(const std::string& name) {
  std::ifstream file(std::string(STRATA_GOLDEN_DIR "/quant/") + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::vector<float> read_golden_floats(const std::string& name) {
  const auto bytes = read_golden(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

inline boost::json::object read_golden_json(const std::string& name) {
  const auto bytes = read_golden(name);
  return boost::json::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()})
      .as_object();
}

inline std::size_t bytes_for(TensorType type, std::size_t values) {
  return values / traits(type).block_values * traits(type).block_bytes;
}

inline std::vector<std::byte> must_encode(TensorType type, std::span<const float> values) {
  std::vector<std::byte> blocks(bytes_for(type, values.size()));
  const Status status = encode(type, values, blocks);
  EXPECT_TRUE(status) << to_string(type) << ": " << status.error().message;
  return blocks;
}

inline std::vector<float> must_decode(TensorType type, std::span<const std::byte> blocks,
                                      std::size_t count) {
  std::vector<float> values(count);
  const Status status = decode(type, blocks, values);
  EXPECT_TRUE(status) << to_string(type) << ": " << status.error().message;
  return values;
}

inline std::vector<float> round_trip(TensorType type, std::span<const float> values) {
  return must_decode(type, must_encode(type, values), values.size());
}

inline double squared_error(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

// Root of the squared error over the squared values.
inline double relative_error(std::span<const float> values, std::span<const float> decoded) {
  const std::vector<float> zeros(values.size());
  return std::sqrt(squared_error(values, decoded) / squared_error(values, zeros));
}

inline std::vector<float> gaussian(std::size_t count, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Heavy tails, as weight matrices have them.
inline std::vector<float> heavy_tailed(std::size_t count, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::student_t_distribution<float> student(4.0f);
  std::vector<float> values(count);
  for (float& value : values) value = scale * student(random);
  return values;
}

}  // namespace strata::testing
