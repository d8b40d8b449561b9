// Arrays that NumPy saved and a table that Python's csv module wrote mean here what they mean there.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "runtime/data/sources/csv_source.h"
#include "runtime/data/sources/npy_source.h"
#include "tests/support/process.h"
#include "tests/support/sample.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

class OwnFilesParity : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* python = std::getenv("DTRAIN_PEER_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "DTRAIN_PEER_PYTHON is not set (a Python with numpy)";
    const std::string script = std::string(std::getenv("DTRAIN_DATA_PARITY")) + "/make_own_files.py";
    const RunResult made =
        run({python, script, folder_.path().string()}, limited_to(std::chrono::seconds(60)));
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  /// All samples' values of one field, one behind the other, against the bytes in `raw`.
  void expect_bytes(const Source& source, std::string_view field, const std::string& raw) {
    std::string bytes;
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const Sample sample(source, i);
      const View& view = sample[field];
      bytes.append(view.as<char>(), static_cast<std::size_t>(view.numel()) * size_of(view.dtype));
    }
    EXPECT_TRUE(bytes == read_file(folder_ / raw)) << raw << ": " << bytes.size() << " bytes";
  }

  TempDir folder_;
};

TEST_F(OwnFilesParity, ArraysAreNumpys) {
  for (const std::string type : {"f4", "f8", "i4", "i8", "u1", "b1"}) {
    for (const std::string version : {"1", "2", "3"}) {
      const std::string path = (folder_ / (type + "." + version + ".npy")).string();
      const NpySource source("arrays", {open_npy_field("values", path)});
      ASSERT_EQ(source.size(), 7);
      EXPECT_EQ(source.fields()[0].shape, (Dims{3, 5}));
      expect_bytes(source, "values", type + ".raw");
    }
  }
}

TEST_F(OwnFilesParity, NumbersInTablesArePythonsRoundedToFloat32) {
  const std::string path = (folder_ / "table.csv").string();
  const auto header = read_csv_header(path);
  ASSERT_EQ(header, (std::vector<std::string>{"note", "a, b", "the \"c\"", "two\nlines"}));
  const auto table =
      std::make_shared<const CsvTable>(path, CsvColumns{{header[1], header[2], header[3]}, {}, ""});
  ASSERT_EQ(table->rows(), 1000);
  expect_bytes(*CsvTable::source(table, "table", 0), "x", "table.raw");
}

}  // namespace
}  // namespace dtrain::test
