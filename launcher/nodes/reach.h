// What has to be asked for before launchers can meet: the job's secret, MPI for an address, Slurm for one its
// names do not lead to.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "cluster/net/token.h"
#include "launcher/plan/placement.h"

namespace dtrain::launcher {

/// How long a name may take to be resolved.
inline constexpr std::chrono::seconds kResolveTimeout{3};

/// --token-file, else DTRAIN_TOKEN, else DTRAIN_TOKEN_FILE, else nothing. Throws as find_token.
std::optional<Token> find_secret(const LaunchOptions& options, const Environment& environment);

/// Where the secret of a place of many nodes comes from, for --explain. Blocks a few seconds at most.
std::string secret_source(const NodePlacement& placement, const std::optional<Token>& token,
                          const LaunchOptions& options);

/// Completes a place of many nodes: asks MPI where that is the way (`own_folder` holds dtrain-mpi-exchange),
/// asks scontrol for the address of a Slurm node whose name cannot be resolved, refuses a first node whose
/// name leads to this machine's loopback, and refuses to continue without a secret where other machines could
/// reach the rendezvous. Fills in `token`: on loopback with this user's own. Waits until --join-timeout for a
/// rendezvous whose name cannot be resolved yet, and tells people by `say`; otherwise blocks a minute at
/// most. Throws UsageError with what to do, and PeerError for a name that never resolves.
void complete_placement(NodePlacement& placement, std::optional<Token>& token, const LaunchOptions& options,
                        const std::string& own_folder, const std::function<void(const std::string&)>& say);

/// Whether the rendezvous is at one of this machine's addresses. Blocks at most until `deadline`; a name that
/// cannot be resolved is not ours.
bool rendezvous_is_here(const NodePlacement& placement, const Deadline& deadline);

/// How this machine reaches the rendezvous. Throws as resolve() and route_to().
Route route_to_rendezvous(const NodePlacement& placement, const Deadline& deadline);

/// For people who wait: that nobody answers at `meeting_point`, and what may be the matter. Blocks at most
/// until `deadline`.
std::string no_answer_from(const Endpoint& meeting_point, const Deadline& deadline);

}  // namespace dtrain::launcher
