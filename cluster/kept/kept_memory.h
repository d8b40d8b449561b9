// Memory that outlives the processes that write it: a process makes it and shares it with the children that
// it forks one after another. A writer may be killed at any instruction; what was there before stays
// readable.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace dtrain {

/// Pages of zeros, shared with every child forked later. Only those that are written take memory.
class SharedPages {
 public:
  /// Throws SystemError.
  explicit SharedPages(std::size_t bytes);
  ~SharedPages();
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  char* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  char* data_ = nullptr;
  std::size_t size_;
};

/// One value that is replaced whole. One thread of one process writes at a time.
class Keepsake {
 public:
  /// Values have at most `capacity` bytes. Throws SystemError.
  explicit Keepsake(std::size_t capacity);
  /// Of one that is too long nothing is kept, nor of the value before.
  void put(std::string_view value) noexcept;
  /// Empty: there is none.
  std::string get() const;

 private:
  struct Header;
  Header& header() const noexcept;

  std::size_t capacity_;
  SharedPages pages_;
};

/// Records in the order in which they were appended. One thread of one process writes at a time.
class Journal {
 public:
  /// All records together have at most `capacity` bytes, with 8 more for each. Throws SystemError.
  explicit Journal(std::size_t capacity);
  /// Whole or not at all. After the first one that does not fit nothing is appended any more.
  void append(std::string_view record) noexcept;
  /// Nothing has been left out.
  bool whole() const noexcept;
  bool empty() const noexcept;
  /// Views are valid until the journal goes.
  void read(const std::function<void(std::string_view record)>& use) const;

 private:
  struct Header;
  Header& header() const noexcept;

  SharedPages pages_;
};

}  // namespace dtrain
