// An index of many files, kept for the next start together with what it was made from: it is reused as
// long as none of that has changed. It is only a shortcut: if anything is wrong with it, the index is built
// again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"

namespace dtrain {

/// A file or folder as it was.
struct FileStamp {
  std::string path;
  std::int64_t bytes = 0;     ///< of a file; 0 of a folder
  std::int64_t mtime_ns = 0;  ///< since the epoch; rsync -t and cp -p set it
  std::int64_t ctime_ns = 0;  ///< of the last change of any kind, which nobody can set
  bool operator==(const FileStamp&) const = default;
};

/// Of `path` now. Throws SystemError.
FileStamp stamp_of(const std::string& path);

/// Numbers and texts one behind the other.
class IndexWriter {
 public:
  void add(std::int64_t number);
  void add(std::string_view text);
  template <class T>
  void add(std::span<const T> values) {
    add(std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

/// The same again, in the same order; good() is false from the first that is not there.
class IndexReader {
 public:
  explicit IndexReader(std::string_view bytes) : bytes_(bytes) {}
  std::int64_t number();
  std::string_view text();
  template <class T>
  std::vector<T> values() {
    const std::string_view bytes = text();
    std::vector<T> result(bytes.size() / sizeof(T));
    if (bytes.size() % sizeof(T) != 0) good_ = false;
    if (!result.empty()) bytes.copy(reinterpret_cast<char*>(result.data()), result.size() * sizeof(T));
    return result;
  }
  /// Whether all was there, and nothing more.
  bool finished() const noexcept { return good_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

/// One kept index.
class KeptIndex {
 public:
  /// `subject` tells it from others: what is listed, where, and how. An empty `directory` keeps none.
  KeptIndex(const std::filesystem::path& directory, const std::string& subject);

  /// What was kept, where all of what it was made from is as it was. Never throws.
  std::optional<std::string> find() const;
  /// Keeps `content`, made from what `stamps` say; not where one of these has changed within the last two
  /// seconds, when another change may bear the same time. A failure is reported to `log` (may be null), no
  /// more.
  void keep(std::span<const FileStamp> stamps, std::string_view content, Log* log) const;

 private:
  std::filesystem::path file_;  ///< empty: none
  std::string subject_;
};

}  // namespace dtrain
