// The part of llama.cpp's C API that the driver uses, declared from what the library itself shows
// (its exported names, the defaults it returns, its getters); no header of llama.cpp is needed.
//
// The two parameter structs travel by value in memory, so they are declared opaque and larger than
// they are; `put` writes a field at its offset. Offsets hold for release v0.4.0 only: the driver
// refuses another one, and checks after each load what can be read back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace peer {

struct Parameters {
  alignas(8) unsigned char bytes[1024];
  template <class T>
  void put(std::size_t offset, T value) {
    std::memcpy(bytes + offset, &value, sizeof value);
  }
};

namespace model_field {
inline constexpr std::size_t gpu_layers = 16;  // int32
inline constexpr std::size_t load_mode = 24;   // int32: -1 automatic, 0 into memory, 1 mapped
inline constexpr std::size_t vocab_only = 72;  // bool
inline constexpr std::size_t repack = 74;      // bool: weights rearranged for its kernels
}  // namespace model_field

namespace context_field {
inline constexpr std::size_t cells = 0, batch = 4, micro_batch = 8, sequences = 12;  // uint32
inline constexpr std::size_t threads = 28, batch_threads = 32;                       // int32
inline constexpr std::size_t flash_attention = 52;  // int32: -1 automatic, 0 off, 1 on
inline constexpr std::size_t on_eval = 88;          // EvalCallback, its data at 96
inline constexpr std::size_t on_eval_data = 96;     // void*
inline constexpr std::size_t key_type = 104;        // int32: ggml type of the key cache
inline constexpr std::size_t value_type = 108;      // int32
}  // namespace context_field

inline constexpr std::int32_t kF32 = 0, kF16 = 1;  // ggml's numbers

struct Batch {
  std::int32_t count;
  std::int32_t* tokens;
  float* embeddings;
  std::int32_t* positions;
  std::int32_t* sequence_counts;
  std::int32_t** sequences;
  std::int8_t* wants_logits;
};

struct Model;
struct Context;
struct Vocabulary;
struct Tensor;
struct Memory;
using LogCallback = void (*)(int level, const char* text, void* data);
using EvalCallback = bool (*)(Tensor* tensor, bool ask, void* data);

// Filled by load_api (llama_driver.cpp) from the shared libraries.
struct Api {
  void (*load_backends)(const char* folder);
  void (*init)();
  const char* (*version)();
  const char* (*system_info)();
  void (*set_log)(LogCallback, void*);
  Parameters (*default_model)();
  Parameters (*default_context)();
  Model* (*load_model)(const char* path, Parameters);
  void (*free_model)(Model*);
  std::int32_t (*describe)(const Model*, char* text, std::size_t size);
  std::uint64_t (*parameters)(const Model*);
  const Vocabulary* (*vocabulary)(const Model*);
  std::int32_t (*token_count)(const Vocabulary*);
  std::int32_t (*tokenize)(const Vocabulary*, const char* text, std::int32_t length,
                           std::int32_t* tokens, std::int32_t room, bool add_special,
                           bool parse_special);
  Context* (*new_context)(Model*, Parameters);
  void (*free_context)(Context*);
  std::uint32_t (*context_batch)(const Context*);
  std::uint32_t (*context_micro_batch)(const Context*);
  std::int32_t (*context_threads)(Context*);
  Batch (*new_batch)(std::int32_t tokens, std::int32_t embedding, std::int32_t sequences);
  void (*free_batch)(Batch);
  std::int32_t (*decode)(Context*, Batch);
  float* (*logits)(Context*, std::int32_t row);
  Memory* (*memory)(const Context*);
  void (*clear_memory)(Memory*, bool data);
  void (*synchronize)(Context*);
  const char* (*tensor_name)(const Tensor*);
  std::int64_t (*tensor_elements)(const Tensor*);
  std::size_t (*tensor_bytes)(const Tensor*);
  void (*tensor_get)(const Tensor*, void* data, std::size_t offset, std::size_t size);
};

}  // namespace peer
