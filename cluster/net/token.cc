// Makes, reads and writes tokens. Needs no cryptography library: a launcher that only hands a token on stays
// light.
#include "cluster/net/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cluster/net/endpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/fd.h"

namespace dtrain {
namespace {

constexpr std::size_t kMaxFileBytes = 256;

int hex_value(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::string_view trim(std::string_view text) noexcept {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Whole when it appears under its name, and one for all who make it at the same time.
void make_token_file(const std::filesystem::path& path) {
  std::uint64_t number = 0;
  fill_random(&number, sizeof number);
  const std::filesystem::path made = fmt::format("{}-{:016x}", path.string(), number);
  write_token_file(made, make_token());
  const int error = ::link(made.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(made.c_str());
  if (error != 0 && error != EEXIST) throw SystemError("make token file " + path.string(), error);
}

}  // namespace

std::string Token::hex() const {
  std::string text;
  for (const std::uint8_t byte : bytes_) text += fmt::format("{:02x}", byte);
  return text;
}

void fill_random(void* data, std::size_t size) {
  auto* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::getrandom(next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    check(Sys{got}, "getrandom");
    next += got;
    size -= static_cast<std::size_t>(got);
  }
}

Token make_token() {
  std::array<std::uint8_t, Token::kBytes> bytes;
  fill_random(bytes.data(), bytes.size());
  return Token(bytes);
}

Token parse_token(std::string_view hex, std::string_view what) {
  hex = trim(hex);
  std::array<std::uint8_t, Token::kBytes> bytes{};
  bool good = hex.size() == 2 * Token::kBytes;
  for (std::size_t i = 0; good && i < Token::kBytes; ++i) {
    const int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  if (!good)
    throw UsageError(fmt::format("{}: expected a token of 64 hex digits, got {} other characters (not shown)",
                                 what, hex.size()));
  return Token(bytes);
}

Token read_token_file(const std::filesystem::path& path) {
  const UniqueFd fd(static_cast<int>(check(Sys{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)},
                                           "open token file " + path.string())));
  struct stat status {};
  check(Sys{::fstat(fd.get(), &status)}, "stat token file " + path.string());
  if (!S_ISREG(status.st_mode))
    throw UsageError(
        fmt::format("token file {}: expected a regular file, got something else", path.string()));
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    throw UsageError(fmt::format("token file {}: expected it to belong to this user or root, got uid {}",
                                 path.string(), status.st_uid));
  if ((status.st_mode & 077U) != 0)
    throw UsageError(fmt::format(
        "token file {}: expected mode 0600, got {:04o}, which lets others read the secret; run chmod "
        "600 {} and make a new token",
        path.string(), status.st_mode & 07777U, path.string()));
  char text[kMaxFileBytes];
  const ssize_t got = check(Sys{::read(fd.get(), text, sizeof text)}, "read token file " + path.string());
  return parse_token({text, static_cast<std::size_t>(got)}, "token file " + path.string());
}

void write_token_file(const std::filesystem::path& path, const Token& token) {
  const std::string what = "token file " + path.string();
  const UniqueFd fd(static_cast<int>(
      check(Sys{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)}, "create " + what)));
  const std::string text = token.hex() + "\n";
  if (check(Sys{::write(fd.get(), text.data(), text.size())}, "write " + what) !=
      static_cast<long>(text.size()))
    throw SystemError("write " + what, ENOSPC);
}

void make_private_folder(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw SystemError("make the folder " + folder.string(), errno);
  struct stat status {};
  check(Sys{::lstat(folder.c_str(), &status)}, "stat " + folder.string());
  if (S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 077U) == 0) return;
  throw UsageError(fmt::format("{}: expected a folder of user {} with mode 0700, got {} of user {}, {:04o}",
                               folder.string(), ::geteuid(),
                               S_ISDIR(status.st_mode) ? "one" : "something else", status.st_uid,
                               status.st_mode & 07777U));
}

Token own_user_token(const std::filesystem::path& folder) {
  try {
    make_private_folder(folder);
    const std::filesystem::path path = folder / "token";
    if (::access(path.c_str(), F_OK) != 0) make_token_file(path);
    return read_token_file(path);
  } catch (const Error& error) {
    throw UsageError(fmt::format(
        "processes of a job on one machine share a secret, so that no other user can join; {}; set the same "
        "DTRAIN_TOKEN for all of them (make one with: openssl rand -hex 32)",
        error.what()));
  }
}

std::filesystem::path own_user_folder() { return fmt::format("/tmp/dtrain-{}", ::geteuid()); }

std::optional<Token> find_token(const Environment& environment) {
  if (const std::string* hex = find_variable(environment, "DTRAIN_TOKEN"))
    return parse_token(*hex, "DTRAIN_TOKEN");
  if (const std::string* path = find_variable(environment, "DTRAIN_TOKEN_FILE"))
    return read_token_file(*path);
  return std::nullopt;
}

void require_token(const std::optional<Token>& token, const SocketAddress& address, std::string_view what) {
  if (token || address.is_loopback()) return;
  throw UsageError(
      fmt::format("{}: expected a token, since other machines can reach {}, got none; set DTRAIN_TOKEN or "
                  "DTRAIN_TOKEN_FILE in every process",
                  what, address.text()));
}

}  // namespace dtrain
