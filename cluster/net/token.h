// The secret a job's processes share: 32 random bytes, written as 64 hex digits. It travels by environment or
// a 0600 file, never by argv, and no message ever shows it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/environment.h"

namespace dtrain {

class SocketAddress;

class Token {
 public:
  static constexpr std::size_t kBytes = 32;

  explicit Token(const std::array<std::uint8_t, kBytes>& bytes) noexcept : bytes_(bytes) {}

  /// The raw bytes; lives as long as the token.
  std::string_view bytes() const noexcept { return {reinterpret_cast<const char*>(bytes_.data()), kBytes}; }
  /// 64 lower-case hex digits.
  std::string hex() const;

 private:
  std::array<std::uint8_t, kBytes> bytes_;
};

/// A new token from the kernel's random source. Throws SystemError.
Token make_token();

/// Parses 64 hex digits of either case; surrounding white space is ignored. Throws UsageError naming `what`
/// (where the text came from), never showing the text.
Token parse_token(std::string_view hex, std::string_view what);

/// Reads a token file. Throws UsageError when it is no regular file, belongs to somebody else (root's is
/// accepted), or is readable or writable by group or others (naming the mode and the command that fixes it);
/// SystemError when it cannot be opened.
Token read_token_file(const std::filesystem::path& path);

/// Writes a token file with mode 0600; an existing one is an error. Throws SystemError.
void write_token_file(const std::filesystem::path& path, const Token& token);

/// Makes `folder` for this user alone; one that is there must be that already, since /tmp is everybody's.
/// Throws SystemError, and UsageError where it belongs to somebody else or lets others in.
void make_private_folder(const std::filesystem::path& folder);

/// The secret that all processes of this user on this machine share, for those who meet on loopback and were
/// given none: `folder`/token, made with its folder by the first who asks, and kept. Throws UsageError when
/// folder or file belongs to somebody else or lets others in, or when it cannot be made, with what to do.
Token own_user_token(const std::filesystem::path& folder);

/// Where own_user_token() keeps the secret: `/tmp/dtrain-UID`, whatever TMPDIR says, since all processes
/// of a job must find the same one.
std::filesystem::path own_user_folder();

/// DTRAIN_TOKEN, else the file that DTRAIN_TOKEN_FILE names, else nothing. Throws as the functions above.
std::optional<Token> find_token(const Environment& environment);

/// Refuses what listens, or would connect, at `address` without a token where other machines can reach it.
/// Throws UsageError naming `what` ("store 10.0.0.1:29500") and what to do.
void require_token(const std::optional<Token>& token, const SocketAddress& address, std::string_view what);

/// Fills `size` bytes at `data` from the kernel's random source. Throws SystemError.
void fill_random(void* data, std::size_t size);

}  // namespace dtrain
