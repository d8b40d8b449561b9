// Modules of one network on different devices of a process: what goes into a module is brought to its device.
//
//     const auto left = make_device("cpu:0"), right = make_device("cpu:1");
//     auto fc1 = add_module("fc1", place(std::make_shared<Linear>(5000, 10000, generator, left), left));
//     auto fc2 = add_module("fc2", place(std::make_shared<Linear>(10000, 5000, generator, right), right));
//     Tensor y = (*fc2)((*fc1)(x));        // on cpu:1
#pragma once

#include <memory>
#include <vector>

#include "runtime/nn/chain.h"

namespace dtrain {

/// `module`, made on `device`, for a network whose other modules may be on others: its inputs are copied
/// there and so, backwards, are gradients; its results stay there. Parameters, buffers and modules below have
/// the names that they have in `module`. Branches on different devices compute at the same time in a fork()
/// each. Throws UsageError naming the first parameter or buffer that is on another device.
std::shared_ptr<Module> place(std::shared_ptr<Module> module, const std::shared_ptr<Device>& device);

/// A part whose inputs are brought to `device`, where its modules are.
LayerUnit place(LayerUnit part, const std::shared_ptr<Device>& device);
/// A part whose result is brought to `device`.
LayerUnit brought_to(LayerUnit part, const std::shared_ptr<Device>& device);

}  // namespace dtrain
