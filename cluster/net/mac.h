// HMAC-SHA256 from OpenSSL's libcrypto (no SSL). The first key of a process costs about a millisecond while
// the library sets itself up, later ones a few microseconds.
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

namespace dtrain {

/// An HMAC-SHA256 value.
struct Digest {
  static constexpr std::size_t kBytes = 32;
  std::array<std::uint8_t, kBytes> bytes{};

  std::string_view view() const noexcept { return {reinterpret_cast<const char*>(bytes.data()), kBytes}; }
};

/// A keyed HMAC-SHA256. sign() and verify() may be called from any thread. Movable.
class MacKey {
 public:
  /// `key` may be empty (no token on loopback). Throws Error when libcrypto refuses.
  explicit MacKey(std::string_view key);

  /// Over the concatenation of `parts`; about a microsecond for short ones. Throws Error when libcrypto
  /// fails.
  Digest sign(std::initializer_list<std::string_view> parts) const;

  /// Compares in constant time.
  bool verify(std::initializer_list<std::string_view> parts, std::string_view mac) const;

 private:
  struct Free {
    void operator()(EVP_MAC_CTX* context) const noexcept;
  };
  std::unique_ptr<EVP_MAC_CTX, Free> keyed_;
};

}  // namespace dtrain
