// oneDNN for matmul and convolution in f32 and bf16. Activations are handed over channels-last, weights are
// reordered to whatever the primitive prefers, primitives are kept in a bounded cache.
#include "runtime/device/cpu/dense/dense_math.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/dense/onednn_plan.h"
#include "runtime/device/cpu/dense/onednn_plans.h"
#include "runtime/device/cpu/dense/product_pieces.h"
#include "runtime/device/cpu/dense/weight_pieces.h"
#include "runtime/device/cpu/loops/chunks.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/device/cpu/workers/rest.h"
#include "runtime/device/cpu/workers/workers.h"

namespace dtrain::cpu {
namespace {

using onednn::Plan;
using onednn::PlanKey;

/// Enough for the layers of a large network at a few batch sizes; a plan is some tens of kilobytes.
constexpr std::size_t kPlans = 512;

enum class Operation : std::int64_t { matmul, forward, backward_input, backward_weight };

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

/// f(), the library's errors as ours.
template <class F>
auto guarded(F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    throw DeviceError(
        std::string("cpu: oneDNN failed: ") + error.what() + " (status " + std::to_string(error.status) + ")",
        error.status);
  }
}

/// A matrix [1, rows, columns] whose lines, along dimension `across`, the library reads side by side: 0 where
/// it does not. At a distance of a multiple of 2 KiB they meet in a few sets of the caches, and oneDNN 2.6 is
/// half as fast: then a copy in `memory` with longer distances, if each line is used `times` enough.
View spread_lines(const View& m, int across, std::int64_t times, Scratch& memory) {
  constexpr std::int64_t kBadBytes = 2048, kSize = sizeof(float), kPadding = 64 / kSize, kLeastTimes = 32;
  if (across == 0 || m.dtype != DType::f32 || m.shape[0] != 1 || times < kLeastTimes) return m;
  const int along = 3 - across;
  const std::int64_t lines = m.shape[across], length = m.shape[along];
  if (m.strides[along] != 1 || lines < 2 || m.strides[across] * kSize % kBadBytes != 0) return m;
  View spread = m;
  spread.strides[across] = (length + kPadding - 1) / kPadding * kPadding + kPadding;
  spread.data = memory.at_least(static_cast<std::size_t>(lines * spread.strides[across] * kSize));
  constexpr double kElementNs = 0.25;
  for_ranges(lines, rows_of_chunk(length), kElementNs * static_cast<double>(length),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t line = begin; line < end; ++line) {
                 std::memcpy(spread.as<float>() + line * spread.strides[across],
                             m.as<const float>() + line * m.strides[across],
                             static_cast<std::size_t>(length * kSize));
               }
             });
  return spread;
}

class OneDnnMath final : public DenseMath {
 public:
  bool matmul(const View& a, const View& b, const View& bias, bool accumulate, const View& out) override {
    // Neither operand has the batch extent: oneDNN has no shape for that.
    if (out.shape[0] > 1 && a.strides[0] == 0 && b.strides[0] == 0) return false;
    if (!can(out) || (bias.data != nullptr && bias.shape[0] != 1 && bias.strides[0] != 1)) return false;
    if (!has_fixed_sums(a.dtype)) {
      const View left = spread_lines(a, a.strides[1] == 1 ? 2 : 0, out.shape[2], spread_left_),
                 right = spread_lines(b, b.strides[2] == 1 ? 1 : 0, out.shape[1], spread_right_);
      return matmul_by_pieces(Cut::by_shape, left, right, bias, accumulate, out) ||
             matmul_by_rows(left, right, bias, accumulate, out);
    }
    if (matmul_by_pieces(Cut::for_workers, a, b, bias, accumulate, out)) return true;
    const WorkerLimit limit(most_workers(a, out));
    return one_matmul(a, b, bias, accumulate, out, 0);
  }

  bool conv2d(const Conv2dGeometry& g, const View& input, const View& weight, const View& bias,
              const View& output) override {
    if (!can(output)) return false;
    const PlanKey key = conv_key(Operation::forward, g, input, weight, bias, output);
    return run(key, {input.data, weight.data, bias.data, output.data}, [&](const dnnl::engine& engine) {
      return onednn::forward_plan(engine, g, input, weight, bias, output);
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
      return onednn::backward_input_plan(engine, g, grad_output, weight, grad_input);
    });
  }

  bool conv2d_backward_weight(const Conv2dGeometry& g, const View& input, const View& grad_output,
                              const View& grad_weight, const View& grad_bias) override {
    if (!can(grad_weight) || reads_beyond(g, input, grad_weight, grad_output)) return false;
    const WeightPieces pieces(g, {input, grad_output, grad_weight, grad_bias});
    make_contexts();
    for (const WeightGradientViews& piece : {pieces.first(), pieces.last()}) {
      if (!guarded([&] { return weight_plan(g, piece, 0) != nullptr; })) return false;
    }
    pieces.run(
        [&](const WeightGradientViews& piece, int worker) {
          guarded([&] {
            run(*weight_plan(g, piece, worker),
                {piece.input.data, piece.grad_output.data, piece.grad_weight.data, piece.grad_bias.data},
                worker);
          });
        },
        weight_sums_, output_copies_);
    return true;
  }

 private:
  Plan* product_plan(const View& a, const View& b, const View& bias, bool accumulate, const View& out,
                     int worker) {
    PlanKey key;
    key.add(static_cast<std::int64_t>(Operation::matmul));
    key.add(detail::worker_setting());
    key.add(accumulate ? 1 : 0);
    for (const View* view : {&a, &b, &bias, &out}) add_key(key, *view);
    return plan(
        key,
        [&](const dnnl::engine& engine) { return onednn::matmul_plan(engine, a, b, bias, accumulate, out); },
        worker);
  }

  bool one_matmul(const View& a, const View& b, const View& bias, bool accumulate, const View& out,
                  int worker) {
    return guarded([&] {
      Plan* const found = product_plan(a, b, bias, accumulate, out, worker);
      if (worker_count() > 1) rest_workers();
      if (found != nullptr) run(*found, {a.data, b.data, bias.data, out.data}, worker);
      return found != nullptr;
    });
  }

  /// Each piece is one thread's. False, and nothing done, where there are no pieces, or where they are as
  /// many as workers and the library adds up a piece's sums in another way than the whole product's.
  bool matmul_by_pieces(Cut cut, const View& a, const View& b, const View& bias, bool accumulate,
                        const View& out) {
    const ProductPieces pieces(cut, a, b, bias, accumulate, out);
    if (pieces.count() == 0) return false;
    make_contexts();
    output_copies_.prepare();
    const auto plan_of = [&](const ProductPieces::Piece& of, int worker) {
      return product_plan(of.a, of.b, of.bias, accumulate, of.out, worker);
    };
    std::byte* const memory = output_copies_.of(0).at_least(pieces.scratch_bytes());
    {
      const WorkerLimit alone(1);
      for (const std::int64_t index : {std::int64_t{0}, pieces.count() - 1}) {
        const Plan* const found = guarded([&] { return plan_of(pieces.piece(index, memory), 0); });
        if (found == nullptr || (cut == Cut::for_workers && !found->adds_in_one_chain())) return false;
      }
    }
    for_chunks(pieces.count(), pieces.piece_ns(), [&](std::int64_t index, int worker) {
      const WorkerLimit alone(1);
      const ProductPieces::Piece piece =
          pieces.piece(index, output_copies_.of(worker).at_least(pieces.scratch_bytes()));
      pieces.load(index, piece);
      guarded([&] {
        run(*plan_of(piece, worker), {piece.a.data, piece.b.data, piece.bias.data, piece.out.data}, worker);
      });
      pieces.store(index, piece);
    });
    return true;
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
    make_contexts();
    if (!piece(0, 0)) return false;  // there is no such product
    constexpr double kTermsANs = 16;
    const double piece_ns = static_cast<double>(rows * out.shape[2] * a.shape[2]) / kTermsANs;
    for_chunks(out.shape[0] * pieces - 1, piece_ns, [&](std::int64_t index, int worker) {
      if (!piece(index + 1, worker)) throw DeviceError("cpu: oneDNN has a product of some rows only", EINVAL);
    });
    return true;
  }

  static bool can(const View& view) { return view.dtype == DType::f32 || view.dtype == DType::bf16; }

  void make_contexts() {
    contexts_.resize(std::max(contexts_.size(), static_cast<std::size_t>(worker_count())));
  }

  /// A gradient's plan, for one thread: several would take some images each, and the sums would depend on how
  /// many they are.
  Plan* weight_plan(const Conv2dGeometry& g, const WeightGradientViews& of, int worker) {
    const WorkerLimit alone(1);
    const PlanKey key =
        conv_key(Operation::backward_weight, g, of.input, of.grad_weight, of.grad_bias, of.grad_output);
    return plan(
        key,
        [&](const dnnl::engine& engine) {
          return onednn::backward_weight_plan(engine, g, of.input, of.grad_output, of.grad_weight,
                                              of.grad_bias);
        },
        worker);
  }

  Context& context_of(int worker) {
    std::unique_ptr<Context>& context = contexts_[static_cast<std::size_t>(worker)];
    if (!context) context = std::make_unique<Context>();
    return *context;
  }

  /// The plan of `key`; null when there is none.
  template <class Make>
  Plan* plan(const PlanKey& key, Make&& make, int worker) {
    Context& context = context_of(worker);
    return context.plans.get(key, [&]() -> std::unique_ptr<Plan> {
      try {
        return make(context.engine);
      } catch (const dnnl::error& error) {
        if (error.status == dnnl_unimplemented) return nullptr;
        throw;
      }
    });
  }

  /// Runs it on `data`; null pointers are arguments left out.
  void run(Plan& plan, std::initializer_list<void*> data, int worker) {
    std::array<void*, 4> present{};
    std::size_t count = 0;
    for (void* pointer : data) {
      if (pointer != nullptr) present[count++] = pointer;
    }
    Context& context = context_of(worker);
    plan.run(context.stream, std::span(present.data(), count),
             context.scratch.at_least(plan.scratch_bytes()));
  }

  /// Runs the plan of `key` on `data`, on the library's threads where worker_count() allows several; false
  /// when there is none.
  template <class Make>
  bool run(const PlanKey& key, std::initializer_list<void*> data, Make&& make, int worker = 0) {
    if (worker_count() > 1) rest_workers();
    return guarded([&] {
      Plan* const found = plan(key, make, worker);
      if (found != nullptr) run(*found, data, worker);
      return found != nullptr;
    });
  }

  std::vector<std::unique_ptr<Context>> contexts_{1};  ///< of this thread's workers
  Scratch weight_sums_;                                ///< of pieces
  WorkerScratch output_copies_;                        ///< of pieces
  Scratch spread_left_, spread_right_;
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
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
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
