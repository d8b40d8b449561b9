// What travels between ranks as text or number: fingerprints, flight records, failures; and the arithmetic of
// reductions.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "collectives/factory.h"
#include "collectives/p2p/call.h"
#include "collectives/p2p/flight_recorder.h"
#include "collectives/p2p/peer_failure.h"
#include "collectives/p2p/reduce.h"
#include "runtime/base/error.h"

namespace dtrain::p2p {
namespace {

Call example() {
  Call call;
  call.operation = Operation::all_reduce;
  call.dtype = DType::f32;
  call.count = 10;
  call.sequence = 7;
  call.label = "bucket 1";
  return call;
}

TEST(Call, TextSaysWhatWasCalled) {
  EXPECT_EQ(example().text(), "all_reduce(float32 x 10, sum, 'bucket 1') #7");
  Call call;
  call.sequence = 2;
  EXPECT_EQ(call.text(), "barrier() #2");
}

TEST(Call, FingerprintTellsEveryDifferenceApart) {
  std::set<std::uint64_t> seen = {chain_fingerprint(1, example())};
  const auto differs = [&](auto change) {
    Call call = example();
    change(call);
    return seen.insert(chain_fingerprint(1, call)).second;
  };
  EXPECT_TRUE(differs([](Call& c) { c.operation = Operation::broadcast; }));
  EXPECT_TRUE(differs([](Call& c) { c.reduce = ReduceOp::max; }));
  EXPECT_TRUE(differs([](Call& c) { c.dtype = DType::i32; }));
  EXPECT_TRUE(differs([](Call& c) { c.count = 11; }));
  EXPECT_TRUE(differs([](Call& c) { c.root = 0; }));
  EXPECT_TRUE(differs([](Call& c) { c.label = "bucket 2"; }));
  EXPECT_TRUE(seen.insert(chain_fingerprint(2, example())).second) << "what was called before counts";
  for (const std::uint64_t one : seen) EXPECT_EQ(one % 4, 0U);
}

TEST(Call, BothEndsOfAMessageAgree) {
  Call send = example(), receive = example();
  send.operation = Operation::send, send.root = 1;
  receive.operation = Operation::receive, receive.root = 0;
  EXPECT_EQ(pair_fingerprint(5, 0, 1, send), pair_fingerprint(5, 0, 1, receive));
  EXPECT_NE(pair_fingerprint(5, 0, 1, send), pair_fingerprint(5, 1, 0, receive));
}

TEST(FlightRecorder, FindTheDisagreement) {
  FlightRecorder theirs;
  Call call = example();
  for (std::uint64_t i = 1; i <= 40; ++i) {
    call.sequence = i, call.fingerprint = i * 4;
    theirs.record(call);
  }
  const FlightRecord seen = FlightRecord::parse(theirs.dump(1));
  EXPECT_EQ(seen.latest_sequence(), 40U);
  Call mine = example();
  mine.sequence = 39, mine.fingerprint = 39 * 4;
  EXPECT_FALSE(find_disagreement(mine, 0, 40, seen, 1));
  mine.fingerprint = 3;
  ASSERT_TRUE(find_disagreement(mine, 0, 40, seen, 1));
  EXPECT_EQ(find_disagreement(mine, 0, 40, seen, 1)->text, "all_reduce(float32 x 10, sum, 'bucket 1') #39");
  mine.sequence = 41;
  EXPECT_FALSE(find_disagreement(mine, 0, 40, seen, 1)) << "they have not come there yet";
}

TEST(FlightRecorder, ComparePairwiseCallsOfTheSameMessageOnly) {
  Call send = example();
  send.operation = Operation::send, send.root = 2, send.sequence = 3, send.fingerprint = 8;
  FlightRecorder theirs;
  theirs.record(send);
  const FlightRecord seen = FlightRecord::parse(theirs.dump(1));
  Call receive = example();
  receive.operation = Operation::receive, receive.root = 1, receive.sequence = 3, receive.fingerprint = 12;
  EXPECT_TRUE(find_disagreement(receive, 2, 40, seen, 1));
  EXPECT_FALSE(find_disagreement(receive, 0, 40, seen, 1)) << "meant for another rank";
  receive.fingerprint = 8;
  EXPECT_FALSE(find_disagreement(receive, 2, 40, seen, 1));
}

TEST(FlightRecorder, FindAMessageAwaitedFromWithinACollective) {
  FlightRecorder theirs;
  Call call = example();
  call.sequence = 5;
  theirs.record(call);
  const FlightRecord seen = FlightRecord::parse(theirs.dump(1));
  Call receive = example();
  receive.operation = Operation::receive, receive.root = 1;
  EXPECT_TRUE(find_disagreement(receive, 0, 4, seen, 1));
  EXPECT_FALSE(find_disagreement(receive, 0, 5, seen, 1)) << "that collective is over";
  receive.root = 2;
  EXPECT_FALSE(find_disagreement(receive, 0, 4, seen, 1)) << "not waiting for this rank";
}

TEST(FlightRecorder, CompareTheCountsOfAnAllToAll) {
  Call call{.operation = Operation::all_to_all, .dtype = DType::f32, .sequence = 3, .fingerprint = 8};
  call.sends = {1, 2, 3}, call.receives = {4, 5, 6};
  EXPECT_EQ(call.text(), "all_to_all(float32 x 1+2+3 out, 4+5+6 in) #3");
  FlightRecorder theirs;
  theirs.record(call);
  const FlightRecord seen = FlightRecord::parse(theirs.dump(1));
  Call mine = call;
  mine.sends = {0, 4, 0}, mine.receives = {0, 1, 0};  // to and from rank 1 as that one has it with rank 0
  EXPECT_FALSE(find_disagreement(mine, 0, 3, seen, 1));
  mine.sends[1] = 5;
  EXPECT_TRUE(find_disagreement(mine, 0, 3, seen, 1)) << "rank 1 expects 4";
  mine.sends[1] = 4, mine.receives[1] = 2;
  EXPECT_TRUE(find_disagreement(mine, 0, 3, seen, 1)) << "rank 1 sends 1";
  EXPECT_FALSE(find_disagreement(mine, 0, 4, FlightRecord::parse("c 3 8 all_to_all\nx 3 1 2\n"), 1));
}

TEST(FlightRecorder, AnExchangeIsItsMessages) {
  CallNumbering zero("world", 0, 2), one("world", 1, 2);
  Call theirs{.operation = Operation::exchange};
  theirs.messages = {{.operation = Operation::receive, .root = 0, .count = 7, .label = "halo"},
                     {.operation = Operation::send, .root = 0, .count = 9, .label = "halo"}};
  one.number(theirs);
  FlightRecorder recorder;
  recorder.record(theirs);
  const FlightRecord seen = FlightRecord::parse(recorder.dump(1));
  ASSERT_EQ(seen.messages.size(), 2U);
  Call fits{.operation = Operation::send, .root = 1, .count = 7, .label = "halo"};
  zero.number(fits);
  EXPECT_EQ(fits.fingerprint, theirs.messages[0].fingerprint) << "plain calls are the other side too";
  EXPECT_FALSE(find_disagreement(fits, 0, 0, seen, 1));
  Call too_short{.operation = Operation::receive, .root = 1, .count = 8, .label = "halo"};
  zero.number(too_short);
  ASSERT_TRUE(find_disagreement(too_short, 0, 0, seen, 1));
  EXPECT_EQ(find_disagreement(too_short, 0, 0, seen, 1)->text, theirs.messages[1].text());
}

TEST(FlightRecorder, OffersOfAnotherTopicWaitTheirTurn) {
  CallNumbering zero("world", 0, 2), one("world", 1, 2);
  Call offer{.operation = Operation::offer, .root = 0, .count = 5, .label = "weights"};
  one.number(offer);
  FlightRecorder recorder;
  recorder.record(offer);
  const FlightRecord seen = FlightRecord::parse(recorder.dump(1));
  const auto taker = [&](const char* label, std::size_t count) {
    Call call{.operation = Operation::receive_any, .count = count, .label = label};
    zero.number(call);
    return call;
  };
  EXPECT_EQ(taker("weights", 5).fingerprint, offer.fingerprint);
  EXPECT_FALSE(find_disagreement(taker("weights", 5), 0, 0, seen, 1));
  EXPECT_FALSE(find_disagreement(taker("gradients", 5), 0, 0, seen, 1));
  EXPECT_TRUE(find_disagreement(taker("weights", 6), 0, 0, seen, 1));
}

TEST(FlightRecorder, SurviveGarbage) {
  EXPECT_TRUE(FlightRecord::parse("x 99999999999 1\nx\no 1 2 3\n").messages.empty());
  EXPECT_TRUE(FlightRecord::parse("").collectives.empty());
  EXPECT_TRUE(FlightRecord::parse("c\nx 1 2 y\np 1\n\n\xff\xfe").collectives.empty());
  EXPECT_EQ(FlightRecord::parse("").latest(), "nothing yet");
}

TEST(PeerFailure, RoundTrip) {
  const PeerFailure failure{3, "node7", "all_reduce", 42, "bucket 1", "rank 3 on node7 is lost"};
  const auto copy = decode(encode(failure));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->rank, 3);
  EXPECT_EQ(copy->host, "node7");
  EXPECT_EQ(copy->operation, "all_reduce");
  EXPECT_EQ(copy->sequence, 42U);
  EXPECT_EQ(copy->tensor, "bucket 1");
  EXPECT_EQ(copy->what, failure.what);
  EXPECT_FALSE(decode(""));
  EXPECT_FALSE(decode("no number"));
}

TEST(Reduce, BFloat16IsRoundedOnce) {
  // 1 + 2^-8 twice: each alone is lost when sums are rounded to bf16 in between.
  const std::vector<BFloat16> a = {BFloat16(1.0F)}, b = {BFloat16(0.00390625F)}, c = {BFloat16(0.00390625F)};
  std::vector<BFloat16> out(1);
  const Operand in[] = {{a.data()}, {b.data()}, {c.data()}};
  reduce(DType::bf16, ReduceOp::sum, out.data(), in, 1);
  EXPECT_EQ(static_cast<float>(out[0]), 1.0078125F);
}

TEST(Reduce, IntegersWrap) {
  std::vector<std::int32_t> a = {std::numeric_limits<std::int32_t>::max()};
  const std::vector<std::int32_t> b = {1};
  const Operand in[] = {{a.data()}, {b.data()}};
  reduce(DType::i32, ReduceOp::sum, a.data(), in, 1);
  EXPECT_EQ(a[0], std::numeric_limits<std::int32_t>::min());
}

TEST(Factory, NamesWhatItExpects) {
  NullLog log;
  Bootstrap bootstrap;
  EXPECT_THROW(backend_named("carrier pigeon"), UsageError);
  EXPECT_EQ(backend_named("auto"), Backend::automatic);
  EXPECT_EQ(backend_named(name_of(Backend::mpi)), Backend::mpi);
  bootstrap.size = 2;
  EXPECT_THROW(make_communicator(Backend::self, bootstrap, log), UsageError);
  EXPECT_THROW(make_communicator(Backend::tcp, bootstrap, log), UsageError) << "no store";
  bootstrap.rank = 2;
  EXPECT_THROW(make_communicator(Backend::automatic, bootstrap, log), UsageError);
  EXPECT_EQ(make_communicator(Backend::automatic, Bootstrap{}, log)->backend(), "self");
}

}  // namespace
}  // namespace dtrain::p2p
