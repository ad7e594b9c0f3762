#include "compute/cpu/kernels.h"

#include <string>
#include <vector>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace strata::cpu {

std::span<const Kernels* const> supported_kernels() {
  static const std::vector<const Kernels*> supported = [] {
    std::vector<const Kernels*> tables;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c")) {
      if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bitalg") &&
          __builtin_cpu_supports("gfni") && __builtin_cpu_supports("bmi2"))
        tables.push_back(&kAvx512Vbmi);
      tables.push_back(&kAvx512);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
      tables.push_back(&kAvx2);
#elif defined(__aarch64__)
    constexpr unsigned long kDotProducts = 1ul << 20;   // of AT_HWCAP: asimddp
    constexpr unsigned long kByteMatrices = 1ul << 13;  // of AT_HWCAP2: i8mm
    if (::getauxval(AT_HWCAP) & kDotProducts) {
      if (::getauxval(AT_HWCAP2) & kByteMatrices) tables.push_back(&kNeonI8mm);
      tables.push_back(&kNeonDotprod);
    }
    tables.push_back(&kNeon);
#endif
    tables.push_back(&kPortable);
    return tables;
  }();
  return supported;
}

Result<const Kernels*> kernels_of(std::string_view isa) {
  const auto supported = supported_kernels();
  if (isa.empty()) return supported.front();
  std::string names;
  for (const Kernels* k : supported) {
    if (k->isa == isa) return k;
    names += names.empty() ? "" : ", ";
    names += k->isa;
  }
  return fail(ErrorCode::unsupported,
              "instruction set '{}' is not to be had on this CPU; it has {}", isa, names);
}

}  // namespace strata::cpu
