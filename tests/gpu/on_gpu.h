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

/// Copies the arguments' arrays to `gpu`, calls `call` with the views there in order and copies all of them
/// back.
inline void run_on(Device& gpu, const std::vector<Arg>& args, std::vector<Array>& arrays, const Call& call) {
  const auto bytes_of = [](const View& view) {
    return static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
  };
  std::vector<View> views;
  for (std::size_t i = 0; i < args.size(); ++i) {
    View view = args[i].is_null ? View{} : arrays[i].view();
    if (!args[i].is_null) {
      view.data = gpu.allocate(std::max<std::size_t>(bytes_of(view), 1));
      gpu.copy(view.data, arrays[i].view().data, bytes_of(view), CopyKind::host_to_device,
               gpu.compute_stream());
    }
    views.push_back(view);
  }
  call(gpu.kernels(), views);
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].is_null) continue;
    gpu.copy(arrays[i].view().data, views[i].data, bytes_of(views[i]), CopyKind::device_to_host,
             gpu.compute_stream());
  }
  gpu.compute_stream().synchronize();
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (!args[i].is_null) gpu.deallocate(views[i].data, std::max<std::size_t>(bytes_of(views[i]), 1));
  }
}

/// `call` gets the arguments' views in order and may write any of them. Afterwards each must equal the CPU's
/// within tolerance · max(1, |expected|).
inline void compare(Device& gpu, DType dtype, const std::vector<Arg>& args, double tolerance,
                    const std::string& what, const Call& call) {
  const auto cpu = make_device("cpu");
  std::vector<Array> wide, narrow;
  std::vector<View> cpu_views;
  for (const Arg& arg : args) {
    const bool floating = is_floating(arg.array.view().dtype) && !arg.stays;
    const DType follows = arg.follows || dtype == DType::f64 ? dtype : DType::f32;
    wide.push_back(arg.array.as(floating ? DType::f64 : arg.array.view().dtype, arg.layout));
    narrow.push_back(arg.array.as(floating ? follows : arg.array.view().dtype, arg.layout));
    cpu_views.push_back(arg.is_null ? View{} : wide.back().view());
  }
  call(cpu->kernels(), cpu_views);
  run_on(gpu, args, narrow, call);
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].is_null) continue;
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
