// One file of the data cache: a page of text that says what it was made from and its checksum, then the
// content. Private to runtime/data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "runtime/data/cache/content.h"
#include "runtime/data/cache/content_reader.h"

namespace dtrain::cache {

/// Something about the cache itself failed; the cache turns it into "not cached".
class CacheError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Why an entry that exists was not used; empty when there is none.
struct Refusal {
  std::string reason;
};

/// File name of the entry for `source`: its own name and a hash of everything in the identity.
std::string entry_name(const SourceIdentity& source);

/// Maps the entry if it is whole, ours and made from exactly `source`; otherwise nothing, and why in
/// `refusal`.
std::optional<Content> open_entry(const std::filesystem::path& path, const SourceIdentity& source,
                                  Refusal& refusal);

/// Writes an entry beside `path` and renames it there, durable before it is visible. Throws Failure for
/// trouble with the cache; what `produce` throws passes through. Leaves no half-written file in either case.
void write_entry(const std::filesystem::path& path, const SourceIdentity& source, std::uint64_t content_bytes,
                 const std::function<std::size_t(std::span<std::uint8_t>)>& produce);

}  // namespace dtrain::cache
