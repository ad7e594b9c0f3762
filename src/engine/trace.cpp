#include "engine/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"

namespace strata {
namespace {

std::string_view name_of(GuessKind::From from) {
  switch (from) {
    case GuessKind::From::draft:
      return "mtp";
    case GuessKind::From::lookup:
      return "lookup";
    case GuessKind::From::agreed:
      return "agreed";
  }
  return "";
}

constexpr std::size_t kWriteBytes = 1 << 16;

}  // namespace

Result<std::unique_ptr<Trace>> Trace::open(FileSystem& files, const std::string& path,
                                           bool append) {
  bool cut = false;  // the engine before was killed in the middle of a line
  if (append) {
    if (const auto before = files.open(path); before && (*before)->size() > 0) {
      std::byte last{};
      STRATA_TRY((*before)->read_exact((*before)->size() - 1, std::span(&last, 1)));
      cut = last != std::byte{'\n'};
    }
  }
  STRATA_ASSIGN(auto file, append ? files.append(path) : files.create(path));
  if (cut) STRATA_TRY(file->write(std::as_bytes(std::span("\n", 1))));
  return std::unique_ptr<Trace>(new Trace(std::move(file)));
}

Trace::~Trace() {
  write();
  if (file_) (void)file_->finish();
}

void Trace::part(const Part& part) {
  parts_ += fmt::format(R"({}{{"request":{},"position":{},"rows":{})", parts_.empty() ? "" : ",",
                        part.request, part.position, part.rows);
  if (part.decoding) {
    parts_ += fmt::format(R"(,"drafts":[{}],"from":[)", fmt::join(part.guesses, ","));
    for (std::size_t i = 0; i < part.kinds.size(); ++i)
      parts_ += fmt::format(R"({}"{}")", i > 0 ? "," : "", name_of(part.kinds[i].from));
    parts_ +=
        fmt::format(R"(],"accepted":{}{})", part.accepted, part.trial ? R"(,"trial":true)" : "");
  }
  parts_ += '}';
}

void Trace::round(const Round& round) {
  const ExpertCounters& e = round.experts;
  std::string experts;  // of a memory budget only
  if (const std::uint64_t hits = e.core_hits + e.recent_hits + e.ahead_hits; hits + e.misses > 0) {
    experts = fmt::format(
        R"("experts":{{"core":{},"recent":{},"ahead":{},"missed":{},"read_bytes":{},"wait_ms":{:.3f}}},)",
        e.core_hits, e.recent_hits, e.ahead_hits, e.misses, e.read_bytes,
        1e-3 * static_cast<double>(e.wait_microseconds));
  }
  lines_ += fmt::format(
      R"({{"round":{},"rows":{},"prompt_rows":{},"draft_ms":{:.3f},"window_ms":{:.3f},"sample_ms":{:.3f},{}"parts":[{}]}})"
      "\n",
      round.number, round.rows, round.prompt_rows, 1e3 * round.draft_seconds,
      1e3 * round.window_seconds, 1e3 * round.sample_seconds, experts, parts_);
  parts_.clear();
  if (lines_.size() >= kWriteBytes) write();
}

void Trace::write() {
  if (!file_ || lines_.empty()) return;
  if (const Status status = file_->write(std::as_bytes(std::span(lines_))); !status) {
    log_warning("the trace ends here: {}", status.error().message);
    file_ = nullptr;
  }
  lines_.clear();
}

}  // namespace strata
