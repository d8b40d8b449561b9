// Rounds in which nodes are examined instead of working: who fails is kept out, and a spare takes the place.
#include <fmt/format.h>

#include <algorithm>

#include "cluster/rendezvous/membership.h"

namespace dtrain::rendezvous {
namespace {

// A worker that examines says last what is wrong with its node.
std::string reason_of(const Failure& failure) {
  if (failure.lines.empty()) return "its examination failed";
  std::string reason = failure.lines.back();
  reason.erase(0, std::min(reason.find_first_not_of(' '), reason.size()));
  for (const std::string_view prefix : {"dtrain: ", "rank "}) {  // "dtrain: rank 3: …"
    const std::size_t end = reason.find(": ");
    if (reason.starts_with(prefix) && end != std::string::npos) reason.erase(0, end + 2);
  }
  return reason;
}

bool is_of_a_node(const Failure& failure) {
  return failure.kind == Failure::Kind::worker || failure.kind == Failure::Kind::unusable;
}

}  // namespace

// Without the node that has failed. The leader's own cannot be kept out of the job that it leads.
bool Membership::examination_goes_on() const {
  const Failure& failure = found_->failure;
  if (signal_ || failure.consequence || failure.kind == Failure::Kind::requeue ||
      failure.kind == Failure::Kind::signal)
    return false;
  const auto own = slots_.by_rank().find(failure.node_rank);
  const bool is_here = own != slots_.by_rank().end();
  if (elastic()) return failure.node_rank != 0 && slots_.present() - (is_here ? 1 : 0) >= min_nodes();
  if (!takes_replacements() || !host_is_here()) return false;
  return !is_of_a_node(failure) || (is_here && slots_.slots().at(own->second).place != host_place_);
}

void Membership::conclude_examination(TimePoint now) {
  if (!found_) {
    if (!all_zero_) return finish_early();
    // Those who have come meanwhile have not been.
    examined_ = slots_.present() <= nodes_.size();
    return form_or_gather(now);
  }
  if (!again_ || !examination_goes_on()) {
    Failure failure = found_->failure;
    if (is_of_a_node(failure) && !failure.consequence)
      failure.lines.push_back(
          fmt::format("node_rank {} (host {}) is unfit, and no other node can take its place: {}",
                      failure.node_rank, failure.host, reason_of(found_->failure)));
    return finish(failure.exit_code, std::move(failure));
  }
  if (is_of_a_node(found_->failure)) keep_out(found_->failure);
  form_or_gather(now);
}

// Remembered by its host's name, unless that is the name of others too.
void Membership::keep_out(const Failure& failure) {
  const auto found = slots_.by_rank().find(failure.node_rank);
  if (found == slots_.by_rank().end()) return;
  const Slot slot = slots_.slots().at(found->second);
  const std::string why = fmt::format("{} is kept out of this job: {}", slot.text(), reason_of(failure));
  events_.emplace_back(KeptOut{slot.place, why});
  slots_.remove(slot.id);
  const bool shared = std::any_of(slots_.slots().begin(), slots_.slots().end(), [&](const auto& entry) {
    return entry.second.offer.host == slot.offer.host;
  });
  if (!shared) kept_out_[slot.offer.host] = why;
}

}  // namespace dtrain::rendezvous
