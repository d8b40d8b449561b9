// Tensor: a shared handle to strided memory of one device, with optional autograd state. Members here create,
// look at and move data; arithmetic is in runtime/autograd/ops.h, whose most used functions are members too.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/device/device.h"
#include "runtime/tensor/number.h"
#include "runtime/tensor/number_list.h"
#include "runtime/tensor/storage.h"

namespace dtrain {

/// Order of a dense tensor's elements in memory. channels_last is N, H, W, C for a logical [N, C, H, W].
enum class MemoryFormat { contiguous, channels_last };

/// Throws DeviceError: there are no `bytes` of host memory.
[[noreturn]] void refuse_host_memory(std::size_t bytes);

/// `count` zeros in host memory. Throws DeviceError where there is none.
template <class T>
std::vector<T> host_values(std::int64_t count) {
  try {
    return std::vector<T>(static_cast<std::size_t>(count));
  } catch (const std::exception&) {  // no memory, or more than a vector can be asked for
    refuse_host_memory(static_cast<std::size_t>(count) * sizeof(T));
  }
}

/// What autograd attaches to a tensor; only runtime/autograd knows its content.
class AutogradState {
 public:
  virtual ~AutogradState() = default;
};

struct BackwardOptions {
  /// Keep what the graph saved, so that backward can run through it again. Implied by create_graph.
  bool retain_graph = false;
  /// Record the backward pass itself, so that gradients can be differentiated again.
  bool create_graph = false;
};

/// Elements first, first + step, … before `end` of a dimension: negative ones count from the back, and both
/// are clamped. Slice() is all of it.
struct Slice {
  explicit Slice(std::int64_t start = 0, std::int64_t stop = kEnd, std::int64_t every = 1)
      : first(start), end(stop), step(every) {}
  static constexpr std::int64_t kEnd = INT64_MAX;
  std::int64_t first, end, step;
};

struct Sorted;

/// A tensor of up to kMaxRank dimensions. Copies of the handle and views share memory; a default-constructed
/// Tensor is undefined and only defined(), assignment and destruction are allowed on it. Dimensions may be
/// given from the end (-1 is the last). Not thread-safe. Every member throws UsageError for shapes, dtypes or
/// dimensions that do not fit, naming what was expected and what came.
///
/// Views and copies (reshape … index_select, to, contiguous) are differentiable: while gradients are recorded
/// (see NoGrad) a result made from a tensor that requires one requires one too.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) = default;
  Tensor(Tensor&& other) noexcept = default;
  ~Tensor() = default;
  Tensor& operator=(const Tensor& other) & = default;
  Tensor& operator=(Tensor&& other) & noexcept = default;
  /// Of a view that has no name, `a[0] = b`: writes into its memory, as copy_from() and fill() do. (A handle
  /// with a name gets another tensor.)
  void operator=(const Tensor& source) && { copy_from(source); }  // NOLINT: no handle to return
  void operator=(Number value) && { fill(value); }                // NOLINT

  // ---- creation
  /// The numbers themselves: Tensor({{1, 2}, {3, 4}}) is int64 [2, 2], Tensor(3.5) float32 []; see
  /// NumberList. On the default device (runtime/tensor/defaults.h) unless one is given.
  explicit Tensor(const NumberList& values);
  explicit Tensor(const NumberList& values, const std::shared_ptr<Device>& device);
  explicit Tensor(std::initializer_list<NumberList> values) : Tensor(NumberList(values)) {}
  /// Uninitialised.
  static Tensor empty(const Dims& shape, const std::shared_ptr<Device>& device, DType dtype = DType::f32,
                      MemoryFormat format = MemoryFormat::contiguous);
  static Tensor zeros(const Dims& shape, const std::shared_ptr<Device>& device, DType dtype = DType::f32);
  static Tensor ones(const Dims& shape, const std::shared_ptr<Device>& device, DType dtype = DType::f32);
  static Tensor full(const Dims& shape, double value, const std::shared_ptr<Device>& device,
                     DType dtype = DType::f32);
  /// Of `like`'s shape and device, row-major; of its dtype unless one is given.
  static Tensor full_like(const Tensor& like, double value, std::optional<DType> dtype = std::nullopt);
  static Tensor zeros_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
  static Tensor ones_like(const Tensor& like, std::optional<DType> dtype = std::nullopt);
  /// start, start + step, … before `end` (step may be negative), as torch.arange. Of any dtype.
  static Tensor arange(double start, double end, double step, const std::shared_ptr<Device>& device,
                       DType dtype = DType::i64);
  /// 0, 1, … count - 1
  static Tensor arange(std::int64_t count, const std::shared_ptr<Device>& device, DType dtype = DType::i64);
  /// `count` numbers from `start` to `end`, both included, at equal distances.
  static Tensor linspace(double start, double end, std::int64_t count, const std::shared_ptr<Device>& device,
                         DType dtype = DType::f32);
  /// Ones on the diagonal of [rows, columns], zeros elsewhere.
  static Tensor eye(std::int64_t rows, std::int64_t columns, const std::shared_ptr<Device>& device,
                    DType dtype = DType::f32);

  // Random numbers are drawn on the host, so that they are the same on every device. float32 or float64
  /// float32, uniform in [low, high): as torch.empty(shape).uniform_(low, high), bit for bit.
  static Tensor rand(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device,
                     float low = 0.0F, float high = 1.0F);
  /// Normal with mean 0 and deviation 1, as torch.randn(shape): see Generator::normal.
  static Tensor randn(const Dims& shape, Generator& generator, const std::shared_ptr<Device>& device,
                      DType dtype = DType::f32);
  /// int64, 0 … count - 1 in random order: as torch.randperm, bit for bit.
  static Tensor randperm(std::int64_t count, Generator& generator, const std::shared_ptr<Device>& device);
  /// int64, uniform in [low, high): as torch.randint, bit for bit.
  static Tensor randint(std::int64_t low, std::int64_t high, const Dims& shape, Generator& generator,
                        const std::shared_ptr<Device>& device);
  /// A copy of `values` (row-major host memory, shape.product() of them).
  template <class T>
  static Tensor from_data(std::span<const T> values, const Dims& shape,
                          const std::shared_ptr<Device>& device) {
    return from_host(values.data(), values.size(), dtype_of<T>, shape, device);
  }
  template <class T>
  static Tensor from_data(const std::vector<T>& values, const Dims& shape,
                          const std::shared_ptr<Device>& device) {
    return from_host(values.data(), values.size(), dtype_of<T>, shape, device);
  }
  template <class T>
  static Tensor from_data(std::initializer_list<T> values, const Dims& shape,
                          const std::shared_ptr<Device>& device) {
    return from_host(values.begin(), values.size(), dtype_of<T>, shape, device);
  }
  /// Wraps `values` (host memory, row-major, shape.product() of them) without copying, on a CPU device;
  /// `owner` (may be null) is held as long as any view lives.
  template <class T>
  static Tensor borrow(std::span<T> values, const Dims& shape, const std::shared_ptr<Device>& device,
                       std::shared_ptr<void> owner) {
    return borrow_host(values.data(), values.size(), dtype_of<T>, shape, device, std::move(owner));
  }
  /// Wraps foreign device memory without copying; `owner` (may be null) is held as long as any view lives.
  static Tensor borrow(const View& view, const std::shared_ptr<Device>& device, std::shared_ptr<void> owner);

  // ---- looking
  bool defined() const noexcept { return body_ != nullptr; }
  const Dims& shape() const { return layout().shape; }
  const Dims& strides() const { return layout().strides; }
  std::int64_t size(int dim) const;
  int rank() const { return layout().rank(); }
  std::int64_t numel() const { return layout().numel(); }
  DType dtype() const { return layout().dtype; }
  Device& device() const { return *storage()->device(); }
  const std::shared_ptr<Device>& shared_device() const { return storage()->device(); }
  /// What kernels take: borrowed, valid while a handle to this memory lives; of memory that comes and goes
  /// (StorageHook), which this brings back, until the operation is over. Code that writes through it calls
  /// mark_modified().
  const View& view() const;
  bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// channels_last when only that describes this tensor, else contiguous.
  MemoryFormat memory_format() const;
  /// "float32 [2, 3]", for messages.
  std::string describe() const;
  /// The one element, as double. Waits for the device. Throws UsageError unless numel() is 1.
  double item() const;
  /// All elements in row-major order, converted to T. Waits for the device. Throws DeviceError where there is
  /// no memory for them.
  template <class T>
  std::vector<T> to_vector() const {
    auto values = host_values<T>(numel());
    to_host(values.data(), dtype_of<T>);
    return values;
  }

  // ---- views: share memory
  /// Throws UsageError when the memory layout does not allow it without a copy. One extent may be -1.
  Tensor view(const Dims& new_shape) const;
  /// As view(), or a copy where a view is impossible.
  Tensor reshape(const Dims& new_shape) const;
  /// Merges dimensions first..last (inclusive) into one.
  Tensor flatten(int first = 0, int last = -1) const;
  Tensor squeeze() const;
  Tensor squeeze(int dim) const;
  Tensor unsqueeze(int dim) const;
  Tensor transpose(int a, int b) const;
  /// Dimension i of the result is dimension order[i] of this tensor.
  Tensor permute(const Dims& order) const;
  /// Broadcasts extents of 1 (and missing leading ones) to `new_shape` by zero strides; -1 keeps an extent.
  Tensor expand(const Dims& new_shape) const;
  /// Row `index` (may be negative) along `dim`; the dimension disappears.
  Tensor select(int dim, std::int64_t index) const;
  /// Elements start, start + step, … < end along `dim`; negative start and end count from the back, both are
  /// clamped.
  Tensor slice(int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1) const;
  /// select(0, index), slice() of dimension 0, and index_select(0, index): a view but for the last, which is
  /// const so that `x[rows] = y` does not compile: it would write into a copy.
  Tensor operator[](std::int64_t index) const { return select(0, index); }
  Tensor operator[](const Slice& part) const { return slice(0, part.first, part.end, part.step); }
  const Tensor operator[](const Tensor& index) const { return index_select(0, index); }  // NOLINT: no place
  /// What index() takes of a dimension: an index, which makes it disappear, or a slice.
  using Taken = std::variant<std::int64_t, Slice>;
  /// One of the first dimensions after the other: x.index({0, Slice(1, 3)}) is Python's x[0, 1:3].
  Tensor index(std::initializer_list<Taken> places) const;
  /// A matrix with rows and columns exchanged; fewer dimensions as they are.
  Tensor T() const;
  /// The same memory without autograd history.
  Tensor detach() const;

  // ---- copies
  /// Dense in `format`: this tensor itself when it already is, else a copy.
  Tensor contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// A dense copy (row-major, or channels-last when this tensor is).
  Tensor clone() const;
  /// This tensor itself when the dtype is already right. Gradients flow between floating dtypes only.
  Tensor to(DType dtype) const;
  /// Copies to another device; between GPUs the host does not wait for it.
  Tensor to(const std::shared_ptr<Device>& device) const;
  /// Moves this tensor itself: every handle to it, an optimizer's too, has the values on `device` from now
  /// on, and its gradient moves along. Views of it, detach() and state_dict() keep the memory of before.
  /// Refused (UsageError): for a result of a recorded operation, where a gradient lives in
  /// set_grad_storage(), and where the memory comes and goes (StorageHook). A backward through what was
  /// computed before the move fails by name.
  void move_to(const std::shared_ptr<Device>& device);
  /// Rows index[0], index[1], … along `dim`; index is i64 [n] on the same device.
  Tensor index_select(int dim, const Tensor& index) const;
  /// Sum over the dimensions that were broadcast to get from `target` to this shape.
  Tensor sum_to(const Dims& target) const;

  // ---- in place. Refused (UsageError) while gradients are recorded and this tensor or the source requires
  // one; under NoGrad they are allowed, and a backward that still needs the old value fails by name.
  void fill(Number value);
  /// New random numbers for every element, in row-major order: torch's uniform_ and normal_, in the tensor's
  /// dtype (float32 or float64).
  void fill_uniform(Generator& generator, double low = 0, double high = 1);
  void fill_normal(Generator& generator, double mean = 0, double deviation = 1);
  /// Broadcasts and converts `source`, of this device.
  void copy_from(const Tensor& source);
  /// The same for a source on any device of the process; without memory in between where both are dense and
  /// laid out alike.
  void copy_across(const Tensor& source);
  /// this += scale · other, broadcasting other, of this device.
  void add_in_place(const Tensor& other, double scale = 1.0);
  /// this *= scale
  void scale_in_place(double scale);

  // a += b and kin: this becomes a + b, of this shape and dtype. In place; but where gradients are recorded
  // and one side requires one this handle gets a new tensor, and is refused (UsageError) on a leaf that
  // requires a gradient, as in PyTorch, and where other handles or views show its memory.
  Tensor& operator+=(const Tensor& other);
  Tensor& operator-=(const Tensor& other);
  Tensor& operator*=(const Tensor& other);
  Tensor& operator/=(const Tensor& other);
  Tensor& operator+=(Number other);
  Tensor& operator-=(Number other);
  Tensor& operator*=(Number other);
  Tensor& operator/=(Number other);

  // ---- functions of runtime/autograd/ops.h and ops/reductions.h as members
  Tensor abs() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor pow(Number exponent) const;
  Tensor matmul(const Tensor& other) const;
  Tensor cumsum(int dim) const;
  Tensor masked_fill(const Tensor& mask, Number value) const;
  Tensor norm(double order = 2) const;
  Tensor prod() const;
  /// Over all dimensions, over `dims`, or over one.
  Tensor sum(const Dims& dims = {}, bool keep = false) const;
  Tensor mean(const Dims& dims = {}, bool keep = false) const;
  Tensor var(const Dims& dims = {}, double correction = 1, bool keep = false) const;
  Tensor std(const Dims& dims = {}, double correction = 1, bool keep = false) const;
  template <std::integral T>
  Tensor sum(T dim, bool keep = false) const {
    return sum(Dims{static_cast<std::int64_t>(dim)}, keep);
  }
  template <std::integral T>
  Tensor mean(T dim, bool keep = false) const {
    return mean(Dims{static_cast<std::int64_t>(dim)}, keep);
  }
  /// The largest and the smallest element and their indices, of all in row-major order or along `dim`.
  Tensor max() const;
  Tensor min() const;
  Tensor argmax() const { return flatten().argmax(0); }
  Tensor argmin() const { return flatten().argmin(0); }
  Sorted max(int dim, bool keep = false) const;
  Sorted min(int dim, bool keep = false) const;
  Tensor argmax(int dim, bool keep = false) const;
  Tensor argmin(int dim, bool keep = false) const;

  // ---- autograd
  bool requires_grad() const noexcept;
  /// For leaves (tensors not computed by a recorded operation) of floating dtype. Returns this handle.
  Tensor set_requires_grad(bool value = true);
  bool is_leaf() const noexcept;
  /// The accumulated gradient of a leaf, in the memory format it had when it first required one; undefined
  /// when there is none since zero_grad().
  Tensor grad() const;
  /// Makes `grad` (this leaf's shape and dtype) the gradient, as if it had been accumulated after
  /// zero_grad(): copied into the memory of set_grad_storage() if there is one, else held without
  /// copying where it has the leaf's memory format.
  void set_grad(const Tensor& grad);
  /// Drops the gradient: the next accumulation overwrites. Memory from set_grad_storage() stays in use and
  /// keeps its old content until then.
  void zero_grad();
  /// Gradients of this one-element tensor are added to every leaf it was computed from. Runs in the calling
  /// thread, newest operation first; saved values are freed on the way. Throws UsageError when nothing
  /// requires a gradient, when an operation's saved values were freed by an earlier backward, or when a saved
  /// value was modified in place.
  void backward(BackwardOptions options = {}) const;
  /// As above, starting from `grad`, of this tensor's shape and dtype. (A template, so that braces are
  /// options.)
  template <std::same_as<Tensor> T>
  void backward(const T& grad, BackwardOptions options = {}) const {
    backward_from(grad, options);
  }
  /// From now on this leaf's gradient lives in `storage` (dense, same shape, dtype and device): the first
  /// accumulation after zero_grad() overwrites it, later ones add. A gradient that already exists is moved
  /// there. An undefined tensor ends it.
  void set_grad_storage(const Tensor& storage);
  /// `ready` is called in each backward pass that reaches this leaf, once, in the thread running backward,
  /// as soon as the leaf's gradient is final for the pass. Replaces the previous one; empty removes it. What
  /// it throws leaves backward.
  void on_grad_ready(std::function<void()> ready);

  // ---- for the layers above
  /// Counts modifications of the memory through any view.
  std::uint64_t version() const { return storage()->version(); }
  void mark_modified() const { storage()->mark_modified(); }
  bool shares_storage(const Tensor& other) const;
  /// Whether both are handles to one tensor, not only to its memory: Python's `a is b`.
  bool is_same(const Tensor& other) const noexcept { return body_ == other.body_; }
  /// The memory behind this and all its views.
  const std::shared_ptr<Storage>& shared_storage() const { return storage(); }
  /// True when this handle is the only one to memory that is not visible elsewhere, so that it may be reused.
  bool is_sole_owner() const noexcept;
  /// Another view of the same memory, without history; `data` lies inside it.
  Tensor alias(void* data, const Dims& shape, const Dims& strides) const;
  const std::shared_ptr<AutogradState>& autograd_state() const noexcept;
  /// Replaces this tensor's autograd state.
  void attach(std::shared_ptr<AutogradState> state);

 private:
  struct Body;

  Tensor(std::shared_ptr<Storage> storage, const View& view);
  static Tensor from_host(const void* values, std::size_t count, DType dtype, const Dims& shape,
                          const std::shared_ptr<Device>& device);
  static Tensor borrow_host(void* values, std::size_t count, DType dtype, const Dims& shape,
                            const std::shared_ptr<Device>& device, std::shared_ptr<void> owner);
  void to_host(void* values, DType dtype) const;
  void backward_from(const Tensor& grad, BackwardOptions options) const;
  /// True when nobody but this handle can see the memory.
  bool is_only_view() const noexcept;
  /// What a += b and kin have in common; in operators.cc.
  struct InPlace;
  const View& layout() const;  ///< its data may be of before
  const std::shared_ptr<Storage>& storage() const;

  std::shared_ptr<Body> body_;
};

using Tensors = std::vector<Tensor>;

/// A null view for an undefined tensor, as kernels take what is optional.
inline View view_or_none(const Tensor& tensor) { return tensor.defined() ? tensor.view() : View{}; }

/// Values that were picked along a dimension, in order, and the int64 places where they were.
struct Sorted {
  Tensor values;
  Tensor indices;
};

struct Tensor::Body {
  std::shared_ptr<Storage> storage;
  View view;
  std::shared_ptr<AutogradState> autograd;
  std::ptrdiff_t offset = 0;  ///< bytes from the storage's beginning to view.data
};

}  // namespace dtrain
