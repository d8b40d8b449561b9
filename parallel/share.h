// Texts and tensors handed from rank 0 to the other ranks, and texts from all to all, at the start of a run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// Returns rank 0's `text` on every rank. Every rank must call it.
std::string broadcast_text(Communicator& communicator, std::string text, const Deadline& deadline);

/// Returns rank 0's `entries` on every rank. Every rank must call it.
std::map<std::string, std::string> broadcast_entries(Communicator& communicator,
                                                     const std::map<std::string, std::string>& entries,
                                                     const Deadline& deadline);

/// Returns every rank's text, by rank. Every rank must call it. Throws PeerError.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own,
                                      const Deadline& deadline);

/// Returns rank 0's tensors (names, shapes, dtypes, values) on every rank; rank 0's own share memory with
/// `tensors`, the others' argument is ignored. Tensors must be dense. Every rank must call it.
NamedTensors broadcast_tensors(Communicator& communicator, const NamedTensors& tensors,
                               const std::shared_ptr<Device>& device, const Deadline& deadline);

}  // namespace dtrain
