#include "compute/cpu/registry.h"

#include "quant/quant.h"

namespace strata::cpu {

std::vector<KernelEntry> kernel_registry(std::span<const Kernels* const> tables) {
  std::vector<KernelEntry> entries;
  for (const Kernels* kernels : tables)
    for (const TypeTraits& type : all_types())
      for (const Inputs inputs : {Inputs::bytes, Inputs::words, Inputs::floats})
        for (const bool few : {true, false}) {
          if (!can_decode(type.type)) continue;
          const std::string_view way = kernels->way(type.type, inputs, few);
          if (!way.empty()) entries.push_back({kernels, type.type, inputs, few, way});
        }
  return entries;
}

std::vector<CellEntry> cell_registry(std::span<const Kernels* const> tables) {
  std::vector<CellEntry> entries;
  for (const Kernels* kernels : tables)
    for (std::size_t f = 0; f < kCellFormats; ++f)
      entries.push_back({kernels, static_cast<CellFormat>(f)});
  return entries;
}

}  // namespace strata::cpu
