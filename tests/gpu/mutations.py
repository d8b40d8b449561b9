"""Deletes one synchronisation after another from the GPU path and says whether the emulated tests notice: a mutation that
nothing notices is a hole in the tests. Not part of ctest: each mutation compiles a file and runs tests, minutes in all.

usage: mutations.py BUILD_DIR [NAME…]      BUILD_DIR: build/ci, with dtrain_cuda_emulated and the emulated tests built
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
cuda, nccl = "runtime/device/cuda/", "collectives/nccl/"
barrier = "__syncthreads();"


def kernels(filter_):
    return ["gpu_kernels", f"--gtest_filter={filter_}"]


training = ["emulated_training", "--gtest_filter=*LastBit*fp32_world4:*AfterAnEvaluation*"]
images = kernels("GpuImages.BatchNorm*:GpuImages.Pooling*")
# Not here: the barriers at the end of loops over outputs in direct_conv.cu and reduce.cu (grids are as large as the
# outputs, so that no block takes a second one).
# name: file, what is deleted, which of its occurrences, what must notice
mutations = {
    "batch norm sums": (cuda + "norm/sums.cuh", barrier, 0, images),
    "batch norm slices": (cuda + "norm/sums.cuh", barrier, 1, images),
    "row norm partials": (cuda + "norm/row_norm.cu", barrier, 0, kernels("Gpu.RowNorms")),
    "row norm total": (cuda + "norm/row_norm.cu", barrier, 1, kernels("Gpu.RowNorms")),
    "column reduction": (cuda + "elementwise/reduce.cu", barrier, 1, kernels("Gpu.Reductions")),
    "collective before its data": (nccl + "calls.cc", 'check(cudaStreamWaitEvent(core_->link().stream(), ready.get(), 0), "order " + call.text());', 0, training),
    "result before the collective": (nccl + "works.h", 'check(cudaStreamWaitEvent(target_, over_->get(), 0), "let a stream wait for " + call_.text());', 0, training),
    "recorded result not joined": (nccl + "works.h", 'check(cudaStreamWaitEvent(target_, over_.get(), 0), "join a recorded collective");', 0, training),
    "wait of a stream for another": (cuda + "stream.cc", 'check(cudaStreamWaitEvent(native(stream), event_.get(), 0), "let a CUDA stream wait for an event");', 0, training),
    "point that another waits for": (cuda + "stream.cc", 'check(cudaEventRecord(event_.get(), native(stream)), "record a CUDA event");', 0, training),
    "wait of the host": (cuda + "stream.cc", 'check(cudaStreamSynchronize(stream_.get()), "wait for a CUDA stream");', 0, kernels("Gpu.TheHostWaits*")),
    "stream argument of a copy": (cuda + "cuda_device.cc", "native(kind), cuda::native(stream))", 0, training),
    "stream of cuDNN": (cuda + "convolution/cudnn_convolutions.cc", 'check(cudnnSetStream(handle, context.stream), "give cuDNN its stream");', 0, kernels("GpuImages.*")),
    "stream of a product": (cuda + "matmul/matmul.cc", "context_.stream),", 0, kernels("Gpu.Matrix*")),
    "stream of dense elements": (cuda + "elementwise/elementwise.cu", "DTRAIN_LAUNCH(name, context.stream, blocks, kThreads, dense_kernel,", 0, kernels("Gpu.*")),
    "stream of strided elements": (cuda + "elementwise/elementwise.cu", "DTRAIN_LAUNCH(name, context.stream, blocks_for(context, layout.count), kThreads, strided_kernel,", 0, kernels("Gpu.*")),
    "stream of sums": (cuda + "norm/sums.cuh", "DTRAIN_LAUNCH(operation, context.stream, cut.grid(),", 0, images),
    "stream of an optimizer": (cuda + "optimizer.cu", 'DTRAIN_LAUNCH("optimizer step", context.stream,', 0, kernels("Gpu.Opt*")),
    "stream of a pooling": (cuda + "pool/pool.cu", 'DTRAIN_LAUNCH("pool2d", context_.stream,', 0, images),
    "stream of a free": (cuda + "memory/memory.cc", "static_cast<void>(cudaFreeAsync(memory, stream_));  // can only", 0, training),
    "stream of the optimizer's table": (cuda + "memory/slot_tables.cc", "cudaMemcpyHostToDevice, context_.stream),", 0, kernels("Gpu.OptimizerTables*")),
}
# What stands in place of what was deleted: most often the legacy default stream, which orders nothing here.
replacements = {
    "stream argument of a copy": "native(kind), nullptr)",
    "stream of a product": "nullptr),",
    "stream of dense elements": "DTRAIN_LAUNCH(name, nullptr, blocks, kThreads, dense_kernel,",
    "stream of strided elements": "DTRAIN_LAUNCH(name, nullptr, blocks_for(context, layout.count), kThreads, strided_kernel,",
    "stream of sums": "DTRAIN_LAUNCH(operation, nullptr, cut.grid(),",
    "stream of an optimizer": 'DTRAIN_LAUNCH("optimizer step", nullptr,',
    "stream of a pooling": 'DTRAIN_LAUNCH("pool2d", nullptr,',
    "stream of a free": "static_cast<void>(cudaFreeAsync(memory, nullptr));  // can only",
    "stream of the optimizer's table": "cudaMemcpyHostToDevice, nullptr),",
}


def run(command, **keywords):
    return subprocess.run(command, capture_output=True, text=True, **keywords)


def is_noticed(build, library, program):
    """Whether the test program fails under one of the seeds."""
    for seed in ("1", "2", "3"):
        env = dict(os.environ, DTRAIN_EMULATED_SEED=seed, DTRAIN_EMULATED_GPUS="4", DTRAIN_EMULATED_CHECK="races",
                   DTRAIN_CUDA_MODULE=str(library),
                   DTRAIN_BIN=str(build / "bin"), DTRAIN_GOLDEN=str(root / "tests/parity/golden.safetensors"))
        try:
            result = run([str(build / "tests" / program[0]), *program[1:]], env=env, timeout=300)
        except subprocess.TimeoutExpired:
            return "hangs"
        if result.returncode != 0:
            return f"fails with seed {seed}"
    return None


def compile_with(build, folder, name):
    """The twin module with the mutation in it."""
    file, what, occurrence, _ = mutations[name]
    text = (root / file).read_text()
    parts = text.split(what)
    if len(parts) <= occurrence + 1:
        sys.exit(f"{name}: {file} has no such text any more; bring the list up to date")
    with_it = what.join(parts[: occurrence + 1]) + replacements.get(name, "") + what.join(parts[occurrence + 1 :])
    # A copy of the folders that include each other, in front of the real ones.
    tree = folder / "tree"
    for room in ("runtime", "collectives", "training", "parallel"):
        shutil.copytree(root / room, tree / room)
    (tree / file).write_text(with_it)
    commands = run(["ninja", "-C", str(build), "-t", "commands", "dtrain_cuda_emulated"]).stdout.splitlines()
    link = [c for c in commands if "libdtrain_cuda_emulated.so" in c][-1]
    includers = [file] if file.endswith((".cc", ".cu")) else []
    if not includers:
        # Files that may include it: what is beside it and below its room.
        includers = [str(p.relative_to(root)) for p in sorted((root / file).parents[0].glob("**/*.c[cu]"))]
    compile_commands = json.loads((build / "compile_commands.json").read_text())
    for includer in includers:
        entries = [e for e in compile_commands if e["file"] == str(root / includer) and "dtrain_cuda_emulated" in e["command"]]
        if not entries:
            continue  # another part's
        command = entries[0]["command"]
        old = command.split(" -o ")[1].split()[0]
        new = folder / (includer.replace("/", "_") + ".o")
        command = command.replace(f"-I{root} ", f"-I{tree} -I{root} ").replace(old, str(new))
        command = command.replace(str(root / includer), str(tree / includer))
        done = run(command + " -w", shell=True, cwd=build)  # what is deleted may leave names unused
        if done.returncode != 0:
            sys.exit(f"{name}: does not compile\n{done.stderr[-2000:]}")
        link = link.replace(old, str(new))
    library = folder / "libmutant.so"
    link = link.replace("-o lib/libdtrain_cuda_emulated.so", f"-o {library}")
    done = run(link, shell=True, cwd=build)
    if done.returncode != 0:
        sys.exit(f"{name}: does not link\n{done.stderr[-2000:]}")
    return library


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:] or list(mutations)
    unnoticed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            library = compile_with(build, pathlib.Path(folder), name)
            verdict = is_noticed(build, library, mutations[name][3])
            unnoticed += verdict is None
            print(f"{'noticed' if verdict else 'MISSED '}  {name}: {verdict or 'no test fails'}", flush=True)
    sys.exit(1 if unnoticed else 0)


main()
