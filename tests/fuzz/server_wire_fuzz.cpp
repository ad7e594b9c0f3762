// Any bytes as what the other side of the engine's pipe sends: frames or an error, and values that
// are whole or an error.
#include <cstdint>
#include <string_view>

#include "server/engine_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace strata::server;
  FrameCutter cutter;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  while (!bytes.empty()) {
    const std::size_t piece = bytes.size() < 7 ? bytes.size() : 7;
    cutter.feed(bytes.substr(0, piece));
    bytes.remove_prefix(piece);
    for (;;) {
      const auto frame = cutter.next();
      if (!frame) return 0;
      if (!*frame) break;
      const std::string& payload = (*frame)->payload;
      const auto read = [&](auto get) {
        WireReader reader(payload);
        get(reader);
        if (reader.done() && reader.u8() != 0) __builtin_trap();
      };
      read([](WireReader& reader) { reader.u64(), reader.request(); });
      read([](WireReader& reader) { reader.u64(), reader.completion(); });
      read([](WireReader& reader) { reader.u64(), reader.chances(); });
      read([](WireReader& reader) { reader.u32(), reader.facts(); });
      read([](WireReader& reader) { reader.u64(), reader.counters(); });
      read([](WireReader& reader) { reader.error(); });
    }
  }
  return 0;
}
