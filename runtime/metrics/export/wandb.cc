// W&B's log of a run without network: a file in LevelDB's log format (blocks of 32 KiB, records cut at their
// ends) behind a header of its own, whose records are the protobuf messages of wandb_internal.proto.
#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/metrics/export/exported_run.h"
#include "runtime/metrics/protobuf.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using namespace protobuf;

constexpr std::size_t kBlock = 32768, kRecordHeader = 7;
constexpr std::uint16_t kMagic = 0xBEE1;

/// Fields of wandb_internal.Record and of the messages in it.
namespace field {
constexpr std::uint32_t kNumber = 1, kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21;
constexpr std::uint32_t kRunId = 1, kProject = 3, kConfig = 4, kName = 8, kHost = 13, kStartTime = 17;
constexpr std::uint32_t kItem = 1, kStep = 2;       // of HistoryRecord
constexpr std::uint32_t kUpdate = 1;                // of ConfigRecord and SummaryRecord
constexpr std::uint32_t kKey = 1, kValueJson = 16;  // of their items, and of HistoryItem
constexpr std::uint32_t kVersionInfo = 1, kProducer = 1, kMinConsumer = 2;
}  // namespace field

class Log {
 public:
  Log() {
    out_ = ":W&B";
    put_little_endian(out_, kMagic);
    out_.push_back(0);  // the version
  }

  /// A Record with the message `content` in its field `number`.
  void record(std::uint32_t number, const std::string& content) {
    std::string bytes;
    put_integer(bytes, field::kNumber, ++records_);
    put_bytes(bytes, number, content);
    append(bytes);
  }

  const std::string& text() const noexcept { return out_; }

 private:
  enum Piece : unsigned char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

  void append(std::string_view bytes) {
    bool first = true;
    do {
      const std::size_t left = kBlock - out_.size() % kBlock;
      if (left < kRecordHeader) {
        out_.append(left, '\0');
        continue;
      }
      const std::string_view part = bytes.substr(0, left - kRecordHeader);
      bytes.remove_prefix(part.size());
      piece(first ? (bytes.empty() ? kFull : kFirst) : (bytes.empty() ? kLast : kMiddle), part);
      first = false;
    } while (first || !bytes.empty());
  }

  void piece(Piece kind, std::string_view part) {
    const auto type = static_cast<Bytef>(kind);
    uLong crc = ::crc32(::crc32(0, nullptr, 0), &type, 1);
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    put_little_endian(out_, static_cast<std::uint32_t>(crc));
    put_little_endian(out_, static_cast<std::uint16_t>(part.size()));
    out_.push_back(static_cast<char>(kind));
    out_ += part;
  }

  std::string out_;
  std::int64_t records_ = 0;
};

std::string json_of(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  return nlohmann::json(value).dump();
}

/// What has a key and a value in JSON: an item of a config, a summary or a step.
std::string item(const std::string& key, const std::string& json) {
  std::string bytes;
  put_bytes(bytes, field::kKey, key);
  put_bytes(bytes, field::kValueJson, json);
  return bytes;
}

std::string run_message(const ExportedRun& run, const std::string& id, const std::string& project) {
  std::string config, time, message;
  for (const auto& [name, value] : run.parameters)
    put_bytes(config, field::kUpdate, item(name, nlohmann::json(value).dump()));
  const double whole = std::floor(run.begin);
  put_integer(time, 1, static_cast<std::int64_t>(whole));
  put_integer(time, 2, static_cast<std::int64_t>((run.begin - whole) * 1e9));
  put_bytes(message, field::kRunId, id);
  put_bytes(message, field::kProject, project);
  put_bytes(message, field::kConfig, config);
  put_bytes(message, field::kName, run.name);
  if (!run.host.empty()) put_bytes(message, field::kHost, run.host);
  put_bytes(message, field::kStartTime, time);
  return message;
}

struct Row {
  double time = 0;
  std::map<std::string, double> values;
};

std::map<std::int64_t, Row> rows_of(const ExportedRun& run) {
  std::map<std::int64_t, Row> rows;
  for (const auto& [name, points] : run.curves) {
    for (const ExportedPoint& point : points) {
      Row& row = rows[point.step];
      row.time = std::max(row.time, point.time);
      row.values[name] = point.value;
    }
  }
  return rows;
}

std::string history_message(std::int64_t step, const Row& row, double begin) {
  std::string number, message;
  put_integer(number, 1, step);
  for (const auto& [name, value] : row.values) put_bytes(message, field::kItem, item(name, json_of(value)));
  put_bytes(message, field::kItem, item("_step", std::to_string(step)));
  put_bytes(message, field::kItem, item("_timestamp", json_of(row.time)));
  put_bytes(message, field::kItem, item("_runtime", json_of(row.time - begin)));
  put_bytes(message, field::kStep, number);
  return message;
}

std::string log_of(const ExportedRun& run, const std::string& id, const std::string& project) {
  Log log;
  std::string version, header;
  put_bytes(version, field::kProducer, run.program);
  put_bytes(version, field::kMinConsumer, "0.12.0");
  put_bytes(header, field::kVersionInfo, version);
  log.record(field::kHeader, header);
  log.record(field::kRun, run_message(run, id, project));
  std::map<std::string, double> last;
  for (const auto& [step, row] : rows_of(run)) {
    log.record(field::kHistory, history_message(step, row, run.begin));
    for (const auto& [name, value] : row.values) last[name] = value;
  }
  std::string summary;
  for (const auto& [name, value] : last) put_bytes(summary, field::kUpdate, item(name, json_of(value)));
  log.record(field::kSummary, summary);
  if (run.status != ExportedRun::Status::running) {
    std::string exit;
    put_integer(exit, 1, run.status == ExportedRun::Status::failed ? 1 : 0);
    put_integer(exit, 2, static_cast<std::int64_t>(run.end - run.begin));
    log.record(field::kExit, exit);
  }
  return log.text();
}

std::string time_name(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts)};
}

fs::path write_wandb_files(const ExportedRun& run, const fs::path& root, const std::string& project) {
  const std::string id = run.id.substr(0, 12);
  const fs::path folder = fs::absolute(root).lexically_normal() / "wandb" /
                          fmt::format("offline-run-{}-{}", time_name(run.begin), id);
  fs::remove_all(folder);
  fs::create_directories(folder / "files");
  for (const fs::path& file : run.files) fs::copy_file(file, folder / "files" / file.filename());
  const fs::path path = folder / fmt::format("run-{}.wandb", id);
  const std::string bytes = log_of(run, id, project);
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw SystemError("write " + path.string(), errno);
  return folder;
}

}  // namespace

fs::path write_wandb(const ExportedRun& run, const fs::path& root, const std::string& project) {
  try {
    return write_wandb_files(run, root, project);
  } catch (const fs::filesystem_error& error) {
    throw SystemError("write " + error.path1().string(), error.code().value());
  }
}

}  // namespace dtrain
