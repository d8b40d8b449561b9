#include "cluster/net/cipher.h"

#include <openssl/evp.h>

#include <string>

#include "runtime/base/error.h"

namespace dtrain::net {
namespace {

constexpr std::size_t kCipherNonceBytes = 12;

void require(bool good, const char* what) {
  if (!good) throw Error(std::string("frames: libcrypto failed in ") + what);
}

const unsigned char* bytes_of(std::span<const std::byte> span) {
  return reinterpret_cast<const unsigned char*>(span.data());
}

unsigned char* bytes_of(std::byte* data) { return reinterpret_cast<unsigned char*>(data); }

}  // namespace

void Cipher::Free::operator()(EVP_CIPHER_CTX* context) const noexcept { ::EVP_CIPHER_CTX_free(context); }

Cipher::Cipher(Protection protection, Direction direction, std::string_view key)
    : context_(::EVP_CIPHER_CTX_new()), encrypts_(protection == Protection::encrypt) {
  require(context_ != nullptr, "EVP_CIPHER_CTX_new");
  require(key.size() == kKeyBytes, "a key of another length");
  const EVP_CIPHER* cipher = encrypts_ ? ::EVP_aes_256_gcm() : ::EVP_chacha20_poly1305();
  require(
      ::EVP_CipherInit_ex(context_.get(), cipher, nullptr, reinterpret_cast<const unsigned char*>(key.data()),
                          nullptr, direction == Direction::seal ? 1 : 0) == 1,
      "EVP_CipherInit_ex");
}

// The next nonce. Both ends count, so that none is ever sent and a frame opens at its own place only.
void Cipher::start() {
  std::array<unsigned char, kCipherNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof counter_; ++i)
    nonce[i] = static_cast<unsigned char>(counter_ >> (8 * i) & 0xff);
  ++counter_;
  require(::EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) == 1,
          "EVP_CipherInit_ex with a nonce");
}

Mac Cipher::seal(std::span<const std::byte> header, std::span<const std::byte> body, std::byte* out) {
  start();
  int done = 0;
  require(::EVP_CipherUpdate(context_.get(), nullptr, &done, bytes_of(header),
                             static_cast<int>(header.size())) == 1,
          "EVP_CipherUpdate of a header");
  require(::EVP_CipherUpdate(context_.get(), encrypts_ ? bytes_of(out) : nullptr, &done, bytes_of(body),
                             static_cast<int>(body.size())) == 1,
          "EVP_CipherUpdate");
  Mac mac{};
  require(::EVP_CipherFinal_ex(context_.get(), bytes_of(mac.data()), &done) == 1, "EVP_CipherFinal_ex");
  require(::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(kMacBytes),
                                mac.data()) == 1,
          "EVP_CTRL_AEAD_GET_TAG");
  return mac;
}

bool Cipher::open(std::span<const std::byte> header, std::span<std::byte> body, const std::byte* mac) {
  start();
  require(::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(kMacBytes),
                                const_cast<std::byte*>(mac)) == 1,
          "EVP_CTRL_AEAD_SET_TAG");
  int done = 0;
  require(::EVP_CipherUpdate(context_.get(), nullptr, &done, bytes_of(header),
                             static_cast<int>(header.size())) == 1,
          "EVP_CipherUpdate of a header");
  require(::EVP_CipherUpdate(context_.get(), encrypts_ ? bytes_of(body.data()) : nullptr, &done,
                             bytes_of(body), static_cast<int>(body.size())) == 1,
          "EVP_CipherUpdate");
  unsigned char nothing[kMacBytes];
  return ::EVP_CipherFinal_ex(context_.get(), nothing, &done) == 1;
}

}  // namespace dtrain::net
