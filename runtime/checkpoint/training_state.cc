// state.json: small, readable, and sealed by a CRC-32 of its own text (the digits themselves taken as zeros).
#include "runtime/checkpoint/training_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/checkpoint/json/sealed_json.h"
#include "runtime/checkpoint/json/strict_json.h"

namespace dtrain {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kStateVersion = 1;
constexpr int kStateDepth = 4;

void check_count(const std::string& name, std::int64_t value) {
  if (value < 0)
    throw UsageError("training state: " + name + ": expected at least 0, got " + std::to_string(value));
}

void check_state(const TrainingState& state) {
  check_count("step", state.step);
  check_count("epoch", state.epoch);
  check_count("position_in_epoch", state.position_in_epoch);
  for (const auto& [name, value] : state.schedule) {
    if (!std::isfinite(value)) {
      throw UsageError("training state: schedule '" + name + "': expected a finite number, got " +
                       std::to_string(value));
    }
  }
}

ordered_json state_json(const TrainingState& state, const CheckpointSeals& seals) {
  ordered_json result;
  result["format"] = kStateVersion;
  result["step"] = state.step;
  result["epoch"] = state.epoch;
  result["position_in_epoch"] = state.position_in_epoch;
  result["generators"] = state.generators;
  result["schedule"] = state.schedule;
  result["extra"] = state.extra;
  result["config_hash"] = state.config_hash;
  result["program_version"] = state.program_version;
  result["files"] = ordered_json::object();
  for (const auto& [name, seal] : seals) {
    result["files"][name]["bytes"] = seal.bytes;
    result["files"][name]["header_crc32"] = seal.header_crc32;
  }
  return result;
}

}  // namespace

std::string format_training_state(const TrainingState& state, const CheckpointSeals& seals) {
  check_state(state);
  return format_sealed_json(state_json(state, seals), "training state");
}

TrainingState parse_training_state(const std::string& text, const std::filesystem::path& path,
                                   CheckpointSeals& seals) {
  // The checksum first: what it covers was written by us, so what is wrong after it is a version, not damage.
  check_sealed_json(text, path);
  const json parsed = parse_strict_json(text, path, 0, kStateDepth);
  try {
    if (const std::int64_t format = integer_of(parsed.at("format")); format != kStateVersion) {
      throw DataError(path.string(), -1, "format " + std::to_string(kStateVersion), std::to_string(format));
    }
    TrainingState state;
    state.step = integer_of(parsed.at("step"));
    state.epoch = integer_of(parsed.at("epoch"));
    state.position_in_epoch = integer_of(parsed.at("position_in_epoch"));
    parsed.at("generators").get_to(state.generators);
    parsed.at("schedule").get_to(state.schedule);
    parsed.at("extra").get_to(state.extra);
    parsed.at("config_hash").get_to(state.config_hash);
    parsed.at("program_version").get_to(state.program_version);
    for (const auto& [name, seal] : parsed.at("files").items()) {
      const std::int64_t bytes = integer_of(seal.at("bytes"));
      check_count("bytes of " + name, bytes);
      seals[name] = {static_cast<std::uint64_t>(bytes), seal.at("header_crc32").get<std::string>()};
    }
    check_state(state);
    return state;
  } catch (const json::exception& error) {
    throw DataError(path.string(), -1, "a training state", error.what());
  } catch (const UsageError& error) {
    throw DataError(path.string(), -1, "a training state", error.what());
  }
}

}  // namespace dtrain
