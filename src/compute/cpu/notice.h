// What an operator should hear before a model is loaded.
#pragma once

#include <string>
#include <string_view>

#include "compute/cpu/kernels.h"

namespace strata::cpu {

// A sentence for machines whose best kernels are the portable ones; empty for all others.
std::string slow_cpu_notice(std::string_view best = supported_kernels().front()->isa);

}  // namespace strata::cpu
