// The bytes of a file, wherever they live: mapped from disk or inflated into memory. Immutable, shared by
// whoever reads them; read-only mappings of one file share their pages between all workers of a node.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace dtrain {

/// Read-only bytes with the owner that keeps them valid. Cheap to copy.
struct Content {
  std::shared_ptr<const void> owner;
  std::span<const std::uint8_t> bytes;
};

/// Maps the first `size_bytes` (> 0) of the open file `fd`; the mapping outlives the descriptor. The file
/// must not be shortened while it is mapped: reading past its new end would be a SIGBUS. Throws SystemError
/// naming `path`.
Content map_file(int fd, std::size_t size_bytes, const std::string& path);

}  // namespace dtrain
