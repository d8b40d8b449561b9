// A device that has only pinned memory and counts it: all a loader may ask for.
#pragma once

#include <atomic>
#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dtrain::test {

class PinnedOnlyDevice final : public Device {
 public:
  DeviceType type() const noexcept override { return DeviceType::cpu; }
  bool runs_ahead() const noexcept override { return false; }
  int index() const noexcept override { return 0; }
  std::string name() const override { return "pinned memory only"; }
  void* allocate(std::size_t) override { refuse(); }
  void deallocate(void*, std::size_t) noexcept override {}
  void* allocate_pinned(std::size_t bytes) override {
    if (limit >= 0 && allocations >= limit) throw DeviceError("no pinned memory left", 2);
    ++allocations;
    ++live;
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void deallocate_pinned(void* memory, std::size_t) noexcept override {
    --live;
    std::free(memory);
  }
  void copy(void*, const void*, std::size_t, CopyKind, Stream&) override { refuse(); }
  Stream& compute_stream() noexcept override { std::abort(); }
  std::unique_ptr<Stream> make_stream() override { refuse(); }
  std::unique_ptr<Event> make_event() override { refuse(); }
  Kernels& kernels() noexcept override { std::abort(); }
  bool has_graphs() const noexcept override { return false; }
  std::unique_ptr<Graph> record(const std::function<void()>&) override { refuse(); }
  std::size_t allocated_bytes() const noexcept override { return 0; }
  std::size_t peak_allocated_bytes() const noexcept override { return 0; }

  std::atomic<int> allocations = 0;  ///< ever
  std::atomic<int> live = 0;         ///< not given back
  std::atomic<int> limit = -1;       ///< allocations allowed; -1 for any number

 private:
  [[noreturn]] static void refuse() { throw DeviceError("the loader must not ask the device for this", 1); }
};

}  // namespace dtrain::test
