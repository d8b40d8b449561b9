// From a config to the devices of a worker and the way it shares the work with others.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/schedule/links.h"
#include "parallel/server/key_value_store.h"
#include "parallel/strategy.h"
#include "parallel/tensor/tensor_parallel_group.h"
#include "training/options/train_config.h"

namespace dtrain {

struct WorkerDevices {
  std::vector<std::shared_ptr<Device>> all;  ///< at least one
  std::size_t main_index = 0;                ///< of the one where batches come and losses are computed
  std::shared_ptr<Device> home;  ///< where parameters live and are updated: the main device, or the host

  const std::shared_ptr<Device>& main() const noexcept { return all[main_index]; }
  /// Puts `device`, which stands for the main one, in its place.
  void replace_main(const std::shared_ptr<Device>& device) {
    if (home == main()) home = device;
    all[main_index] = device;
  }
};

/// What GPUs of the list `names` ("cuda:0", …) are to the `local_rank`-th of `local_size` workers of a node
/// where `visible` GPUs are visible: its own where those suffice for all, as many for each, so that cuda:0 is
/// the first of the worker's; else, as where each worker sees its own alone, the names as they are.
std::vector<std::string> own_gpus(const std::vector<std::string>& names, int local_rank, int local_size,
                                  int visible);

/// Those of the config, own_gpus() among them. Throws UsageError for devices that are not there.
WorkerDevices make_devices(const TrainConfig& config, int local_rank, int local_size);

/// The groups of a mesh.
struct WorkerMesh {
  Mesh mesh;
  std::optional<PipelineLinks> links;  ///< where it has stages

  WorkerMesh(Communicator& world, std::vector<MeshAxis> axes, const Deadline& deadline)
      : mesh(world, std::move(axes), deadline) {}
  WorkerMesh(const WorkerMesh&) = delete;  // links refer to the mesh
  WorkerMesh& operator=(const WorkerMesh&) = delete;
};

/// Collective where the config has a mesh or groups of shards, which are split off; null without.
/// `local_size`: workers of this node; the config may mean them (kShardNode). Throws UsageError where nodes
/// do not hold equal numbers of neighbours.
std::unique_ptr<WorkerMesh> make_mesh(const TrainConfig& config, Communicator& world, int local_rank,
                                      int local_size);

/// The ranks that a network is split over; nothing where each worker or stage has whole layers.
std::optional<TensorParallelGroup> tensor_parallel_group(const TrainConfig& config, const WorkerMesh* mesh);

/// `context` has the home device. `mesh` may be null, as may `servers` where the config has none; both
/// outlive the strategy.
std::unique_ptr<Strategy> make_strategy(const TrainConfig& config, const StrategyContext& context,
                                        const WorkerDevices& devices, const WorkerMesh* mesh,
                                        KeyValueStore* servers);

}  // namespace dtrain
