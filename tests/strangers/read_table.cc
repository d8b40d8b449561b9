// Columns of a CSV file as the table source reads them: float32, row by row, on standard output.
//
// usage: dtrain_read_table FILE DELIMITER COLUMN...
#include <cstdio>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/sources/csv_source.h"

namespace dtrain {
namespace {

void print(const std::string& path, char delimiter, const std::vector<std::string>& columns) {
  const auto table =
      std::make_shared<const CsvTable>(path, CsvColumns{columns, {}, {}}, CsvReading{.delimiter = delimiter});
  const auto source = CsvTable::source(table, path, 0);
  std::vector<float> row(columns.size());
  const auto width = static_cast<std::int64_t>(row.size());
  const View view{row.data(), DType::f32, {width}, {1}};
  for (std::int64_t i = 0; i < source->size(); ++i) {
    KeyedGenerator generator(0, 0, 0);
    source->read(i, std::span(&view, 1), generator);
    std::fwrite(row.data(), sizeof(float), row.size(), stdout);
  }
}

}  // namespace
}  // namespace dtrain

int main(int argc, char** argv) {
  if (argc < 4 || std::strlen(argv[2]) != 1) {
    std::fputs("usage: dtrain_read_table FILE DELIMITER COLUMN...\n", stderr);
    return 2;
  }
  try {
    dtrain::print(argv[1], argv[2][0], {argv + 3, argv + argc});
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const dtrain::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
