// Every cut and every flipped bit of a small checkpoint must be refused, and the one before be taken.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/base/check.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/checkpoint/cuts.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

/// A file of a checkpoint that one process or several wrote. The latter has more bytes: of those every
/// `stride`th length and bit is tried.
struct Target {
  const char* file;
  int world = 1;
  std::size_t stride = 1;
};

constexpr Target kFiles[] = {{"model.safetensors"},
                             {"optimizer.safetensors"},
                             {"state.json"},
                             {"model-00001-of-00002.safetensors", 2, 7},
                             {"model.safetensors.index.json", 2, 13},
                             {"optimizer-00002-of-00002.safetensors", 2, 7},
                             {"state.json", 2, 7}};

class Damage : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (GetParam().world == 1) {
      CheckpointStore store(folder_.path(), 0, log_);
      store.save(test::SampleSnapshot(1).get());
      damaged_ = store.save(test::SampleSnapshot(2).get());
    } else {
      test::ShardGroup group(folder_.path(), 0, GetParam().world, log_);
      group.save(1, test::Cut::rows);
      damaged_ = group.save(2, test::Cut::rows);
    }
    file_ = damaged_ / GetParam().file;
    content_ = test::read_file(file_);
    fd_ = UniqueFd(static_cast<int>(check(Sys{::open(file_.c_str(), O_WRONLY | O_CLOEXEC)}, "open")));
    ASSERT_EQ(load_checkpoint(damaged_).state.step, 2);
  }

  // In place: a file system may flush a file that is cut to nothing and written anew, 20,000 times here.
  void put(const std::string& content) {
    check(Sys{::pwrite(fd_.get(), content.data(), content.size(), 0)}, "write");
    check(Sys{::ftruncate(fd_.get(), static_cast<off_t>(content.size()))}, "truncate");
  }

  bool refused(const std::string& content) {
    put(content);
    try {
      load_checkpoint(damaged_);
      return false;
    } catch (const DataError& error) {
      EXPECT_EQ(error.path(), file_.string());
      return true;
    }
  }

  test::TempDir folder_;
  test::MemoryLog log_;
  fs::path damaged_, file_;
  std::string content_;
  UniqueFd fd_;
};

TEST_P(Damage, EveryCut) {
  for (std::size_t length = 0; length < content_.size(); length += GetParam().stride) {
    EXPECT_TRUE(refused(content_.substr(0, length))) << length << " of " << content_.size() << " bytes";
  }
  EXPECT_TRUE(refused(content_ + std::string(1, '\0')));
  EXPECT_TRUE(refused(content_ + " "));
  EXPECT_FALSE(refused(content_));
}

TEST_P(Damage, EveryBit) {
  for (std::size_t bit = 0; bit < content_.size() * 8; bit += GetParam().stride) {
    std::string content = content_;
    content[bit / 8] = static_cast<char>(content[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_TRUE(refused(content)) << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST_P(Damage, RandomSpans) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string content = content_;
    const std::size_t begin = random() % content.size();
    const std::size_t end = std::min(content.size(), begin + 1 + random() % 64);
    for (std::size_t at = begin; at < end; ++at) content[at] = static_cast<char>(random());
    if (content != content_) {
      EXPECT_TRUE(refused(content)) << begin << " … " << end;
    }
  }
}

TEST_P(Damage, FallsBackToTheOneBefore) {
  test::write_file(file_, content_.substr(0, content_.size() / 2));
  const CheckpointStore store(folder_.path(), 0, log_);
  const auto latest = store.latest();
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->state.step, 1);
  EXPECT_NE(log_.warnings().find(file_.string()), std::string::npos) << log_.warnings();
  fs::remove(file_);
  EXPECT_EQ(store.latest()->state.step, 1);
}

std::string name_of(const testing::TestParamInfo<Target>& info) {
  std::string name = std::string(info.param.file) + (info.param.world == 1 ? "" : "_of_shards");
  std::ranges::replace_if(
      name, [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Damage, testing::ValuesIn(kFiles), name_of);

}  // namespace
}  // namespace dtrain
