// What seals the frames of one direction of a connection: a key, a counter that never repeats, and an AEAD of
// OpenSSL's libcrypto. Poly1305 (of ChaCha20-Poly1305, over data it leaves in the clear) is the fastest MAC
// there, AES-256-GCM the fastest cipher; docs/decisions/028-authenticated-connections.md has the figures.
#pragma once

#include <openssl/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "cluster/net/protection.h"

namespace dtrain::net {

inline constexpr std::size_t kMacBytes = 16;
using Mac = std::array<std::byte, kMacBytes>;

/// Either seals or opens; the n-th call on one end belongs to the n-th on the other. Not for
/// Protection::none, which seals nothing. Movable.
class Cipher {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  enum class Direction { seal, open };

  /// `key` has kKeyBytes and is used for nothing else. Throws Error when libcrypto refuses.
  Cipher(Protection protection, Direction direction, std::string_view key);

  /// The MAC over `header` and `body`. encrypt: `out`, as long as `body`, receives what is to be sent in its
  /// place and may be the same memory; authenticate: `out` is not touched. Throws Error when libcrypto fails.
  Mac seal(std::span<const std::byte> header, std::span<const std::byte> body, std::byte* out);

  /// Whether `mac` is that of `header` and `body`, compared in constant time. encrypt: `body` is decrypted in
  /// place, and holds nothing meaningful when this is false. Throws Error when libcrypto fails.
  bool open(std::span<const std::byte> header, std::span<std::byte> body, const std::byte* mac);

 private:
  void start();

  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const noexcept;
  };
  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
  bool encrypts_;
  std::uint64_t counter_ = 0;
};

}  // namespace dtrain::net
