#include "parallel/sync/equal_start.h"

#include <fmt/format.h>

#include <string_view>

#include "parallel/span_of.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::uint64_t hash_text(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

void check_same_model(Communicator& communicator, const NamedTensors& state, const Deadline& deadline) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const auto& [name, tensor] : state) hash = hash_text(hash, name + tensor.describe());
  std::vector<std::int64_t> mine = {static_cast<std::int64_t>(hash), static_cast<std::int64_t>(state.size())};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather({mine.data(), 2, DType::i64}, {all.data(), all.size(), DType::i64}, "model check")
      ->wait(deadline);
  for (std::size_t rank = 0; 2 * rank < all.size(); ++rank) {
    if (all[2 * rank] == all[0] && all[2 * rank + 1] == all[1]) continue;
    throw UsageError(fmt::format(
        "data parallel: rank {} built a different model from rank 0: names, shapes or dtypes of its "
        "{} tensors differ from "
        "rank 0's {}; start all workers with the same options and version",
        rank, all[2 * rank + 1], all[1]));
  }
}

void copy_from_first_rank(Communicator& communicator, const NamedTensors& tensors, const Deadline& deadline) {
  std::vector<std::unique_ptr<Work>> works;
  for (const auto& [name, tensor] : tensors)
    works.push_back(communicator.broadcast(span_of(tensor), 0, name));
  for (auto& work : works) work->wait(deadline);
  for (const auto& [name, tensor] : tensors) tensor.mark_modified();
}

}  // namespace dtrain
