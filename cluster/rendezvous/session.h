// One launcher's conversation with the coordinator as a state machine over bytes and time: no socket, no
// thread. Member gives it both; the scale benchmark runs thousands in one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/rendezvous/protocol.h"
#include "cluster/store/store_wire.h"

namespace dtrain::rendezvous {

// Keys that a launcher sets at the coordinator's store, and waits for.
inline constexpr std::string_view kPrefix = "rdzv/";
inline constexpr std::string_view kJoinKey = "rdzv/join";  ///< an offer; the answer is a join_answer()
inline constexpr std::string_view kBeatKey = "rdzv/beat";
inline constexpr std::string_view kWordKey = "rdzv/word";
inline constexpr std::string_view kSilenceKey = "rdzv/silence";  ///< the lease ran out without an answer
/// The news of that number, for all launchers.
std::string event_key(std::uint64_t number);

/// The number of the first event a newcomer is to hear, and whether it is in.
std::string join_answer(std::uint64_t first_event, std::string_view admission);

/// What kWordKey is set to: a launcher's words are numbered from 1.
struct NumberedWord {
  std::uint64_t number = 0;
  std::string_view word;
};
std::string number_word(std::uint64_t number, std::string_view word);
/// Of anything else than number_word() yields: an empty word.
NumberedWord split_word(std::string_view bytes);

struct SessionTimes {
  Duration beat = std::chrono::seconds(1);
  Duration lease = std::chrono::seconds(4);
};

class Session {
 public:
  /// Over a connection that has authenticated: its two directions.
  Session(wire::FrameReader reader, wire::FrameWriter writer, const NodeOffer& offer, SessionTimes times,
          TimePoint now);

  void receive(std::string_view bytes, TimePoint now);
  void say(const Word& word, TimePoint now);
  /// The connection broke. The session goes on over another one when resume() is called before the lease has
  /// run out; `why` is told when it is not.
  /// One that has not been admitted yet is lost.
  void interrupt(std::string why);
  bool interrupted() const noexcept { return !ended_ && !cause_.empty(); }
  /// Over another connection that has authenticated: asks for the same seat, then says again what was not
  /// answered.
  void resume(wire::FrameReader reader, wire::FrameWriter writer, TimePoint now);
  /// It cannot go on: from now on only LeaseLost is told.
  void lose(std::string why);
  /// Beats when due; ends the session when the lease has run out. Returns when to call again at the latest.
  TimePoint tick(TimePoint now);

  /// Bytes to be sent; the sender erases them.
  std::string& out() noexcept { return out_; }
  /// The next piece of news, encoded, `self` filled in.
  std::optional<std::string> take();
  /// The coordinator has seated this node.
  bool admitted() const noexcept { return node_rank_ >= 0; }
  /// When the lease runs out, if nothing more is answered.
  TimePoint lease_ends() const noexcept { return lease_from_ + times_.lease; }
  /// After Over, Refused or LeaseLost nothing more comes.
  bool ended() const noexcept { return ended_; }

 private:
  std::uint64_t ask(wire::Op op, std::string_view key, std::string value);
  void set(std::string_view key, std::string value, TimePoint now);
  void await_event();
  void answered(wire::Response& response);
  void take_admission(std::string_view answer);
  void hear(std::string news);

  void say_numbered(std::string numbered, TimePoint now);

  wire::FrameReader reader_;
  wire::FrameWriter writer_;
  NodeOffer offer_;
  SessionTimes times_;
  std::string cause_;               // of the interruption
  std::uint64_t words_ = 0;         // said so far
  std::deque<std::string> unsaid_;  // numbered words, while interrupted
  std::string out_;
  std::deque<std::string> news_;
  std::uint64_t next_request_ = 1;
  std::uint64_t join_request_ = 0, event_request_ = 0;
  std::uint64_t next_event_ = 0;
  int node_rank_ = -1;
  std::optional<int> place_;  // in the round that forms or runs
  int round_ = -1;
  struct Sent {
    std::uint64_t request = 0;
    TimePoint at{};
    std::string word;  // numbered; empty: no word
  };
  std::deque<Sent> unanswered_;  // sets only; the server answers them in order
  TimePoint lease_from_, next_beat_;
  bool ended_ = false;
};

}  // namespace dtrain::rendezvous
