// One owning-handle template for everything that must be released exactly once: descriptors, processes,
// streams, events, communicators. Raw handles never outlive a function; borrowers take `get()`.
#pragma once

#include <utility>

namespace dtrain {

/// Traits: `using Handle = …; static Handle invalid() noexcept; static void close(Handle) noexcept;`
template <class Traits>
class Unique {
 public:
  using Handle = typename Traits::Handle;

  Unique() noexcept = default;
  explicit Unique(Handle handle) noexcept : handle_(handle) {}
  Unique(Unique&& other) noexcept : handle_(other.release()) {}
  Unique& operator=(Unique&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Unique(const Unique&) = delete;
  Unique& operator=(const Unique&) = delete;
  ~Unique() { reset(); }

  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Traits::invalid(); }

  /// Gives the handle up without releasing it; the caller owns it now.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Traits::invalid()); }

  /// Releases what is held and takes `handle`.
  void reset(Handle handle = Traits::invalid()) noexcept {
    Handle old = std::exchange(handle_, handle);
    if (old != Traits::invalid()) Traits::close(old);
  }

 private:
  Handle handle_ = Traits::invalid();
};

}  // namespace dtrain
