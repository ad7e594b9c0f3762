// What is said on machines without fast kernels.
#include "compute/cpu/notice.h"

#include <gtest/gtest.h>

namespace strata::cpu {
namespace {

TEST(SlowCpuNotice, IsThereForThePortableKernelsOnly) {
  EXPECT_NE(slow_cpu_notice("portable").find("portable"), std::string::npos);
  for (const Kernels* kernels : supported_kernels()) {
    if (kernels != &kPortable) {
      EXPECT_EQ(slow_cpu_notice(kernels->isa), "") << kernels->isa;
    }
  }
}

}  // namespace
}  // namespace strata::cpu
