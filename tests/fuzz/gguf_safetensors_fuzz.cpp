// Any bytes as a safetensors file: opened and read through, or refused with a sentence.
#include <cstdint>
#include <span>

#include "base/file.h"
#include "gguf/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  strata::MemoryFileSystem files;
  const auto bytes = std::as_bytes(std::span(data, size));
  files.put("model.safetensors", strata::Bytes(bytes.begin(), bytes.end()));
  const auto checkpoint = strata::open_safetensors_file(files, "model.safetensors");
  if (!checkpoint && checkpoint.error().message.empty()) __builtin_trap();
  if (!checkpoint) return 0;
  unsigned sum = 0;
  for (const strata::SafetensorView& tensor : checkpoint->tensors) {
    for (const std::byte byte : tensor.data) sum += std::to_integer<unsigned>(byte);
  }
  volatile unsigned keep = sum;  // the reads above must happen
  (void)keep;
  return 0;
}
