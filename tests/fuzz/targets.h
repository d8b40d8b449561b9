// What the fuzzers call, one function a parser that takes bytes from outside. Each aborts when a promise is
// broken; the unit tests call them too, with a few thousand deterministic inputs.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// Expands or throws UsageError; never more than kMaxNodes hosts, none empty.
void nodelist(std::string_view input);
void tasks_per_node(std::string_view input);

/// Feeds a frame reader cut at every byte and at once: both must see the same frames and the same end; frames
/// made from the input come back whole; a flipped bit never does. Requests and responses decode or do not,
/// and what decodes encodes back to the same bytes.
void frames(std::string_view input);

/// A server's handshake never accepts bytes without the secret, never keeps more than its bound, and cut at
/// every byte ends as it does at once. A client's never accepts a challenge without the secret.
void handshake(std::string_view input);

/// A launcher's and the leader's messages decode or do not; what decodes has one encoding.
void rendezvous_messages(std::string_view input);
/// A launcher's side of the conversation, given authentic frames with anything in them, then no frames.
void rendezvous_session(std::string_view input);
/// The leader under any sequence of joins, words, leavings and time: one end and nothing after it,
/// rounds in order, and no round starts while somebody of the one before may be at work.
void rendezvous_membership(std::string_view input);

/// A configuration file, then a command line, made of the input.
void config(std::string_view input);

}  // namespace dtrain::fuzz
