// A snapshot whose memory stays as it is while it is written: a copy, or tensors that nobody changes any
// more. Internal to runtime/checkpoint.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint_store.h"

namespace dtrain {

/// Its memory only ever grows: the next save finds pages that are already there.
class TakenSnapshot {
 public:
  /// Copies everything `source` refers to.
  void copy(const Snapshot& source) {
    owner_ = nullptr;
    reserve(bytes_of(source.model) + bytes_of(source.optimizer));
    taken_.state = source.state;
    std::size_t at = 0;
    copy(source.model, taken_.model, at);
    copy(source.optimizer, taken_.optimizer, at);
  }
  /// Refers to what `source` refers to, and keeps `owner` alive, which has that memory.
  void keep(const Snapshot& source, std::shared_ptr<const void> owner) {
    taken_ = source;
    owner_ = std::move(owner);
  }
  const Snapshot& snapshot() const noexcept { return taken_; }

 private:
  static constexpr std::size_t kAlignment = 16;  // what operator new[] gives, and more than any dtype needs

  static std::size_t bytes_of(const View& view) {
    const std::size_t bytes = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  static std::size_t bytes_of(const std::vector<NamedView>& tensors) {
    std::size_t bytes = 0;
    for (const auto& tensor : tensors) bytes += bytes_of(tensor.view);
    return bytes;
  }
  void reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    capacity_ = bytes;
  }
  void copy(const std::vector<NamedView>& source, std::vector<NamedView>& target, std::size_t& at) {
    target = source;
    for (auto& tensor : target) {
      View& view = tensor.view;
      const std::size_t bytes = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
      if (bytes != 0) std::memcpy(memory_.get() + at, view.data, bytes);
      view.data = memory_.get() + at;
      at += bytes_of(view);
    }
  }

  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
  std::shared_ptr<const void> owner_;  ///< null: taken_ is in memory_
  Snapshot taken_;
};

}  // namespace dtrain
