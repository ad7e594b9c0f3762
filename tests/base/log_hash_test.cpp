// Log lines cannot be forged; hashes have their published values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"

namespace strata {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

TEST(Log, EscapesControlCharacters) {
  EXPECT_EQ(escape_for_log("a\r\nb\tc"), "a\\r\\nb\\tc");
  EXPECT_EQ(escape_for_log("\x1b[31m\x7f"), "\\x1b[31m\\x7f");
  EXPECT_EQ(escape_for_log(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(escape_for_log("\xc2\x9b"), "\\x9b");
  EXPECT_EQ(escape_for_log("\\n"), "\\\\n");
  EXPECT_EQ(escape_for_log("Grüße €"), "Grüße €");
}

TEST(Log, OneLineInOneFormat) {
  testing::internal::CaptureStderr();
  log_info("model '{}'", "x\n2026-01-01 error forged\x1b[2J");
  log_debug("not at this level");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_THAT(out, MatchesRegex("[0-9-]+T[0-9:.]+Z info    model 'x.n2026-01-01 error forged"
                                ".x1b.2J'\n"));
}

TEST(Log, LongTextsAreCut) {
  testing::internal::CaptureStderr();
  log_error("{}", std::string(100'000, 'x'));
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_LT(out.size(), kMaxLogBytes + 100);
  EXPECT_THAT(out, HasSubstr(" ... (100000 bytes)\n"));
}

TEST(Log, LevelsByName) {
  ASSERT_TRUE(set_log_level("warn"));
  EXPECT_EQ(log_level(), LogLevel::warning);
  testing::internal::CaptureStderr();
  log_info("hidden");
  log_warning("shown");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_THAT(out, Not(HasSubstr("hidden")));
  EXPECT_THAT(out, HasSubstr("warning shown"));
  EXPECT_EQ(set_log_level("loud").error().message,
            "'loud' is no log level; use trace, debug, info, warning, error or off");
  ASSERT_TRUE(set_log_level("info"));
}

// The empty input's values as published with XXH3.
TEST(Hash, KnownValues) {
  EXPECT_EQ(hash64(std::string_view()), 0x2d06800538d394c2ull);
  EXPECT_EQ(to_string(hash128({})), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, PiecesGiveTheSameAsTheWhole) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 31 % 251);
  for (const std::uint64_t seed : {0ull, 42ull}) {
    for (const std::size_t size : {0u, 1u, 16u, 17u, 128u, 240u, 241u, 1024u, 3000u}) {
      const std::string_view part = std::string_view(text).substr(0, size);
      Hasher hasher(seed);
      for (std::size_t at = 0; at < size; at += 7) hasher.add(part.substr(at, 7));
      EXPECT_EQ(hasher.digest64(), hash64(part, seed)) << size;
      EXPECT_EQ(hasher.digest128(), hash128(std::as_bytes(std::span(part)), seed)) << size;
    }
  }
  EXPECT_NE(hash64("a"), hash64("a", 1));
}

TEST(Errors, ClassesAndContext) {
  EXPECT_EQ(to_string(ErrorCode::invalid_argument), "invalid_argument");
  EXPECT_EQ(to_string(ErrorCode::corrupt), "corrupt");
  EXPECT_EQ(to_string(ErrorCode::internal), "internal");
  const Status status = with_context(Error{ErrorCode::io, "it broke"}, "while reading 'x'");
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_EQ(status.error().message, "while reading 'x': it broke");
}

}  // namespace
}  // namespace strata
