#include "compute/cpu/notice.h"

namespace strata::cpu {

std::string slow_cpu_notice(std::string_view best) {
  if (best != kPortable.isa) return {};
#if defined(__x86_64__)
  const std::string lacks = "this CPU lacks AVX2, FMA or F16C, which the fast kernels need";
#else
  const std::string lacks = "there are no kernels for this kind of CPU";
#endif
  // Measured: docs/results/arm.md.
  return lacks +
         ": the portable ones run; the tokens are the same, but an answer takes about twice and "
         "reading a prompt about five times as long as with AVX2";
}

}  // namespace strata::cpu
