#include "compute/cpu/kernels.h"

#include <vector>

namespace strata::cpu {

std::span<const Kernels* const> supported_kernels() {
  static const std::vector<const Kernels*> supported = [] {
    std::vector<const Kernels*> tables;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c")) {
      if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni") &&
          __builtin_cpu_supports("bmi2"))
        tables.push_back(&kAvx512Vbmi);
      tables.push_back(&kAvx512);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
      tables.push_back(&kAvx2);
#endif
    tables.push_back(&kPortable);
    return tables;
  }();
  return supported;
}

}  // namespace strata::cpu
