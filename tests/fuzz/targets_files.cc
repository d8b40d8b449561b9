// Files of a run and of data sets.
#include "tests/fuzz/targets_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/checksum.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/shard_index.h"
#include "runtime/checkpoint/training_state.h"
#include "runtime/data/formats/idx.h"
#include "runtime/metrics/report/metrics_reader.h"
#include "runtime/metrics/report/run_files.h"
#include "runtime/metrics/report/thin.h"
#include "runtime/metrics/report/trace_phases.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {
namespace {

/// The input as a file with a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view input)
      : fd_(static_cast<int>(check(Sys{::memfd_create("input", MFD_CLOEXEC)}, "memfd_create"))) {
    check(Sys{::write(fd_.get(), input.data(), input.size())}, "write");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

/// The input with the checksum that it would need in the place where it has one.
std::string resealed(std::string_view input) {
  constexpr std::string_view kMember = "\"crc32\": \"";
  std::string text(input);
  const std::size_t at = text.rfind(kMember);
  if (at == std::string::npos || at + kMember.size() + kHexDigits > text.size()) return text;
  const std::size_t hole = at + kMember.size();
  return text.replace(hole, kHexDigits, hex32(crc32_with_hole(text, hole)));
}

void read_state(const std::string& text) {
  try {
    CheckpointSeals seals, again;
    const TrainingState read = parse_training_state(text, "state.json", seals);
    require(parse_training_state(format_training_state(read, seals), "state.json", again) == read,
            "a state comes back as it was");
    require(again == seals, "seals come back as they were");
  } catch (const DataError&) {
  }
}

void read_index(const std::string& text) {
  const std::vector<std::string> files = {"model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors"};
  try {
    const auto tensors = parse_shard_index(text, "index.json", files);
    require(parse_shard_index(format_shard_index(tensors), "index.json", files) == tensors,
            "an index comes back as it was");
  } catch (const DataError&) {
  }
}

void read_values(const SafetensorsFile& file) {
  for (const SafetensorsEntry& entry : file.entries()) {
    std::vector<std::byte> values(entry.end - entry.begin);
    try {
      file.read(entry, values);
    } catch (const DataError&) {
    }
  }
}

}  // namespace

void safetensors(std::string_view input) {
  const MemoryFile memory(input);
  try {
    const SafetensorsFile file = SafetensorsFile::open(memory.path());
    std::uint64_t at = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      require(entry.begin == at && entry.end >= entry.begin, "entries lie one behind the other");
      at = entry.end;
      require(file.values_at() + entry.end <= input.size(), "entries lie in the file");
      const auto elements = static_cast<std::uint64_t>(entry.shape.product());
      require(elements * size_of(entry.dtype) == entry.end - entry.begin,
              "an entry is as long as its shape says");
    }
    read_values(file);
  } catch (const DataError&) {
  }
}

void state(std::string_view input) {
  read_state(std::string(input));
  read_state(resealed(input));
}

void shard_index(std::string_view input) {
  read_index(std::string(input));
  read_index(resealed(input));
}

void idx(std::string_view input) {
  const MemoryFile memory(input);
  NullLog log;
  DataCache none({}, log);
  for (const Dims& item : {Dims{}, Dims{2, 2}}) {
    try {
      const IdxArray array = read_idx(memory.path(), {.item = item}, none);
      const Content& elements = array.elements;
      require(static_cast<std::int64_t>(elements.size()) == array.dims.product(),
              "as many bytes as the dimensions say");
      require(elements.read(0, elements.size()).size() == elements.size(), "bytes can be read");
    } catch (const DataError&) {
    }
  }
}

void report(std::string_view input) {
  MetricsReader reader;
  reader.add(input);
  for (const Curve* curve : {&reader.metrics().train_loss, &reader.metrics().eval_loss}) {
    for (std::size_t i = 0; i < curve->size(); ++i) {
      require(std::isfinite((*curve)[i].step), "steps are numbers");
      require(i == 0 || (*curve)[i - 1].step < (*curve)[i].step, "steps ascend");
    }
    for (const ThinPoint& point : thin_out(*curve, 7))
      require(std::isnan(point.mean) || std::isfinite(point.high), "a picture has numbers and gaps");
  }
  PhaseTimes traced;
  add_trace(std::string(input), traced);
  for (const auto& times : traced.milliseconds)
    require(times.size() == traced.parts.size(), "a trace is a table");
  log_facts(input, 3);
  try {
    object_in(std::string(input), "config.json");
  } catch (const DataError&) {
  }
}

}  // namespace dtrain::fuzz
