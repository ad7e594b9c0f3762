#include "cli/version.h"

#include <fmt/format.h>

#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "compute/cpu/kernels.h"

// The build defines these where it knows them.
#ifndef STRATA_VERSION
#define STRATA_VERSION "0.1.0"
#endif
#ifndef STRATA_COMMIT
#define STRATA_COMMIT "unknown"
#endif
#ifndef STRATA_FLAGS
#define STRATA_FLAGS "unknown"
#endif
#ifndef STRATA_DATE
#define STRATA_DATE ""
#endif

namespace strata {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}", __clang_version__);
#elif defined(__GNUC__)
  return fmt::format("gcc {}", __VERSION__);
#else
  return "unknown";
#endif
}

std::string join(const std::vector<std::string_view>& names) {
  return names.empty() ? "baseline" : fmt::format("{}", fmt::join(names, " "));
}

// What the compiler may use everywhere; kernels choose more at run time.
std::string built_for() {
  std::vector<std::string_view> names;
#if defined(__x86_64__)
  names.push_back("x86-64");
#elif defined(__aarch64__)
  names.push_back("aarch64");
#endif
#if defined(__AVX2__)
  names.push_back("avx2");
#endif
#if defined(__FMA__)
  names.push_back("fma");
#endif
#if defined(__AVX512F__)
  names.push_back("avx512f");
#endif
  return join(names);
}

std::string runs_on() {
  std::vector<std::string_view> names;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const std::pair<bool, std::string_view> features[] = {
      {__builtin_cpu_supports("avx2") != 0, "avx2"},
      {__builtin_cpu_supports("fma") != 0, "fma"},
      {__builtin_cpu_supports("avx512f") != 0, "avx512f"},
      {__builtin_cpu_supports("avx512bw") != 0, "avx512bw"},
      {__builtin_cpu_supports("avx512vl") != 0, "avx512vl"},
      {__builtin_cpu_supports("avx512vbmi") != 0, "avx512vbmi"},
      {__builtin_cpu_supports("avx512vnni") != 0, "avx512vnni"},
  };
  for (const auto& [present, name] : features)
    if (present) names.push_back(name);
#elif defined(__aarch64__)
  for (const cpu::Kernels* kernels : std::views::reverse(cpu::supported_kernels()))
    if (kernels->isa != "portable") names.push_back(kernels->isa);
#endif
  return join(names);
}

}  // namespace

std::string version_number() {
  return STRATA_VERSION;
}

std::string version_text() {
  return fmt::format(
      "strata {} (commit {})\n"
      "compiler: {}\n"
      "flags: {}\n"
      "built for: {}\n"
      "this CPU: {}",
      STRATA_VERSION, STRATA_COMMIT, compiler(), STRATA_FLAGS, built_for(), runs_on());
}

boost::json::object version_json() {
  return {{"version", STRATA_VERSION}, {"commit", STRATA_COMMIT},  {"compiler", compiler()},
          {"flags", STRATA_FLAGS},     {"built_for", built_for()}, {"cpu", runs_on()}};
}

std::string version_date() {
  return STRATA_DATE;
}

}  // namespace strata
