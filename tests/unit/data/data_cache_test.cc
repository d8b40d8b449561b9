// The cache may speed things up and must never change what is read, whatever state its folder is in.
#include "runtime/data/cache/data_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/data/formats/idx.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/data/idx_files.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint32_t kCount = 1500, kItem = 1000;  // 1.5 MB: large enough to be cached

class DataCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    content_ = test::idx_bytes({kCount, kItem});
    test::write_file(source(), test::gzip(content_, 1));
  }
  std::string source() const { return (folder_ / "images.gz").string(); }
  fs::path cache_dir() const { return folder_ / "cache"; }

  // The content as read through the cache.
  std::string read(DataCache& cache) {
    const IdxArray array = read_idx(source(), {Dims{kItem}, "images"}, cache);
    return content_.substr(0, array.header_bytes) + test::text_of(array.elements);
  }
  std::string read() {
    DataCache cache(cache_dir(), log_);
    return read(cache);
  }
  SourceIdentity identity() const { return ContentReader(source()).identity(); }
  bool cached() { return DataCache(cache_dir(), log_).find(identity()).has_value(); }
  // The one entry's path.
  fs::path entry() const {
    for (const auto& file : fs::directory_iterator(cache_dir())) {
      if (file.path().extension() != ".lock") return file.path();
    }
    return {};
  }
  int files() const {
    return static_cast<int>(std::distance(fs::directory_iterator(cache_dir()), fs::directory_iterator()));
  }

  test::TempDir folder_;
  std::string content_;
  test::RecordingLog log_;
};

TEST_F(DataCacheTest, SecondReadComesFromTheEntry) {
  EXPECT_EQ(read(), content_);
  ASSERT_TRUE(cached());
  // Make the source unreadable without touching what identifies it: only the entry can answer now.
  const auto stamp = fs::last_write_time(source());
  std::string broken = test::read_file(source());
  broken[broken.size() / 2] = static_cast<char>(~broken[broken.size() / 2]);
  test::write_file(source(), broken);
  fs::last_write_time(source(), stamp);
  EXPECT_EQ(read(), content_);
  EXPECT_THAT(log_.text(), IsEmpty());
}

TEST_F(DataCacheTest, ChangedSourceIsReadAnew) {
  EXPECT_EQ(read(), content_);
  content_ = test::idx_bytes({kCount, kItem}, 13);
  test::write_file(source(), test::gzip(content_, 1));
  EXPECT_FALSE(cached());
  EXPECT_EQ(read(), content_);
}

TEST_F(DataCacheTest, TouchedSourceWithDamageIsRefused) {
  EXPECT_EQ(read(), content_);
  std::string broken = test::read_file(source());
  broken[broken.size() / 2] = static_cast<char>(~broken[broken.size() / 2]);
  test::write_file(source(), broken);
  fs::last_write_time(source(), fs::last_write_time(source()) + std::chrono::seconds(5));
  EXPECT_THROW(read(), DataError);
  EXPECT_FALSE(cached());
}

TEST_F(DataCacheTest, DamagedSourceLeavesNoEntry) {
  std::string broken = test::read_file(source());
  broken[broken.size() - 8] =
      static_cast<char>(~broken[broken.size() - 8]);  // gzip's checksum, found at the very end
  test::write_file(source(), broken);
  EXPECT_THROW(read(), DataError);
  EXPECT_FALSE(cached());
  EXPECT_EQ(files(), 1) << "nothing but the lock file may be left";
}

TEST_F(DataCacheTest, DamagedEntryIsFoundAndReplaced) {
  EXPECT_EQ(read(), content_);
  const std::string good = test::read_file(entry());
  for (const std::size_t at :
       {std::size_t{3}, std::size_t{60}, std::size_t{4095}, std::size_t{4096}, good.size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    test::write_file(entry(), bad);
    EXPECT_FALSE(cached()) << "byte " << at;
    EXPECT_EQ(read(), content_) << "byte " << at;
    EXPECT_EQ(test::read_file(entry()), good) << "byte " << at;
  }
  EXPECT_THAT(log_.text(), HasSubstr("checksum"));
}

TEST_F(DataCacheTest, CutEntryIsFoundAndReplaced) {
  EXPECT_EQ(read(), content_);
  const std::string good = test::read_file(entry());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{4096},
                                 std::size_t{4097}, good.size() - 1, good.size() + 1}) {
    std::string bad = good;
    bad.resize(size);
    test::write_file(entry(), bad);
    EXPECT_FALSE(cached()) << size;
    EXPECT_EQ(read(), content_) << size;
  }
}

TEST_F(DataCacheTest, TouchedButIntactEntryIsKept) {
  EXPECT_EQ(read(), content_);
  const auto stamp = fs::last_write_time(entry());
  fs::last_write_time(entry(), stamp + std::chrono::hours(1));
  EXPECT_TRUE(cached());
  EXPECT_EQ(fs::last_write_time(entry()), stamp) << "a verified entry need not be verified again";
}

TEST_F(DataCacheTest, EntryOthersCanWriteIsNotTrusted) {
  EXPECT_EQ(read(), content_);
  fs::permissions(entry(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_FALSE(cached());
  EXPECT_THAT(log_.text(), HasSubstr("others may write"));
}

TEST_F(DataCacheTest, LinkInPlaceOfAnEntryIsNotFollowed) {
  EXPECT_EQ(read(), content_);
  const fs::path path = entry(), elsewhere = folder_ / "elsewhere";
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  EXPECT_FALSE(cached());
}

TEST_F(DataCacheTest, WorksWithoutAFolder) {
  DataCache off({}, log_);
  EXPECT_EQ(read(off), content_);
  test::write_file(folder_ / "file", "not a folder");
  DataCache blocked(folder_ / "file" / "cache", log_);
  EXPECT_EQ(read(blocked), content_);
  EXPECT_THAT(log_.text(), HasSubstr("decoding it in memory"));
}

TEST_F(DataCacheTest, FullDiskFallsBackToMemory) {
  const auto codes = test::run_ranks(1, [&](int) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};  // no file may grow beyond 1 MiB: as a full disk does, with EFBIG
    check(Sys{::setrlimit(RLIMIT_FSIZE, &limit)}, "setrlimit");
    if (read() != content_) throw Error("content differs");
    if (files() != 1) throw Error("a half-written entry was left");
  });
  EXPECT_EQ(codes, std::vector{0});
}

TEST_F(DataCacheTest, ManyProcessesAtOnceShareOneEntry) {
  const auto codes = test::run_ranks(6, [&](int) {
    for (int i = 0; i < 3; ++i) {
      if (read() != content_) throw Error("content differs");
    }
  });
  EXPECT_EQ(codes, std::vector<int>(6, 0));
  EXPECT_EQ(files(), 2) << "one entry and its lock";
}

TEST_F(DataCacheTest, KilledWriterCorruptsNothing) {
  for (int round = 0; round < 20; ++round) {
    const pid_t writer = static_cast<pid_t>(check(Sys{::fork()}, "fork"));
    if (writer == 0) {
      while (true) {
        DataCache(cache_dir(), log_)
            .build(identity(), content_.size(), [&, done = std::size_t{0}](auto out) mutable {
              std::copy_n(content_.begin() + static_cast<std::ptrdiff_t>(done), out.size(), out.begin());
              done += out.size();
              return out.size();
            });
        fs::remove(entry());
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 700 * round));
    ::kill(writer, SIGKILL);
    check(Sys{::waitpid(writer, nullptr, 0)}, "waitpid");
    ASSERT_EQ(read(), content_) << round;
  }
}

TEST_F(DataCacheTest, WaitsNoLongerThanItsPatience) {
  ASSERT_EQ(read(), content_);
  const fs::path path = entry();
  fs::remove(path);
  const UniqueFd held(::open((path.string() + ".lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  DataCache impatient(cache_dir(), log_, std::chrono::milliseconds(20));
  EXPECT_EQ(read(impatient), content_);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(log_.text(), HasSubstr("still writing"));
}

TEST_F(DataCacheTest, TakesTheEntryAnotherProcessFinished) {
  ASSERT_EQ(read(), content_);
  const fs::path path = entry(), aside = folder_ / "aside";
  fs::rename(path, aside);
  UniqueFd held(::open((path.string() + ".lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    fs::rename(aside, path);
    held.reset();
  });
  DataCache cache(cache_dir(), log_);
  const auto content = cache.build(identity(), content_.size(), [](std::span<std::uint8_t>) -> std::size_t {
    throw Error("must not be built a second time");
  });
  other.join();
  ASSERT_TRUE(content.has_value());
  EXPECT_EQ(test::text_of(*content), content_);
}

TEST_F(DataCacheTest, SweepsWhatAKilledWriterLeft) {
  ASSERT_EQ(read(), content_);
  const fs::path path = entry();
  fs::remove(path);
  const fs::path old = path.string() + ".tmp-oldone", fresh = path.string() + ".tmp-newone";
  test::write_file(old, "half");
  test::write_file(fresh, "half");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(read(), content_);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "it may belong to a writer on another node";
}

TEST(DataCacheDirectory, FollowsTheEnvironment) {
  ::setenv("XDG_CACHE_HOME", "/x/cache", 1);
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(default_data_cache_directory(), "/x/cache/dtrain/data");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(default_data_cache_directory(), "/home/me/.cache/dtrain/data");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(default_data_cache_directory(), "");
}

}  // namespace
}  // namespace dtrain
