// One network on several devices of this process (torch.nn.DataParallel): each device computes some of the
// rows of a batch at the same time as the others, and backward adds the gradients up in the network that
// learns.
//
//     auto net = std::make_shared<LeNet>();
//     ReplicatedModule replicated(net, devices, [] { return std::make_shared<LeNet>(); });
//     cross_entropy(replicated(images), labels).backward();      // gradients are in net
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/nn/module.h"

namespace dtrain {

/// Which rows a device gets.
enum class RowSplit {
  every_kth,  ///< device j of k the rows j, j + k, …: as ranks of data parallelism share a batch
  runs        ///< consecutive ones, as torch.chunk cuts them: so many each, the last fewer
};

/// The rows of `x` (dimension 0) on each device; differentiable. Fewer parts than devices where there are
/// fewer rows.
Tensors scatter_rows(const Tensor& x, const std::vector<std::shared_ptr<Device>>& devices, RowSplit split);
/// Undoes scatter_rows(): all rows in their order on `device`; differentiable.
Tensor gather_rows(const Tensors& parts, const std::shared_ptr<Device>& device, RowSplit split);

/// The network on one device.
struct Replica {
  std::shared_ptr<Device> device;
  std::shared_ptr<Module> network;
};

/// Bytes that crossed between devices.
struct ReplicaTraffic {
  std::uint64_t parameters = 0;   ///< from the network that learns to its replicas
  std::uint64_t gradients = 0;    ///< back
  std::uint64_t activations = 0;  ///< inputs and outputs, and their gradients
};

/// Has the names, parameters and buffers of the network that learns, so that whatever trains that can train
/// this. In training each call copies its parameters to the other replicas, which run in threads of their
/// own; outputs come together on the first replica's device, in the order of the rows. The gradient of a
/// parameter is the sum over the replicas, along the tree of data parallelism. Buffers (running statistics)
/// that survive are the first replica's. Outputs have the rows of the batch as their first dimension, or are
/// parameters, of which the first replica's is handed on. In evaluation the network that learns computes
/// alone. Used by one thread.
class ReplicatedModule final : public MultiModule {
 public:
  /// `learning`: the network that is trained, on a device of its own (the host) or, as one of `replicas`, on
  /// theirs. All have the same parameters by name and shape. Throws UsageError where they do not, and for no
  /// replicas.
  ReplicatedModule(std::shared_ptr<Module> learning, std::vector<Replica> replicas,
                   RowSplit split = RowSplit::every_kth);
  /// torch.nn.DataParallel(learning, devices): `learning` moves to the first device (Module::to), and `make`
  /// makes its replicas on the others, one at a time, which are each the default device meanwhile; they get
  /// the state of `learning`, and default_generator() is then as it was. Throws UsageError as above and for
  /// a device that is given twice.
  ReplicatedModule(const std::shared_ptr<Module>& learning,
                   const std::vector<std::shared_ptr<Device>>& devices,
                   const std::function<std::shared_ptr<Module>()>& make, RowSplit split = RowSplit::runs);
  Tensors forward_all(const Tensors& inputs) override;

  const ReplicaTraffic& traffic() const noexcept { return *traffic_; }
  std::vector<std::shared_ptr<Device>> devices() const;

 private:
  Tensors forward_learning(const Tensors& inputs);
  std::vector<Tensors> scatter(const Tensors& inputs);
  /// Of the first replica.
  bool is_parameter(const Tensor& output) const;
  Tensors gather(const std::vector<Tensors>& results);
  void adopt();
  void check_alike(const Replica& replica) const;
  void replicate(std::size_t used);
  void replicate_children(int parent, std::size_t used);
  void replicate_from(const NamedTensors& sources, std::size_t replica);
  /// Whether run() copies its parameters.
  bool copies_itself(std::size_t replica) const;
  void copy_parameters(std::size_t replica);
  Tensors run(std::size_t replica, const Tensors& inputs);
  void hand_on_masks(std::size_t used);
  void keep_buffers();

  std::shared_ptr<Module> learning_;
  std::vector<Replica> replicas_;
  RowSplit split_;
  NamedTensors parameters_;                  ///< of the network that learns
  std::vector<NamedTensors> replica_state_;  ///< parameters of each replica, in the same order
  std::shared_ptr<ReplicaTraffic> traffic_;
};

}  // namespace dtrain
