// Workers without a command line for them, as torch.multiprocessing.spawn.
#pragma once

namespace dtrain {

/// Called first in main(). In a process that nothing has placed among workers (dtrain-launch, mpirun, srun,
/// …): becomes `dtrain-launch --nproc_per_node=count` with this program and its arguments, which starts it
/// `count` >= 1 times and watches over these workers; its exit code is the job's. Returns in each worker.
/// dtrain-launch is the one in PATH, else the one that was installed with this library; UsageError where
/// there is neither, or other threads run already.
void spawn_workers(int count);

}  // namespace dtrain
