// Events, words and offers as bytes, for the store's values and for the channel between a launcher and its
// node agent.
// Strict: what decodes was encoded by us, within bounds that the sender keeps by cutting.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cluster/rendezvous/membership.h"
#include "cluster/rendezvous/protocol.h"

namespace dtrain::rendezvous {

/// Of all that launchers tell each other once they have joined; to be raised with every change of it.
inline constexpr int kMessagesVersion = 5;

inline constexpr std::size_t kMaxAddressBytes = 256;
inline constexpr std::size_t kMaxMatches = 64;
inline constexpr std::size_t kMaxMatchKeyBytes = 64;
inline constexpr std::size_t kMaxMatchValueBytes = 1024;
inline constexpr std::size_t kMaxLines = 64;
inline constexpr std::size_t kMaxLineBytes = 1024;
inline constexpr std::size_t kMaxVoters = 16;
inline constexpr std::size_t kMaxReasonBytes = 8192;
inline constexpr std::size_t kMaxKeptOut = 256;
/// All hosts of a round together; with more, names that do not follow a pattern are left out.
inline constexpr std::size_t kMaxNodesBytes = 512 * 1024;

// Encoding cuts texts and lists that are too long (of lines the middle goes), so that what it yields always
// decodes. Nodes must be in the order of node_rank; runs of like nodes with numbered hosts ("gpu001" …
// "gpu999") take a few bytes together.
std::string encode(const NodeOffer& offer);
std::string encode(const NodeEvent& event);
std::string encode(const LeaderEvent& event);
std::string encode(const Admission& admission);

// nullopt for anything else than encode() yields.
std::optional<NodeOffer> decode_offer(std::string_view bytes);
std::optional<NodeEvent> decode_node_event(std::string_view bytes);
std::optional<LeaderEvent> decode_leader_event(std::string_view bytes);
std::optional<Admission> decode_admission(std::string_view bytes);

// Looks at an encoded LeaderEvent without decoding its nodes, whose number a launcher's cost need not grow
// with.
/// The round that Forming, Start and Stop are about.
std::optional<int> round_of(std::string_view event);
bool is_forming(std::string_view event) noexcept;
bool is_start(std::string_view event) noexcept;
bool is_over(std::string_view event) noexcept;
bool is_snapshot(std::string_view event) noexcept;
bool is_kept_out(std::string_view event) noexcept;
/// The index in Forming's list of the launcher with that place; nothing when it takes no part.
std::optional<int> index_in_round(std::string_view forming, int place);
/// Fills in `self` of Forming and Start; leaves other events as they are.
void set_self(std::string& event, int place);

}  // namespace dtrain::rendezvous
