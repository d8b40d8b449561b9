// Tensors of known and of random content, on a device that is passed and on the default one.
#include "runtime/tensor/creation.h"

#include <cmath>
#include <string>

#include "runtime/base/error.h"
#include "runtime/tensor/checks.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {
namespace {

void check_random_dtype(std::string_view name, DType dtype) {
  if (dtype == DType::f32 || dtype == DType::f64) return;
  throw UsageError(std::string(name) + ": random numbers are float32 or float64, got " +
                   std::string(name_of(dtype)) + "; draw in float32 and convert with to()");
}

template <class T>
[[noreturn]] void refuse_step(T start, T end, T step) {
  throw UsageError("arange: expected a step that leads from " + std::to_string(start) + " to " +
                   std::to_string(end) + ", got " + std::to_string(step));
}

/// What `draw(span)` puts into memory for `shape` elements of T.
template <class T, class Draw>
Tensor drawn(const Dims& shape, const std::shared_ptr<Device>& device, Draw draw) {
  check_extents("tensor shape", shape, sizeof(T));
  auto values = host_values<T>(shape.product());
  draw(std::span<T>(values));
  return Tensor::from_data(values, shape, device);
}

template <class Draw>
Tensor drawn(std::string_view name, DType dtype, const Dims& shape, const std::shared_ptr<Device>& device,
             Draw draw) {
  check_random_dtype(name, dtype);
  return dtype == DType::f64 ? drawn<double>(shape, device, draw) : drawn<float>(shape, device, draw);
}

}  // namespace

Tensor::Tensor(const NumberList& values) : Tensor(values, default_device()) {}

Tensor::Tensor(const NumberList& values, const std::shared_ptr<Device>& device) {
  const std::vector<Number>& numbers = values.numbers();
  auto whole = host_values<std::int64_t>(static_cast<std::int64_t>(numbers.size()));
  auto real = host_values<double>(static_cast<std::int64_t>(numbers.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    real[i] = numbers[i].real();
    if (numbers[i].is_whole()) whole[i] = numbers[i].whole();
  }
  const Tensor made = is_floating(values.dtype()) ? from_data(real, values.shape(), device)
                                                  : from_data(whole, values.shape(), device);
  body_ = made.to(values.dtype()).body_;
}

Tensor Tensor::full(const Dims& shape, double value, const std::shared_ptr<Device>& device, DType dtype) {
  Tensor result = empty(shape, device, dtype);
  device->kernels().fill(result.view(), value);
  return result;
}

Tensor Tensor::zeros(const Dims& shape, const std::shared_ptr<Device>& device, DType dtype) {
  return full(shape, 0.0, device, dtype);
}

Tensor Tensor::ones(const Dims& shape, const std::shared_ptr<Device>& device, DType dtype) {
  return full(shape, 1.0, device, dtype);
}

Tensor Tensor::full_like(const Tensor& like, double value, std::optional<DType> dtype) {
  return full(like.shape(), value, like.shared_device(), dtype.value_or(like.dtype()));
}

Tensor Tensor::zeros_like(const Tensor& like, std::optional<DType> dtype) {
  return full_like(like, 0.0, dtype);
}

Tensor Tensor::ones_like(const Tensor& like, std::optional<DType> dtype) {
  return full_like(like, 1.0, dtype);
}

Tensor Tensor::arange(double start, double end, double step, const std::shared_ptr<Device>& device,
                      DType dtype) {
  const double steps = std::ceil((end - start) / step);
  if (!(steps >= 0 && steps < 0x1p53)) refuse_step(start, end, step);
  auto values = host_values<double>(static_cast<std::int64_t>(steps));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = start + step * static_cast<double>(i);
  return from_data(values, {static_cast<std::int64_t>(values.size())}, device).to(dtype);
}

// Where steps are recorded the numbers are made on the device: a recording would copy them from host memory
// that is gone when it runs again.
Tensor Tensor::arange(std::int64_t count, const std::shared_ptr<Device>& device, DType dtype) {
  if (device != nullptr && device->has_graphs() && count > 0) {
    const Tensor ones = Tensor::ones({count}, device, DType::i64),
                 places = empty({count}, device, DType::i64);
    device->kernels().cumsum(ones.view(), 0, false, places.view());
    device->kernels().affine(places.view(), 1.0, -1.0, places.view());
    return places.to(dtype);
  }
  return arange(0.0, static_cast<double>(count), 1.0, device, dtype);
}

Tensor Tensor::linspace(double start, double end, std::int64_t count, const std::shared_ptr<Device>& device,
                        DType dtype) {
  if (count < 0) throw UsageError("linspace: expected 0 numbers or more, got " + std::to_string(count));
  auto values = host_values<double>(count);
  const double step = count > 1 ? (end - start) / static_cast<double>(count - 1) : 0;
  // From both ends, as PyTorch: both are exact, and the numbers lie alike around the middle.
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = i < (count + 1) / 2
                                              ? start + step * static_cast<double>(i)
                                              : end - step * static_cast<double>(count - 1 - i);
  }
  return from_data(values, {count}, device).to(dtype);
}

Tensor Tensor::randperm(std::int64_t count, Generator& generator, const std::shared_ptr<Device>& device) {
  return from_data(generator.permutation(count), {count}, device);
}

Tensor Tensor::randint(std::int64_t low, std::int64_t high, const Dims& shape, Generator& generator,
                       const std::shared_ptr<Device>& device) {
  if (low >= high) {
    throw UsageError("randint: expected low below high, got " + std::to_string(low) + " and " +
                     std::to_string(high));
  }
  check_extents("tensor shape", shape, sizeof(std::int64_t));
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  constexpr std::uint64_t kTakesMoreBits = std::uint64_t{1} << 28U;  // PyTorch's
  auto values = host_values<std::int64_t>(shape.product());
  for (std::int64_t& value : values) {
    const std::uint64_t draw = range < kTakesMoreBits ? generator.next32() : generator.next64();
    value = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + draw % range);
  }
  return from_data(values, shape, device);
}

Tensor Tensor::eye(std::int64_t rows, std::int64_t columns, const std::shared_ptr<Device>& device,
                   DType dtype) {
  Tensor result = zeros({rows, columns}, device, dtype);
  const std::int64_t length = std::min(rows, columns);
  const View& whole = result.view();
  device->kernels().fill(View{whole.data, dtype, {length}, {columns + 1}}, 1.0);
  return result;
}

Tensor Tensor::rand(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device, float low,
                    float high) {
  return drawn<float>(shape, device, [&](std::span<float> values) { generator.uniform(values, low, high); });
}

Tensor Tensor::randn(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device,
                     DType dtype) {
  return drawn("randn", dtype, shape, device, [&](auto values) { generator.normal(values, 0.0, 1.0); });
}

void Tensor::fill_uniform(Generator& generator, double low, double high) {
  copy_from(drawn("fill_uniform", dtype(), shape(), shared_device(), [&]<class T>(std::span<T> values) {
    generator.uniform(values, static_cast<T>(low), static_cast<T>(high));
  }));
}

void Tensor::fill_normal(Generator& generator, double mean, double deviation) {
  copy_from(drawn("fill_normal", dtype(), shape(), shared_device(),
                  [&](auto values) { generator.normal(values, mean, deviation); }));
}

namespace {

DType dtype_for(Number value) { return value.is_whole() ? DType::i64 : DType::f32; }

/// `value` as one element of `dtype`, exact where it is whole.
Tensor filled(const Dims& shape, Number value, DType dtype, const std::shared_ptr<Device>& device) {
  if (dtype != DType::i64 || !value.is_whole()) return Tensor::full(shape, value.real(), device, dtype);
  return Tensor::from_data({value.whole()}, {}, device).expand(shape).contiguous();
}

}  // namespace

Tensor zeros(const Dims& shape, DType dtype) { return Tensor::zeros(shape, default_device(), dtype); }

Tensor ones(const Dims& shape, DType dtype) { return Tensor::ones(shape, default_device(), dtype); }

Tensor full(const Dims& shape, Number value, std::optional<DType> dtype) {
  return filled(shape, value, dtype.value_or(dtype_for(value)), default_device());
}

Tensor zeros_like(const Tensor& like, std::optional<DType> dtype) { return Tensor::zeros_like(like, dtype); }

Tensor ones_like(const Tensor& like, std::optional<DType> dtype) { return Tensor::ones_like(like, dtype); }

Tensor full_like(const Tensor& like, Number value, std::optional<DType> dtype) {
  return filled(like.shape(), value, dtype.value_or(like.dtype()), like.shared_device());
}

namespace {

/// arange() of int64, not all of which are doubles. Differences need a bit more: they are unsigned here.
Tensor whole_numbers(std::int64_t start, std::int64_t end, std::int64_t step) {
  const auto from = static_cast<std::uint64_t>(start), stride = static_cast<std::uint64_t>(step);
  const std::uint64_t distance =
      step > 0 ? static_cast<std::uint64_t>(end) - from : from - static_cast<std::uint64_t>(end);
  const std::uint64_t length = step > 0 ? stride : -stride;
  if (step == 0 || (step > 0 ? end < start : end > start)) refuse_step(start, end, step);
  const std::uint64_t count = distance / length + (distance % length == 0 ? 0 : 1);
  auto values = host_values<std::int64_t>(static_cast<std::int64_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(from + stride * i);
  return Tensor::from_data(values, {static_cast<std::int64_t>(values.size())}, default_device());
}

}  // namespace

Tensor arange(Number end) { return arange(0, end, 1); }

Tensor arange(Number start, Number end, Number step) {
  if (start.is_whole() && end.is_whole() && step.is_whole())
    return whole_numbers(start.whole(), end.whole(), step.whole());
  return Tensor::arange(start.real(), end.real(), step.real(), default_device(), DType::f32);
}

Tensor linspace(double start, double end, std::int64_t count) {
  return Tensor::linspace(start, end, count, default_device());
}

Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns) {
  return Tensor::eye(rows, columns.value_or(rows), default_device());
}

Tensor rand(const Dims& shape, Generator& generator) {
  return Tensor::rand(shape, generator, default_device());
}

Tensor randn(const Dims& shape, Generator& generator) {
  return Tensor::randn(shape, generator, default_device());
}

Tensor randperm(std::int64_t count, Generator& generator) {
  return Tensor::randperm(count, generator, default_device());
}

Tensor randint(std::int64_t low, std::int64_t high, const Dims& shape, Generator& generator) {
  return Tensor::randint(low, high, shape, generator, default_device());
}

}  // namespace dtrain
