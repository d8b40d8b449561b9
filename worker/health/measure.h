// What `dtrain doctor` measures: on this node alone, and of the way to the other workers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "worker/health/health_report.h"

namespace dtrain {

/// Measures matrix products on `device` for `seconds` (and compares every element of the result, which is
/// known), and where `whole_node` also copies in memory for half that time, free memory, and 64 MiB written
/// to a file in `folder` with fdatasync, which is removed. What fails is a bad finding of the report; nothing
/// is thrown.
void measure_node(HealthReport& report, const std::shared_ptr<Device>& device, const std::string& folder,
                  bool whole_node, double seconds);

/// Collective. Of the way to other workers: bytes a second in each direction, messages of 4 MiB both ways at
/// once, the best of up to four partners, since a slow node makes all of its links slow and no other (of the
/// workers that ends_of_links() names; the others wait); and the clock's distance from rank 0's, of the
/// fastest of 10 round trips. `hosts`: by rank. Throws PeerError.
void measure_links(HealthReport& report, Communicator& communicator, const std::vector<std::string>& hosts,
                   Duration timeout);

/// The ranks that measure links: the first of each host, since workers of a host share its link; where all
/// are on one host, all of them. Pure.
std::vector<int> ends_of_links(const std::vector<std::string>& hosts);

/// Whom `rank` of `size` meets in a round, so that all meet pair by pair and after size - 1 rounds (an odd
/// size: size) each has met every other once; -1: nobody. Pure.
int partner_in_round(int rank, int size, int round);

}  // namespace dtrain
