#include "launcher/control/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace dtrain::launcher {
namespace {

constexpr std::string_view kEndOfHeaders = "\r\n\r\n", kEndOfLine = "\r\n";

HttpInput refused(int status, std::string why) {
  return {true, std::nullopt, {status, "text/plain; charset=utf-8", std::move(why) + "\n"}};
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Internal Server Error";
  }
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

/// The names of headers are the same in any case.
bool begins_with_name(std::string_view line, std::string_view name) {
  return line.size() > name.size() && line[name.size()] == ':' &&
         std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
         });
}

/// Of the value of a header.
std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// A body would be the beginning of the next request to who does not read it.
bool has_body(std::string_view headers) {
  for (std::size_t at = 0; at < headers.size();) {
    const std::size_t end = std::min(headers.find(kEndOfLine, at), headers.size());
    const std::string_view line = headers.substr(at, end - at);
    constexpr std::string_view kLength = "content-length";
    if (begins_with_name(line, "transfer-encoding")) return true;
    if (begins_with_name(line, kLength) && trimmed(line.substr(kLength.size() + 1)) != "0") return true;
    at = end + kEndOfLine.size();
  }
  return false;
}

}  // namespace

HttpInput read_request(std::string_view bytes) {
  const std::size_t end = bytes.find(kEndOfHeaders);
  if (end == bytes.npos && bytes.size() < kMaxRequestBytes) return {};
  if (end == bytes.npos || end > kMaxRequestBytes)
    return refused(431, fmt::format("expected at most {} bytes of headers", kMaxRequestBytes));
  const std::string_view line = bytes.substr(0, bytes.find(kEndOfLine));
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  const std::string_view method = line.substr(0, first);
  if (first == line.npos || last == first || !is_token(method))
    return refused(400, "expected a request line of HTTP/1.1, such as GET /metrics HTTP/1.1");
  std::string_view path = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(path) || path.front() != '/' || (version != "HTTP/1.1" && version != "HTTP/1.0"))
    return refused(400, "expected a path that begins with / and HTTP/1.1 or HTTP/1.0");
  if (has_body(bytes.substr(line.size(), end - line.size() + kEndOfLine.size())))
    return refused(413, "expected a request without a body");
  path = path.substr(0, path.find('?'));
  return {true, HttpRequest{std::string(method), std::string(path)}, {}};
}

std::string text_of(const HttpAnswer& answer, bool head) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
      answer.status, reason_of(answer.status), answer.type, answer.body.size());
  return head ? text : text.append(answer.body);
}

std::string text_of(const HttpRequest& request, std::string_view host) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", request.method, request.path,
                     host);
}

std::optional<HttpAnswer> read_answer(std::string_view bytes) {
  constexpr std::string_view kVersion = "HTTP/1.1 ", kLength = "\r\nContent-Length: ";
  const std::size_t end = bytes.find(kEndOfHeaders), length_at = bytes.find(kLength);
  if (!bytes.starts_with(kVersion) || end == bytes.npos || length_at >= end) return std::nullopt;
  HttpAnswer answer;
  std::size_t length = 0;
  const auto number = [&](std::size_t at, auto& value) {
    return std::from_chars(bytes.data() + at, bytes.data() + end, value).ec == std::errc();
  };
  if (!number(kVersion.size(), answer.status) || !number(length_at + kLength.size(), length))
    return std::nullopt;
  answer.body = bytes.substr(end + kEndOfHeaders.size());
  return answer.body.size() == length ? std::optional(std::move(answer)) : std::nullopt;
}

}  // namespace dtrain::launcher
