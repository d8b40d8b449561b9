// Data files a user brings.
#include "tests/fuzz/targets_data.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/data/batch_layout.h"
#include "runtime/data/formats/npy.h"
#include "runtime/data/formats/zip.h"
#include "runtime/data/sources/csv_source.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {
namespace {

struct Parsed {
  std::vector<std::vector<std::string>> records;
  std::string refusal;
  bool operator==(const Parsed&) const = default;
};

Parsed parse(std::string_view input, std::size_t step) {
  const auto read = [at = std::size_t{0}, input](std::span<std::uint8_t> out) mutable {
    const std::size_t count = std::min(out.size(), input.size() - at);
    if (count > 0) std::memcpy(out.data(), input.data() + at, count);
    at += count;
    return count;
  };
  Parsed parsed;
  CsvReader reader("input", read, ',', step);
  std::int64_t offset = -1, line = 0;
  try {
    for (CsvRecord record; reader.next(record);) {
      parsed.records.emplace_back();
      require(record.size() > 0, "a record has a field");
      require(record.line() > line, "each record begins on a line of its own");
      line = record.line();
      for (std::size_t i = 0; i < record.size(); ++i) {
        require(record.offset(i) > offset && record.offset(i) <= static_cast<std::int64_t>(input.size()),
                "fields begin one behind the other, in the file");
        offset = record.offset(i);
        parsed.records.back().emplace_back(record[i]);
      }
    }
  } catch (const DataError& error) {
    require(error.offset_bytes() >= 0 && error.offset_bytes() <= static_cast<std::int64_t>(input.size()),
            "a refusal points into the file");
    parsed.refusal = error.what();
  }
  return parsed;
}

std::string written(const std::vector<std::vector<std::string>>& records) {
  std::string text;
  for (const auto& record : records) {
    for (std::size_t i = 0; i < record.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : record[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

void read_table(const std::string& path, const CsvReading& how) {
  try {
    const auto header = read_csv_header(path, how);
    const CsvColumns columns{feature_columns(header, {{}, {header.back()}, ""}, path), {header.back()}, ""};
    const auto table = std::make_shared<const CsvTable>(path, columns, how);
    const auto source = CsvTable::source(table, "table", 0);
    require(table->rows() > 0 && source->size() == table->rows(), "a table has rows");
    const BatchLayout layout(*source, 1, {});
    std::vector<std::byte> memory(layout.bytes());
    for (std::int64_t row = 0; row < source->size(); ++row) {
      KeyedGenerator unused(0, 0, 0);
      const auto sample = layout.first_sample(memory.data());
      source->read(row, sample, unused);
      for (const View& view : sample)
        require(std::all_of(view.as<float>(), view.as<float>() + view.numel(),
                            [](float x) { return std::isfinite(x); }),
                "numbers are finite");
    }
  } catch (const DataError&) {
  }
}

void read_table(std::string_view input) {
  const UniqueFd file(static_cast<int>(check(Sys{::memfd_create("table", MFD_CLOEXEC)}, "memfd_create")));
  check(Sys{::write(file.get(), input.data(), input.size())}, "write");
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  read_table(path, {});
  for (const CsvMissing missing : {CsvMissing::report, CsvMissing::skip})
    read_table(path, {.delimiter = find_delimiter(path), .finds_categories = true, .missing = missing});
}

}  // namespace

void csv(std::string_view input) {
  const Parsed whole = parse(input, input.size() + 3);
  for (const std::size_t step : {std::size_t{3}, std::size_t{5}})
    require(parse(input, step) == whole, "a file means the same however it is read");
  const Parsed again = parse(written(whole.records), 1 << 12);
  require(again.records == whole.records && again.refusal.empty(), "records come back as they were written");
  read_table(input);
}

void npy(std::string_view input) {
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  try {
    const NpyHeader header = parse_npy_header(bytes, "input");
    require(header.bytes <= input.size(), "a header lies in its file");
    require(header.shape.rank() <= kMaxRank, "a shape that tensors have");
    std::uint64_t elements = size_of(header.type);
    for (const std::int64_t extent : header.shape) {
      require(extent >= 0, "extents are not negative");
      require(!__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements),
              "sizes add up");
    }
    require(header.total == header.bytes + elements, "the size is the header's and the elements'");
    const NpyHeader alone = parse_npy_header(bytes.first(header.bytes), "input");
    require(alone.shape == header.shape && alone.type == header.type && alone.total == header.total,
            "what follows the header does not matter");
  } catch (const DataError& error) {
    require(error.offset_bytes() >= 0 && error.offset_bytes() <= static_cast<std::int64_t>(input.size()),
            "a refusal points into the file");
  }
}

void npz(std::string_view input) {
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  const auto check_place = [&](const DataError& error) {
    require(error.offset_bytes() >= 0 && error.offset_bytes() <= static_cast<std::int64_t>(input.size()),
            "a refusal points into the file");
  };
  try {
    const ZipArchive archive(Content(nullptr, bytes), "input");
    for (const ZipMember& member : archive.members()) {
      Content content;
      try {
        content = archive.open(member);
      } catch (const DataError& error) {
        check_place(error);
        continue;
      }
      require(content.size() == member.bytes, "contents are as long as the directory says");
      require(member.bytes <= (input.size() + 1) * 1032, "no more than deflate can make of the input");
      try {
        const NpyArray array = read_npy(content, "input:array");
        require(array.header.total == content.size(), "an array fills its member");
      } catch (const DataError&) {  // the place is one in the member
      }
    }
  } catch (const DataError& error) {
    check_place(error);
  }
}

}  // namespace dtrain::fuzz
