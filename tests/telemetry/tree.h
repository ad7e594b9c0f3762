// A folder in place of /proc and /sys, removed at the end.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "telemetry/machine.h"

namespace strata::telemetry::testing {

class Tree {
 public:
  Tree() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "strata-telemetry-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    root_ = pattern;
    std::filesystem::create_directories(root_ / "proc");
    std::filesystem::create_directories(root_ / "sys");
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  // In place, as the kernel does it: a file that is open stays the same one.
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path, std::ios::binary | std::ios::trunc) << text;
  }
  std::filesystem::path path(const std::string& name) const { return root_ / name; }
  Roots roots() const {
    return {(root_ / "proc").string(), (root_ / "sys").string(), (root_ / "none.so").string()};
  }

 private:
  std::filesystem::path root_;
};

// What a machine has for all: /proc/stat and /proc/meminfo, with `busy` of `all` ticks.
inline void write_machine(const Tree& tree, std::uint64_t busy, std::uint64_t all) {
  tree.write("proc/stat", "cpu  " + std::to_string(busy) + " 0 0 " + std::to_string(all - busy) +
                              " 0 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\n"
                              "intr 1 2 3\n");
  tree.write("proc/meminfo",
             "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n");
}

}  // namespace strata::telemetry::testing
