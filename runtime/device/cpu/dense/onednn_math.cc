// oneDNN for matmul and convolution in f32 and bf16. Activations are handed over channels-last, weights are
// reordered to whatever the primitive prefers, primitives are kept in a bounded cache.
#include "runtime/device/cpu/dense/dense_math.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/dense/onednn_compat.h"
#include "runtime/device/cpu/dense/onednn_plan.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {
namespace {

using dnnl::memory;
using onednn::ConvArguments;
using onednn::Plan;
using onednn::PlanKey;
using Direction = onednn::Plan::Direction;

/// Enough for the layers of a large network at a few batch sizes; a plan is some tens of kilobytes.
constexpr std::size_t kPlans = 512;

enum class Operation : std::int64_t { matmul, forward, backward_input, backward_weight };

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc strided(const View& view) {
  memory::dims shape(view.shape.begin(), view.shape.end());
  memory::dims strides(view.strides.begin(), view.strides.end());
  return {shape, type_of(view.dtype), strides};
}

memory::desc channels_last(const View& view) {
  return {memory::dims(view.shape.begin(), view.shape.end()), type_of(view.dtype), memory::format_tag::nhwc};
}

/// The caller's layout of an activation. Extents of 1 must not make a channels-last array look like another.
memory::desc activation_desc(const View& view) {
  return view.is_channels_last() ? channels_last(view) : strided(view);
}

/// A weight as [G, O/G, C/G, KH, KW] where there are groups.
View grouped(const View& weight, std::int64_t groups) {
  if (groups == 1) return weight;
  View view = weight;
  const std::int64_t outputs = weight.shape[0] / groups;
  view.shape = {groups, outputs, weight.shape[1], weight.shape[2], weight.shape[3]};
  view.strides = {weight.strides[0] * outputs, weight.strides[0], weight.strides[1], weight.strides[2],
                  weight.strides[3]};
  return view;
}

memory::desc any_layout(const View& view) {
  return {memory::dims(view.shape.begin(), view.shape.end()), type_of(view.dtype), memory::format_tag::any};
}

/// Primitives take a bias to be dense whatever strides its descriptor has: `bias` has to be.
memory::desc bias_desc(const View& bias) {
  if (bias.data == nullptr) return {};
  return {{bias.shape[0]}, type_of(bias.dtype), memory::format_tag::x};
}

/// Whether each element of the kernel meets an input somewhere along one dimension; in small images the
/// outermost ones may lie in the padding at every position.
bool kernel_meets_input(std::int64_t in, std::int64_t kernel, std::int64_t outputs, std::int64_t stride,
                        std::int64_t pad, std::int64_t dilation) {
  for (std::int64_t k = 0; k < kernel; ++k) {
    const std::int64_t first = k * dilation - pad;
    const std::int64_t position = first >= 0 ? first : first + (-first + stride - 1) / stride * stride;
    if (position >= in || position > first + (outputs - 1) * stride) return false;
  }
  return true;
}

bool kernel_meets_input(const Conv2dGeometry& g, const View& input, const View& weight, const View& output) {
  return kernel_meets_input(input.shape[2], weight.shape[2], output.shape[2], g.stride_h, g.pad_h,
                            g.dilation_h) &&
         kernel_meets_input(input.shape[3], weight.shape[3], output.shape[3], g.stride_w, g.pad_w,
                            g.dilation_w);
}

/// oneDNN 2.6 reads beyond a bf16 image's end for these weight gradients: NaN in, where that memory holds
/// NaN. A kernel of one pixel with a stride, where channels do not fill a block; and a stride along rows that
/// have one position.
bool reads_beyond(const Conv2dGeometry& g, const View& input, const View& weight, const View& output) {
  if (input.dtype != DType::bf16) return false;
  const bool one_by_one = weight.shape[2] == 1 && weight.shape[3] == 1;
  return (one_by_one && (g.stride_h > 1 || g.stride_w > 1) && input.shape[1] % 16 != 0) ||
         (output.shape[3] == 1 && g.stride_w > 1);
}

void add_key(PlanKey& key, const View& view) {
  key.add(view.data == nullptr ? -1 : static_cast<std::int64_t>(view.dtype));
  key.add(view.rank());
  for (int i = 0; i < view.rank(); ++i) {
    key.add(view.shape[i]);
    key.add(view.strides[i]);
  }
}

PlanKey conv_key(Operation operation, const Conv2dGeometry& g, const View& input, const View& weight,
                 const View& bias, const View& output) {
  PlanKey key;
  key.add(static_cast<std::int64_t>(operation));
  key.add(worker_count());  // primitives are made for a number of threads
  for (const std::int64_t value :
       {g.stride_h, g.stride_w, g.pad_h, g.pad_w, g.dilation_h, g.dilation_w, g.groups}) {
    key.add(value);
  }
  for (const View* view : {&input, &weight, &bias, &output}) add_key(key, *view);
  return key;
}

/// What exists only once something ran: creating it reads the processor's features and maps library pages.
struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  onednn::PlanCache plans{kPlans};
  Scratch scratch;
};

dnnl::primitive_attr attributes(bool accumulate) {
  dnnl::post_ops ops;
  if (accumulate) ops.append_sum(1.0F);
  dnnl::primitive_attr attr;
  attr.set_post_ops(ops);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

ConvArguments conv_arguments(const Conv2dGeometry& g, const View& input, const View& weight, const View& bias,
                             const View& output) {
  ConvArguments a;
  a.src = channels_last(input);
  a.weights = any_layout(grouped(weight, g.groups));
  a.bias = bias_desc(bias);
  a.dst = channels_last(output);
  a.strides = {g.stride_h, g.stride_w};
  a.dilates = {g.dilation_h - 1, g.dilation_w - 1};
  a.pad_left = a.pad_right = {g.pad_h, g.pad_w};
  return a;
}

std::unique_ptr<Plan> forward_plan(const dnnl::engine& engine, const Conv2dGeometry& g, const View& input,
                                   const View& weight, const View& bias, const View& output) {
  const ConvArguments a = conv_arguments(g, input, weight, bias, output);
  const auto desc = onednn::conv_forward(engine, a, attributes(false));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::convolution_forward(desc));
  plan->add(DNNL_ARG_SRC, Direction::in, activation_desc(input), desc.src_desc());
  plan->add(DNNL_ARG_WEIGHTS, Direction::in, strided(grouped(weight, g.groups)), desc.weights_desc());
  if (bias.data != nullptr) plan->add(DNNL_ARG_BIAS, Direction::in, a.bias, desc.bias_desc());
  plan->add(DNNL_ARG_DST, Direction::out, activation_desc(output), desc.dst_desc());
  plan->add_scratchpad(desc.scratchpad_desc());
  return plan;
}

std::unique_ptr<Plan> backward_input_plan(const dnnl::engine& engine, const Conv2dGeometry& g,
                                          const View& grad_output, const View& weight,
                                          const View& grad_input) {
  const ConvArguments a = conv_arguments(g, grad_input, weight, View{}, grad_output);
  const auto attr = attributes(false);
  const auto desc = onednn::conv_backward_data(engine, a, attr, onednn::conv_forward(engine, a, attr));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::convolution_backward_data(desc));
  plan->add(DNNL_ARG_DIFF_DST, Direction::in, activation_desc(grad_output), desc.diff_dst_desc());
  plan->add(DNNL_ARG_WEIGHTS, Direction::in, strided(grouped(weight, g.groups)), desc.weights_desc());
  plan->add(DNNL_ARG_DIFF_SRC, Direction::out, activation_desc(grad_input), desc.diff_src_desc());
  plan->add_scratchpad(desc.scratchpad_desc());
  return plan;
}

std::unique_ptr<Plan> backward_weight_plan(const dnnl::engine& engine, const Conv2dGeometry& g,
                                           const View& input, const View& grad_output,
                                           const View& grad_weight, const View& grad_bias) {
  const ConvArguments a = conv_arguments(g, input, grad_weight, grad_bias, grad_output);
  View like_input = grad_weight;  // the forward pass that this belongs to has no f32 weights beside bf16
  like_input.dtype = input.dtype;
  const ConvArguments hint = conv_arguments(g, input, like_input, grad_bias, grad_output);
  const auto attr = attributes(false);
  const auto desc = onednn::conv_backward_weights(engine, a, attr, onednn::conv_forward(engine, hint, attr));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::convolution_backward_weights(desc));
  plan->add(DNNL_ARG_SRC, Direction::in, activation_desc(input), desc.src_desc());
  plan->add(DNNL_ARG_DIFF_DST, Direction::in, activation_desc(grad_output), desc.diff_dst_desc());
  plan->add(DNNL_ARG_DIFF_WEIGHTS, Direction::out, strided(grouped(grad_weight, g.groups)),
            desc.diff_weights_desc());
  if (grad_bias.data != nullptr) {
    plan->add(DNNL_ARG_DIFF_BIAS, Direction::out, a.bias, desc.diff_bias_desc());
  }
  plan->add_scratchpad(desc.scratchpad_desc());
  // oneDNN 2.6 leaves what meets no input as it finds it, in bf16 and with a stride.
  if (input.dtype == DType::bf16 && !kernel_meets_input(g, input, grad_weight, grad_output))
    plan->clear_first();
  return plan;
}

/// A matmul operand, with nested strides, as oneDNN takes it: batch extent 1 for a broadcast, no strides of
/// 0, one of the last two strides 1. `dense` is what it has to be copied to where it is not like that.
struct Operand {
  memory::desc user, wanted;
};

Operand matmul_operand(View view) {
  if (view.shape[0] != 1 && view.strides[0] == 0) view.shape[0] = 1;
  const std::int64_t rows = view.shape[1], columns = view.shape[2];
  if (rows == 1) view.strides[1] = columns == 1 ? 1 : std::max<std::int64_t>(columns * view.strides[2], 1);
  if (columns == 1) view.strides[2] = view.strides[1] == 1 && rows != 1 ? rows : 1;
  if (view.shape[0] == 1) view.strides[0] = std::max(rows * view.strides[1], columns * view.strides[2]);
  const bool row_major = view.strides[2] == 1 && view.strides[1] >= columns;
  const bool column_major = view.strides[1] == 1 && view.strides[2] >= rows;
  View dense = view;
  if (!row_major && !column_major) dense.strides = contiguous_strides(dense.shape);
  return {strided(view), strided(dense)};
}

/// Whether a product's sums are the same for any number of threads, but for those of most_workers(). Known of
/// AVX-512 without a matrix unit; older kinds of products cut sums among threads.
bool has_fixed_sums(DType dtype) {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core_bf16:
      return true;
    case dnnl::cpu_isa::avx512_core_amx:
      return dtype == DType::f32;
    default:
      return false;
  }
}

/// Of `view` [B, M, …]: `rows` rows of product `b`, from `row` on.
View rows_of(View view, std::int64_t b, std::int64_t row, std::int64_t rows) {
  view.data = view.as<std::byte>() +
              (b * view.strides[0] + row * view.strides[1]) * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[0] = 1;
  view.shape[1] = rows;
  return view;
}

/// Where there are more threads than blocks of 64 columns in all products, oneDNN cuts a long sum over the
/// rows of a transposed `a` among them, and the result depends on how many they are: no more threads than
/// blocks.
/// A small product is not worth waking threads for.
std::int64_t most_workers(const View& a, const View& out) {
  constexpr double kTermsANs = 48;
  if (static_cast<double>(out.numel() * a.shape[2]) < kLeastParallelNs * kTermsANs) return 1;
  constexpr std::int64_t kLongSum = 1024, kBlock = 64;
  const bool transposed = a.strides[1] == 1 && a.strides[2] != 1;
  if (!transposed || a.shape[2] <= kLongSum) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(out.shape[0] * (out.shape[2] / kBlock), 1);
}

std::unique_ptr<Plan> matmul_plan(const dnnl::engine& engine, const View& a, const View& b, const View& bias,
                                  bool accumulate, const View& out) {
  const Operand src = matmul_operand(a), weights = matmul_operand(b), dst = matmul_operand(out);
  memory::desc bias_row;
  if (bias.data != nullptr) {
    const std::int64_t columns = bias.shape[0];
    bias_row = {{1, 1, columns}, type_of(bias.dtype), memory::dims{columns, columns, 1}};
  }
  const auto desc =
      onednn::matmul(engine, src.wanted, weights.wanted, bias_row, dst.wanted, attributes(accumulate));
  auto plan = std::make_unique<Plan>(engine);
  plan->set_primitive(dnnl::matmul(desc));
  plan->add(DNNL_ARG_SRC, Direction::in, src.user, src.wanted);
  plan->add(DNNL_ARG_WEIGHTS, Direction::in, weights.user, weights.wanted);
  if (bias.data != nullptr) plan->add(DNNL_ARG_BIAS, Direction::in, bias_row, bias_row);
  plan->add(DNNL_ARG_DST, Direction::out, dst.user, dst.wanted);
  plan->add_scratchpad(desc.scratchpad_desc());
  return plan;
}

class OneDnnMath final : public DenseMath {
 public:
  bool matmul(const View& a, const View& b, const View& bias, bool accumulate, const View& out) override {
    // Neither operand has the batch extent: oneDNN has no shape for that.
    if (out.shape[0] > 1 && a.strides[0] == 0 && b.strides[0] == 0) return false;
    if (!can(out) || (bias.data != nullptr && bias.shape[0] != 1 && bias.strides[0] != 1)) return false;
    if (!has_fixed_sums(a.dtype)) return matmul_by_rows(a, b, bias, accumulate, out);
    const WorkerLimit limit(most_workers(a, out));
    return one_matmul(a, b, bias, accumulate, out, 0);
  }

  bool conv2d(const Conv2dGeometry& g, const View& input, const View& weight, const View& bias,
              const View& output) override {
    if (!can(output)) return false;
    const PlanKey key = conv_key(Operation::forward, g, input, weight, bias, output);
    return run(key, {input.data, weight.data, bias.data, output.data}, [&](const dnnl::engine& engine) {
      return forward_plan(engine, g, input, weight, bias, output);
    });
  }

  bool conv2d_backward_input(const Conv2dGeometry& g, const View& grad_output, const View& weight,
                             const View& grad_input) override {
    if (!can(grad_input)) return false;
    // oneDNN 2.6 computes garbage here (unpaired last channel).
    const bool one_by_one = weight.shape[2] == 1 && weight.shape[3] == 1;
    if (one_by_one && weight.dtype == DType::bf16 && weight.shape[0] % 2 != 0) return false;
    const PlanKey key = conv_key(Operation::backward_input, g, grad_input, weight, View{}, grad_output);
    return run(key, {grad_output.data, weight.data, grad_input.data}, [&](const dnnl::engine& engine) {
      return backward_input_plan(engine, g, grad_output, weight, grad_input);
    });
  }

  bool conv2d_backward_weight(const Conv2dGeometry& g, const View& input, const View& grad_output,
                              const View& grad_weight, const View& grad_bias) override {
    if (!can(grad_weight) || reads_beyond(g, input, grad_weight, grad_output)) return false;
    const WorkerLimit alone(
        1);  // several would take some images each, and the sums depend on how many there are
    const PlanKey key = conv_key(Operation::backward_weight, g, input, grad_weight, grad_bias, grad_output);
    return run(key, {input.data, grad_output.data, grad_weight.data, grad_bias.data},
               [&](const dnnl::engine& engine) {
                 return backward_weight_plan(engine, g, input, grad_output, grad_weight, grad_bias);
               });
  }

 private:
  bool one_matmul(const View& a, const View& b, const View& bias, bool accumulate, const View& out,
                  int worker) {
    PlanKey key;
    key.add(static_cast<std::int64_t>(Operation::matmul));
    key.add(detail::worker_setting());
    key.add(accumulate ? 1 : 0);
    for (const View* view : {&a, &b, &bias, &out}) add_key(key, *view);
    return run(
        key, {a.data, b.data, bias.data, out.data},
        [&](const dnnl::engine& engine) { return matmul_plan(engine, a, b, bias, accumulate, out); }, worker);
  }

  /// Pieces that follow from the shape, each of them one thread's.
  bool matmul_by_rows(const View& a, const View& b, const View& bias, bool accumulate, const View& out) {
    constexpr std::int64_t kLeastRows = 64, kPieces = 16;
    const std::int64_t all = out.shape[1], rows = std::max(kLeastRows, (all + kPieces - 1) / kPieces);
    const std::int64_t pieces = (all + rows - 1) / rows;
    const auto piece = [&](std::int64_t index, int worker) {
      const WorkerLimit alone(1);
      const std::int64_t product = index / pieces, row = index % pieces * rows,
                         count = std::min(rows, all - row);
      return one_matmul(rows_of(a, product, row, count), rows_of(b, product, 0, b.shape[1]), bias, accumulate,
                        rows_of(out, product, row, count), worker);
    };
    contexts_.resize(std::max(contexts_.size(), static_cast<std::size_t>(worker_count())));
    if (!piece(0, 0)) return false;  // there is no such product
    constexpr double kTermsANs = 16;
    const double piece_ns = static_cast<double>(rows * out.shape[2] * a.shape[2]) / kTermsANs;
    for_chunks(out.shape[0] * pieces - 1, piece_ns, [&](std::int64_t index, int worker) {
      if (!piece(index + 1, worker)) throw DeviceError("cpu: oneDNN has a product of some rows only", EINVAL);
    });
    return true;
  }

  static bool can(const View& view) { return view.dtype == DType::f32 || view.dtype == DType::bf16; }

  /// Runs the plan of `key` on `data` (null pointers are arguments left out); false when there is none.
  template <class Make>
  bool run(const PlanKey& key, std::initializer_list<void*> data, Make&& make, int worker = 0) {
    try {
      std::unique_ptr<Context>& context = contexts_[static_cast<std::size_t>(worker)];
      if (!context) context = std::make_unique<Context>();
      Plan* plan = context->plans.get(key, [&]() -> std::unique_ptr<Plan> {
        try {
          return make(context->engine);
        } catch (const dnnl::error& error) {
          if (error.status == dnnl_unimplemented) return nullptr;
          throw;
        }
      });
      if (plan == nullptr) return false;
      std::array<void*, 4> present{};
      std::size_t count = 0;
      for (void* pointer : data) {
        if (pointer != nullptr) present[count++] = pointer;
      }
      plan->run(context->stream, std::span(present.data(), count),
                context->scratch.at_least(plan->scratch_bytes()));
      return true;
    } catch (const dnnl::error& error) {
      throw DeviceError(std::string("cpu: oneDNN failed: ") + error.what() + " (status " +
                            std::to_string(error.status) + ")",
                        error.status);
    }
  }

  std::vector<std::unique_ptr<Context>> contexts_{1};  ///< of this thread's workers
};

std::string isa_name() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    default:
      return "isa " + std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
  }
}

}  // namespace

std::unique_ptr<DenseMath> make_dense_math() { return std::make_unique<OneDnnMath>(); }

std::string dense_math_name() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + ", " + isa_name();
}

}  // namespace dtrain::cpu
