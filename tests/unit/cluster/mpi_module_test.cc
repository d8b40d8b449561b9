// How a program finds the MPI module, and what it says where the module or MPI itself is missing.
#include "cluster/mpi/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/base/error.h"
#include "tests/support/process.h"

namespace dtrain::mpi {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class MpiModule : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("DTRAIN_MPI_MODULE"); }

  static std::string refusal_of(const char* path) {
    ::setenv("DTRAIN_MPI_MODULE", path, 1);
    try {
      version();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(MpiModule, MissingFileIsNamedWithTheWayToGetIt) {
  EXPECT_THAT(refusal_of("/nowhere/libdtrain_mpi.so"),
              AllOf(HasSubstr("the MPI module cannot be loaded (/nowhere/libdtrain_mpi.so"),
                    HasSubstr("-DDTRAIN_WITH_MPI=ON"), HasSubstr("use backend tcp")));
  EXPECT_FALSE(is_here());
}

TEST_F(MpiModule, ForeignLibraryIsRefused) {
  EXPECT_THAT(refusal_of("libm.so.6"), HasSubstr("the MPI module has no part 'dtrain_mpi_module'"));
}

// As on a machine that has dtrain and no MPI.
TEST_F(MpiModule, MissingMpiIsNamedWithTheWayToInstallIt) {
  EXPECT_THAT(refusal_of(DTRAIN_MODULE_WITHOUT_ITS_LIBRARY),
              AllOf(HasSubstr("(libdtrain_not_there.so: cannot open shared object file"),
                    HasSubstr("apt install openmpi-bin"), HasSubstr("use backend tcp"),
                    Not(HasSubstr("DTRAIN_WITH_MPI"))));
}

TEST_F(MpiModule, ProgramsNeedNoMpi) {
  for (const char* name : {"dtrain", "dtrain-launch", "dtrain-launch-nodes", "dtrain-mpi-exchange"}) {
    const test::RunResult needed = test::run({"readelf", "-d", test::program(name)});
    EXPECT_THAT(needed.out, AllOf(HasSubstr("libc.so"), Not(HasSubstr("libmpi")))) << name;
  }
}

// What launchers under mpirun see where MPI is missing.
TEST_F(MpiModule, TheLaunchersHelperSaysWhatIsMissing) {
  test::RunOptions options;
  options.environment["DTRAIN_MPI_MODULE"] = DTRAIN_MODULE_WITHOUT_ITS_LIBRARY;
  const test::RunResult result = test::run({test::program("dtrain-mpi-exchange")}, options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("dtrain-mpi-exchange: the MPI module cannot be loaded"),
                                HasSubstr("apt install openmpi-bin")));
}

// Workers that mpirun has started have no other way to meet.
TEST_F(MpiModule, AWorkerUnderMpirunSaysWhatIsMissing) {
  test::RunOptions options;
  options.environment = {{"DTRAIN_MPI_MODULE", DTRAIN_MODULE_WITHOUT_ITS_LIBRARY},
                         {"OMPI_COMM_WORLD_RANK", "0"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const test::RunResult result =
      test::run({test::program("dtrain"), "bench", "allreduce", "--min-bytes=8", "--max-bytes=8"}, options);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the MPI module cannot be loaded (libdtrain_not_there.so"));
}

#ifdef DTRAIN_BUILT_MPI_MODULE
TEST_F(MpiModule, IsFoundBesideThePrograms) {
  EXPECT_TRUE(is_here());
  const LibraryVersion mpi = version();
  EXPECT_TRUE(mpi.built.known());
  EXPECT_EQ(mpi.built.major, mpi.loaded.major);
  EXPECT_THAT(mpi.file, HasSubstr("libmpi"));
}

TEST_F(MpiModule, UnknownPartIsNamed) { EXPECT_THROW(module_symbol("dtrain_no_such_part"), UsageError); }
#endif

}  // namespace
}  // namespace dtrain::mpi
