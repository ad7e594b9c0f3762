// Unicode normalisation form C, for vocabularies whose tokenizer.json asks for it.
#pragma once

#include <string>
#include <string_view>

namespace strata {

// The text in NFC: `text` itself if nothing has to change, else a view of `storage`. Bytes that are
// not UTF-8 stay as they are and combine with nothing. O(n log n) time whatever the text.
std::string_view to_nfc(std::string_view text, std::string& storage);

}  // namespace strata
