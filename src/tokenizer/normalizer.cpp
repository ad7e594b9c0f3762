#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tokenizer/unicode.h"

namespace strata {

namespace {

// A set of the library's options, which have the type of one.
constexpr utf8proc_option_t flags(int options) {
  return static_cast<utf8proc_option_t>(options);  // NOLINT(*-optin.core.EnumCastOutOfRange)
}

// Characters in canonical decomposition, in canonical order. The library's own function for that
// takes quadratic time for a long run of marks, so the ordering is done here.
class Decomposition {
 public:
  void add(char32_t code) {
    std::array<utf8proc_int32_t, 16> parts;  // no canonical decomposition has more than four
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(),
                                flags(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
    if (count < 1 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
      put(static_cast<utf8proc_int32_t>(code));
      return;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) put(parts[static_cast<std::size_t>(i)]);
  }

  // Appends the composed text and starts anew.
  void compose_into(std::string& out) {
    order_marks();
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(codes_.data(), static_cast<utf8proc_ssize_t>(codes_.size()),
                                 flags(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      append_utf8(out, static_cast<char32_t>(codes_[static_cast<std::size_t>(i)]));
    }
    codes_.clear();
    marks_ = 0;
  }

 private:
  static int combining_class(utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  }

  void put(utf8proc_int32_t code) {
    if (combining_class(code) == 0) {
      order_marks();
      marks_ = codes_.size() + 1;
    }
    codes_.push_back(code);
  }

  // Sorts the marks behind the last character of combining class 0.
  void order_marks() {
    if (codes_.size() > marks_ + 1) {
      std::stable_sort(codes_.begin() + static_cast<std::ptrdiff_t>(marks_), codes_.end(),
                       [](utf8proc_int32_t a, utf8proc_int32_t b) {
                         return combining_class(a) < combining_class(b);
                       });
    }
    marks_ = codes_.size();
  }

  std::vector<utf8proc_int32_t> codes_;
  std::size_t marks_ = 0;  // where the run of marks at the end begins
};

bool may_change(std::string_view text, std::size_t at, const Utf8Char& c) {
  return static_cast<unsigned char>(text[at]) >= 0xCC && c.status == Utf8Status::valid &&
         unicode::nfc_may_change(c.code);
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& storage) {
  // Text is taken over as it is up to `done`; `base` is the last character, on which marks that
  // follow may act.
  std::size_t done = 0, base = 0;
  bool changed = false;
  Decomposition run;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      base = at++;
      continue;
    }
    Utf8Char c = decode_utf8(text, at);
    if (!may_change(text, at, c)) {
      base = at;
      at += c.status == Utf8Status::valid ? c.length : 1;
      continue;
    }
    if (!changed) storage.clear();
    changed = true;
    storage += text.substr(done, base - done);
    if (base < at) {
      const Utf8Char before = decode_utf8(text, base);
      if (before.status == Utf8Status::valid) {
        run.add(before.code);
      } else {
        storage += text.substr(base, at - base);
      }
    }
    do {
      run.add(c.code);
      at += c.length;
      if (at < text.size()) c = decode_utf8(text, at);
    } while (at < text.size() && may_change(text, at, c));
    run.compose_into(storage);
    done = base = at;
  }
  if (!changed) return text;
  storage += text.substr(done);
  return storage;
}

}  // namespace strata
