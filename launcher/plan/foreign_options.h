// What people who know mpirun and srun type: no option of ours, but what they mean has one.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dtrain::launcher {

/// What to type instead of the first of `arguments` that is mpirun's, mpiexec's or srun's and none of ours:
/// "-np: …". Nothing when there is none before the program.
std::optional<std::string> answer_to_foreign_option(const std::vector<std::string>& arguments);

}  // namespace dtrain::launcher
