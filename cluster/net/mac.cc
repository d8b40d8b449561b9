// HMAC through EVP_MAC. Each signature starts from a copy of the keyed context: restarting one in place is
// broken in OpenSSL 3.0.0 to 3.0.2, which Ubuntu 22.04 ships.
#include "cluster/net/mac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

void require(bool good, const char* what) {
  if (!good) throw Error(std::string("HMAC-SHA256: libcrypto failed in ") + what);
}

}  // namespace

void MacKey::Free::operator()(EVP_MAC_CTX* context) const noexcept { ::EVP_MAC_CTX_free(context); }

MacKey::MacKey(std::string_view key) {
  const std::unique_ptr<EVP_MAC, decltype(&::EVP_MAC_free)> hmac(::EVP_MAC_fetch(nullptr, "HMAC", nullptr),
                                                                 &::EVP_MAC_free);
  require(hmac != nullptr, "EVP_MAC_fetch");
  keyed_.reset(::EVP_MAC_CTX_new(hmac.get()));
  require(keyed_ != nullptr, "EVP_MAC_CTX_new");
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   OSSL_PARAM_construct_end()};
  // An empty key still needs a pointer: null means "keep the key there is".
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.empty() ? "" : key.data());
  require(::EVP_MAC_init(keyed_.get(), bytes, key.size(), parameters) == 1, "EVP_MAC_init");
}

Digest MacKey::sign(std::initializer_list<std::string_view> parts) const {
  const std::unique_ptr<EVP_MAC_CTX, Free> context(::EVP_MAC_CTX_dup(keyed_.get()));
  require(context != nullptr, "EVP_MAC_CTX_dup");
  for (const std::string_view part : parts) {
    require(::EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(part.data()),
                             part.size()) == 1,
            "EVP_MAC_update");
  }
  Digest digest;
  std::size_t written = 0;
  require(::EVP_MAC_final(context.get(), digest.bytes.data(), &written, Digest::kBytes) == 1 &&
              written == Digest::kBytes,
          "EVP_MAC_final");
  return digest;
}

bool MacKey::verify(std::initializer_list<std::string_view> parts, std::string_view mac) const {
  const Digest expected = sign(parts);
  return mac.size() == Digest::kBytes &&
         ::CRYPTO_memcmp(expected.bytes.data(), mac.data(), Digest::kBytes) == 0;
}

}  // namespace dtrain
