#include "runtime/data/formats/npz.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/cache/content_reader.h"
#include "runtime/data/formats/text.h"

namespace dtrain {
namespace {

constexpr std::string_view kArrayEnding = ".npy", kFileEnding = ".npz";

Content whole_file(const std::string& path) {
  const ContentReader file(path, "a .npz file");
  return {file.fd(), static_cast<std::size_t>(file.file_bytes()), path};
}

}  // namespace

NpzFile::NpzFile(const std::string& path) : path_(path), archive_(whole_file(path), path) {
  for (const ZipMember& member : archive_.members()) {
    if (!member.name.ends_with(kArrayEnding)) {
      throw DataError(path_, static_cast<std::int64_t>(member.header),
                      "arrays alone, NAME.npy, as numpy.savez writes them", printable(member.name));
    }
    names_.push_back(member.name.substr(0, member.name.size() - kArrayEnding.size()));
  }
}

NpyArray NpzFile::array(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) {
    throw DataError(path_, -1, fmt::format("an array {}", printable(name)),
                    printable(fmt::format("{}", fmt::join(names_, ", "))));
  }
  const ZipMember& member = archive_.members()[static_cast<std::size_t>(found - names_.begin())];
  return read_npy(archive_.open(member), fmt::format("{}:{}", path_, printable(name)));
}

std::optional<NpzName> npz_name(const std::string& text) {
  if (text.ends_with(kFileEnding)) return NpzName{text, {}};
  const std::size_t at = text.rfind(std::string(kFileEnding) + ":");
  if (at == std::string::npos) return std::nullopt;
  return NpzName{text.substr(0, at + kFileEnding.size()), text.substr(at + kFileEnding.size() + 1)};
}

}  // namespace dtrain
