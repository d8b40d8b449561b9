// The bytes of a file, wherever they live: on the disk or inflated into memory. Immutable, shared by all that
// read them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace dtrain {

/// Read-only bytes and what keeps them. Thread-safe, cheap to copy. Files are read by position: the pages
/// that the system keeps of them are shared by all workers of a node, as those of a mapping would be, but a
/// file that is shortened while it is read is an error and no SIGBUS.
class Content {
 public:
  Content() = default;
  /// The first `size_bytes` of the open file `fd`, which may be closed. Throws SystemError naming `path`.
  Content(int fd, std::size_t size_bytes, const std::string& path);
  /// `bytes`, which live as long as `owner`.
  Content(std::shared_ptr<const void> owner, std::span<const std::uint8_t> bytes);

  std::size_t size() const noexcept { return size_; }
  bool in_memory() const noexcept { return file_ == nullptr; }
  /// The first `bytes`, and what is behind them; `bytes` is in range.
  Content first(std::size_t bytes) const;
  Content from(std::size_t bytes) const;

  /// `count` bytes from `offset` on, both in range; valid until this thread's next call, of any Content.
  /// Throws DataError where the file is shorter by now, SystemError where it cannot be read.
  std::span<const std::uint8_t> read(std::size_t offset, std::size_t count) const;
  /// Calls `visit(offset, bytes)` for all of them, piece by piece; a piece begins at a multiple of 8. Throws
  /// as read() and `visit`.
  template <class Visit>
  void for_each_piece(Visit visit) const {
    constexpr std::size_t kPiece = 1 << 20;
    for (std::size_t offset = 0; offset < size_; offset += kPiece)
      visit(offset, read(offset, size_ - offset < kPiece ? size_ - offset : kPiece));
  }

 private:
  struct File;

  std::shared_ptr<const File> file_;  ///< null: in memory
  std::shared_ptr<const void> owner_;
  const std::uint8_t* memory_ = nullptr;
  std::size_t begin_ = 0, size_ = 0;  ///< `begin_`: in the file
};

}  // namespace dtrain
