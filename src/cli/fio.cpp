#include "cli/fio.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <vector>

#include "base/descriptor.h"

namespace strata {
namespace {

struct Output {
  int code = 0;
  std::string text;
};

// Runs a program found by PATH without a shell; its standard output.
Result<Output> run_program(std::vector<std::string> arguments) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return fail(ErrorCode::exhausted, "no pipe to '{}'", arguments[0]);
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(ErrorCode::not_found, "cannot start '{}'", arguments[0]);
  {
    const Descriptor closed(write_end.release());
  }
  Output output;
  std::array<char, 65536> piece = {};
  for (;;) {
    const ssize_t got = ::read(read_end.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.text.append(piece.data(), static_cast<std::size_t>(got));
  }
  while (::waitpid(child, &output.code, 0) < 0 && errno == EINTR) continue;
  return output;
}

// fio takes ':' as the end of a name.
std::string fio_name(const std::string& path) {
  std::string name;
  for (const char c : path) {
    if (c == ':' || c == '\\') name += '\\';
    name += c;
  }
  return name;
}

}  // namespace

bool has_fio() {
  const auto output = run_program({"fio", "--version"});
  return output && output->code == 0;
}

Result<FioReads> fio_random_reads(const std::string& path, std::uint64_t offset, std::uint64_t size,
                                  std::uint32_t depth, std::uint32_t seconds, bool ring) {
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t first = offset / kPage * kPage;
  const std::uint64_t pages = (offset + size - first) / kPage;
  std::vector<std::string> arguments = {
      "fio", "--name=reads", "--filename=" + fio_name(path), "--readonly", "--rw=randread",
      "--bs=4k", "--direct=1", fmt::format("--offset={}", first),
      fmt::format("--size={}", pages * kPage), fmt::format("--runtime={}", seconds), "--time_based",
      "--norandommap", "--randrepeat=0",
      // Not a process: it would leave this one's session, and
      // the scheduler shares out the CPUs by session.
      "--thread", "--output-format=json", "--group_reporting", "--lat_percentiles=1",
      "--clat_percentiles=0"};
  if (ring) {
    arguments.insert(arguments.end(), {"--ioengine=io_uring", fmt::format("--iodepth={}", depth)});
  } else {
    arguments.insert(arguments.end(), {"--ioengine=psync", fmt::format("--numjobs={}", depth)});
  }
  STRATA_ASSIGN(const Output output, run_program(arguments));
  if (output.code != 0)
    return fail(ErrorCode::io, "fio failed on '{}' (status {})", path, output.code);
  try {
    const std::size_t start = output.text.find('{');  // notes may stand before it
    const auto json = boost::json::parse(
        std::string_view(output.text).substr(start == std::string::npos ? 0 : start));
    const auto& job = json.at("jobs").at(0);
    const auto& reads = job.at("read");
    const auto number = [](const boost::json::value& v) { return v.to_number<double>(); };
    FioReads result;
    result.per_second = number(reads.at("iops"));
    const double cpu = (number(job.at("usr_cpu")) + number(job.at("sys_cpu"))) / 100;
    // Shares are of one job's running time.
    result.cpu_microseconds =
        cpu * number(job.at("job_runtime")) * 1000 / number(reads.at("total_ios"));
    const auto& times = reads.at("lat_ns").at("percentile");
    result.p50 = number(times.at("50.000000")) / 1000;
    result.p90 = number(times.at("90.000000")) / 1000;
    result.p99 = number(times.at("99.000000")) / 1000;
    return result;
  } catch (const std::exception& error) {
    return fail(ErrorCode::corrupt, "fio's output is not what was expected: {}", error.what());
  }
}

}  // namespace strata
