#include "collectives/p2p/peer_failure.h"

#include <charconv>

namespace dtrain::p2p {
namespace {

constexpr char kSeparator = '\x1f';  // ASCII "unit separator": not in host names, operations or labels

// Cuts the text up to the next separator off `rest`.
std::string_view next_field(std::string_view& rest) {
  const std::size_t end = rest.find(kSeparator);
  const std::string_view field = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return field;
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string encode(const PeerFailure& failure) {
  std::string text = std::to_string(failure.rank);
  for (const std::string& field :
       {failure.host, failure.operation, std::to_string(failure.sequence), failure.tensor}) {
    text += kSeparator;
    for (const char c : field) text += c == kSeparator ? ' ' : c;
  }
  return text + kSeparator + failure.what;
}

std::optional<PeerFailure> decode(std::string_view text) {
  PeerFailure failure;
  std::string_view rest = text;
  if (!parse(next_field(rest), failure.rank)) return std::nullopt;
  failure.host = next_field(rest);
  failure.operation = next_field(rest);
  if (!parse(next_field(rest), failure.sequence)) return std::nullopt;
  failure.tensor = next_field(rest);
  failure.what = rest;
  return failure;
}

}  // namespace dtrain::p2p
