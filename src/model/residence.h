// Where the weights of a model live: in the mapped file, or copied to memory of our own in huge
// pages, which saves the page walks of a sweep over gigabytes (measured in docs/results/cpu.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/file.h"
#include "gguf/gguf.h"

namespace strata {

enum class Residence : std::uint8_t {
  automatic,  // ram where it leaves the system enough, else mapped
  ram,
  mapped,
};
Result<Residence> residence_from(std::string_view text);  // auto, ram, map

// Reads every tensor for which `wanted` says so into memory, with several threads, and points the
// model at the copies; the model owns them. `automatic` leaves the model as it is when less than
// an eighth of the memory that is free now would be left; `ram` is an error then
// (`exhausted`, both sizes said). A read error names the tensor; the model is unchanged then.
Status load_into_memory(FileSystem& files, GgufModel& model, Residence residence,
                        const std::function<bool(const TensorView&)>& wanted);

}  // namespace strata
