#include "runtime/data/images/files/wds_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

/// One index that is being read.
class IndexLines {
 public:
  explicit IndexLines(const std::string& path) : path_(path), file_(path) {
    if (!file_) throw DataError(path, -1, "an index of a shard (wds2idx)", "no file that can be read");
    std::string version;
    std::istringstream first(next());
    if (!(first >> version >> samples_) || (version != "v1.1" && version != "v1.2") || samples_ < 0)
      refuse("v1.1 or v1.2 and the number of samples", first.str());
    named_ = version == "v1.2";
  }

  /// The members of the next sample; none at the end.
  std::vector<TarMember> sample() {
    if (read_ == samples_) {
      std::string more;
      if (std::getline(file_, more) && !more.empty()) refuse("no line after the last sample", more);
      return {};
    }
    std::vector<TarMember> members;
    std::istringstream words(next());
    ++read_;
    std::string ending;
    while (words >> ending) {
      TarMember member;
      if (!(words >> member.offset >> member.bytes) || member.offset < 0 || member.bytes < 0 ||
          (named_ && !(words >> member.name)))
        refuse(named_ ? "endings, offsets, sizes and names" : "endings, offsets and sizes", words.str());
      members.push_back(std::move(member));
    }
    if (members.empty()) refuse("at least one member", "none");
    return members;
  }

  [[noreturn]] void refuse(const std::string& expected, const std::string& found) const {
    throw DataError(path_, -1, fmt::format("in line {} {}", line_, expected),
                    printable(found.substr(0, 200)));
  }

 private:
  std::string next() {
    std::string line;
    ++line_;
    if (!std::getline(file_, line)) refuse(fmt::format("one of {} samples", samples_), "the file's end");
    return line;
  }

  std::string path_;
  std::ifstream file_;
  std::int64_t samples_ = 0, read_ = 0, line_ = 0;
  bool named_ = false;
};

bool fits_an_index(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

bool split_member_name(const std::string& name, std::string& key, std::string& ending) {
  const std::size_t base = name.rfind('/') + 1;  // 0 where there is none
  const std::size_t dot = name.find('.', base);
  if (dot == std::string::npos || dot == base) return false;
  const std::string_view first = std::string_view(name).substr(0, name.find('/'));
  if (first.size() >= 4 && first.starts_with("__") && first.ends_with("__")) return false;
  key = name.substr(0, dot);
  ending = name.substr(dot + 1);
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return true;
}

// Names as the index has them: a header has at most 100 characters of one, by which the two are compared.
void for_each_indexed(TarReader& archive, const std::string& shard, const std::string& path,
                      const std::function<void(const TarMember&)>& visit) {
  IndexLines lines(path);
  for (auto members = lines.sample(); !members.empty(); members = lines.sample()) {
    for (TarMember& member : members) {
      const auto found = archive.member_at(member.offset);
      const bool is_it =
          found && found->bytes == member.bytes &&
          (member.name.empty() || member.name == found->name ||
           (found->name.size() >= TarReader::kHeaderName && member.name.starts_with(found->name)));
      if (!is_it) {
        lines.refuse(
            fmt::format("a member of {}", shard),
            fmt::format("{} ({} bytes at {}), which is not there, or is a sparse file: the index belongs to "
                        "another shard, or tells only where the file begins; leave it out",
                        member.name, member.bytes, member.offset));
      }
      if (member.name.empty()) member.name = found->name;
      visit(member);
    }
  }
}

std::int64_t write_wds_index(const std::string& shard, const std::string& path) {
  TarReader archive(shard);
  std::string lines, last;
  std::int64_t samples = 0;
  archive.for_each([&](const TarMember& member) {
    std::string key, ending;
    if (!split_member_name(member.name, key, ending)) return;
    if (!fits_an_index(member.name)) {
      throw DataError(shard, member.offset, "names of ASCII characters without blanks, as wds2idx wants them",
                      printable(member.name));
    }
    if (!member.pieces.empty()) {
      throw DataError(
          shard, member.offset, "members that lie in one piece, as such an index has no others",
          fmt::format("the sparse file {}; pack it with its holes filled", printable(member.name)));
    }
    if (key == last) {
      lines += ' ';
    } else if (samples++ > 0) {
      lines += '\n';
    }
    last = key;
    lines += fmt::format("{} {} {} {}", ending, member.offset, member.bytes, member.name);
  });
  replace_file(path, fmt::format("v1.2 {}\n{}{}", samples, lines, samples == 0 ? "" : "\n"));
  return samples;
}

}  // namespace dtrain
