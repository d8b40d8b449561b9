// Moves variables into a Placement, checking and noting where each value came from. Internal to detection.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/detect/detect.h"

namespace dtrain {

class PlacementReader {
 public:
  PlacementReader(const Environment& environment, const Machine& machine)
      : environment_(environment), machine_(machine) {}

  Placement placement;

  bool has(std::string_view variable) const { return find_variable(environment_, variable) != nullptr; }
  /// The text of a variable; empty when unset.
  std::string_view text(std::string_view variable) const;
  /// The variable as a number of at least `least`; nothing when unset. Throws UsageError.
  std::optional<int> number(std::string_view variable, int least) const;
  const Machine& machine() const noexcept { return machine_; }

  /// Takes the first of `variables` that is set into a field and notes it.
  void take_rank(std::optional<int> Placement::*field, std::string_view name,
                 std::vector<std::string_view> variables);
  void take_size(std::optional<int> Placement::*field, std::string_view name,
                 std::vector<std::string_view> variables);
  void take_master(std::string_view address_variable, std::string_view port_variable);

  /// Sets a field unless it is set already, noting how it is known.
  template <class T>
  void set(std::optional<T> Placement::*field, std::string_view name, T value, std::string how) {
    if (placement.*field) return;
    placement.*field = std::move(value);
    note(name, std::move(how));
  }
  void note(std::string_view name, std::string how) {
    placement.explanations.insert_or_assign(std::string(name), std::move(how));
  }

 private:
  void take(std::optional<int> Placement::*field, std::string_view name,
            const std::vector<std::string_view>& variables, int least);

  const Environment& environment_;
  const Machine& machine_;
};

/// A port that every process of a job derives alike and two jobs on a node rarely share.
std::uint16_t derive_port(std::string_view job, std::string_view step);

/// Fills the reader's placement if its system is present; returns whether it is.
bool detect_plain(PlacementReader& reader);
bool detect_openmpi(PlacementReader& reader);
bool detect_hydra(PlacementReader& reader);
bool detect_flux(PlacementReader& reader);
bool detect_slurm(PlacementReader& reader);
bool detect_pmi(PlacementReader& reader);
bool detect_pmix(PlacementReader& reader);
bool detect_lsf(PlacementReader& reader);
bool detect_kubeflow(PlacementReader& reader);
bool detect_kubernetes(PlacementReader& reader);
bool detect_pbs(PlacementReader& reader);

}  // namespace dtrain
