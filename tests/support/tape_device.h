// A device with graphs for machines without a GPU: the CPU's kernels, which while record() lasts go to a tape
// instead of running, with the numbers they were given, as CUDA would keep them. Memory that was given back
// is overwritten, and a wait while recording is an error, so that what would be wrong on a GPU is wrong here.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dtrain::test {

/// What was recorded.
struct Tape {
  bool recording = false;
  std::vector<std::function<void()>> work;

  void run(std::function<void()> call) {
    if (!recording) return call();
    work.push_back(std::move(call));
  }
  void refuse_wait() const {
    if (recording) throw DeviceError("the host waits for the device while a graph is recorded", 1);
  }
};

/// Copies of a kernel's arguments that outlive the call: a span's elements come with it.
template <class T>
T kept(const T& argument) {
  return argument;
}
template <class T>
std::vector<T> kept(std::span<const T> argument) {
  return {argument.begin(), argument.end()};
}
template <class... T>
auto keep(const T&... arguments) {
  return std::make_tuple(kept(arguments)...);
}

class TapeKernels final : public Kernels {
 public:
  TapeKernels(Kernels& inner, Tape& tape) : inner_(inner), tape_(tape) {}

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments)                        \
  void name parameters override {                                                      \
    tape_.run([this, kept = keep arguments] {                                          \
      std::apply([this](const auto&... argument) { inner_.name(argument...); }, kept); \
    });                                                                                \
  }
#include "runtime/device/kernels.def"

 private:
  Kernels& inner_;
  Tape& tape_;
};

class TapeStream final : public Stream {
 public:
  explicit TapeStream(Tape& tape) : tape_(tape) {}
  void synchronize() override { tape_.refuse_wait(); }

 private:
  Tape& tape_;
};

class TapeEvent final : public Event {
 public:
  explicit TapeEvent(Tape& tape) : tape_(tape) {}
  void record(Stream&) override {}
  void make_wait(Stream&) override {}
  bool done() override {
    tape_.refuse_wait();
    return true;
  }

 private:
  Tape& tape_;
};

/// Says that it is a GPU, so that what is written for GPUs runs.
class TapeDevice final : public Device {
 public:
  ~TapeDevice() override {
    for (const auto& [memory, bytes] : of_graphs_) inner_->deallocate(memory, bytes);
  }

  DeviceType type() const noexcept override { return DeviceType::cuda; }
  bool runs_ahead() const noexcept override { return true; }
  int index() const noexcept override { return 0; }
  std::string name() const override { return "tape"; }

  void* allocate(std::size_t bytes) override {
    void* const memory = inner_->allocate(bytes);
    if (tape_.recording) of_graphs_[memory] = bytes;
    return memory;
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    if (memory == nullptr || of_graphs_.contains(memory)) return;
    if (tape_.recording) {
      of_graphs_[memory] = bytes;
      return;
    }
    std::memset(memory, 0xff, bytes);
    inner_->deallocate(memory, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override { return inner_->allocate_pinned(bytes); }
  void deallocate_pinned(void* memory, std::size_t bytes) noexcept override {
    if (memory != nullptr) std::memset(memory, 0xff, bytes);
    inner_->deallocate_pinned(memory, bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes, CopyKind, Stream&) override {
    tape_.run([=] {
      if (bytes != 0) std::memcpy(to, from, bytes);
    });
  }
  Stream& compute_stream() noexcept override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<TapeStream>(tape_); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<TapeEvent>(tape_); }
  Kernels& kernels() noexcept override { return kernels_; }

  bool has_graphs() const noexcept override { return true; }
  std::unique_ptr<Graph> record(const std::function<void()>& work) override {
    tape_.work.clear();
    tape_.recording = true;
    try {
      work();
    } catch (...) {
      tape_.recording = false;
      throw;
    }
    tape_.recording = false;
    ++graphs;
    return std::make_unique<TapeGraph>(*this, std::move(tape_.work));
  }

  std::size_t allocated_bytes() const noexcept override { return inner_->allocated_bytes(); }
  std::size_t peak_allocated_bytes() const noexcept override { return inner_->peak_allocated_bytes(); }

  int graphs = 0, launches = 0;  ///< recorded; launched

 private:
  class TapeGraph final : public Graph {
   public:
    TapeGraph(TapeDevice& device, std::vector<std::function<void()>> work)
        : device_(device), work_(std::move(work)) {}
    void launch(Stream&) override {
      ++device_.launches;
      for (const auto& call : work_) call();
    }

   private:
    TapeDevice& device_;
    std::vector<std::function<void()>> work_;
  };

  std::shared_ptr<Device> inner_ = make_device("cpu");
  Tape tape_;
  TapeKernels kernels_{inner_->kernels(), tape_};
  TapeStream stream_{tape_};
  std::map<void*, std::size_t> of_graphs_;  ///< memory graphs may use, kept as long as the device
};

}  // namespace dtrain::test
