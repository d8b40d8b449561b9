#include "launcher/plan/foreign_options.h"

#include <string_view>

namespace dtrain::launcher {
namespace {

constexpr std::string_view kWorkers =
    "the number of workers on a node is --nproc-per-node=N; several nodes are --hosts a,b,c, or one launcher "
    "on each, with --nnodes, --node-rank and --master-addr";
constexpr std::string_view kHosts =
    "several hosts are --hosts a,b,c or --hosts @FILE; or let mpirun start one launcher on each: mpirun "
    "--hostfile FILE --map-by ppr:1:node dtrain-launch …";
constexpr std::string_view kVariables =
    "workers inherit the launcher's environment; export the variable instead, or with --hosts name it in "
    "--export NAME,…";
constexpr std::string_view kBinding = "--numa-binding=node, socket or exclusive binds workers to cores";

// clang-format off
constexpr ForeignOption kForeign[] = {
    {"-n, -np, --np, -c, --ntasks, -ppn, --ppn, -perhost, -npernode, --npernode, -N, --ntasks-per-node, --nodes, --gpus, --num-gpus, --ngpus, --num-processes, --workers, --world-size", kWorkers},
    {"-H, -host, --host, -hosts, -f, -hostfile, --hostfile, -machinefile, --machinefile, -w, --nodelist", kHosts},
    {"-x, -genv", kVariables},
    {"--bind-to, -bind-to, --map-by, --cpu-bind, --rank-by", kBinding},
};
// clang-format on

}  // namespace

std::span<const ForeignOption> foreign_options() noexcept { return kForeign; }

}  // namespace dtrain::launcher
