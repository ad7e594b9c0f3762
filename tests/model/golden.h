// Golden checkpoints for the model tests: converted in memory, with HF's outputs beside them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gguf/safetensors.h"
#include "model/convert.h"
#include "model/network.h"
#include "tests/golden_folder.h"

namespace strata::test {

inline std::string golden_dir() {
  return STRATA_GOLDEN_DIR;
}

// Copies a folder of the golden files (and extra files from another one) into memory.
inline void copy_folder(MemoryFileSystem& memory, const std::string& from, const std::string& to) {
  const auto names = real_files().list(from);
  ASSERT_TRUE(names) << names.error().message;
  for (const std::string& name : *names) {
    auto file = real_files().open(from + "/" + name);
    if (!file) continue;  // a folder
    Bytes content((*file)->size());
    ASSERT_TRUE((*file)->read_exact(0, content));
    memory.put(to + "/" + name, std::move(content));
  }
}

struct Converted {
  MemoryFileSystem files;
  std::shared_ptr<const GgufModel> model;
  Network network;
};

// `folders` are laid on top of each other (a checkpoint and its draft block), with `extra` files.
inline std::unique_ptr<Converted> convert(const std::vector<std::string>& folders,
                                          const ConvertOptions& options = {},
                                          const LoadOptions& load = {},
                                          const std::map<std::string, std::string>& extra = {}) {
  auto out = std::make_unique<Converted>();
  for (const auto& [name, text] : extra) {
    const auto bytes = std::as_bytes(std::span(text));
    out->files.put("hf/" + name, Bytes(bytes.begin(), bytes.end()));
  }
  for (const std::string& folder : folders) {
    MemoryFileSystem one;
    copy_folder(one, folder, "one");
    const auto names = one.list("one");
    for (const std::string& name : *names) {
      if (name == "golden.safetensors" || name == "README.md") continue;
      out->files.put("hf/" + name, *one.get("one/" + name));
    }
  }
  const auto report = convert_hf(out->files, "hf", "model.gguf", options);
  EXPECT_TRUE(report) << report.error().message;
  if (!report) return nullptr;
  auto model = open_gguf(out->files, "model.gguf");
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return nullptr;
  out->model = std::make_shared<const GgufModel>(std::move(*model));
  auto network = load_network(out->model, load);
  EXPECT_TRUE(network) << network.error().message;
  if (!network) return nullptr;
  out->network = std::move(*network);
  return out;
}

// Tensors of a golden.safetensors by name.
class Golden {
 public:
  explicit Golden(const std::string& path) {
    auto opened = open_safetensors_file(real_files(), path);
    EXPECT_TRUE(opened) << opened.error().message;
    if (opened) checkpoint_ = std::move(*opened);
  }
  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  std::vector<float> floats(const std::string& name) const { return read<float>(name); }
  std::vector<std::int32_t> ids(const std::string& name) const { return read<std::int32_t>(name); }

 private:
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const SafetensorView* view = checkpoint_.find(name);
    EXPECT_NE(view, nullptr) << name;
    if (!view) return {};
    std::vector<T> values(view->data.size() / sizeof(T));
    std::memcpy(values.data(), view->data.data(), values.size() * sizeof(T));
    return values;
  }
  SafetensorCheckpoint checkpoint_;
};

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::fabs(double{a[i]} - b[i]);
    if (!(d <= largest)) largest = d;  // NaN counts as a difference
  }
  return largest;
}

inline std::int32_t argmax(std::span<const float> values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i)
    if (values[i] > values[best]) best = i;
  return static_cast<std::int32_t>(best);
}

}  // namespace strata::test
