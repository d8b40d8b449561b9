#include "collectives/p2p/ending.h"

#include <array>
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

std::string encode(const Ending& ending) {
  const PeerFault& fault = ending.fault;
  std::string text = std::to_string(fault.rank);
  for (const std::string& field :
       {fault.host, fault.operation, std::to_string(fault.sequence), fault.tensor}) {
    text += kSeparator;
    for (const char c : field) text += c == kSeparator ? ' ' : c;
  }
  return text + kSeparator + ending.what;
}

std::optional<Ending> decode(std::string_view text) {
  Ending ending;
  std::string_view rest = text;
  if (!parse(next_field(rest), ending.fault.rank)) return std::nullopt;
  ending.fault.host = next_field(rest);
  ending.fault.operation = next_field(rest);
  if (!parse(next_field(rest), ending.fault.sequence)) return std::nullopt;
  ending.fault.tensor = next_field(rest);
  ending.what = rest;
  return ending;
}

}  // namespace dtrain::p2p
