// What matrix products there are: by instruction set, weight format, inputs and number of tokens;
// and attention's kernels.
// The parity tests go through this list, and the backend counts its work by it.
#pragma once

#include <span>
#include <vector>

#include "compute/cpu/kernels.h"

namespace strata::cpu {

struct KernelEntry {
  const Kernels* kernels = nullptr;
  TensorType type = TensorType::F32;
  Inputs inputs = Inputs::floats;
  bool few = false;      // up to Kernels::few_tokens tokens, or more
  std::string_view way;  // as Kernels::way
};

// The format's description for these inputs; nullptr where they are multiplied as floats.
inline const IntFormat* format_for(TensorType type, Inputs inputs) {
  return inputs == Inputs::bytes   ? int_format(type)
         : inputs == Inputs::words ? word_format(type)
                                   : nullptr;
}

// Attention's kernels, of each format of cells.
struct CellEntry {
  const Kernels* kernels = nullptr;
  CellFormat format = CellFormat::f32;
};
std::vector<CellEntry> cell_registry(std::span<const Kernels* const> tables);

// Every product of these tables.
std::vector<KernelEntry> kernel_registry(std::span<const Kernels* const> tables);

}  // namespace strata::cpu
