#include <gtest/gtest.h>

#include "constrain/regular.h"

namespace strata::constrain {
namespace {

struct Case {
  std::string_view format;
  std::vector<std::string_view> valid, invalid;
};

// The verdicts are those of the documents that define the formats.
const Case kCases[] = {
    {"date",
     {"2024-02-29", "2000-02-29", "2023-02-28", "2023-12-31", "2023-04-30", "0000-01-01"},
     {"2023-02-29", "1900-02-29", "2100-02-29", "2023-04-31", "2023-13-01", "2023-00-10",
      "2023-01-00", "2023-1-1", "23-01-01", "2023-01-32", "2023-01-01T", ""}},
    {"time",
     {"00:00:00Z", "23:59:59.999999z", "12:30:00+05:30", "12:30:00-23:59", "23:59:60Z",
      "23:59:60.5+00:00", "01:29:60+01:30", "15:59:60-08:00", "00:29:60-23:30", "23:29:60+23:30"},
     {"24:00:00Z", "12:60:00Z", "12:00:61Z", "12:00:00", "12:00Z", "12:00:60Z", "22:59:60Z",
      "12:00:00+24:00", "12:00:00+0530", "12:00:00.Z", "23:59:60+01:00", "1:00:00Z"}},
    {"date-time",
     {"1985-04-12T23:20:50.52Z", "1996-12-19t16:39:57-08:00", "1990-12-31T23:59:60Z",
      "1990-12-31T15:59:60-08:00"},
     {"1985-04-12 23:20:50Z", "1985-04-12T23:20:50", "1985-02-30T00:00:00Z",
      "1985-04-12T23:20:50+8", "1998-12-31T23:58:60Z"}},
    {"duration",
     {"P4DT12H30M5S", "P1Y", "P1Y2M3D", "PT0S", "PT36H", "P1W", "P1M", "PT1M", "P3DT5S"},
     {"P", "PT", "P1DT", "4D", "PT1D", "P2D1Y", "P1Y2W", "P1YT", "P1.5Y", "P1Y2D", "PT1H2S", ""}},
    {"email",
     {"joe.bloggs@example.com", "te~st@example.com", "~x@a-b.example", "a+b@x.y", "1@2.3"},
     {"joe", "@x.y", "a@", "a@b", ".a@x.y", "a.@x.y", "a..b@x.y", "a b@x.y", "a@-x.y", "a@x-.y",
      "a@x..y", "\u00e9@x.y",
      "0123456789012345678901234567890123456789012345678901234567890123x@x.y"}},
    {"idn-email",
     {"\uc2e4\ub840@\uc2e4\ub840.\ud14c\uc2a4\ud2b8", "joe@example.com", "\u00e9t\u00e9@x.y"},
     {"\u00e9", "@\u00e9.fr", "\u00e9@\u00e9", "\u00e9 a@x.y"}},
    {"hostname",
     {"localhost", "www.example.com", "xn--4gbwdl.xn--wgbh1c", "a-b.c", "1.2.3",
      "abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-012345678"},
     {"", "-a", "a-", "a..b", ".a", "a.", "a_b", "a b", "\u00e9",
      "abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-0123456789", "1.2.3.4.5.6.7.8"}},
    {"idn-hostname",
     {"\uc2e4\ub840.\ud14c\uc2a4\ud2b8", "localhost", "b\u00fccher.de", "a-\u00e9"},
     {"", "-\u00e9", "\u00e9-", "ab--cd", "\u0301a", "a.\u0903b", "a b", "a\u3002b\u2014"}},
    {"ipv4",
     {"127.0.0.1", "0.0.0.0", "255.255.255.255", "1.20.199.249"},
     {"256.0.0.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.", "a.b.c.d", "1.2.3.4 "}},
    {"ipv6",
     {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "2001:db8::ff00:42:8329", "::ffff:192.0.2.1",
      "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::8", "1:2::7:8",
      "1:2:3:4:5::1.2.3.4"},
     {":", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", ":::", "::1.2.3",
      "::256.1.1.1", "1:2:3:4:5:6:7:1.2.3.4", "fe80::1%eth0", "1:2:3:4:5:6:7:8::", ":1", "1:"}},
    {"uri",
     {"http://example.com", "https://u:p@example.com:80/a/b?c=d&e#f", "mailto:joe@x.y",
      "urn:isbn:0", "ftp://[2001:db8::7]/x", "http://[v1.a:b]/", "file:///etc/x", "x:/a//b",
      "http://1.2.3.4/%20", "tel:+1-816-555-1212", "http://x?/?#/?"},
     {"", "//example.com", "/a", "a b:c", "1a:b", "http://a b", "http://x/%2", "http://x/\u00e9",
      "http://[::1", "http://x#a#b", "\\\\x\\y", "http://x/<>", ":a", "http://x:8a/",
      "a:", "a:?b"}},
    {"uri-reference",
     {"", "a", "/a", "//x/y", "?q", "#f", "a/b:c", "./a:b", "http://x", "a?b#c", "%41"},
     {"a b", "a\\b", "%4", "\u00e9", "[a]", "#a#", "{a}"}},
    {"iri",
     {"http://\u00e9.fr/\u00e9?\ue000#\u00e9", "a:\U0001F600", "http://x"},
     {"\u00e9", "http://x/ ", "http://x/\ue000", "http://x#\ue000", "\u00e9:a", "a:\U000E0001"}},
    {"iri-reference", {"\u00e9", "", "/\u00e9#\u00e9"}, {"a b", "\\", "#\ue000"}},
    {"uri-template",
     {"", "http://x/{a}", "{+a,b*}{#c:10}{?d}", "%20{a}", "\u00e9{a}"},
     {"{", "}", "{a", "{}", "a b", "{a:0}", "{a:12345}", "%2", "{a b}", "<"}},
    {"uuid",
     {"2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"},
     {"2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638",
      "2eb8aa08-aa98-11ea-b4aa-73b441d1638g", ""}},
    {"json-pointer",
     {"", "/", "/a/b", "/~0~1", "//", "/ \u00e9\""},
     {"a", "/~", "/~2", "#", "a/b"}},
    {"relative-json-pointer",
     {"0", "1/a", "10#", "0/~0", "3/"},
     {"", "/a", "01", "-1", "0##", "1a", "+1/a"}},
};

TEST(Formats, AcceptAndRefuse) {
  for (const Case& it : kCases) {
    const std::optional<Regular> language = format_text(it.format);
    ASSERT_TRUE(language) << it.format;
    for (const std::string_view text : it.valid)
      EXPECT_TRUE(language->accepts(text)) << it.format << " '" << text << "'";
    for (const std::string_view text : it.invalid)
      EXPECT_FALSE(language->accepts(text)) << it.format << " '" << text << "'";
    // In a document they are string literals.
    const auto literal = json_string(*language);
    ASSERT_TRUE(literal) << it.format << ": " << literal.error().message;
  }
}

// They are written over characters; this is what they are in patterns.
TEST(Formats, IdnIsWhatItsPatternsSay) {
  const std::string letters = R"(a-z0-9\p{Ll}\p{Lo}\p{Lm}\p{Nd})", marks = R"(\p{Mn}\p{Mc})";
  const Regular any_label =
      regex("[" + letters + "](?:[" + letters + marks + "-]*[" + letters + marks + "])?",
            Match::whole)
          .value();
  const Regular label = without(any_label, regex(".{2}--.*", Match::whole).value()).value();
  const Regular dotted[] = {Regular::literal("."), label};
  const Regular next = concat(dotted).value();
  const Regular hostname[] = {label, repeat(next, 0, std::nullopt).value()};
  EXPECT_EQ(format_text("idn-hostname"), concat(hostname).value());

  const std::string atom = R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~\p{L}\p{M}\p{N}-]+)";
  const Regular email[] = {regex(atom + "(?:\\." + atom + ")*", Match::whole).value(),
                           Regular::literal("@"), label, repeat(next, 1, std::nullopt).value()};
  EXPECT_EQ(format_text("idn-email"), concat(email).value());
}

TEST(Formats, UnknownOnesAreAbsent) {
  for (const std::string_view name : {"", "regex", "Date", "int32", "date "})
    EXPECT_FALSE(format_text(name)) << name;
}

TEST(Formats, EveryDayOfSomeYears) {
  const Regular date = format_text("date").value();
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  for (const int year : {0, 4, 100, 400, 1600, 1900, 1999, 2000, 2023, 2024, 2100, 2400, 9996}) {
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    for (int month = 0; month <= 13; ++month) {
      for (int day = 0; day <= 33; ++day) {
        const bool valid = month >= 1 && month <= 12 && day >= 1 &&
                           day <= kDays[month - 1] + (month == 2 && leap ? 1 : 0);
        EXPECT_EQ(date.accepts(fmt::format("{:04}-{:02}-{:02}", year, month, day)), valid)
            << year << "-" << month << "-" << day;
      }
    }
  }
}

}  // namespace
}  // namespace strata::constrain
