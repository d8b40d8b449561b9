// Which parameters a step used: one that some rank used gets the average gradient on all of them, one that
// none used gets none, so that weight decay and momentum leave it alone (torch's DDP with
// find_unused_parameters).
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "parallel/sync/buckets.h"
#include "runtime/device/device.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// By parameter.
using UsedParameters = std::vector<bool>;

/// Collective. What any of `ranks` used of what each has in `used`. Waits for it on the host. Throws
/// PeerError.
UsedParameters used_anywhere(const UsedParameters& used, Communicator& ranks, const Deadline& deadline);

/// Collective. Gives gradients of zeros to those of `parameters` that another rank has one of and this one
/// has not: all ranks then have gradients of the same ones. Throws PeerError.
void complete_gradients(const NamedTensors& parameters, Communicator& ranks, const Deadline& deadline);

// ---- the same among the gradients, where the host must not wait: a number a parameter that is added up with
// them, more than 0 where the parameter was used.

/// The slot of those numbers beside `gradients`, of which there is at least one. It belongs first, so that it
/// travels last.
GradientSlot used_slot(const std::vector<GradientSlot>& gradients);
/// Queues the writing of this rank's.
void write_used(Kernels& kernels, const View& slot, const UsedParameters& used);
/// Waits for what was queued, and gives what the sum says.
UsedParameters read_used(const std::shared_ptr<Device>& device, const View& slot);

}  // namespace dtrain
