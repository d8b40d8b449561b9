// What the fuzzers call, one function a parser that takes bytes from outside. Each aborts when a promise is
// broken; the unit tests call them too, with a few thousand deterministic inputs.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// Expands or throws UsageError; never more than kMaxNodes hosts, none empty.
void nodelist(std::string_view input);
void tasks_per_node(std::string_view input);

/// A stream of sealed frames that the input says how to change on its way: what is opened are its first
/// frames, unchanged, up to where the change begins. The first byte is the protection, then come edits of
/// four bytes each. The input as a stream opens nothing that protection seals.
void frames(std::string_view input);

/// One that listens lets nobody in without the secret, answers once at most, and cut at every byte ends as it
/// does at once; one that connects believes nobody without it.
void handshake(std::string_view input);

/// Requests and responses decode or do not; what decodes encodes back to the same bytes.
void store_messages(std::string_view input);

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
