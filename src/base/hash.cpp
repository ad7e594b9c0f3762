#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace strata {
namespace {

Hash128 convert(XXH128_hash_t hash) {
  return {hash.low64, hash.high64};
}

}  // namespace

std::string to_string(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t hash64(std::string_view text, std::uint64_t seed) {
  return hash64(std::as_bytes(std::span(text)), seed);
}

Hash128 hash128(std::span<const std::byte> bytes, std::uint64_t seed) {
  return convert(XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed));
}

// One state serves both digests: XXH3 reads its input the same way for 64 and 128 bits.
struct Hasher::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Hasher::Hasher(std::uint64_t seed) : state_(std::make_unique<State>()) {
  if (!state_->xxh) throw std::bad_alloc();
  XXH3_128bits_reset_withSeed(state_->xxh.get(), seed);
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

void Hasher::add(std::string_view text) {
  add(std::as_bytes(std::span(text)));
}

std::uint64_t Hasher::digest64() const {
  return XXH3_64bits_digest(state_->xxh.get());
}

Hash128 Hasher::digest128() const {
  return convert(XXH3_128bits_digest(state_->xxh.get()));
}

}  // namespace strata
