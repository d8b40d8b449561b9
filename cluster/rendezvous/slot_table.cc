// Slots, and what is said of those who may not have one or have not come.
#include "cluster/rendezvous/slot_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::rendezvous {
namespace {

constexpr int kShownRanges = 10;

std::string host_text(const NodeOffer& offer) {
  return offer.address.empty() ? fmt::format("host {}", offer.host)
                               : fmt::format("host {}, {}", offer.host, offer.address);
}

const std::string* value_of(const NodeOffer& offer, const std::string& key) {
  for (const auto& [name, value] : offer.must_match) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string shown(const std::string* value) {
  return value == nullptr ? "nothing" : fmt::format("'{}'", *value);
}

}  // namespace

std::string Slot::text() const {
  return node_rank < 0 ? fmt::format("spare {} ({})", place, host_text(offer))
                       : fmt::format("node_rank {} ({})", node_rank, host_text(offer));
}

SlotTable::SlotTable(int min_nodes, int max_nodes, std::vector<std::string> hosts, int spares)
    : min_nodes_(min_nodes), max_nodes_(max_nodes), spares_(spares), hosts_(std::move(hosts)) {}

std::string SlotTable::objection(const NodeOffer& offer) const {
  const std::string differs = mismatch(offer);
  return differs.empty() ? rank_objection(offer) : differs;
}

std::string SlotTable::rank_objection(const NodeOffer& offer) const {
  if (offer.node_rank && (*offer.node_rank < 0 || *offer.node_rank >= max_nodes_ + spares_))
    return fmt::format(
        "node_rank {} of {} is out of range: this job has node_rank 0 to {}{}; correct node_rank there, or "
        "nnodes everywhere",
        *offer.node_rank, host_text(offer), max_nodes_ + spares_ - 1,
        spares_ == 0 ? "" : fmt::format(", the last {} of them spares", spares_));
  if (offer.node_rank && has_place(*offer.node_rank))
    return fmt::format(
        "node_rank {} is taken: {} has joined with it, and now {} asks for it; give every node a different "
        "node_rank",
        *offer.node_rank, host_text(slots_.at(by_place_.at(*offer.node_rank)).offer), host_text(offer));
  // The place of the node that hosts the rendezvous is kept for it.
  const std::size_t here = by_place_.size();
  const bool only_first_free = here + 1 == places() && !has_place(0);
  if (here >= places() || (!offer.node_rank && only_first_free))
    return fmt::format(
        "the job is full: {} of {} nodes have joined and {} is one too many; start fewer launchers", here,
        places(), host_text(offer));
  return {};
}

std::string SlotTable::mismatch(const NodeOffer& offer) const {
  if (!reference_) return {};
  std::string text;
  const auto compare = [&](const std::string& key) {
    const std::string* theirs = value_of(reference_->offer, key);
    const std::string* ours = value_of(offer, key);
    if ((theirs == nullptr) == (ours == nullptr) && (theirs == nullptr || *theirs == *ours)) return;
    text += fmt::format("{}{} differs: {} on {}, {} on {}", text.empty() ? "" : "; ", key, shown(theirs),
                        reference_->text(), shown(ours),
                        offer.node_rank ? fmt::format("node_rank {} ({})", *offer.node_rank, host_text(offer))
                                        : host_text(offer));
  };
  for (const auto& [key, value] : reference_->offer.must_match) compare(key);
  for (const auto& [key, value] : offer.must_match) {
    if (value_of(reference_->offer, key) == nullptr) compare(key);
  }
  return text.empty() ? text : text + "; it must be the same on every node";
}

int SlotTable::free_place() {
  while (has_place(lowest_free_)) ++lowest_free_;
  return lowest_free_ < max_nodes_ + spares_ ? lowest_free_ : 0;
}

Slot& SlotTable::add(ConnectionId id, const NodeOffer& offer, TimePoint now) {
  Slot slot;
  slot.id = id;
  slot.place = offer.node_rank ? *offer.node_rank : free_place();
  slot.node_rank = slot.place < max_nodes_ && !has_rank(slot.place) ? slot.place : -1;
  slot.offer = offer;
  slot.last_heard = now;
  some_unranked_ = some_unranked_ || !offer.node_rank;
  if (!reference_) reference_ = slot;
  by_place_[slot.place] = id;
  if (slot.node_rank >= 0) by_rank_[slot.node_rank] = id;
  if (offer.instance_id != 0) by_instance_id_[offer.instance_id] = id;
  return slots_[id] = std::move(slot);
}

void SlotTable::inherit(Slot slot) {
  slot.broken = true;
  inherited_[slot.place] = slot.id;
  slots_[slot.id] = std::move(slot);
}

Slot* SlotTable::find_inherited(int place) {
  const auto found = inherited_.find(place);
  return found == inherited_.end() ? nullptr : find(found->second);
}

void SlotTable::claim(Slot& slot, const NodeOffer& offer) {
  slot.offer = offer;
  inherited_.erase(slot.place);
  if (!reference_) reference_ = slot;
  by_instance_id_[offer.instance_id] = slot.id;
}

void SlotTable::mark_broken(ConnectionId id) {
  Slot& slot = slots_.at(id);
  if (slot.broken) return;
  slot.broken = true;
  if (slot.node_rank >= 0) by_rank_.erase(slot.node_rank);
  by_place_.erase(slot.place);
  if (slot.place > 0) lowest_free_ = std::min(lowest_free_, slot.place);
}

// One walk over the places: who has been passed does not wait.
void SlotTable::promote_spares() {
  const auto waits = [&](const auto& entry) { return slots_.at(entry.second).node_rank < 0; };
  auto first_waiting = by_place_.begin();
  for (int node_rank = 0; node_rank < max_nodes_ && waiting() > 0; ++node_rank) {
    if (has_rank(node_rank)) continue;
    auto next = by_place_.find(node_rank);
    if (next == by_place_.end() || !waits(*next))
      next = first_waiting = std::find_if(first_waiting, by_place_.end(), waits);
    slots_.at(next->second).node_rank = node_rank;
    by_rank_[node_rank] = next->second;
  }
}

std::vector<std::pair<int, int>> SlotTable::displaced() const {
  std::vector<std::pair<int, int>> displaced;
  for (const auto& [place, id] : by_place_) {
    const int node_rank = slots_.at(id).node_rank;
    if (node_rank != place) displaced.emplace_back(place, node_rank);
    if (node_rank >= 0 && node_rank != place && !has_place(node_rank)) displaced.emplace_back(node_rank, -1);
  }
  std::sort(displaced.begin(), displaced.end());
  return displaced;
}

Slot* SlotTable::find_instance_id(std::uint64_t instance_id) {
  const auto found = by_instance_id_.find(instance_id);
  return found == by_instance_id_.end() ? nullptr : find(found->second);
}

const Slot* SlotTable::find_instance_id(std::uint64_t instance_id) const {
  const auto found = by_instance_id_.find(instance_id);
  const auto slot = found == by_instance_id_.end() ? slots_.end() : slots_.find(found->second);
  return slot == slots_.end() ? nullptr : &slot->second;
}

Slot& SlotTable::move(ConnectionId from, ConnectionId to) {
  auto node = slots_.extract(from);
  node.key() = to;
  Slot& slot = slots_.insert(std::move(node)).position->second;
  slot.id = to;
  if (slot.broken && slot.node_rank >= 0 && has_rank(slot.node_rank)) slot.node_rank = -1;
  slot.broken = false;
  by_place_[slot.place] = to;
  if (slot.node_rank >= 0) by_rank_[slot.node_rank] = to;
  by_instance_id_[slot.offer.instance_id] = to;
  return slot;
}

void SlotTable::remove(ConnectionId id) {
  mark_broken(id);
  if (const auto own = inherited_.find(slots_.at(id).place); own != inherited_.end() && own->second == id)
    inherited_.erase(own);
  by_instance_id_.erase(slots_.at(id).offer.instance_id);
  slots_.erase(id);
}

Slot* SlotTable::find(ConnectionId id) {
  const auto found = slots_.find(id);
  return found == slots_.end() ? nullptr : &found->second;
}

std::vector<RoundNode> SlotTable::nodes() const {
  std::vector<RoundNode> nodes;
  nodes.reserve(by_rank_.size());
  int first_rank = 0;
  for (const auto& [node_rank, id] : by_rank_) {
    const NodeOffer& offer = slots_.at(id).offer;
    nodes.push_back({node_rank, offer.host, offer.nproc, first_rank});
    first_rank += offer.nproc;
  }
  return nodes;
}

std::string SlotTable::expected_text(int node_rank) const {
  const auto place = static_cast<std::size_t>(node_rank);
  return place < hosts_.size() ? fmt::format("{} ({})", node_rank, hosts_[place]) : std::to_string(node_rank);
}

std::string SlotTable::count_text() const {
  const std::string wanted =
      min_nodes_ == max_nodes_ ? std::to_string(max_nodes_) : fmt::format("{} to {}", min_nodes_, max_nodes_);
  std::string text = fmt::format("{}/{} nodes", present(), wanted);
  if (waiting() > 0) text += fmt::format(" and {} of {} spares", waiting(), spares_);
  if (present() >= static_cast<std::size_t>(max_nodes_)) return text;
  if (some_unranked_)
    return text + fmt::format("; {} more may come", max_nodes_ - static_cast<int>(present()));
  text += "; missing node_rank ";
  int ranges = 0;
  int next = 0;
  // One turn a gap; the last gap ends at max_nodes_.
  const auto gap = [&](int end) {
    if (next < end && ranges++ < kShownRanges) {
      text += ranges == 1 ? "" : ", ";
      // Hosts are worth their room where few are missing.
      text += end - next <= 2 || hosts_.empty() ? expected_text(next) : std::to_string(next);
      if (end - next == 2) text += ", " + expected_text(next + 1);
      if (end - next > 2) text += fmt::format("-{}", end - 1);
    }
    next = end + 1;
  };
  for (const auto& [node_rank, id] : by_rank_) gap(node_rank);
  gap(max_nodes_);
  return ranges > kShownRanges ? text + ", …" : text;
}

}  // namespace dtrain::rendezvous
