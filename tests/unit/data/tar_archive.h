// Tar archives made by hand, right and wrong ones.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::test {

/// Writes archives, member by member.
class Tar {
 public:
  Tar& add(const std::string& name, const std::string& content, char kind = '0') {
    std::string header(kBlock, '\0');
    const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
    put(0, name.substr(0, 100));
    put(100, "0000644");
    put(124, size_field.empty() ? octal(content.size(), 11) : size_field);
    header[156] = kind;
    put(257, std::string("ustar\0", 6) + "00");
    put(345, prefix);
    put(386, map_field);
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char byte : header) sum += static_cast<unsigned char>(byte);
    put(148, octal(sum, 6) + std::string("\0 ", 2));
    bytes +=
        header + behind_header + content + std::string((kBlock - content.size() % kBlock) % kBlock, '\0');
    prefix.clear();
    size_field.clear();
    map_field.clear();
    behind_header.clear();
    return *this;
  }
  /// A pax header of the next member.
  Tar& pax(const std::vector<std::pair<std::string, std::string>>& records, char kind = 'x') {
    std::string text;
    for (const auto& [key, value] : records) {
      const std::size_t rest = key.size() + value.size() + 3;  // ' ', '=', line end
      std::size_t length = rest + 1;
      while (rest + std::to_string(length).size() != length) ++length;
      text += std::to_string(length) + " " + key + "=" + value + "\n";
    }
    return add("PaxHeader", text, kind);
  }
  std::string whole() const { return bytes + std::string(1024, '\0'); }
  static std::string octal(std::size_t value, int digits) {
    std::string text;
    for (; digits-- > 0; value >>= 3) text.insert(text.begin(), static_cast<char>('0' + (value & 7)));
    return text;
  }
  static constexpr std::size_t kBlock = 512;
  std::string bytes;
  /// Of the next member: fields of its header, and blocks between that and the content.
  std::string prefix, size_field, map_field, behind_header;
};

}  // namespace dtrain::test
