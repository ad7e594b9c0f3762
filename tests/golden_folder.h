// Where the golden checkpoints lie: in tests/golden, or, those that would make the tree too large,
// beside the project (STRATA_SHARED_DIR, ../shared).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace strata::test {

inline std::string shared_dir() {
  const char* shared = std::getenv("STRATA_SHARED_DIR");
  return shared ? shared : STRATA_SOURCE_DIR "/../shared";
}

inline std::string golden_folder(const std::string& name) {
  const std::string own = STRATA_GOLDEN_DIR "/" + name;
  return std::filesystem::exists(own) ? own : shared_dir() + "/golden/" + name;
}

}  // namespace strata::test

// Leaves a test whose golden checkpoint is not on this machine.
#define STRATA_NEEDS_GOLDEN(name)                                    \
  if (!std::filesystem::exists(::strata::test::golden_folder(name))) \
  GTEST_SKIP() << "no " << ::strata::test::golden_folder(name) << " (set STRATA_SHARED_DIR)"
