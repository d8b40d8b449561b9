#include "parallel/sync/hooks/power_sgd.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "parallel/span_of.h"
#include "runtime/autograd/autocast.h"
#include "runtime/autograd/grad_mode.h"
#include "runtime/autograd/ops.h"
#include "runtime/base/draw_guard.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr double kSmallestNorm = 1e-30;
// A column shorter than this part of itself without the others depends on them, as far as float32 can tell.
constexpr double kIndependent = 1e-5;

/// A gradient that is compressed, and what is kept for it from step to step.
struct Matrix {
  std::string name;        ///< of the parameter
  std::size_t offset = 0;  ///< in the bucket, elements
  std::int64_t rows = 0, columns = 0, rank = 0;
  Tensor q;                       ///< [columns, rank]
  Tensor error;                   ///< [rows, columns], divided by the number of ranks like the bucket
  Tensor q_before, error_before;  ///< of a step that may turn out not to be made

  std::size_t count() const { return static_cast<std::size_t>(rows * columns); }
};

/// A gradient that goes whole.
struct Rest {
  std::size_t offset = 0, count = 0;
};

struct BucketState {
  std::vector<Matrix> matrices;
  std::vector<Rest> rests;
  std::int64_t step = 0;
  std::shared_ptr<Device> device;
  bool awaits_step_outcome = false;
};

/// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

View flat(void* data, std::size_t offset, std::size_t count) {
  return {static_cast<float*>(data) + offset, DType::f32, {static_cast<std::int64_t>(count)}, {1}};
}

/// The columns one after the other made orthogonal and of length 1 (Gram-Schmidt, twice, since once leaves
/// what rounding made of columns that depend on each other); one that is next to nothing then is made zero.
Tensor orthogonalized(const Tensor& matrix) {
  const auto length = [](const Tensor& column) { return sqrt(sum(square(column))); };
  const Tensor zero = Tensor::zeros({}, matrix.shared_device());
  const Tensor tiny = Tensor::full({}, kSmallestNorm, matrix.shared_device());
  Tensors columns;
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {
    Tensor column = matrix.slice(1, i, i + 1);
    const Tensor least = mul(length(column), kIndependent);
    for (int round = 0; round < 2 && i > 0; ++round) {
      const Tensor before = cat(columns, 1);
      column = sub(column, matmul(before, matmul(before.transpose(0, 1), column)));
    }
    const Tensor left = length(column);
    const Tensor scale = where(greater(left, least), reciprocal(maximum(left, tiny)), zero);
    columns.push_back(mul(column, scale));
  }
  return cat(columns, 1);
}

/// The tensors' elements in one piece of memory, to cross the network at once.
Tensor packed(const Tensors& tensors) {
  Tensors pieces;
  for (const Tensor& tensor : tensors) pieces.push_back(tensor.reshape({-1}));
  return pieces.empty() ? Tensor() : cat(pieces, 0);
}

/// One bucket on its way: first the products with q and what goes whole, then, when it is waited for, the
/// products with p.
class PowerSgdWork final : public Work {
 public:
  PowerSgdWork(Communicator& communicator, const GradBucket& bucket, BucketState& state)
      : communicator_(communicator),
        device_(bucket.device),
        span_(bucket.span),
        label_(bucket.label),
        state_(state) {
    const NoGrad no_grad;
    const Autocast full_precision(AutocastState{});
    Kernels& kernels = device_->kernels();
    Tensors products, rests;
    for (Matrix& matrix : state_.matrices) {
      Tensor gradient = Tensor::empty({matrix.rows, matrix.columns}, device_);
      kernels.copy(flat(span_.data, matrix.offset, matrix.count()),
                   flat(gradient.view().data, 0, matrix.count()));
      gradient.add_in_place(matrix.error);
      gradients_.push_back(gradient);
      products.push_back(matmul(gradient, orthogonalized(matrix.q)));
    }
    for (const Rest& rest : state_.rests)
      rests.push_back(Tensor::borrow(flat(span_.data, rest.offset, rest.count), device_, nullptr));
    rests_ = packed(rests);
    products_ = packed(products);
    if (rests_.defined()) rest_work_ = communicator_.all_reduce(span_of(rests_), ReduceOp::sum, label_);
    if (products_.defined()) work_ = communicator_.all_reduce(span_of(products_), ReduceOp::sum, label_);
  }

  void wait(const Deadline& deadline) override {
    if (std::exchange(over_, true)) return;
    const NoGrad no_grad;
    const Autocast full_precision(AutocastState{});
    if (rest_work_) bring_back_rests(deadline);
    if (work_) bring_back_matrices(deadline);
  }
  bool done() noexcept override { return over_; }

 private:
  void bring_back_rests(const Deadline& deadline) {
    rest_work_->wait(deadline);
    std::size_t place = 0;
    for (const Rest& rest : state_.rests) {
      device_->kernels().copy(flat(rests_.view().data, place, rest.count),
                              flat(span_.data, rest.offset, rest.count));
      place += rest.count;
    }
  }

  void bring_back_matrices(const Deadline& deadline) {
    work_->wait(deadline);
    Tensors bases, products;
    std::int64_t place = 0;
    for (std::size_t i = 0; i < state_.matrices.size(); ++i) {
      const Matrix& matrix = state_.matrices[i];
      const std::int64_t end = place + matrix.rows * matrix.rank;
      bases.push_back(orthogonalized(products_.slice(0, place, end).reshape({matrix.rows, matrix.rank})));
      products.push_back(matmul(gradients_[i].transpose(0, 1), bases.back()));
      place = end;
    }
    const Tensor sums = packed(products);
    communicator_.all_reduce(span_of(sums), ReduceOp::sum, label_)->wait(deadline);
    place = 0;
    const double share = 1.0 / communicator_.size();
    for (std::size_t i = 0; i < state_.matrices.size(); ++i) {
      Matrix& matrix = state_.matrices[i];
      const std::int64_t end = place + matrix.columns * matrix.rank;
      const Tensor q = sums.slice(0, place, end).reshape({matrix.columns, matrix.rank});
      const Tensor mean = matmul(bases[i], q.transpose(0, 1));
      device_->kernels().copy(flat(mean.view().data, 0, matrix.count()),
                              flat(span_.data, matrix.offset, matrix.count()));
      if (state_.awaits_step_outcome) matrix.q_before = matrix.q, matrix.error_before = matrix.error;
      // Not finite on all ranks where it is on one; such a step is skipped, and must not be remembered.
      const Tensor finite = equal(sum(mul(mean, 0.0)), Tensor::zeros({}, device_));
      matrix.error = where(finite, sub(gradients_[i], mul(mean, share)), matrix.error);
      matrix.q = where(finite, q, matrix.q);
      place = end;
    }
    gradients_.clear();
  }

  Communicator& communicator_;
  std::shared_ptr<Device> device_;
  MemorySpan span_;
  std::string label_;
  BucketState& state_;
  Tensors gradients_;
  Tensor rests_, products_;
  std::unique_ptr<Work> rest_work_, work_;
  bool over_ = false;
};

/// The state of all buckets of one reducer.
class PowerSgd final : public CommHook {
 public:
  explicit PowerSgd(const PowerSgdOptions& options) : options_(options) {}

  std::unique_ptr<Work> begin(Communicator& communicator, const GradBucket& bucket) override {
    const bool compressible = bucket.span.dtype == DType::f32 && communicator.size() > 1;
    if (!compressible) return communicator.all_reduce(bucket.span, ReduceOp::sum, bucket.label);
    const auto [place, made] = buckets_.try_emplace(bucket.index);
    BucketState& state = place->second;
    ranks_ = communicator.size();
    if (made) state = first_state(bucket);
    if (state.step++ < options_.start_step || state.matrices.empty())
      return communicator.all_reduce(bucket.span, ReduceOp::sum, bucket.label);
    return std::make_unique<PowerSgdWork>(communicator, bucket, state);
  }

  bool is_stateful() const noexcept override { return true; }

  void await_step_outcomes() override { awaits_step_outcomes_ = true; }

  // Another gradient, or another rank's part of the network, may have overflowed.
  void on_step_outcome(const Tensor& skipped) override {
    const NoGrad no_grad;
    for (auto& [index, state] : buckets_) {
      for (Matrix& matrix : state.matrices) {
        if (!matrix.q_before.defined()) continue;
        const Tensor made = equal(skipped, Tensor::zeros({}, state.device));
        matrix.q = where(made, matrix.q, matrix.q_before);
        matrix.error = where(made, matrix.error, matrix.error_before);
        matrix.q_before = matrix.error_before = Tensor();
      }
    }
  }

  // Only the ranks' sum of what was lost enters the products, and it stays what it was. The bases are equal.
  void sync_state(Communicator& communicator, const Deadline& deadline) override {
    const NoGrad no_grad;
    for (auto& [index, state] : buckets_) {
      if (state.step <= options_.start_step) continue;  // nothing was lost yet
      for (Matrix& matrix : state.matrices) {
        communicator.all_reduce(span_of(matrix.error), ReduceOp::sum, "lost of " + matrix.name)
            ->wait(deadline);
        matrix.error.scale_in_place(1.0 / communicator.size());
      }
    }
  }

  NamedTensors state() const override {
    if (buckets_.empty()) return loaded_;
    NamedTensors state;
    for (const auto& [index, bucket] : buckets_) {
      for (const Matrix& matrix : bucket.matrices) {
        state.emplace_back(matrix.name + kBasis, matrix.q);
        state.emplace_back(matrix.name + kLost, matrix.error);
      }
    }
    const BucketState& any = buckets_.begin()->second;
    state.emplace_back(kSteps, Tensor::full({}, static_cast<double>(any.step), any.device, DType::f64));
    state.emplace_back(kRanks, Tensor::full({}, ranks_, any.device, DType::f64));
    return state;
  }

  void load(NamedTensors state) override {
    loaded_ = std::move(state);
    buckets_.clear();
  }

 private:
  static constexpr char kBasis[] = ".basis", kLost[] = ".lost", kSteps[] = "steps", kRanks[] = "ranks";

  /// What was loaded under `name`, if it has this shape.
  std::optional<Tensor> loaded(const std::string& name, const Dims& shape) const {
    for (const auto& [key, tensor] : loaded_)
      if (key == name && tensor.shape() == shape) return tensor;
    return std::nullopt;
  }

  /// Each rank loads its share of what the ranks that saved had lost, whose sum stays what it was. Older
  /// checkpoints do not tell how many they were; as many as now, then.
  double lost_scale() const {
    const auto saved = loaded(kRanks, {});
    return saved ? saved->item() / ranks_ : 1;
  }

  BucketState first_state(const GradBucket& bucket) const {
    const std::shared_ptr<Device>& device = bucket.device;
    BucketState state;
    state.device = device;
    state.awaits_step_outcome = awaits_step_outcomes_;
    if (const auto steps = loaded(kSteps, {})) state.step = static_cast<std::int64_t>(steps->item());
    for (std::size_t i = 0; i < bucket.layout.slots.size(); ++i) {
      const GradientSlot& slot = bucket.slots[bucket.layout.slots[i]];
      Matrix matrix;
      matrix.name = slot.name;
      matrix.offset = bucket.layout.offsets[i];
      matrix.rows = slot.shape.rank() > 1 ? slot.shape[0] : 0;
      matrix.columns = matrix.rows > 0 ? static_cast<std::int64_t>(slot.count) / matrix.rows : 0;
      matrix.rank = std::min<std::int64_t>({matrix.rows, matrix.columns, options_.rank});
      const double kept = static_cast<double>((matrix.rows + matrix.columns) * matrix.rank);
      if (matrix.rank == 0 || kept * options_.min_compression_rate >= static_cast<double>(slot.count)) {
        state.rests.push_back({matrix.offset, slot.count});
        continue;
      }
      const Dims shape = {matrix.columns, matrix.rank};
      matrix.q = options_.initial ? options_.initial(shape, device) : drawn(slot.name, shape, device);
      matrix.error = Tensor::zeros({matrix.rows, matrix.columns}, device);
      if (const auto basis = loaded(slot.name + kBasis, shape)) matrix.q = basis->to(device);
      if (const auto lost = loaded(slot.name + kLost, matrix.error.shape()))
        matrix.error = mul(lost->to(device), lost_scale());
      state.matrices.push_back(std::move(matrix));
    }
    return state;
  }

  // By the parameter's name: the same whichever other parameters are here.
  Tensor drawn(const std::string& name, const Dims& shape, const std::shared_ptr<Device>& device) const {
    const DrawGuard allowed(false);  // in a step, but the same in each start of the run
    Generator generator(options_.seed + hash_of(name));
    return Tensor::randn(shape, generator, device);
  }

  const PowerSgdOptions options_;
  bool awaits_step_outcomes_ = false;
  int ranks_ = 1;  ///< of the communicator that buckets are exchanged in
  std::map<std::size_t, BucketState> buckets_;
  NamedTensors loaded_;  ///< what buckets begin with
};

}  // namespace

std::shared_ptr<CommHook> power_sgd(const PowerSgdOptions& options) {
  if (options.rank < 1 || options.start_step < 0 || !(options.min_compression_rate >= 1)) {
    throw UsageError(fmt::format(
        "PowerSGD: expected a rank from 1 on, a first step from 0 on and a rate from 1 on, got {}, {} and {}",
        options.rank, options.start_step, options.min_compression_rate));
  }
  return std::make_shared<PowerSgd>(options);
}

}  // namespace dtrain
