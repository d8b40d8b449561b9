// The little of HTTP/1.1 that programs which ask a launcher need: a request without a body, one answer, the
// end of the connection (RFC 9112). Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain::launcher {

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< "/metrics", without a query
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

/// Longer requests are refused: nothing that is asked for here needs so many headers.
constexpr std::size_t kMaxRequestBytes = 8192;

/// What the bytes of a connection hold so far.
struct HttpInput {
  bool complete = false;               ///< there is a request, or the refusal of one
  std::optional<HttpRequest> request;  ///< empty: not complete, or refused
  HttpAnswer refusal;                  ///< where it is complete and refused
};

/// Reads a request and its headers, which end at an empty line.
HttpInput read_request(std::string_view bytes);

/// The bytes of an answer; without its body where `head` asks for that (HEAD).
std::string text_of(const HttpAnswer& answer, bool head = false);

/// The bytes of a request for `host`, any name where it is sent over a Unix socket.
std::string text_of(const HttpRequest& request, std::string_view host);

/// The status and body of an answer; nothing when `bytes` are no whole answer of ours.
std::optional<HttpAnswer> read_answer(std::string_view bytes);

}  // namespace dtrain::launcher
