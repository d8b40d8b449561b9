#include "training/options/foreign_options.h"

namespace dtrain {
namespace {

// clang-format off
constexpr ForeignOption kForeign[] = {
    {"--learning-rate, --base-lr, --eta", "the learning rate is --lr X"},
    {"--lr-scheduler, --lr-scheduler-type, --scheduler, --sched", "the schedule of the learning rate is --lr-schedule NAME"},
    {"--warmup, --warmup-ratio, --num-warmup-steps", "the warmup is --warmup-steps N or --warmup-epochs X"},
    {"--num-epochs, --max-epochs, --n-epochs, --num-train-epochs, -e", "the number of epochs is --epochs N"},
    {"--num-steps, --max-iters, --iterations, --total-steps", "the number of optimizer steps is --max-steps N"},
    {"--bs, --train-batch-size, --per-device-train-batch-size, --per-gpu-batch-size, -b", "the batch of a worker is --batch-size N, that of all workers together --global-batch-size N"},
    {"--gradient-accumulation-steps, --grad-accum, --accumulate-grad-batches, --accum-steps", "gradients are accumulated with --accumulate N"},
    {"--opt, --optim, --solver", "the optimizer is --optimizer NAME"},
    {"--wd, --l2", "weight decay is --weight-decay X"},
    {"--max-grad-norm, --grad-clip, --clip-grad, --clip-norm, --gradient-clip-val", "gradients are clipped with --clip-grad-norm X"},
    {"--fp16, --bf16, --half, --amp, --mixed-precision, --dtype, --torch-dtype", "mixed precision is --precision bf16 or fp16"},
    {"--gpus, --num-gpus, --ngpus, --n-gpus, --gpu-ids, --device-ids, -g, -n, -np, --np, --nproc, --nproc-per-node, --num-processes, --world-size", "a worker for each GPU is dtrain-launch --nproc-per-node=N dtrain train ...; several GPUs in one process are --devices cuda:0,cuda:1"},
    {"--nnodes, --node-rank, --master-addr, --master-port", "it belongs to dtrain-launch, before the program: dtrain-launch --nnodes=2 ... dtrain train ..."},
    {"--gpu, --cuda, --use-cuda, --no-cuda, --cpu, --use-cpu, --accelerator", "the device is --device cpu, cuda or cuda:N"},
    {"--fsdp, --zero, --zero-stage, --sharding", "what is split across workers is --shard optimizer, gradients or parameters"},
    {"--tp, --tp-size, --tensor-parallel-size, --tensor-model-parallel-size", "tensor parallelism is --tensor N"},
    {"--pp, --pp-size, --pipeline-parallel-size, --pipeline-model-parallel-size", "pipeline parallelism is --pipeline N"},
    {"--gradient-checkpointing, --activation-checkpointing, --checkpoint-activations", "activation checkpointing is --recompute"},
    {"--num-workers, --workers, --dataloader-num-workers, -j", "threads that load data are --loader-threads N"},
    {"--pin-memory", "batches are always in pinned memory where there is a GPU"},
    {"--shuffle, --no-shuffle", "every epoch is shuffled, by --seed"},
    {"--deterministic, --cudnn-deterministic", "every run is deterministic"},
    {"--data, --data-path, --dataset-name, --train-data, --train-file, --train-dir", "the data set is --dataset NAME, its folder --data-dir DIR"},
    {"--transform, --transforms, --aa, --auto-augment", "augmentation of pictures is --augment NAME"},
    {"--arch, --net, --network, -a", "the network is --model NAME"},
    {"--model-name-or-path, --pretrained, --weights, --finetune, --load-weights", "weights to start from are --init-from PATH"},
    {"--output-dir, --out-dir, --outdir, --output, -o, --save-dir, --work-dir, --log-dir, --logdir, --default-root-dir", "the folder of the run is --run-dir DIR"},
    {"--resume-from-checkpoint, --resume-from, --ckpt-path, --restore, --load, --checkpoint", "a run is resumed with its --run-dir DIR; another's checkpoint is --resume FOLDER"},
    {"--save-steps, --save-every, --save-interval, --save-freq", "a checkpoint every N steps is --checkpoint-every N"},
    {"--save-total-limit, --keep-last", "how many checkpoints are kept is --keep-checkpoints K"},
    {"--eval-steps, --eval-interval, --val-interval, --val-check-interval, --evaluation-strategy", "evaluations are set by --eval-every N"},
    {"--logging-steps, --log-interval, --print-freq, --log-freq", "a line of metrics every N steps is --log-every N"},
    {"--patience, --early-stop", "early stopping is --early-stopping N"},
    {"--ema-decay, --use-ema, --model-ema", "an average of the weights is --ema DECAY"},
    {"--swa, --swa-start, --swa-epoch-start", "stochastic weight averaging is --swa-from EPOCH"},
    {"--random-seed, --manual-seed", "the seed is --seed N"},
    {"--verbose, -v", "every N steps a line of metrics: --log-every N"},
};
// clang-format on

}  // namespace

std::span<const ForeignOption> foreign_train_options() noexcept { return kForeign; }

}  // namespace dtrain
