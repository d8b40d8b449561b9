// What a store's client and server say to each other, as pure functions of byte strings: no sockets here.
// StoreConnection carries it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::wire {

inline constexpr std::size_t kMaxKeyBytes = 256;
inline constexpr std::size_t kMaxValueBytes = 1U << 20;
/// Keys one wait request may name; a client splits longer lists.
inline constexpr std::size_t kMaxWaitKeys = 1024;
/// A value, an expected value and a key, or a full list of keys, with room for their lengths.
inline constexpr std::size_t kMaxPayloadBytes = 2 * kMaxValueBytes + 4096;

enum class Op : std::uint8_t { set = 1, get, try_get, wait, add, compare_set, remove, cancel };
inline constexpr Op kLastOp = Op::cancel;

/// What a client asks. Which fields count depends on `op`.
struct Request {
  Op op = Op::set;
  std::uint64_t id = 0;                 ///< echoed in the response; cancel: the request to give up
  std::vector<std::string> keys;        ///< one, except for wait (any number) and cancel (none)
  std::string value;                    ///< set, compare_set
  std::optional<std::string> expected;  ///< compare_set
  std::int64_t delta = 0;               ///< add
};

enum class Status : std::uint8_t {
  ok = 0,
  absent,     ///< try_get: no such key
  cancelled,  ///< the value lists keys still missing, one a line
  misuse,     ///< the value says what the caller did wrong
  full,       ///< the store's memory limit
};
inline constexpr Status kLastStatus = Status::full;

struct Response {
  std::uint64_t id = 0;
  Status status = Status::ok;
  std::string value;
};

/// One message each. Decoding returns nullopt for anything that encoding cannot have produced.
std::string encode(const Request& request);
std::string encode(const Response& response);
std::optional<Request> decode_request(std::string_view payload);
std::optional<Response> decode_response(std::string_view payload);

}  // namespace dtrain::wire
