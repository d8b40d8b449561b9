// The grid of ranks: arithmetic as torch's init_device_mesh has it, groups, and what is refused.
#include "parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "collectives/thread_ranks.h"
#include "runtime/base/error.h"
#include "tests/support/message_of.h"

namespace dtrain {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Deadline kNever = Deadline::never();

TEST(MeshText, ReadsAndWrites) {
  EXPECT_EQ(text_of(parse_mesh("dp=2,pp=auto,tp=4")), "dp=2,pp=auto,tp=4");
  EXPECT_THAT(message_of([] { parse_mesh(""); }), HasSubstr("expected axes like dp=2,tp=2"));
  EXPECT_THAT(message_of([] { parse_mesh("dp=2,"); }), HasSubstr("expected axes like"));
  EXPECT_THAT(message_of([] { parse_mesh("dp"); }), HasSubstr("got 'dp'"));
  EXPECT_THAT(message_of([] { parse_mesh("dp=0"); }),
              HasSubstr("expected a size from 1 on or auto for dp, got '0'"));
  EXPECT_THAT(message_of([] { parse_mesh("dp=2,dp=2"); }), HasSubstr("axis dp comes twice"));
}

// torch.distributed.init_device_mesh("cpu", (2, 3, 2), mesh_dim_names=("dp", "pp", "tp")): mesh.mesh is
// arange(12).view(2, 3, 2).
TEST(MeshShape, IsRowMajor) {
  const MeshShape shape(parse_mesh("dp=2,pp=3,tp=2"), 12);
  for (int rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(shape.coordinate(rank, "dp"), rank / 6);
    EXPECT_EQ(shape.coordinate(rank, "pp"), rank / 2 % 3);
    EXPECT_EQ(shape.coordinate(rank, "tp"), rank % 2);
  }
  const std::vector<std::string> tp = {"tp"}, pp = {"pp"}, both = {"dp", "tp"};
  EXPECT_THAT(shape.ranks_along(7, tp), ElementsAre(6, 7));
  EXPECT_THAT(shape.ranks_along(7, pp), ElementsAre(7, 9, 11));
  EXPECT_THAT(shape.ranks_along(9, both), ElementsAre(2, 3, 8, 9));
  EXPECT_EQ(shape.size("ep"), 1);
  EXPECT_EQ(shape.coordinate(7, "ep"), 0);
  EXPECT_FALSE(shape.has("ep"));
}

TEST(MeshShape, FitsTheRanks) {
  EXPECT_EQ(MeshShape(parse_mesh("dp=auto,tp=2"), 6).size("dp"), 3);
  EXPECT_EQ(MeshShape(parse_mesh("dp=auto"), 1).size("dp"), 1);
  EXPECT_THAT(message_of([] { MeshShape(parse_mesh("dp=2,tp=2"), 6); }),
              AllOf(HasSubstr("dp=2,tp=2"), HasSubstr("expected exactly 4 ranks, got 6")));
  EXPECT_THAT(message_of([] { MeshShape(parse_mesh("dp=auto,tp=4"), 6); }),
              HasSubstr("expected a multiple of 4 ranks, got 6"));
  EXPECT_THAT(message_of([] { MeshShape(parse_mesh("dp=auto,tp=auto"), 6); }),
              HasSubstr("one axis of size auto at most"));
}

TEST(Mesh, GroupsAreThoseThatDifferAlongOneAxis) {
  NullLog log;
  run_thread_ranks(12, {}, log, [](Communicator& world) {
    const Mesh mesh(world, parse_mesh("dp=2,pp=3,tp=2"), kNever);
    for (const char* axis : {"dp", "pp", "tp"}) {
      Communicator& group = mesh.group(axis);
      const std::vector<std::string> name = {axis};
      const auto expected = mesh.shape().ranks_along(world.rank(), name);
      std::int32_t mine = world.rank();
      std::vector<std::int32_t> all(expected.size());
      ASSERT_EQ(group.size(), mesh.size(axis));
      EXPECT_EQ(group.rank(), mesh.coordinate(axis));
      group.all_gather({&mine, 1, DType::i32}, {all.data(), all.size(), DType::i32}, "who")->wait(kNever);
      EXPECT_EQ(all, expected);
    }
    const std::vector<std::string> replicas = {"dp", "tp"};
    EXPECT_EQ(mesh.make_group(replicas, kNever)->size(), 4);
    EXPECT_THAT(message_of([&] { mesh.group("ep"); }), HasSubstr("has no axis 'ep'"));
    world.barrier("end")->wait(kNever);
  });
}

TEST(Mesh, DifferentMeshesAreNamedWithinSeconds) {
  NullLog log;
  std::atomic<int> shown = 0;
  const TimePoint start = steady_clock().now();
  EXPECT_THROW(run_thread_ranks(4, {}, log,
                                [&](Communicator& world) {
                                  try {
                                    Mesh(world, parse_mesh(world.rank() == 2 ? "dp=4" : "dp=2,tp=2"), kNever);
                                  } catch (const PeerError& error) {
                                    const std::string text = error.what();
                                    if (text.find("mesh dp=4") != std::string::npos &&
                                        text.find("mesh dp=2,tp=2") != std::string::npos)
                                      ++shown;
                                    throw;
                                  }
                                }),
               PeerError);
  EXPECT_EQ(shown, 4);
  EXPECT_LT(steady_clock().now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace dtrain
