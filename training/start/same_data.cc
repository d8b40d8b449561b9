#include "training/start/same_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "parallel/share.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// Whether `now` begins with the samples that `then` had.
bool begins_with(const Source& now, const SplitFingerprint& then) {
  return now.size() >= then.size && fits(then, fingerprint(now, then.size));
}

/// What stands between commas and parentheses, sorted: of "x float32 [2] (size, rooms)" the words "rooms",
/// "size" and "x float32 [2]".
std::vector<std::string> sorted_words(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char letter : text) {
    if (letter == ',' || letter == '(' || letter == ')') {
      words.emplace_back();
    } else if (letter != ' ' || !words.back().empty()) {
      words.back() += letter;
    }
  }
  for (std::string& word : words) word.erase(word.find_last_not_of(' ') + 1);
  std::ranges::sort(words);
  return words;
}

}  // namespace

void check_same_data(const DataFingerprint& data, Communicator& workers, const Deadline& deadline) {
  const auto first = from_entries(broadcast_entries(workers, to_entries(data), deadline)).value();
  const std::string differs = difference(first, data);
  if (differs.empty()) return;
  const std::string words =
      fmt::format("--dataset: rank {} has different data from rank 0: {}; give all workers the same files",
                  workers.rank(), differs);
  workers.abort(words);
  throw UsageError(words);
}

void check_resumed_data(const std::filesystem::path& checkpoint, const TrainingState& state,
                        const Source& train, const Source& test, const DataFingerprint& data, Log& log) {
  const std::string path = checkpoint.string();
  const auto then = from_entries(state.extra);
  if (!then) {
    log.write(LogLevel::warning,
              fmt::format("{}: written by an older version, which did not record the data: they may be "
                          "different, and split= holds out other samples now",
                          path));
    return;
  }
  const std::string differs = difference(*then, data);
  if (differs.empty()) return;
  const bool same_fields = then->fields == data.fields && difference(then->names, data.names).empty();
  if (same_fields && begins_with(train, then->train) && begins_with(test, then->test)) {
    log.write(
        LogLevel::warning,
        fmt::format("the data have grown since {}: {} samples to train on, {} then; {} held out, {} then; "
                    "the order of this epoch is drawn again",
                    path, data.train.size, then->train.size, data.test.size, then->test.size));
    return;
  }
  throw UsageError(
      fmt::format("--dataset: the data are not those that {} was trained on: {}; put the files back, or use "
                  "another --run-dir for a new run (--init-from starts it from these weights)",
                  path, differs));
}

void check_initial_columns(const std::string& from, const std::map<std::string, std::string>& identity,
                           std::span<const Field> fields) {
  const auto learned = from_entries(identity);
  const std::string now = describe_with_columns(fields);
  if (!learned) return;
  if (const auto names = names_of_values(fields); are_renumbered(learned->names, names)) {
    throw UsageError(
        fmt::format("--init-from: expected weights for these classes in this order, got weights of {}, which "
                    "learned them in another: {}; rename the classes so that they sort as they did",
                    from, difference(learned->names, names)));
  }
  if (learned->fields == now || sorted_words(learned->fields) != sorted_words(now)) return;
  throw UsageError(
      fmt::format("--init-from: expected weights trained on {}, got weights of {}, trained on {}: the same "
                  "columns in another order; give them in that order (features=A+B of --dataset)",
                  now, from, learned->fields));
}

}  // namespace dtrain
