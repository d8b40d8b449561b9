// Between the membership and the numbered events that launchers hear.
#include "cluster/rendezvous/leader/leader_state.h"

#include <algorithm>

#include "cluster/rendezvous/messages.h"

namespace dtrain::rendezvous {

void LeaderState::collect() {
  for (LeaderEvent& event : membership_->take_events()) queue_.push_back(std::move(event));
}

void LeaderState::start_over() {
  queue_.clear();
  events_.clear();
  next_event_ = formed_at_ = 0;
  first_events_.clear();
  heard_.clear();
  unheard_.reset();
}

// --- who leads --------------------------------------------------------------------------------------------

void LeaderState::found(TimePoint now) {
  start_over();
  membership_.emplace(rules_, now);
}

void LeaderState::inherit(const Inheritance& inheritance, TimePoint now) {
  start_over();
  membership_.emplace(rules_, inheritance, now);
  collect();
}

void LeaderState::close() {
  membership_.reset();
  start_over();
}

void LeaderState::set_successors(bool there_are) { membership_->set_successors(there_are); }

// --- what launchers say -----------------------------------------------------------------------------------

Admission LeaderState::join(std::uint64_t client, const NodeOffer& offer, bool follows_another,
                            TimePoint now) {
  if (offer.instance_id != 0) first_events_.try_emplace(offer.instance_id, next_event_);
  Admission admission = membership_->join(client, offer, now);
  // What became of the round that it comes back from has been told from the first event on.
  const bool comes_back = offer.resumes && follows_another && admission.as_before;
  if (comes_back && offer.instance_id != 0) first_events_[offer.instance_id] = 0;
  collect();
  return admission;
}

void LeaderState::beat(std::uint64_t client, TimePoint now) { membership_->beat(client, now); }

void LeaderState::hear(std::uint64_t client, const NumberedEvent& said, TimePoint now) {
  const auto event = decode_node_event(said.event);
  if (!event) return;
  if (membership_->over() && std::holds_alternative<Gone>(*event)) heard_the_end(client);
  membership_->hear(client, *event, now, said.number);
  collect();
}

void LeaderState::leave(std::uint64_t client, Departure departure, TimePoint now) {
  membership_->leave(client, departure, now);
  collect();
}

TimePoint LeaderState::tick(TimePoint now) {
  const TimePoint next = membership_->tick(now);
  collect();
  return next;
}

void LeaderState::heard_the_end(std::uint64_t client) {
  const std::uint64_t instance_id = instance_id_of(client);
  heard_.insert(instance_id);
  if (unheard_) unheard_->erase(instance_id);
}

std::uint64_t LeaderState::instance_id_of(std::uint64_t client) const {
  return membership_->instance_id_of(client);
}

// Nobody comes or is lost any more.
std::size_t LeaderState::unheard() {
  if (!unheard_) {
    unheard_.emplace();
    for (const std::uint64_t instance_id : membership_->instance_ids()) {
      if (!heard_.contains(instance_id)) unheard_->insert(instance_id);
    }
  }
  return unheard_->size();
}

// --- what they are told -----------------------------------------------------------------------------------

std::uint64_t LeaderState::first_event_of(std::uint64_t instance_id) const {
  const auto found = first_events_.find(instance_id);
  return found == first_events_.end() ? next_event_ : found->second;
}

bool LeaderState::forms() const {
  return std::any_of(queue_.begin(), queue_.end(),
                     [](const LeaderEvent& event) { return std::holds_alternative<Forming>(event); });
}

const LeaderState::Event& LeaderState::tell_next(TimePoint now) {
  const LeaderEvent event = std::move(queue_.front());
  queue_.pop_front();
  return tell(event, now);
}

const LeaderState::Event& LeaderState::tell(const LeaderEvent& event, TimePoint now) {
  if (std::holds_alternative<Forming>(event)) formed_at_ = next_event_ + 1;
  events_.push_back({next_event_++, encode(event), now});
  return events_.back();
}

}  // namespace dtrain::rendezvous
