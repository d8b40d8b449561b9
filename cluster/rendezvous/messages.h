// News, words and offers as bytes, for the store's values and for the line between a launcher and its link.
// Strict: what decodes was encoded by us, within bounds that the sender keeps by cutting.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cluster/rendezvous/membership.h"
#include "cluster/rendezvous/protocol.h"

namespace dtrain::rendezvous {

inline constexpr std::size_t kMaxHostBytes = 253;
inline constexpr std::size_t kMaxAddressBytes = 256;
inline constexpr std::size_t kMaxMatches = 64;
inline constexpr std::size_t kMaxMatchKeyBytes = 64;
inline constexpr std::size_t kMaxMatchValueBytes = 1024;
inline constexpr std::size_t kMaxLines = 64;
inline constexpr std::size_t kMaxLineBytes = 1024;
inline constexpr std::size_t kMaxReasonBytes = 8192;
/// All hosts of a round together; with more, names that do not follow a pattern are left out.
inline constexpr std::size_t kMaxNodesBytes = 512 * 1024;

// Encoding cuts texts and lists that are too long (of lines the middle goes), so that what it yields always
// decodes. Nodes must be in the order of node_rank; runs of like nodes with numbered hosts ("gpu001" …
// "gpu999") take a few bytes together.
std::string encode(const NodeOffer& offer);
std::string encode(const Word& word);
std::string encode(const News& news);
std::string encode(const Admission& admission);

// nullopt for anything else than encode() yields.
std::optional<NodeOffer> decode_offer(std::string_view bytes);
std::optional<Word> decode_word(std::string_view bytes);
std::optional<News> decode_news(std::string_view bytes);
std::optional<Admission> decode_admission(std::string_view bytes);

/// The round that news is about, without decoding its nodes; nothing where it is about none.
std::optional<int> round_of(std::string_view news_bytes);

}  // namespace dtrain::rendezvous
