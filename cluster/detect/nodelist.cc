// Both notations: parse into ranges, add up what they stand for, expand only then.
#include "cluster/detect/nodelist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::size_t kMaxTextBytes = 1 << 20;
constexpr std::size_t kMaxHostBytes = 253;
constexpr std::size_t kMaxDigits = 18;

struct Range {
  std::uint64_t low = 0, high = 0;
  std::size_t width = 0;
};

// A run of literal text and the bracket that follows it (none: no ranges).
struct Part {
  std::string_view literal;
  std::vector<Range> ranges;
  std::uint64_t count = 1;
};

// A cursor that says what is wrong and where.
class Cursor {
 public:
  Cursor(std::string_view text, std::string_view what) : text_(text), what_(what) {
    if (text.empty() || text.size() > kMaxTextBytes)
      fail(fmt::format("expected 1 to {} bytes", kMaxTextBytes));
  }

  bool done() const noexcept { return at_ == text_.size(); }
  char peek() const noexcept { return done() ? '\0' : text_[at_]; }
  bool skip(char expected) noexcept {
    if (done() || peek() != expected) return false;
    ++at_;
    return true;
  }
  void need(char expected) {
    if (!skip(expected)) fail(fmt::format("expected '{}'", expected));
  }

  template <class Predicate>
  std::string_view take_while(Predicate good) noexcept {
    const std::size_t start = at_;
    while (!done() && good(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }

  std::string_view digits() {
    const std::string_view found =
        take_while([](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
    if (found.empty() || found.size() > kMaxDigits)
      fail(fmt::format("expected a number of 1 to {} digits", kMaxDigits));
    return found;
  }

  [[noreturn]] void fail(std::string_view why) const {
    constexpr std::size_t kShown = 40;
    std::string shown(text_.substr(at_, kShown));
    for (char& c : shown) {
      if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
    }
    throw UsageError(fmt::format("{}: at byte {}: {}, got '{}'", what_, at_, why, shown));
  }

 private:
  std::string_view text_, what_;
  std::size_t at_ = 0;
};

std::uint64_t to_number(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(),
                  value);  // at most kMaxDigits digits: always fits
  return value;
}

bool is_host_character(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
}

void parse_bracket(Cursor& cursor, Part& part) {
  part.count = 0;
  do {
    const std::string_view low = cursor.digits();
    const std::string_view high = cursor.skip('-') ? cursor.digits() : low;
    const Range range{to_number(low), to_number(high), low.size()};
    if (range.high < range.low) cursor.fail("expected an ascending range");
    part.count += range.high - range.low + 1;
    if (part.count > kMaxNodes) cursor.fail(fmt::format("expected at most {} hosts", kMaxNodes));
    part.ranges.push_back(range);
  } while (cursor.skip(','));
  cursor.need(']');
}

std::size_t widest(const std::vector<Range>& ranges) {
  std::size_t bytes = 0;
  for (const Range& range : ranges)
    bytes = std::max({bytes, range.width, fmt::formatted_size("{}", range.high)});
  return bytes;
}

// One item, up to a comma or the end; adds its hosts to `total`.
std::vector<Part> parse_item(Cursor& cursor, std::uint64_t& total) {
  std::vector<Part> parts;
  std::uint64_t count = 1;
  std::size_t host_bytes = 0;
  do {
    Part part;
    part.literal = cursor.take_while(is_host_character);
    if (parts.empty() && part.literal.empty()) cursor.fail("expected a host name");
    host_bytes += part.literal.size();
    if (cursor.skip('[')) {
      parse_bracket(cursor, part);
      host_bytes += widest(part.ranges);
      count *= part.count;
    } else if (!parts.empty()) {
      cursor.fail("expected nothing after an item's last bracket");
    }
    if (count > kMaxNodes || total + count > kMaxNodes)
      cursor.fail(fmt::format("expected at most {} hosts", kMaxNodes));
    parts.push_back(std::move(part));
    if (host_bytes > kMaxHostBytes)
      cursor.fail(fmt::format("expected host names of at most {} bytes", kMaxHostBytes));
  } while (!cursor.done() && cursor.peek() != ',');
  total += count;
  return parts;
}

void expand_item(const std::vector<Part>& parts, std::size_t index, std::string& host,
                 std::vector<std::string>& hosts) {
  if (index == parts.size()) {
    hosts.push_back(host);
    return;
  }
  const Part& part = parts[index];
  const std::size_t before = host.size();
  host += part.literal;
  if (part.ranges.empty()) expand_item(parts, index + 1, host, hosts);
  const std::size_t with_literal = host.size();
  for (const Range& range : part.ranges) {
    for (std::uint64_t number = range.low; number <= range.high; ++number) {
      host += fmt::format("{:0{}}", number, range.width);
      expand_item(parts, index + 1, host, hosts);
      host.resize(with_literal);
    }
  }
  host.resize(before);
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view text, std::string_view what) {
  Cursor cursor(text, what);
  std::vector<std::vector<Part>> items;
  std::uint64_t total = 0;
  do {
    items.push_back(parse_item(cursor, total));
  } while (cursor.skip(','));
  if (!cursor.done()) cursor.fail("expected ',' or the end");
  std::vector<std::string> hosts;
  hosts.reserve(total);
  std::string host;
  for (const auto& item : items) expand_item(item, 0, host, hosts);
  return hosts;
}

std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view what) {
  Cursor cursor(text, what);
  std::vector<int> tasks;
  do {
    const std::uint64_t count = to_number(cursor.digits());
    if (count < 1 || count > kMaxTasksPerNode)
      cursor.fail(fmt::format("expected 1 to {} tasks before this", kMaxTasksPerNode));
    std::uint64_t nodes = 1;
    if (cursor.skip('(')) {
      cursor.need('x');
      nodes = to_number(cursor.digits());
      cursor.need(')');
    }
    if (nodes < 1 || nodes > kMaxNodes - tasks.size())
      cursor.fail(fmt::format("expected 1 to {} nodes in all", kMaxNodes));
    tasks.insert(tasks.end(), nodes, static_cast<int>(count));
  } while (cursor.skip(','));
  if (!cursor.done()) cursor.fail("expected ',' or the end");
  return tasks;
}

}  // namespace dtrain
