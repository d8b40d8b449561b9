// A round's nodes as bytes: like nodes with numbered hosts are written as one run, so that telling 10,000
// launchers about 10,000 nodes is not a matter of gigabytes. Internal to messages.cc.
#pragma once

#include <optional>
#include <vector>

#include "cluster/net/bytes.h"
#include "cluster/rendezvous/protocol.h"

namespace dtrain::rendezvous {

/// Appends `nodes`, which are in the order of node_rank; first ranks follow from the others.
void put_nodes(std::string& out, const std::vector<RoundNode>& nodes);
/// Nothing when the bytes are malformed, or the nodes out of order or too many.
std::optional<std::vector<RoundNode>> take_nodes(wire::ByteReader& reader);
/// The place of `node_rank` among the nodes; O(runs).
std::optional<int> find_node(wire::ByteReader& reader, int node_rank);

}  // namespace dtrain::rendezvous
