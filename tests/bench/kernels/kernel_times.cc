// One kernel of the CPU device by itself, for tests/bench/peer/kernels.py, which runs PyTorch's in turns with
// it.
//
//   kernel_times NAME BYTES SECONDS   CPU seconds of this thread a call, the least of batches of calls that
//   take SECONDS kernel_times values NAME          the function's results (f32, raw) for every 4093rd float
//   by its bits, to stdout kernel_times list                 the names
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/device/device.h"

namespace dtrain {
namespace {

constexpr std::int64_t kColumns = 256;

/// Arrays of one benchmark, and the kernels to call on them.
class Arrays {
 public:
  explicit Arrays(std::int64_t elements)
      : count(elements), rows(std::max<std::int64_t>(1, elements / kColumns)) {}
  ~Arrays() {
    for (const auto& [memory, bytes] : memory_) device_->deallocate(memory, bytes);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  Kernels& kernels() { return device_->kernels(); }
  /// Numbers from -4 to 4, or labels of 0.
  View array(const Dims& shape, DType dtype = DType::f32) {
    const auto numel = static_cast<std::size_t>(shape.product());
    const std::size_t bytes = numel * size_of(dtype);
    View view{device_->allocate(bytes), dtype, shape, contiguous_strides(shape)};
    memory_.emplace_back(view.data, bytes);
    if (dtype == DType::f32) {
      generator_.uniform(std::span(view.as<float>(), numel), -4.0F, 4.0F);
    } else {
      kernels().fill(view, 0);
    }
    return view;
  }
  View flat(DType dtype = DType::f32) { return array({count}, dtype); }
  View matrix(DType dtype = DType::f32) { return array({rows, kColumns}, dtype); }

  const std::int64_t count, rows;

 private:
  std::shared_ptr<Device> device_ = make_device("cpu");
  Generator generator_{1};
  std::vector<std::pair<void*, std::size_t>> memory_;
};

using Call = std::function<void()>;
using Make = std::function<Call(Arrays&)>;

Make unary(UnaryOp op) {
  return [op](Arrays& a) -> Call {
    const View in = a.flat(), out = a.flat();
    if (op == UnaryOp::log || op == UnaryOp::log1p || op == UnaryOp::sqrt)
      a.kernels().unary(UnaryOp::abs, in, in);
    return [&a, op, in, out] { a.kernels().unary(op, in, out); };
  };
}

Make binary(BinaryOp op) {
  return [op](Arrays& a) -> Call {
    const View x = a.flat(), y = a.flat(), out = a.flat();
    return [&a, op, x, y, out] { a.kernels().binary(op, x, y, out); };
  };
}

/// Over all elements, over each row or over each column.
Make reduction(Reduction op, bool over_rows, bool over_columns) {
  return [=](Arrays& a) -> Call {
    const View in = a.matrix();
    const View out = a.array({over_columns ? 1 : a.rows, over_rows ? 1 : kColumns});
    return [&a, op, in, out] { a.kernels().reduce(op, in, out); };
  };
}

Make conversion(DType from, DType to) {
  return [=](Arrays& a) -> Call {
    const View in = a.flat(from), out = a.flat(to);
    return [&a, in, out] { a.kernels().copy(in, out); };
  };
}

Call cross_entropy(Arrays& a, bool backward) {
  const View logits = a.matrix(), log_probs = a.matrix(), grad = a.matrix();
  const View target = a.array({a.rows}, DType::i64), losses = a.array({a.rows});
  a.kernels().cross_entropy(logits, target, std::nullopt, log_probs, losses);
  if (!backward) {
    return [=, &a] { a.kernels().cross_entropy(logits, target, std::nullopt, log_probs, losses); };
  }
  return [=, &a] { a.kernels().cross_entropy_backward(log_probs, target, std::nullopt, losses, grad); };
}

Call layer_norm(Arrays& a, bool backward) {
  const View in = a.matrix(), out = a.matrix(), weight = a.array({kColumns}), bias = a.array({kColumns});
  const View mean = a.array({a.rows}), inv_std = a.array({a.rows}), grad = a.matrix();
  a.kernels().row_norm({}, in, weight, bias, mean, inv_std, out);
  if (!backward) return [=, &a] { a.kernels().row_norm({}, in, weight, bias, mean, inv_std, out); };
  const View grad_weight = a.array({kColumns}), grad_bias = a.array({kColumns});
  return [=, &a] {
    a.kernels().row_norm_backward(in, weight, mean, inv_std, grad, out, grad_weight, grad_bias);
  };
}

Call optimizer(Arrays& a, bool adamw) {
  const View param = a.flat(), grad = a.flat(), momentum = a.flat(), variance = a.flat();
  a.kernels().unary(UnaryOp::abs, variance, variance);
  const OptimizerSlot slot{param, grad, momentum, variance};
  if (adamw) return [=, &a] { a.kernels().adamw(std::span(&slot, 1), {.lr = 1e-6, .step = 5}); };
  return [=, &a] { a.kernels().sgd(std::span(&slot, 1), {.lr = 1e-6, .momentum = 0.9}); };
}

const std::map<std::string, UnaryOp>& functions() {
  static const std::map<std::string, UnaryOp> kAll = {
      {"exp", UnaryOp::exp},   {"log", UnaryOp::log},         {"log1p", UnaryOp::log1p},
      {"tanh", UnaryOp::tanh}, {"sigmoid", UnaryOp::sigmoid}, {"gelu", UnaryOp::gelu},
      {"silu", UnaryOp::silu}, {"relu", UnaryOp::relu},       {"sqrt", UnaryOp::sqrt}};
  return kAll;
}

std::map<std::string, Make> benchmarks() {
  std::map<std::string, Make> all = {
      {"add", binary(BinaryOp::add)},
      {"mul", binary(BinaryOp::mul)},
      {"sum", reduction(Reduction::sum, true, true)},
      {"sum_rows", reduction(Reduction::sum, true, false)},
      {"sum_columns", reduction(Reduction::sum, false, true)},
      {"amax", reduction(Reduction::max, true, true)},
      {"amax_rows", reduction(Reduction::max, true, false)},
      {"amax_columns", reduction(Reduction::max, false, true)},
      {"to_bf16", conversion(DType::f32, DType::bf16)},
      {"from_bf16", conversion(DType::bf16, DType::f32)},
      {"to_f16", conversion(DType::f32, DType::f16)},
      {"from_f16", conversion(DType::f16, DType::f32)},
      {"cross_entropy", [](Arrays& a) { return cross_entropy(a, false); }},
      {"cross_entropy_backward", [](Arrays& a) { return cross_entropy(a, true); }},
      {"layer_norm", [](Arrays& a) { return layer_norm(a, false); }},
      {"layer_norm_backward", [](Arrays& a) { return layer_norm(a, true); }},
      {"adamw", [](Arrays& a) { return optimizer(a, true); }},
      {"sgd", [](Arrays& a) { return optimizer(a, false); }},
      {"log_softmax",
       [](Arrays& a) -> Call {
         const View in = a.matrix(), out = a.matrix();
         return [=, &a] { a.kernels().log_softmax(in, out); };
       }},
  };
  for (const auto& [name, op] : functions()) all.emplace(name, unary(op));
  return all;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The least of at least five batches, each long enough for the clock.
double seconds_of(const Call& call, double budget) {
  call();
  std::int64_t batch = 1;
  double least = 0;
  const double end = thread_seconds() + budget;
  for (int done = 0; done < 5 || thread_seconds() < end;) {
    const double start = thread_seconds();
    for (std::int64_t i = 0; i < batch; ++i) call();
    const double taken = thread_seconds() - start;
    if (taken < 2e-4) {
      batch *= 2;
      continue;
    }
    const double one = taken / static_cast<double>(batch);
    least = done == 0 ? one : std::min(least, one);
    ++done;
  }
  return least;
}

int run(const std::vector<std::string>& arguments) {
  const auto all = benchmarks();
  if (arguments.size() == 1 && arguments[0] == "list") {
    for (const auto& [name, make] : all) std::cout << name << '\n';
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "values") {
    constexpr std::int64_t kEvery = 4093, kCount = (std::int64_t{1} << 32U) / kEvery;
    Arrays arrays(kCount);
    const View in = arrays.flat(), out = arrays.flat();
    for (std::int64_t i = 0; i < kCount; ++i) {
      in.as<float>()[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * kEvery));
    }
    arrays.kernels().unary(functions().at(arguments[1]), in, out);
    return std::fwrite(out.data, sizeof(float), kCount, stdout) == kCount ? 0 : 1;
  }
  if (arguments.size() != 3 || !all.contains(arguments[0])) {
    std::cerr << "usage: kernel_times NAME BYTES SECONDS | values NAME | list\n";
    return 2;
  }
  Arrays arrays(std::stoll(arguments[1]) / 4);
  std::cout << seconds_of(all.at(arguments[0])(arrays), std::stod(arguments[2])) << '\n';
  return 0;
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  try {
    return dtrain::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "kernel_times: " << error.what() << '\n';
    return 1;
  }
}
