// Runs one kernel call on the CPU in float64 and on the GPU in the dtype under test, on the same values, and
// compares what it wrote.
#pragma once

#include <functional>
#include <vector>

#include "tests/unit/device/array.h"

namespace dtrain::test {

/// An argument: values, where they lie, and whether its dtype follows the one under test.
struct Arg {
  Array array;
  Layout layout = Layout::contiguous;
  bool follows = true;  ///< else f32 on the GPU, for per-channel arrays beside those of 16 bits
  bool is_null = false;
  bool stays = false;  ///< keeps its dtype on the GPU
};

inline Arg random_arg(const Dims& shape, Generator& generator, Layout layout = Layout::contiguous) {
  return {Array::random(shape, generator, DType::f64, layout), layout};
}
inline Arg zeros_arg(const Dims& shape, Layout layout = Layout::contiguous) {
  return {Array(shape, DType::f64, layout), layout};
}
/// Integers: dtypes stay as they are.
inline Arg integers_arg(const Dims& shape, DType dtype, const std::vector<double>& values) {
  Array array(shape, dtype);
  array.set(values);
  return {std::move(array)};
}
inline Arg null_arg() { return {Array({1}), Layout::contiguous, true, true}; }

using Call = std::function<void(Kernels&, const std::vector<View>&)>;

/// `call` gets the arguments' views in order and may write any of them. Afterwards each must equal the CPU's
/// within tolerance · max(1, |expected|).
inline void compare(Device& gpu, DType dtype, const std::vector<Arg>& args, double tolerance,
                    const std::string& what, const Call& call) {
  const auto cpu = make_device("cpu");
  std::vector<Array> wide, narrow;
  std::vector<View> cpu_views, gpu_views;
  for (const Arg& arg : args) {
    const bool floating = is_floating(arg.array.view().dtype) && !arg.stays;
    const DType follows = arg.follows || dtype == DType::f64 ? dtype : DType::f32;
    wide.push_back(arg.array.as(floating ? DType::f64 : arg.array.view().dtype, arg.layout));
    narrow.push_back(arg.array.as(floating ? follows : arg.array.view().dtype, arg.layout));
  }
  const auto bytes_of = [](const View& view) {
    return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
  };
  for (std::size_t i = 0; i < args.size(); ++i) {
    cpu_views.push_back(args[i].is_null ? View{} : wide[i].view());
    View on_gpu = args[i].is_null ? View{} : narrow[i].view();
    if (!args[i].is_null) {
      on_gpu.data = gpu.allocate(std::max<std::size_t>(bytes_of(on_gpu), 1));
      gpu.copy(on_gpu.data, narrow[i].view().data, bytes_of(on_gpu), CopyKind::host_to_device,
               gpu.compute_stream());
    }
    gpu_views.push_back(on_gpu);
  }
  call(cpu->kernels(), cpu_views);
  call(gpu.kernels(), gpu_views);
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].is_null) continue;
    gpu.copy(narrow[i].view().data, gpu_views[i].data, bytes_of(gpu_views[i]), CopyKind::device_to_host,
             gpu.compute_stream());
  }
  gpu.compute_stream().synchronize();
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].is_null) continue;
    gpu.deallocate(gpu_views[i].data, std::max<std::size_t>(bytes_of(gpu_views[i]), 1));
    const auto expected = wide[i].values(), got = narrow[i].values();
    for (std::size_t j = 0; j < expected.size(); ++j) {
      const double room = tolerance * std::max(1.0, std::abs(expected[j]));
      if (got[j] == expected[j] || (std::isnan(got[j]) && std::isnan(expected[j])))
        continue;  // infinities too
      if (std::abs(got[j] - expected[j]) <= room) continue;
      FAIL() << what << " (" << name_of(dtype) << "): argument " << i << ", element " << j << ": expected "
             << expected[j] << " within " << room << ", got " << got[j];
    }
  }
}

/// Bound for a sum of `terms` products of values in [-1, 1), accumulated in f32 and stored in `dtype`.
inline double bound_of(DType dtype, std::int64_t terms = 1) {
  const double size = std::sqrt(static_cast<double>(terms));
  if (dtype == DType::f64) return 1e-12 * size;
  if (dtype == DType::bf16) return 1.0 / 64 + 1.0 / 128 * size;
  return dtype == DType::f16 ? 1.0 / 512 + 1.0 / 1024 * size : 2e-6 * size + 2e-6;
}

}  // namespace dtrain::test
