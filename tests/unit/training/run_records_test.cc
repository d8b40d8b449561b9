#include "training/log/run_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/json.h"

namespace dtrain {
namespace {

using test::Json;
using testing::HasSubstr;

/// Samples with files of their own, of which those behind `readable` cannot be read.
class Files final : public Source {
 public:
  explicit Files(std::int64_t readable) : readable_(readable) {}
  std::string name() const override { return "files"; }
  std::int64_t size() const noexcept override { return 10; }
  std::span<const Field> fields() const noexcept override { return {}; }
  void read(std::int64_t, std::span<const View>, KeyedGenerator&) const override {}
  std::string file_of(std::int64_t index) const override {
    if (index >= readable_) throw DataError("s.tar", 512, "a whole header", "the end of the file");
    return "s.tar:" + std::to_string(index);
  }

 private:
  std::int64_t readable_;
};

TEST(RunRecords, ABadBatchIsNamedByItsFilesOrSaysWhyNot) {
  const DumpedBatch batch{.start = 1, .step = 7, .samples = {2, 5}};
  const Files all(10), some(3);
  const Json named = Json::parse_or_null(batch_json(batch, &all));
  EXPECT_EQ(named["files"][1].text(), "s.tar:5");
  EXPECT_EQ(named["rows"][1].integer(), 5);
  const Json unnamed = Json::parse_or_null(batch_json(batch, &some));
  EXPECT_EQ(unnamed["rows"][1].integer(), 5);
  EXPECT_THAT(unnamed["files"].text(), testing::AllOf(HasSubstr("not known: "), HasSubstr("s.tar")));
}

}  // namespace
}  // namespace dtrain
