// Keeps the inflated content of compressed datasets as files for the next start, so that a run
// need not inflate 47 MB before its first step and all workers of a node share one copy in the page cache. It
// is only ever a shortcut: whatever goes wrong in it, the caller reads the source instead
// (docs/decisions/005-data-cache.md).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/data/cache/content.h"
#include "runtime/data/cache/content_reader.h"

namespace dtrain {

/// $XDG_CACHE_HOME/dtrain/data, else $HOME/.cache/dtrain/data; empty (no cache) when neither variable is an
/// absolute path.
std::filesystem::path default_data_cache_directory();

/// One cache folder. Any number of processes may use the same folder at once; one object is for one thread at
/// a time.
class DataCache {
 public:
  /// Fills a buffer with the next bytes of content and returns how many; fewer than asked for at its end.
  using Producer = std::function<std::size_t(std::span<std::uint8_t>)>;

  /// An empty `directory` makes a cache that never has anything. `log` (borrowed) hears why the cache could
  /// not be used; a process waits `patience` at most for another one that is writing the same entry.
  DataCache(std::filesystem::path directory, Log& log, Duration patience = std::chrono::seconds(60));

  /// The content cached for exactly this version of the source, or nothing. An entry whose file was touched
  /// since it was written is read through and compared with its checksum first; a bad one counts as absent.
  /// Never throws for a reason that lies in the cache.
  std::optional<Content> find(const SourceIdentity& source) const;

  /// Writes `content_bytes` bytes from `produce` as the entry of `source` and returns them; when
  /// another process does so already, waits for it and returns its entry without calling `produce`. Nothing
  /// when the folder cannot be written, is full, or patience ran out: then `produce` may have been called,
  /// and the source must be read from its start. Whatever `produce` throws passes through and leaves no
  /// entry.
  std::optional<Content> build(const SourceIdentity& source, std::uint64_t content_bytes,
                               const Producer& produce);

 private:
  std::filesystem::path entry_path(const SourceIdentity& source) const;
  void note(LogLevel level, const std::string& what) const;

  std::filesystem::path directory_;
  Log& log_;
  Duration patience_;
};

}  // namespace dtrain
