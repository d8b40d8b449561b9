// Between the membership and the numbered events that launchers hear.
#include "cluster/rendezvous/leader/office.h"

#include <algorithm>

#include "cluster/rendezvous/messages.h"

namespace dtrain::rendezvous {

void Office::collect() {
  for (News& news : membership_->take_news()) queue_.push_back(std::move(news));
}

void Office::start_over() {
  queue_.clear();
  events_.clear();
  next_event_ = formed_at_ = 0;
  first_events_.clear();
  heard_.clear();
  unheard_.reset();
}

// --- who leads --------------------------------------------------------------------------------------------

void Office::found(TimePoint now) {
  start_over();
  membership_.emplace(rules_, now);
}

void Office::inherit(std::uint64_t epoch, const Inheritance& inheritance, TimePoint now) {
  start_over();
  epoch_ = epoch;
  membership_.emplace(rules_, inheritance, now);
  collect();
}

void Office::close() {
  membership_.reset();
  start_over();
}

void Office::set_successors(bool there_are) { membership_->set_successors(there_are); }

// --- what launchers say -----------------------------------------------------------------------------------

Admission Office::join(std::uint64_t client, const NodeOffer& offer, TimePoint now) {
  if (offer.incarnation != 0) first_events_.try_emplace(offer.incarnation, next_event_);
  Admission admission = membership_->join(client, offer, now);
  // What became of the round that it comes back from has been told from the first piece of news on.
  const bool comes_back = offer.resumes && offer.epoch != epoch_ && admission.as_before;
  if (comes_back && offer.incarnation != 0) first_events_[offer.incarnation] = 0;
  collect();
  return admission;
}

void Office::beat(std::uint64_t client, TimePoint now) { membership_->beat(client, now); }

void Office::hear(std::uint64_t client, const NumberedWord& said, TimePoint now) {
  const auto word = decode_word(said.word);
  if (!word) return;
  if (membership_->over() && std::holds_alternative<Gone>(*word)) heard_the_end(client);
  membership_->hear(client, *word, now, said.number);
  collect();
}

void Office::leave(std::uint64_t client, Departure departure, TimePoint now) {
  membership_->leave(client, departure, now);
  collect();
}

TimePoint Office::tick(TimePoint now) {
  const TimePoint next = membership_->tick(now);
  collect();
  return next;
}

void Office::heard_the_end(std::uint64_t client) {
  const std::uint64_t incarnation = incarnation_of(client);
  heard_.insert(incarnation);
  if (unheard_) unheard_->erase(incarnation);
}

std::uint64_t Office::incarnation_of(std::uint64_t client) const {
  return membership_->incarnation_of(client);
}

// Nobody comes or is lost any more.
std::size_t Office::unheard() {
  if (!unheard_) {
    unheard_.emplace();
    for (const std::uint64_t incarnation : membership_->incarnations()) {
      if (!heard_.contains(incarnation)) unheard_->insert(incarnation);
    }
  }
  return unheard_->size();
}

// --- what they are told -----------------------------------------------------------------------------------

std::uint64_t Office::first_event_of(std::uint64_t incarnation) const {
  const auto found = first_events_.find(incarnation);
  return found == first_events_.end() ? next_event_ : found->second;
}

bool Office::forms() const {
  return std::any_of(queue_.begin(), queue_.end(),
                     [](const News& news) { return std::holds_alternative<Forming>(news); });
}

const Office::Event& Office::tell_next(TimePoint now) {
  const News news = std::move(queue_.front());
  queue_.pop_front();
  return tell(news, now);
}

const Office::Event& Office::tell(const News& news, TimePoint now) {
  if (std::holds_alternative<Forming>(news)) formed_at_ = next_event_ + 1;
  events_.push_back({next_event_++, encode(news), now});
  return events_.back();
}

}  // namespace dtrain::rendezvous
