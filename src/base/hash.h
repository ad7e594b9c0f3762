// XXH3 hashes of bytes: fast, stable across machines and releases, not for secrets.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace strata {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};
// 32 lower-case hexadecimal digits, the high half first.
std::string to_string(const Hash128& hash);

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0);
Hash128 hash128(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// The same values from bytes that come in pieces. Movable; a moved-from Hasher may only be
// destroyed or assigned to.
class Hasher {
 public:
  explicit Hasher(std::uint64_t seed = 0);
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text);
  // Of everything added so far; adding may go on afterwards.
  std::uint64_t digest64() const;
  Hash128 digest128() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata
