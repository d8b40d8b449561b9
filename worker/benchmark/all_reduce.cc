#include "worker/benchmark/all_reduce.h"

#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "worker/benchmark/samples.h"

namespace dtrain {
namespace {

// Element i of rank r is (i + r) mod 3: neighbours and ranks differ, so that a part from the wrong rank or
// place is found.
constexpr std::size_t kPeriod = 3;
using Bytes = std::vector<std::byte>;

template <class T>
void store(std::int64_t value, std::byte* to) {
  const T typed = [&] {
    if constexpr (std::is_class_v<T>) return T(static_cast<float>(value));
    if constexpr (!std::is_class_v<T>) return static_cast<T>(value);
  }();
  std::memcpy(to, &typed, sizeof typed);
}

void store(DType dtype, std::int64_t value, std::byte* to) {
  switch (dtype) {
    case DType::f32:
      return store<float>(value, to);
    case DType::f64:
      return store<double>(value, to);
    case DType::bf16:
      return store<BFloat16>(value, to);
    case DType::i64:
      return store<std::int64_t>(value, to);
    case DType::i32:
      return store<std::int32_t>(value, to);
    case DType::u8:
      return store<std::uint8_t>(value, to);
    case DType::f16:
      return store<Float16>(value, to);
    case DType::i16:
      return store<std::int16_t>(value, to);
    case DType::i8:
      return store<std::int8_t>(value, to);
    case DType::boolean:
      return store<bool>(value, to);
  }
}

// `count` elements that repeat `period`.
Bytes repeated(DType dtype, const std::array<std::int64_t, kPeriod>& period, std::size_t count) {
  const std::size_t width = size_of(dtype);
  Bytes bytes(count * width);
  for (std::size_t i = 0; i < count; ++i) store(dtype, period[i % kPeriod], bytes.data() + i * width);
  return bytes;
}

std::int64_t contribution(int rank, std::size_t place) {
  return static_cast<std::int64_t>((place + static_cast<std::size_t>(rank)) % kPeriod);
}

/// The memory the calls work on, and what it should hold.
class Subject {
 public:
  Subject(Communicator& communicator, const std::shared_ptr<Device>& device, std::size_t count, DType dtype)
      : communicator_(communicator), device_(device), count_(count), dtype_(dtype) {
    std::array<std::int64_t, kPeriod> mine{}, sums{};
    for (std::size_t place = 0; place < kPeriod; ++place) {
      mine[place] = contribution(communicator.rank(), place);
      for (int rank = 0; rank < communicator.size(); ++rank) sums[place] += contribution(rank, place);
    }
    mine_ = repeated(dtype, mine, count);
    sum_ = repeated(dtype, sums, count);
    memory_ = std::shared_ptr<void>(device->allocate(bytes()),
                                    [device, size = bytes()](void* data) { device->deallocate(data, size); });
  }

  std::size_t bytes() const noexcept { return count_ * size_of(dtype_); }

  void sum(Duration timeout) {
    communicator_.all_reduce({memory_.get(), count_, dtype_, device_.get(), nullptr}, ReduceOp::sum, "bench")
        ->wait(Deadline::after(timeout));
  }

  void load(const Bytes& values) {
    device_->copy(memory_.get(), values.data(), bytes(), CopyKind::host_to_device, device_->compute_stream());
    device_->compute_stream().synchronize();
  }

  // Zeros stay zeros however often they are summed.
  void clear() { load(Bytes(bytes())); }

  // One all_reduce of known values; how many elements of this rank are not what they should be.
  std::int64_t count_wrong(Duration timeout) {
    load(mine_);
    sum(timeout);
    Bytes got(bytes());
    device_->copy(got.data(), memory_.get(), bytes(), CopyKind::device_to_host, device_->compute_stream());
    device_->compute_stream().synchronize();
    const std::size_t width = size_of(dtype_);
    std::int64_t wrong = 0;
    for (std::size_t at = 0; at < bytes(); at += width)
      wrong += std::memcmp(got.data() + at, sum_.data() + at, width) != 0 ? 1 : 0;
    return wrong;
  }

 private:
  Communicator& communicator_;
  std::shared_ptr<Device> device_;
  std::size_t count_;
  DType dtype_;
  Bytes mine_, sum_;
  std::shared_ptr<void> memory_;
};

}  // namespace

AllReduceResult measure_all_reduce(Communicator& communicator, const std::shared_ptr<Device>& device,
                                   std::size_t count, const AllReducePlan& plan) {
  Subject subject(communicator, device, count, plan.dtype);
  std::int64_t wrong = subject.count_wrong(plan.timeout);
  subject.clear();
  for (int i = 0; i < plan.warmup; ++i) subject.sum(plan.timeout);
  std::vector<double> seconds;
  for (int i = 0; i < plan.iterations; ++i)
    seconds.push_back(seconds_of(*device, [&] { subject.sum(plan.timeout); }));
  wrong += subject.count_wrong(plan.timeout);

  const Deadline deadline = Deadline::after(plan.timeout);
  take_slowest_rank(communicator, seconds, deadline);
  communicator.all_reduce({.data = &wrong, .count = 1, .dtype = DType::i64}, ReduceOp::sum, "wrong")
      ->wait(deadline);
  return {count, plan.dtype, communicator.size(), median(seconds), least(seconds), wrong};
}

}  // namespace dtrain
