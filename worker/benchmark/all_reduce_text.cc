// The result of the all_reduce benchmark for people and for programs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "worker/benchmark/all_reduce.h"

namespace dtrain {

double AllReduceResult::algorithm_gbs() const noexcept {
  return median_seconds > 0 ? static_cast<double>(bytes()) / median_seconds * 1e-9 : 0;
}

double AllReduceResult::bus_gbs() const noexcept { return algorithm_gbs() * 2 * (world - 1) / world; }

std::string all_reduce_heading() {
  return fmt::format("#{:>11} {:>12} {:>8} {:>6} {:>10} {:>10} {:>8} {:>8} {:>7}\n", "size", "count", "type",
                     "redop", "time", "best", "algbw", "busbw", "#wrong") +
         fmt::format("#{:>11} {:>12} {:>26} {:>10} {:>8} {:>8}\n", "(B)", "(elements)", "(us)", "(us)",
                     "(GB/s)", "(GB/s)");
}

std::string all_reduce_line(const AllReduceResult& result) {
  return fmt::format(" {:>11} {:>12} {:>8} {:>6} {:>10.2f} {:>10.2f} {:>8.3f} {:>8.3f} {:>7}\n",
                     result.bytes(), result.count, name_of(result.dtype), "sum", result.median_seconds * 1e6,
                     result.best_seconds * 1e6, result.algorithm_gbs(), result.bus_gbs(), result.wrong);
}

std::string all_reduce_json(const AllReduceResult& result, std::string_view backend) {
  const nlohmann::ordered_json json = {{"bytes", result.bytes()},
                                       {"count", result.count},
                                       {"dtype", name_of(result.dtype)},
                                       {"redop", "sum"},
                                       {"backend", backend},
                                       {"world_size", result.world},
                                       {"time_us", result.median_seconds * 1e6},
                                       {"best_us", result.best_seconds * 1e6},
                                       {"algbw_gbs", result.algorithm_gbs()},
                                       {"busbw_gbs", result.bus_gbs()},
                                       {"wrong", result.wrong}};
  return json.dump() + "\n";
}

}  // namespace dtrain
