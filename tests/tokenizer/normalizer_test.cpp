// NFC by hand-picked cases and against the library's own function for whole texts.
// tests/peers/tokenizer_equality.py runs Unicode's conformance test.
#include "tokenizer/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "tokenizer/unicode.h"

namespace strata {
namespace {

std::string nfc(std::string_view text) {
  std::string storage = "left from before";
  return std::string(to_nfc(text, storage));
}

std::string of_library(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(size, 0);
  std::string result(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
  std::free(out);
  return result;
}

TEST(Normalizer, LeavesTextInNfcWhereItIs) {
  std::string storage = "untouched";
  for (const std::string_view text :
       {"", "plain ASCII", "caf\u00E9", "\u6587\u5B57", "\xFF\xC3 x", "\uAC01"}) {
    EXPECT_EQ(to_nfc(text, storage).data(), text.data());
  }
  EXPECT_EQ(storage, "untouched");
}

TEST(Normalizer, ComposesReordersAndReplaces) {
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("ae\u0301bo\u0308\u0304"), "a\u00E9b\u022B");
  EXPECT_EQ(nfc("a\u0301\u0316"), "\u00E1\u0316");  // the mark below comes first, then acute
  EXPECT_EQ(nfc("q\u0301\u0316"), "q\u0316\u0301");
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");  // Hangul
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\u212A\u2126"), "K\u03A9");  // singletons
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");   // excluded from composition
  EXPECT_EQ(nfc("\u0301e"), "\u0301e");
  EXPECT_EQ(nfc("\uFB01"), "\uFB01");  // compatibility only
  EXPECT_EQ(nfc("<\u0338"), "\u226E");
}

TEST(Normalizer, TakesBytesThatAreNotUtf8ForBorders) {
  EXPECT_EQ(nfc("e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(nfc("\xC3\u0301e\u0301\xC3"), "\xC3\u0301\u00E9\xC3");
  EXPECT_EQ(nfc("\u0301\xE2\x82"), "\u0301\xE2\x82");
}

TEST(Normalizer, EqualsTheLibraryOnWholeTexts) {
  if (unicode::kVersion != utf8proc_unicode_version()) {
    GTEST_SKIP() << "the oracle knows Unicode " << utf8proc_unicode_version();
  }
  std::vector<char32_t> active;  // what takes part in normalisation, and what it acts on
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string c;
    append_utf8(c, code);
    const std::string expected = of_library(c);
    ASSERT_EQ(nfc(c), expected) << std::hex << static_cast<unsigned>(code);
    const bool decomposes =
        utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->decomp_seqindex != 0xFFFF;
    if (unicode::nfc_may_change(code) || (decomposes && code < 0x3400)) active.push_back(code);
  }
  for (const char32_t code : {U'a', U'e', U'o', U' ', U'\u1100', U'\uAC00', U'\u0915'}) {
    active.insert(active.end(), 60, code);
  }
  std::mt19937 random(9);
  for (int round = 0; round < 60000; ++round) {
    std::string text;
    for (std::size_t i = 1 + random() % 8; i > 0; --i) {
      append_utf8(text, active[random() % active.size()]);
    }
    ASSERT_EQ(nfc(text), of_library(text)) << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace strata
