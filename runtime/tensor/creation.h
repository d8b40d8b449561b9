// Tensors made as one writes them in PyTorch: on the default device (defaults.h), the dtype taken from the
// numbers. Tensor's static members do the same on a device that is passed.
//
//     Tensor x = arange(12).reshape({3, 4});   // int64, as torch.arange(12)
//     Tensor w = randn({4, 1}).set_requires_grad();
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/tensor/defaults.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

Tensor zeros(const Dims& shape, DType dtype = DType::f32);
Tensor ones(const Dims& shape, DType dtype = DType::f32);
/// int64 for a whole number, else float32, unless a dtype is given.
Tensor full(const Dims& shape, Number value, std::optional<DType> dtype = std::nullopt);
Tensor zeros_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
Tensor ones_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
Tensor full_like(const Tensor& like, Number value, std::optional<DType> dtype = std::nullopt);

/// 0, 1, … before `end`; int64 if all numbers are whole, else float32.
Tensor arange(Number end);
/// start, start + step, … before `end`.
Tensor arange(Number start, Number end, Number step = 1);
/// `count` numbers from `start` to `end`, both included, at equal distances.
Tensor linspace(double start, double end, std::int64_t count);
Tensor eye(std::int64_t rows, std::optional<std::int64_t> columns = std::nullopt);

/// float32, uniform in [0, 1): as torch.rand, bit for bit.
Tensor rand(const Dims& shape, Generator& generator = default_generator());
/// float32, normal: as torch.randn; see Generator::normal.
Tensor randn(const Dims& shape, Generator& generator = default_generator());
/// int64, 0 … count - 1 in random order: as torch.randperm.
Tensor randperm(std::int64_t count, Generator& generator = default_generator());
/// int64, uniform in [low, high): as torch.randint. Throws UsageError unless low < high.
Tensor randint(std::int64_t low, std::int64_t high, const Dims& shape,
               Generator& generator = default_generator());

}  // namespace dtrain
