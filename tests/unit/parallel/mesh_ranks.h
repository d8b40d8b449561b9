// Ranks of a mesh, as threads, that make a strategy and train with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/thread_ranks.h"
#include "parallel/mesh.h"
#include "parallel/schedule/links.h"
#include "parallel/strategy.h"

namespace dtrain::test {

/// What ranks make of a mesh that outlives the strategy; `links` where it has stages.
using MakeStrategy = std::function<std::unique_ptr<Strategy>(const StrategyContext& context, const Mesh& mesh,
                                                             const PipelineLinks* links)>;

/// Calls `train` on each rank with its strategy, not yet prepared, and a scaler; stages have links of
/// `shape`.
inline void run_mesh_ranks(
    const std::vector<MeshAxis>& axes, int ranks, const MakeStrategy& make,
    const std::function<void(Strategy& strategy, GradScaler& scaler, Communicator& communicator,
                             const std::shared_ptr<Device>& device)>& train,
    PipelineShape shape = PipelineShape::line) {
  NullLog log;
  run_thread_ranks(ranks, {}, log, [&](Communicator& communicator) {
    const auto device = make_device("cpu");
    StepClock clock;
    const Mesh mesh(communicator, axes, Deadline::never());
    std::optional<PipelineLinks> links;
    if (mesh.size("pp") > 1) links.emplace(mesh, shape, Deadline::never());
    GradScaler scaler(device, {.initial_scale = 1024});
    const auto strategy =
        make({communicator, device, std::chrono::seconds(30), {&clock}}, mesh, links ? &*links : nullptr);
    train(*strategy, scaler, communicator, device);
  });
}

}  // namespace dtrain::test
