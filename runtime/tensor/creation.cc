// Tensors of known and of random content.
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
  if (!(steps >= 0 && steps < 0x1p53)) {
    throw UsageError("arange: expected a step that leads from " + std::to_string(start) + " to " +
                     std::to_string(end) + ", got " + std::to_string(step));
  }
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

}  // namespace dtrain
