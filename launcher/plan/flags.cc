// The option table.
#include "launcher/plan/flags.h"

#include <array>

namespace dtrain::launcher {
namespace {

constexpr std::string_view kWorkers = "Workers:";
constexpr std::string_view kNodes = "Many nodes:";
constexpr std::string_view kProgram = "Program:";
constexpr std::string_view kOutput = "Output:";
constexpr std::string_view kFailure = "Failure:";
constexpr std::string_view kTorchrun = "Torchrun:";
constexpr std::string_view kAbout = "General:";

constexpr std::array kOptions = {
    OptionSpec{
        "nproc-per-node", kWorkers, "N", "",
        "workers on this node: a number; auto (one per visible GPU, else 1); gpu (as auto, but fails without "
        "a GPU); xpu (one per Intel GPU); cpu (one per usable core) [auto]"},
    OptionSpec{"servers", kWorkers, "S", "0",
               "parameter servers: S more processes, outside WORLD_SIZE, that keep and update the parameters "
               "of a program that uses dtrain (its --update and --max-staleness)"},
    OptionSpec{"emulated-gpus", kWorkers, "N", "",
               "run on N GPUs made of software in place of this machine's (slow, the same semantics): sets "
               "DTRAIN_EMULATED_GPUS"},
    OptionSpec{"standalone", kWorkers, "", "", "one node, whatever Slurm or mpirun say; a free port"},
    OptionSpec{"iface", kWorkers, "NAME", "",
               "network interface: sets NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME"},
    OptionSpec{
        "numa-binding", kWorkers, "HOW", "none",
        "bind workers to cores: none, node (those near the worker's GPU, else NUMA nodes in turn), socket, "
        "exclusive (an equal share of the cores each)"},
    OptionSpec{"virtual-local-rank", kWorkers, "", "",
               "each worker sees one GPU, as device 0, and LOCAL_RANK 0"},
    OptionSpec{"role", kWorkers, "NAME", "default", "ROLE_NAME of the workers"},

    OptionSpec{
        "nnodes", kNodes, "N|MIN:MAX", "",
        "number of nodes; with MIN:MAX nodes may leave and come back [as the batch system says, else 1]"},
    OptionSpec{
        "spares", kNodes, "N", "0",
        "launchers beside --nnodes that wait; one takes the place of a node that is lost, and the group "
        "restarts with it (--max-restarts)"},
    OptionSpec{"node-rank", kNodes, "R", "",
               "which of the nodes this is, from 0; from --nnodes on a spare [as the system says]"},
    OptionSpec{"master-addr", kNodes, "ADDR", "", "address of node 0, where rank 0 listens"},
    OptionSpec{"master-port", kNodes, "PORT", "",
               "port where rank 0 listens; 0 picks a free one [29500; on one node a free one]"},
    OptionSpec{
        "rdzv-endpoint", kNodes, "ADDR[:PORT]", "",
        "where launchers meet [master address, master port + 1]; on one node the same as master address and "
        "port"},
    OptionSpec{"rdzv-id", kNodes, "ID", "",
               "the job's name; TORCHELASTIC_RUN_ID of the workers [one of its own for each job]", 0,
               "rdzv-run-id"},
    OptionSpec{
        "join-timeout", kNodes, "SECONDS", "",
        "until all nodes must have joined, and, where restarts are left, until a lost one must have been "
        "replaced [600]"},
    OptionSpec{"rdzv-conf", kNodes, "LIST", "",
               "timeouts in seconds: join_timeout=600 (as --join-timeout), last_call_timeout=30 (with "
               "MIN:MAX: how long MIN nodes wait for more); other names are ignored"},
    OptionSpec{
        "lease-timeout", kNodes, "SECONDS", "10",
        "a node that cannot reach node 0 for so long kills its workers, and 2 s later the others go on or "
        "end; a shorter cut costs nothing but the wait"},
    OptionSpec{"token-file", kNodes, "FILE", "",
               "the job's secret, 64 hex digits, mode 0600, the same on every node; or the variable "
               "DTRAIN_TOKEN"},
    OptionSpec{"insecure", kNodes, "", "",
               "let launchers meet without a secret: anyone who reaches the port can join or end the job"},
    OptionSpec{
        "agent-store", kNodes, "", "",
        "serve PyTorch's TCPStore at master address and port while the launcher of node 0 runs, as torchrun "
        "does, instead of leaving the port to rank 0; or the variable TORCHELASTIC_USE_AGENT_STORE=True"},
    OptionSpec{"local-addr", kNodes, "ADDR", "", "master address on one node"},

    OptionSpec{"module", kProgram, "", "", "PROGRAM is a Python module: python3 -u -m PROGRAM", 'm'},
    OptionSpec{"no-python", kProgram, "", "", "run PROGRAM itself even when its name ends in .py"},
    OptionSpec{"run-path", kProgram, "", "",
               "PROGRAM is a Python file whatever its name; wins over --no-python"},
    OptionSpec{"pass-local-rank", kProgram, "", "",
               "append --local-rank=N to the program's arguments, as torch.distributed.launch did"},

    OptionSpec{"prefix", kOutput, "", "", "start each line with host:rank:"},
    OptionSpec{
        "log-dir", kOutput, "DIR", "",
        "write DIR/attempt_<restart>/<rank>/stdout.log and stderr.log; without -r or -t lines go to file and "
        "console",
        0, "logdir"},
    OptionSpec{"redirects", kOutput, "WHAT", "0",
               "send to files only: 0 nothing, 1 stdout, 2 stderr, 3 both; or per local rank: 0:1,1:2", 'r'},
    OptionSpec{"tee", kOutput, "WHAT", "0",
               "send to files and console, lines marked [role<local rank>]:; values as for -r", 't'},
    OptionSpec{
        "log-line-prefix-template", kOutput, "TEXT", "",
        "what marks lines of -t and --log-dir; ${role_name}, ${local_rank}, ${rank} and ${hostname} are "
        "replaced [[${role_name}${local_rank}]:]"},
    OptionSpec{"local-ranks-filter", kOutput, "LIST", "", "show only these local ranks on the console: 0,2"},
    OptionSpec{"ranks-filter", kOutput, "LIST", "", "show only these global ranks on the console"},
    OptionSpec{"duplicate-stdout-filters", kOutput, "LIST", "",
               "copy lines that contain one of these texts (error,warning), of all ranks whose stdout goes "
               "to file and "
               "console (-t, --log-dir), to DIR/attempt_<restart>/filtered_stdout.log as well"},
    OptionSpec{"duplicate-stderr-filters", kOutput, "LIST", "",
               "the same for stderr, in filtered_stderr.log"},
    OptionSpec{"passthrough", kOutput, "", "",
               "print workers' control characters (escape sequences) as they are"},

    OptionSpec{"max-restarts", kFailure, "N", "0", "restart the whole group up to N times after a failure"},
    OptionSpec{
        "shutdown-timeout", kFailure, "SECONDS", "",
        "time from SIGTERM to SIGKILL; or the variable TORCH_ELASTIC_SHUTDOWN_TIMEOUT [5 after a failure, 30 "
        "after a signal]"},
    OptionSpec{"saving-timeout", kFailure, "SECONDS", "60",
               "so much longer before SIGKILL for a worker that is writing a checkpoint"},
    OptionSpec{"on-hang", kFailure, "WHAT", "report",
               "when a worker makes no progress: none, report (which one, and what each is doing) or stacks "
               "(by py-spy or gdb too); the job goes on"},
    OptionSpec{"hang-timeout", kFailure, "SECONDS", "300",
               "no progress: neither CPU time nor I/O nor output for so long"},
    OptionSpec{
        "signals-to-handle", kFailure, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "signals that are forwarded to the workers and end the job; SIGTERM, SIGINT and SIGHUP always do"},

    // Not DTRAIN_CONFIG: that is the worker's.
    OptionSpec{"config", kAbout, "FILE", "", "JSON file with option names and values", 0, "",
               "DTRAIN_LAUNCH_CONFIG"},
    OptionSpec{"print-config", kAbout, "", "", "print every option, its value and where it came from"},
    OptionSpec{"explain", kAbout, "", "", "print how nodes, ranks and addresses were found; start nothing"},
    OptionSpec{"dry-run", kAbout, "", "",
               "print command, environment, GPU and output of each rank; start nothing"},
    OptionSpec{"print-completion", kAbout, "SHELL", "", "print a completion script for bash, zsh or tcsh"},
    OptionSpec{"version", kAbout, "", "", "print the version"},
    OptionSpec{"help", kAbout, "", "", "print this text", 'h'},

    OptionSpec{"rdzv-backend", kTorchrun, "NAME", "", "", 0, "", "", "dtrain has its own rendezvous"},
    OptionSpec{"monitor-interval", kTorchrun, "SECONDS", "", "", 0, "", "",
               "a worker's exit is noticed at once; nothing is polled"},
    OptionSpec{"start-method", kTorchrun, "NAME", "", "", 0, "", "", "workers are separate programs"},
    OptionSpec{"event-log-handler", kTorchrun, "NAME", "", "", 0, "", "",
               "no events are recorded; the failure report says what happened"},
    OptionSpec{"logs-specs", kTorchrun, "NAME", "", "", 0, "", "",
               "it names Python code; --log-dir, -r and -t say where output goes"},
    OptionSpec{"use-env", kTorchrun, "", "", "", 0, "", "",
               "workers always find their rank in the environment"},
};

constexpr std::string_view kUsage =
    "usage: dtrain-launch [OPTIONS] [PROGRAM [ITS ARGUMENTS]]\n\n"
    "Starts one worker per GPU (or CPU slot) and supervises them until all exit.\n\n"
    "PROGRAM is the built-in dtrain (when left out: dtrain train), a .py file, a\n"
    "module with -m, or any executable. Everything from PROGRAM on belongs to it.\n"
    "Options can be spelled with dashes or underscores, set as DTRAIN_<OPTION> in\n"
    "the environment, or put in the file given by --config; the command line wins\n"
    "over the environment, and the environment over the file.";

}  // namespace

std::string completion_script(const Options& options) {
  const std::string& shell = options.choice("print-completion", {"bash", "zsh", "tcsh"});
  std::string words;
  for (const OptionSpec& spec : kOptions) {
    // tcsh completes what follows the dashes, the others whole words.
    words.append(words.empty() ? "" : " ").append(shell == "tcsh" ? "" : "--").append(spec.name);
  }
  if (shell == "tcsh") return "complete dtrain-launch 'c/--/(" + words + ")/'\n";
  const std::string bash = "complete -o default -W '" + words + "' dtrain-launch\n";
  return shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" + bash : bash;
}

std::span<const OptionSpec> launch_options() noexcept { return kOptions; }

std::optional<std::string> asked_help(const Options& options) {
  return dtrain::asked_help(options, kUsage, kOptions);
}

}  // namespace dtrain::launcher
