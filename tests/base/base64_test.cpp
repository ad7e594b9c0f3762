#include "base/base64.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

// The vectors of RFC 4648, section 10.
TEST(Base64, RfcVectors) {
  const std::pair<const char*, const char*> table[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : table) {
    EXPECT_EQ(base64_encoded(plain), coded);
    EXPECT_EQ(base64_decoded(coded), plain);
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(base64_decoded(base64_encoded(all)), all);
}

TEST(Base64, RefusesWhatItWouldNotWrite) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zh==", "=Zg=", "Zg==Zg==", "Z===", "====", "Zm9\n"}) {
    EXPECT_EQ(base64_decoded(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace strata
