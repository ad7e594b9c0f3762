// Any bytes as a GGUF file: opened and read through, or refused with a sentence.
#include <cstdint>
#include <span>

#include "base/file.h"
#include "gguf/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  strata::MemoryFileSystem files;
  const auto bytes = std::as_bytes(std::span(data, size));
  files.put("model.gguf", strata::Bytes(bytes.begin(), bytes.end()));
  const auto model = strata::open_gguf(files, "model.gguf");
  if (!model && model.error().message.empty()) __builtin_trap();
  if (!model) return 0;
  unsigned sum = 0;
  for (const strata::TensorView& tensor : model->tensors) {
    sum += static_cast<unsigned>(strata::shape_text(tensor).size());
    for (const std::byte byte : tensor.data) sum += std::to_integer<unsigned>(byte);
  }
  volatile unsigned keep = sum;  // the reads above must happen
  (void)keep;
  return 0;
}
