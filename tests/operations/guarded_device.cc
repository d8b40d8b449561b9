#include "tests/operations/guarded_device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace dtrain::test {
namespace {

constexpr std::size_t kGuard = 256;      ///< bytes on each side, a multiple of the alignment
constexpr unsigned char kPoison = 0xff;  ///< inside as well: what is read there is NaN

bool is_whole(const unsigned char* guard) {
  return std::all_of(guard, guard + kGuard, [](unsigned char byte) { return byte == kPoison; });
}

const char* listed(UnaryOp op) {
  static const char* const kNames[] = {
#define DTRAIN_UNARY(name, Functor) #name,
#include "runtime/device/kernels.def"
  };
  return kNames[static_cast<std::size_t>(op)];
}
const char* listed(BinaryOp op) {
  static const char* const kNames[] = {
#define DTRAIN_BINARY(name, Functor) #name,
#include "runtime/device/kernels.def"
  };
  return kNames[static_cast<std::size_t>(op)];
}
const char* listed(ParametricOp op) {
  static const char* const kNames[] = {
#define DTRAIN_PARAMETRIC(name, formula) #name,
#include "runtime/device/kernels.def"
  };
  return kNames[static_cast<std::size_t>(op)];
}

/// Runs the CPU's kernels and keeps their names.
class ListedKernels final : public Kernels {
 public:
  explicit ListedKernels(Kernels& inner) : inner_(inner) {}
  std::set<std::string> called;

#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) \
  void name parameters override {                               \
    note(#name) arguments;                                      \
    inner_.name arguments;                                      \
  }
#include "runtime/device/kernels.def"

 private:
  struct Lister {
    std::set<std::string>& called;
    std::string kernel;
    template <class First, class... Rest>
    void operator()(const First& first, const Rest&...) const {
      if constexpr (requires { listed(first); })
        called.insert(kernel + " " + listed(first));
      else
        called.insert(kernel);
    }
  };
  Lister note(const char* kernel) { return {called, kernel}; }

  Kernels& inner_;
};

class Guarded final : public GuardedDevice {
 public:
  explicit Guarded(DeviceType type) : type_(type) {}
  DeviceType type() const noexcept override { return type_; }
  int index() const noexcept override { return cpu_->index(); }
  std::string name() const override { return cpu_->name(); }

  void* allocate(std::size_t bytes) override {
    if (bytes > SIZE_MAX - 2 * kGuard) return cpu_->allocate(bytes);  // throws
    auto* const memory = static_cast<unsigned char*>(cpu_->allocate(bytes + 2 * kGuard));
    std::memset(memory, kPoison, bytes + 2 * kGuard);
    return memory + kGuard;
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    if (memory == nullptr) return;
    auto* const whole = static_cast<unsigned char*>(memory) - kGuard;
    overrun_ = overrun_ || !is_whole(whole) || !is_whole(whole + kGuard + bytes);
    cpu_->deallocate(whole, bytes + 2 * kGuard);
  }
  void* allocate_pinned(std::size_t bytes) override { return cpu_->allocate_pinned(bytes); }
  void deallocate_pinned(void* memory, std::size_t bytes) noexcept override {
    cpu_->deallocate_pinned(memory, bytes);
  }

  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind, Stream& stream) override {
    cpu_->copy(to, from, bytes, kind, stream);
  }
  Stream& compute_stream() noexcept override { return cpu_->compute_stream(); }
  std::unique_ptr<Stream> make_stream() override { return cpu_->make_stream(); }
  std::unique_ptr<Event> make_event() override { return cpu_->make_event(); }
  Kernels& kernels() noexcept override { return kernels_; }
  bool runs_ahead() const noexcept override { return cpu_->runs_ahead(); }
  bool has_graphs() const noexcept override { return cpu_->has_graphs(); }
  std::unique_ptr<Graph> record(const std::function<void()>& work) override { return cpu_->record(work); }
  std::size_t allocated_bytes() const noexcept override { return cpu_->allocated_bytes(); }
  std::size_t peak_allocated_bytes() const noexcept override { return cpu_->peak_allocated_bytes(); }

  bool take_overrun() noexcept override { return std::exchange(overrun_, false); }
  const std::set<std::string>& called() const noexcept override { return kernels_.called; }

 private:
  std::shared_ptr<Device> cpu_ = make_device("cpu");
  ListedKernels kernels_{cpu_->kernels()};
  DeviceType type_;
  bool overrun_ = false;
};

}  // namespace

std::shared_ptr<GuardedDevice> make_guarded_device(DeviceType type) {
  return std::make_shared<Guarded>(type);
}

std::set<std::string> all_kernels() {
  std::set<std::string> all = {
#define DTRAIN_UNARY(name, Functor) "unary " #name,
#define DTRAIN_BINARY(name, Functor) "binary " #name,
#define DTRAIN_PARAMETRIC(name, formula) "parametric " #name,
#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) #name,
#include "runtime/device/kernels.def"
  };
  for (const char* const family : {"unary", "binary", "parametric"}) all.erase(family);
  return all;
}

}  // namespace dtrain::test
