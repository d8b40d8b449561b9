#include "training/loop/run_checkpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "parallel/layout/saved_tensors.h"
#include "parallel/share.h"
#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/base/options.h"
#include "training/loop/run_folder.h"

namespace dtrain {
namespace {

/// How long a disk that refuses is tried with one checkpoint.
constexpr Duration kDiskPatience = std::chrono::seconds(10);

}  // namespace

RunCheckpoints::RunCheckpoints(const TrainConfig& config, const TrainerEnvironment& environment,
                               const FiniteCheck& finite)
    : config_(config), env_(environment), finite_(finite) {}

std::string RunCheckpoints::broadcast(std::string text) const {
  return broadcast_text(env_.communicator, std::move(text), start_deadline());
}

CheckpointTest RunCheckpoints::unusable() const {
  return [this](const Checkpoint& found) { return finite_.find(found); };
}

// Rank 0 reads it before the run is locked: the file is replaced whole, and what is kept of it is what this
// start records again.
TunedConfig RunCheckpoints::tuned_config() {
  std::string text;
  if (is_root()) {
    folder_ = choose_run_dir(config_, env_.environment);
    text = format_tuned_config(read_tuned_config(config_, RunDirectory(folder_)));
  }
  return parse_tuned_config(broadcast(text));
}

void RunCheckpoints::find(const std::function<void(const Checkpoint&)>& check) {
  std::exception_ptr disk_trouble;
  if (is_root()) {
    if (folder_.empty()) folder_ = choose_run_dir(config_, env_.environment);
    const RunDirectory run(folder_);
    made_folder_ = !std::filesystem::exists(folder_);
    store_ = lock_run(config_, run, env_.permit, env_.log);  // before looking inside
    try {
      found_ = find_checkpoint(config_, run, unusable(), env_.log);
    } catch (const UsageError&) {
      throw;
    } catch (const Error&) {
      if (config_.peer_snapshots == 0) throw;
      disk_trouble = std::current_exception();
    }
  }
  make_snapshots();
  take_newer_snapshot(disk_trouble);
  if (is_root() && found_) check(*found_);
  folder_ = broadcast(folder_.string());
}

void RunCheckpoints::make_snapshots() {
  if (config_.peer_snapshots == 0) return;
  if (!env_.strategy.replicated())
    throw UsageError(
        "--peer-snapshots: expected workers that each hold the whole state, got workers that hold shards of "
        "it (--shard, --tensor), which only a checkpoint combines; use --checkpoint-every");
  snapshots_ =
      std::make_unique<PeerSnapshots>(env_.communicator, env_.environment, env_.log, config_.connect_timeout);
}

// What a node has in memory may be newer than what is on the disk, or all that is left.
void RunCheckpoints::take_newer_snapshot(const std::exception_ptr& disk_trouble) {
  if (!snapshots_) return;
  auto snapshot = snapshots_->find(found_ ? found_->state.step : -1, start_deadline());
  if (disk_trouble && !snapshot) std::rethrow_exception(disk_trouble);
  if (!snapshot) return;
  if (disk_trouble) {
    try {
      std::rethrow_exception(disk_trouble);
    } catch (const Error& error) {
      env_.log.write(LogLevel::warning, fmt::format("no checkpoint was read: {}", error.what()));
    }
  }
  if (found_) snapshot->refused = found_->refused;
  found_ = std::move(snapshot);
}

void RunCheckpoints::open(const TrainingState& state, std::function<void()> before_write) {
  if (is_root() || env_.strategy.sharded()) {
    const RankState parts = env_.strategy.save();
    // Most state appears with the first step only.
    bytes_ = checkpoint_bytes({state, views_of(parts.model), views_of(parts.optimizer)}) *
             static_cast<std::uint64_t>(copies_of_parameters(config_.optimizer));
  }
  if (is_root()) RunDirectory::create(folder_, bytes_);
  make_store();
  saver_ = std::make_unique<CheckpointSaver>(store_.get(), env_.log, saver_options(std::move(before_write)));
}

// Ranks that write shards do so under the lock of rank 0. Where they cannot see the folder, the first save
// says so.
void RunCheckpoints::make_store() {
  if (sharded()) {
    const std::string id = broadcast(store_ ? store_->writer_id() : "");
    if (!store_) {
      store_ = std::make_unique<CheckpointStore>(RunDirectory(folder_).checkpoints(), 0, env_.log);
      store_->write_for(id);
    }
  }
  if (store_) store_->write_by(env_.permit);
}

CheckpointSaverOptions RunCheckpoints::saver_options(std::function<void()> before_write) {
  CheckpointSaverOptions options{.spans = env_.tracer.spans(), .patience = kDiskPatience};
  if (sharded()) options.shard = {env_.communicator.rank(), env_.communicator.size()};
  if (env_.strategy.in_step()) {
    options.max_over_ranks = [this](std::int64_t value) {
      env_.communicator
          .all_reduce({.data = &value, .count = 1, .dtype = DType::i64}, ReduceOp::max, "checkpoint parts")
          ->wait(Deadline::after(config_.collective_timeout));
      return value;
    };
  }
  // A launcher that has to stop this process waits for the write while the file is there.
  const std::string mark = variable_or(env_.environment, "DTRAIN_SAVING_FILE", "");
  const auto begun = std::make_shared<TimePoint>();
  options.begin_write = [mark, begun, before_write = std::move(before_write), status = env_.status] {
    if (!mark.empty()) UniqueFd(::open(mark.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    *begun = steady_clock().now();
    if (status != nullptr) status->update([](WorkerStatus& now) { now.saving = true; });
    before_write();
  };
  options.end_write = [mark, begun, status = env_.status] {
    if (!mark.empty()) ::unlink(mark.c_str());
    if (status == nullptr) return;
    const double seconds = std::chrono::duration<double>(steady_clock().now() - *begun).count();
    status->update([seconds](WorkerStatus& now) {
      now.saving = false;
      now.checkpoint_seconds = seconds;
    });
  };
  return options;
}

std::int64_t RunCheckpoints::begin() {
  auto all = static_cast<double>(bytes_);
  if (sharded()) {
    env_.communicator
        .all_reduce({.data = &all, .count = 1, .dtype = DType::f64}, ReduceOp::sum, "checkpoint size")
        ->wait(start_deadline());
  }
  std::string start;
  if (is_root()) {
    store_->begin_writing(static_cast<std::uint64_t>(all));
    start = std::to_string(
        store_->resume_from(found_ ? found_->state.step : 0,
                            found_ ? std::span(found_->refused) : std::span<const RefusedCheckpoint>()));
  }
  bytes_ = 0;  // looked at once
  return parse_integer(broadcast(start)).value_or(0);
}

// Rank 0 hands everything to the others, who need not see its disk, or, where every rank holds a shard of its
// own, the checkpoint's name.
std::optional<TrainingState> RunCheckpoints::load() {
  const std::string text = broadcast(found_ ? format_training_state(found_->state, {}) : "");
  if (text.empty()) return std::nullopt;
  if (env_.strategy.sharded()) {
    const std::string path = broadcast(found_ ? found_->path.string() : "");
    if (!found_) found_ = load_checkpoint(path, CheckValues::later);
  }
  CheckpointSeals ignored;
  TrainingState state = parse_training_state(text, "state from rank 0", ignored);
  CheckpointFiles saved;
  if (found_) saved = {&found_->model, &found_->optimizer};
  if (AsyncSteps* steps = env_.strategy.asynchronous()) steps->load_notes(state.extra);
  env_.strategy.load(saved, start_deadline());
  return state;
}

// Checkpoints and snapshots are only taken of what all agreed on.
void RunCheckpoints::find_agreed() {
  saver_->drain();
  found_.reset();
  if (is_root())
    found_ = CheckpointStore(RunDirectory(folder_).checkpoints(), 0, env_.log).latest(unusable());
  take_newer_snapshot(nullptr);
}

std::optional<std::int64_t> RunCheckpoints::refuse_from(std::int64_t step, const std::string& reason) {
  saver_->drain();
  if (snapshots_) snapshots_->drop_from(step);
  std::string newest;
  if (is_root()) {
    const auto left = store_->refuse_from(step, reason);
    newest = std::to_string(left ? left->step : -1);
  }
  if (env_.strategy.in_step())
    newest = broadcast_text(env_.communicator, newest, Deadline::after(config_.collective_timeout));
  return parse_integer(newest);
}

void RunCheckpoints::remove_folder() noexcept {
  saver_.reset();
  store_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace dtrain
