// What a leader writes down: another office that reads it is the same, whatever came before, and goes on.
#include "cluster/rendezvous/leader/office.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <random>

#include "cluster/kept/kept_memory.h"
#include "cluster/rendezvous/kept_seat.h"
#include "cluster/rendezvous/messages.h"
#include "tests/unit/cluster/membership_job.h"

namespace dtrain::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kBytes = std::size_t{1} << 22;

TEST(KeptMemory, HoldsTheLastValueOrNone) {
  Keepsake kept(8);
  EXPECT_EQ(kept.get(), "");
  kept.put("one");
  kept.put("another");
  EXPECT_EQ(kept.get(), "another");
  kept.put("nine bytes");
  EXPECT_EQ(kept.get(), "") << "rather none than an old one";
}

TEST(KeptMemory, AJournalThatIsFullSaysSo) {
  Journal journal(32);
  EXPECT_TRUE(journal.empty());
  journal.append("a");
  journal.append("bc");
  EXPECT_TRUE(journal.whole());
  journal.append(std::string(32, 'x'));
  journal.append("d");
  EXPECT_FALSE(journal.whole());
  std::vector<std::string> records;
  journal.read([&](std::string_view record) { records.emplace_back(record); });
  EXPECT_THAT(records, testing::ElementsAre("a", "bc"));
}

// A child that is killed while it writes, again and again.
TEST(KeptMemory, AKilledWriterLeavesWholeValues) {
  Keepsake kept(1 << 16);
  Journal journal(std::size_t{1} << 26);
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (unsigned i = 1;; ++i) {
        const std::string value(1 + i % 50000, static_cast<char>('a' + i % 26));
        kept.put(value);
        journal.append(value.substr(0, 100));
      }
    }
    while (kept.get().empty()) ::usleep(100);
    ::usleep(500);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string value = kept.get();
    EXPECT_EQ(value.find_first_not_of(value.front()), std::string::npos);
    journal.read([](std::string_view record) {
      EXPECT_EQ(record.find_first_not_of(record.front()), std::string_view::npos);
    });
  }
}

TEST(KeptSeatTest, IsWhatWasKept) {
  SeatMemory memory;
  EXPECT_FALSE(memory.seat());
  KeptSeat seat;
  seat.server = {"10.0.0.1", 29501};
  seat.session.offer = offer_of(3);
  seat.session.offer.incarnation = 77;
  seat.session.place = 3;
  seat.session.epoch = 2;
  seat.session.next_event = 9;
  seat.session.round = 4;
  seat.session.index = 1;
  seat.session.at_work = true;
  seat.session.ended_with = -3;
  seat.session.known.leadership.round = 4;
  seat.session.known.events = 9;
  seat.session.words = 5;
  seat.session.unanswered = {"five"};
  seat.session.news = {"first", "second"};
  seat.news_before = 6;
  memory.keep(seat);
  const auto kept = memory.seat();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->server, seat.server);
  EXPECT_EQ(encode(kept->session.offer), encode(seat.session.offer));
  EXPECT_EQ(kept->session.index, 1);
  EXPECT_EQ(kept->session.ended_with, -3);
  EXPECT_EQ(kept->session.known.leadership.round, 4);
  EXPECT_EQ(kept->session.unanswered, seat.session.unanswered);
  EXPECT_EQ(without_read_news(*kept, 7).news, std::vector<std::string>{"second"});
  EXPECT_EQ(without_read_news(*kept, 0).news.size(), 2U);
  memory.keep(std::nullopt);
  EXPECT_FALSE(memory.seat());
}

// A job whose launchers do at random what launchers do, and their leader's process, which is sometimes
// another one from now on.
class Random {
 public:
  explicit Random(unsigned seed, bool elastic_job) : random_(seed), rules_(rules(elastic_job)) {
    office_.emplace(rules_, &journal_, now_);
    office_->found(now_);
  }

  void act() {
    now_ += milliseconds(random_() % 700);
    const auto client = static_cast<std::uint64_t>(random_() % kClients);
    switch (random_() % 9) {
      case 0:
      case 1:
        join(client);
        break;
      case 2:
        hear(client, Ready{round(), 4711});
        break;
      case 3:
        hear(client, Ended{round(), random_() % 4 == 0 ? 1 : 0});
        break;
      case 4:
        if (random_() % 4 == 0) hear(client, worker_failed(round(), 3));
        break;
      case 5:
        if (random_() % 3 == 0) leave(client);
        break;
      case 6:
        if (random_() % 30 == 0) hear(client, Signalled{15});
        break;
      default:
        break;
    }
    for (const auto& [one, incarnation] : seated_) office_->beat(one, now_);
    office_->tick(now_);
    for (const std::uint64_t lost : office_->take_lost()) seated_.erase(lost);
    while (office_->next() != nullptr && random_() % 3 != 0) office_->tell_next(now_);
  }

  // The same journal, read again; the office in use is not touched.
  void compare() {
    Journal copy(kBytes);
    journal_.read([&](std::string_view record) { copy.append(record); });
    Office other(rules_, &copy, now_);
    ASSERT_EQ(other.open(), office_->open());
    ASSERT_EQ(other.next_event(), office_->next_event());
    ASSERT_EQ(other.formed_at(), office_->formed_at());
    const Leadership a = other.membership().leadership(), b = office_->membership().leadership();
    EXPECT_EQ(encode(News(a)), encode(News(b)));
    EXPECT_EQ(other.membership().over(), office_->membership().over());
    EXPECT_THAT(other.membership().incarnations(),
                testing::UnorderedElementsAreArray(office_->membership().incarnations()));
    ASSERT_EQ(other.events().size(), office_->events().size());
    for (std::size_t i = 0; i < other.events().size(); ++i)
      EXPECT_EQ(other.events()[i].news, office_->events()[i].news);
  }

  // From now on another process's; everybody comes back.
  void take_over() {
    while (office_->next() != nullptr) office_->tell_next(now_);
    const std::uint64_t events = office_->next_event();
    const auto rounds = office_->membership().leadership().round;
    office_.emplace(rules_, &journal_, now_);
    EXPECT_EQ(office_->next_event(), events);
    EXPECT_EQ(office_->membership().leadership().round, rounds);
    auto before = std::exchange(seated_, {});
    for (const auto& [client, offer] : before) {
      NodeOffer back = offer;
      back.resumes = true;
      const Admission admission = office_->join(client, encode(back), now_);
      EXPECT_EQ(admission.refused, "");
      seated_[client] = offer;
    }
  }
  bool over() const { return office_->membership().over(); }

 private:
  static constexpr unsigned kClients = 5;
  static JobRules rules(bool elastic_job) {
    JobRules rules = elastic_job ? elastic(2, 4, 5) : fixed(3, 5);
    rules.spares = elastic_job ? 0 : 1;
    rules.last_call = seconds(1);
    return rules;
  }
  int round() const { return office_->membership().leadership().round; }
  void join(std::uint64_t client) {
    if (seated_.contains(client)) return;
    NodeOffer offer = offer_of(client == 4 ? std::nullopt : std::optional(static_cast<int>(client)));
    offer.incarnation = ++incarnations_;
    if (office_->join(client, encode(offer), now_).refused.empty()) seated_[client] = offer;
  }
  void hear(std::uint64_t client, const Word& word) {
    if (seated_.contains(client)) office_->hear(client, encode(word), ++words_, now_);
  }
  void leave(std::uint64_t client) {
    if (!seated_.contains(client)) return;
    const auto how = static_cast<Departure>(random_() % 3);
    office_->leave(client, how, now_);
    seated_.erase(client);
  }

  std::mt19937 random_;
  JobRules rules_;
  TimePoint now_{seconds(1000)};
  Journal journal_{kBytes};
  std::optional<Office> office_;
  std::map<std::uint64_t, NodeOffer> seated_;  // by connection
  std::uint64_t incarnations_ = 100, words_ = 0;
};

TEST(OfficeTest, IsTheSameInAnotherProcessAtAnyMoment) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random job(seed, seed % 2 == 0);
    for (int i = 0; i < 150 && !job.over() && !testing::Test::HasFailure(); ++i) {
      job.act();
      job.compare();
      if (i % 17 == 16 && !job.over()) job.take_over();
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

TEST(OfficeTest, LosesNobodyWhoComesBack) {
  Journal journal(kBytes);
  TimePoint now{seconds(1000)};
  std::optional<Office> office(std::in_place, fixed(2, 1), &journal, now);
  EXPECT_FALSE(office->open());
  office->found(now);
  std::vector<NodeOffer> offers;
  for (const int node : {0, 1}) {
    offers.push_back(offer_of(node));
    offers.back().incarnation = 10 + static_cast<std::uint64_t>(node);
    EXPECT_EQ(office->join(static_cast<std::uint64_t>(node), encode(offers.back()), now).refused, "");
  }
  office->hear(0, encode(Word(Ready{0, 4711})), 1, now);
  while (office->next() != nullptr) office->tell_next(now);
  const std::uint64_t told = office->next_event();

  now += seconds(3);
  office.emplace(fixed(2, 1), &journal, now);
  EXPECT_TRUE(office->taken_up());
  for (const int node : {0, 1}) {
    NodeOffer back = offers[static_cast<std::size_t>(node)];
    back.resumes = true;
    EXPECT_EQ(office->join(static_cast<std::uint64_t>(node), encode(back), now).node_rank, node);
  }
  office->hear(0, encode(Word(Ready{0, 9999})), 1, now);  // said again
  office->hear(1, encode(Word(Ready{0, 0})), 1, now);
  ASSERT_NE(office->next(), nullptr);
  const Office::Event& start = office->tell_next(now);
  EXPECT_EQ(start.number, told);
  EXPECT_EQ(std::get<Start>(*decode_news(start.news)).master_port, 4711);
}

}  // namespace
}  // namespace dtrain::rendezvous
