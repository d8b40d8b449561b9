// The NCCL backend: every call is queued on a communication stream of its own, ordered by events after the
// caller's work and before what the caller does next. The host waits for results in host memory only.
#include <dlfcn.h>
#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <thread>

#include "collectives/abort_tree.h"
#include "collectives/nccl/calls.h"
#include "collectives/nccl/offers.h"
#include "collectives/nccl_module.h"
#include "collectives/p2p/check_span.h"
#include "collectives/p2p/subgroup.h"

namespace dtrain::nccl {
namespace {

constexpr std::chrono::seconds kLeaveWait{5};
const std::byte* at(const void* data, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
std::byte* at(void* data, std::size_t bytes) { return static_cast<std::byte*>(data) + bytes; }

void copy_on_gpu(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0 || to == from) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy this rank's own part");
}

ncclDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
      return ncclUint8;
    case DType::f16:
      return ncclFloat16;
    case DType::i8:
      return ncclInt8;
    case DType::i16:
    case DType::boolean:
      break;  // NCCL has no such type
  }
  throw UsageError("backend nccl: no collectives for dtype " + std::string(name_of(dtype)));
}

ncclRedOp_t reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ncclSum;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::prod:
      return ncclProd;
  }
  return ncclSum;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Bootstrap& bootstrap, Log& log)
      : bootstrap_(bootstrap),
        log_(log),
        calls_(bootstrap, log),
        offers_(*bootstrap.store, "nccl/" + bootstrap.name, bootstrap.rank, bootstrap.timeout) {}

  ~NcclCommunicator() override {
    abort_tree_->close();
    const Deadline deadline = Deadline::after(kLeaveWait);
    while (!calls_.core().watchdog().idle() && !calls_.core().watchdog().failure() && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (calls_.core().watchdog().idle() && !calls_.core().watchdog().failure())
      calls_.core().link().finish(deadline);
  }

  int rank() const noexcept override { return bootstrap_.rank; }
  int size() const noexcept override { return bootstrap_.size; }
  std::string_view backend() const noexcept override { return "nccl"; }

  std::unique_ptr<Work> all_reduce(MemorySpan span, ReduceOp op, std::string_view label) override {
    return calls_.start(
        {.operation = Operation::all_reduce, .reduce = op, .dtype = span.dtype, .count = span.count}, span,
        span, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
          return ncclAllReduce(in, out, span.count, data_type(span.dtype), reduction(op), comm, stream);
        });
  }

  std::unique_ptr<Work> reduce_scatter(MemorySpan input, MemorySpan output, ReduceOp op,
                                       std::string_view label) override {
    require_counts("reduce_scatter", label, input, output, input.count, output.count * world());
    return calls_.start(
        {.operation = Operation::reduce_scatter, .reduce = op, .dtype = output.dtype, .count = output.count},
        input, output, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
          return ncclReduceScatter(in, out, output.count, data_type(output.dtype), reduction(op), comm,
                                   stream);
        });
  }

  std::unique_ptr<Work> all_gather(MemorySpan input, MemorySpan output, std::string_view label) override {
    require_counts("all_gather", label, input, output, output.count, input.count * world());
    return calls_.start({.operation = Operation::all_gather, .dtype = input.dtype, .count = input.count},
                        input, output, label,
                        [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
                          return ncclAllGather(in, out, input.count, data_type(input.dtype), comm, stream);
                        });
  }

  std::unique_ptr<Work> broadcast(MemorySpan span, int root, std::string_view label) override {
    require_rank("broadcast", label, root, false);
    return calls_.start(
        {.operation = Operation::broadcast, .dtype = span.dtype, .root = root, .count = span.count}, span,
        span, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
          return ncclBroadcast(in, out, span.count, data_type(span.dtype), root, comm, stream);
        });
  }

  std::unique_ptr<Work> reduce(MemorySpan span, ReduceOp op, int root, std::string_view label) override {
    require_rank("reduce", label, root, false);
    return calls_.start(
        {.operation = Operation::reduce,
         .reduce = op,
         .dtype = span.dtype,
         .root = root,
         .count = span.count},
        span, span, label, [=](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
          return ncclReduce(in, out, span.count, data_type(span.dtype), reduction(op), root, comm, stream);
        });
  }

  std::unique_ptr<Work> gather(MemorySpan input, MemorySpan output, int root,
                               std::string_view label) override {
    require_rank("gather", label, root, false);
    const bool here = rank() == root;
    if (here) require_counts("gather", label, input, output, output.count, input.count * world());
    if (!here) output = {};
    return calls_.start(
        {.operation = Operation::gather, .dtype = input.dtype, .root = root, .count = input.count}, input,
        output, label, [=, this](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
          const std::size_t bytes = input.bytes();
          if (!here) return ncclSend(in, bytes, ncclUint8, root, comm, stream);
          copy_on_gpu(at(out, static_cast<std::size_t>(root) * bytes), in, bytes, stream);
          return for_others([&](int r) {
            return ncclRecv(at(out, static_cast<std::size_t>(r) * bytes), bytes, ncclUint8, r, comm, stream);
          });
        });
  }

  std::unique_ptr<Work> scatter(MemorySpan input, MemorySpan output, int root,
                                std::string_view label) override {
    require_rank("scatter", label, root, false);
    const bool here = rank() == root;
    if (here) require_counts("scatter", label, input, output, input.count, output.count * world());
    if (!here) input = {};
    return calls_.start(
        {.operation = Operation::scatter, .dtype = output.dtype, .root = root, .count = output.count}, input,
        output, label, [=, this](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
          const std::size_t bytes = output.bytes();
          if (!here) return ncclRecv(out, bytes, ncclUint8, root, comm, stream);
          copy_on_gpu(out, at(in, static_cast<std::size_t>(root) * bytes), bytes, stream);
          return for_others([&](int r) {
            return ncclSend(at(in, static_cast<std::size_t>(r) * bytes), bytes, ncclUint8, r, comm, stream);
          });
        });
  }

  std::unique_ptr<Work> all_to_all(MemorySpan input, std::span<const std::size_t> send_counts,
                                   MemorySpan output, std::span<const std::size_t> receive_counts,
                                   std::string_view label) override {
    p2p::check_all_to_all(input, send_counts, output, receive_counts, rank(), size(), label);
    require_counts("all_to_all", label, input, output, 0, 0);
    Call call{.operation = Operation::all_to_all,
              .dtype = input.dtype,
              .sends = {send_counts.begin(), send_counts.end()},
              .receives = {receive_counts.begin(), receive_counts.end()}};
    const std::vector<std::size_t> from = begins_of(call.sends, input.dtype),
                                   to = begins_of(call.receives, input.dtype);
    const auto own = static_cast<std::size_t>(rank());
    return calls_.start(std::move(call), input, output, label,
                        [=, this](const void* in, void* out, ncclComm_t comm, cudaStream_t stream) {
                          copy_on_gpu(at(out, to[own]), at(in, from[own]), from[own + 1] - from[own], stream);
                          return for_others([&](int r) {
                            const auto i = static_cast<std::size_t>(r);
                            const std::size_t out_bytes = from[i + 1] - from[i], in_bytes = to[i + 1] - to[i];
                            ncclResult_t result = ncclSuccess;
                            if (out_bytes > 0)
                              result = ncclSend(at(in, from[i]), out_bytes, ncclUint8, r, comm, stream);
                            if (in_bytes > 0)
                              result = worse(result,
                                             ncclRecv(at(out, to[i]), in_bytes, ncclUint8, r, comm, stream));
                            return result;
                          });
                        });
  }

  std::unique_ptr<Work> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 std::string_view label) override {
    Call call{.operation = Operation::exchange};
    const auto add = [&](const Message& message, Operation operation) {
      require_rank("exchange", label, message.peer, true);
      call.messages.push_back({.operation = operation,
                               .dtype = message.span.dtype,
                               .root = message.peer,
                               .count = message.span.count,
                               .label = std::string(label)});
    };
    for (const Message& message : receives) add(message, Operation::receive);
    for (const Message& message : sends) add(message, Operation::send);
    return calls_.start_exchange(std::move(call), sends, receives, label);
  }

  std::unique_ptr<Work> offer(MemorySpan span, int to, std::string_view label) override {
    require_rank("offer", label, to, true);
    Call call{.operation = Operation::offer, .dtype = span.dtype, .root = to, .count = span.count};
    call.label = label;
    offers_.announce(call, calls_.core().watchdog());
    return calls_.start(std::move(call), span, {}, label,
                        [=](const void* in, void*, ncclComm_t comm, cudaStream_t stream) {
                          return ncclSend(in, span.bytes(), ncclUint8, to, comm, stream);
                        });
  }

  std::unique_ptr<Work> receive_any(MemorySpan span, int& from, std::string_view label) override {
    p2p::check_has_peers("receive_any", label, size());
    Call call{.operation = Operation::receive_any, .dtype = span.dtype, .count = span.count};
    call.label = label;
    const int peer = from = offers_.await(call, calls_.core().watchdog());
    return calls_.start(std::move(call), {}, span, label,
                        [=](const void*, void* out, ncclComm_t comm, cudaStream_t stream) {
                          return ncclRecv(out, span.bytes(), ncclUint8, peer, comm, stream);
                        });
  }

  std::unique_ptr<Work> send(MemorySpan span, int to, std::string_view label) override {
    require_rank("send", label, to, true);
    return calls_.start({.operation = Operation::send, .dtype = span.dtype, .root = to, .count = span.count},
                        span, {}, label, [=](const void* in, void*, ncclComm_t comm, cudaStream_t stream) {
                          return ncclSend(in, span.count, data_type(span.dtype), to, comm, stream);
                        });
  }

  std::unique_ptr<Work> receive(MemorySpan span, int from, std::string_view label) override {
    require_rank("receive", label, from, true);
    return calls_.start(
        {.operation = Operation::receive, .dtype = span.dtype, .root = from, .count = span.count}, {}, span,
        label, [=](const void*, void* out, ncclComm_t comm, cudaStream_t stream) {
          return ncclRecv(out, span.count, data_type(span.dtype), from, comm, stream);
        });
  }

  std::unique_ptr<Work> barrier(std::string_view label) override {
    return calls_.start({.operation = Operation::barrier}, {}, {}, label,
                        [](const void*, void* token, ncclComm_t comm, cudaStream_t stream) {
                          return ncclAllReduce(token, token, 1, ncclUint8, ncclMax, comm, stream);
                        });
  }

  std::unique_ptr<Communicator> split(int color, int key, const Deadline& deadline) override {
    const p2p::Subgroup group =
        p2p::agree_on_subgroup(*this, bootstrap_.name, ++splits_, color, key, deadline);
    Bootstrap part = bootstrap_;
    part.rank = group.rank_of(rank());
    part.size = static_cast<int>(group.members.size());
    part.name = group.name;
    auto made = std::make_unique<NcclCommunicator>(part, log_);
    if (call_limit_) made->limit_calls(*call_limit_);
    abort_tree_->add(made->abort_tree_);
    return made;
  }

  void limit_calls(Duration limit) noexcept override {
    call_limit_ = limit;
    calls_.core().watchdog().limit_calls(limit);
  }

  void abort(std::string_view reason) noexcept override { abort_tree_->abort(reason); }

 private:
  std::size_t world() const noexcept { return static_cast<std::size_t>(size()); }

  void require_rank(std::string_view operation, std::string_view label, int other, bool not_self) const {
    if (other >= 0 && other < size() && !(not_self && other == rank())) return;
    throw UsageError(fmt::format("{}('{}'): expected {} rank in [0, {}), got {}", operation, label,
                                 not_self ? "another" : "a", size(), other));
  }

  static void require_counts(std::string_view operation, std::string_view label, const MemorySpan& input,
                             const MemorySpan& output, std::size_t larger, std::size_t expected) {
    if (input.dtype == output.dtype && larger == expected && on_host(input) == on_host(output)) return;
    throw UsageError(
        fmt::format("{}('{}'): expected one dtype, both spans on one side and {} elements in the larger, got "
                    "{} x {} in and "
                    "{} x {} out",
                    operation, label, expected, dtrain::name_of(input.dtype), input.count,
                    dtrain::name_of(output.dtype), output.count));
  }

  /// Starts `body` with every other rank, all as one call.
  template <class Body>
  ncclResult_t for_others(Body body) const {
    return grouped([&] {
      ncclResult_t result = ncclSuccess;
      for (int r = 0; r < size(); ++r) {
        if (r != rank()) result = worse(result, body(r));
      }
      return result;
    });
  }

  /// Where each rank's part begins, and behind them the end; in bytes.
  static std::vector<std::size_t> begins_of(const std::vector<std::size_t>& counts, DType dtype) {
    std::vector<std::size_t> begins(counts.size() + 1);
    std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
    for (std::size_t& begin : begins) begin *= size_of(dtype);
    return begins;
  }

  Bootstrap bootstrap_;
  Log& log_;
  Calls calls_;
  Offers offers_;
  int splits_ = 0;
  std::optional<Duration> call_limit_;
  const std::shared_ptr<AbortTree> abort_tree_ = std::make_shared<AbortTree>(
      [this](std::string_view reason) { calls_.core().watchdog().abort(reason); });
};

std::unique_ptr<Communicator> make(const Bootstrap& bootstrap, Log& log) {
  return std::make_unique<NcclCommunicator>(bootstrap, log);
}

LibraryVersion version() {
  int number = 0;
  static_cast<void>(ncclGetVersion(&number));  // 0 is not known
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&ncclGetVersion), &info) != 0;
  return {"NCCL",
          {NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH},
          {number / 10000, number % 10000 / 100, number % 100},
          found && info.dli_fname != nullptr ? info.dli_fname : ""};
}

}  // namespace
}  // namespace dtrain::nccl

extern "C" __attribute__((visibility("default"))) const dtrain::NcclPlugin* dtrain_nccl() {
  static constexpr dtrain::NcclPlugin kPart{dtrain::nccl::make, dtrain::nccl::version};
  return &kPart;
}
