// Safetensors checkpoints as HF transformers saves them: one file, or shards with an index.
// Trusts nothing, like the GGUF reader; spans are valid as long as a copy of the checkpoint lives.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"

namespace strata {

enum class SafetensorType { F64, F32, F16, BF16, F8_E4M3, I64, I32, I16, I8, U8, BOOL };
std::string_view to_string(SafetensorType type);
std::size_t size_of(SafetensorType type);

struct SafetensorView {
  std::string name;
  SafetensorType type = SafetensorType::F32;
  std::vector<std::uint64_t> shape;  // row-major, outermost first; empty for a scalar
  std::span<const std::byte> data;   // not necessarily aligned
  std::string file;                  // name of the file it lies in
};

struct SafetensorCheckpoint {
  std::vector<SafetensorView> tensors;     // by file, then by offset
  std::vector<std::string> skipped_files;  // *.safetensors of the folder that are no part of it
  std::vector<std::shared_ptr<const void>> owners;
  const SafetensorView* find(std::string_view name) const;

 private:
  friend Result<SafetensorCheckpoint> open_safetensors(FileSystem& files,
                                                       const std::string& folder);
  friend Result<SafetensorCheckpoint> open_safetensors_file(FileSystem& files,
                                                            const std::string& path);
  std::unordered_map<std::string, std::size_t> index_;
};

// Opens the checkpoint in a folder: the files that model.safetensors.index.json names, or else
// every model*.safetensors; plus, in both cases, every mtp*.safetensors (a draft block laid
// beside it). A tensor that occurs twice, or that the index names and no file holds, is an error.
Result<SafetensorCheckpoint> open_safetensors(FileSystem& files, const std::string& folder);

// One .safetensors file by path.
Result<SafetensorCheckpoint> open_safetensors_file(FileSystem& files, const std::string& path);

}  // namespace strata
