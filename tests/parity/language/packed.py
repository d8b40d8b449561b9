"""Documents with prompts, packed into windows, beside transformers: what `dtrain tokenize --prompt` writes is read here
anew, packed, and fed to the exported network in PyTorch with a mask of blocks (scaled_dot_product_attention) and places
that start again; `dtrain eval` must give the same loss of the tokens that are asked for.

usage: packed.py DTRAIN    (the program; run it with a Python that has torch and transformers)
"""
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import transformers

CONTEXT = 48


def shard(path):
    """(tokens, where documents begin, which tokens are asked for) of a shard of version 2."""
    data = Path(path).read_bytes()
    magic, version, width, count, documents = struct.unpack("<8sIIQQ", data[:32])
    assert (magic, version, width) == (b"DTRAINTK", 2, 2), (magic, version, width)
    tokens = numpy.frombuffer(data, "<u2", count, 64).astype("int64")
    index = 64 + (2 * count + 7) // 8 * 8
    begins = numpy.frombuffer(data, "<u8", documents, index).astype("int64")
    bits = numpy.frombuffer(data, "u1", (count + 7) // 8, index + 8 * documents)
    return tokens, begins, numpy.unpackbits(bits, bitorder="little")[:count].astype(bool)


def windows(tokens, begins, asked):
    """Documents one behind the other, as many whole ones as fit; each is (tokens, places, blocks, targets)."""
    window, room = [], CONTEXT + 1
    for begin, end in zip(begins, [*begins[1:], len(tokens)]):
        assert end - begin <= room
        if window and sum(len(one) for one, _ in window) + end - begin > room:
            yield packed(window)
            window = []
        window.append((tokens[begin:end], asked[begin:end]))
    yield packed(window)


def packed(documents):
    words = numpy.concatenate([one for one, _ in documents])
    places = numpy.concatenate([numpy.arange(len(one)) for one, _ in documents])
    blocks = numpy.concatenate([numpy.full(len(one), i) for i, (one, _) in enumerate(documents)])
    counts = numpy.concatenate([wanted for _, wanted in documents])
    targets = numpy.where(counts & (places > 0), words, -100)
    return words[:-1], places[:-1], blocks[:-1], targets[1:]


def loss_in_pytorch(folder, shards):
    network = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()
    total, count = 0.0, 0
    for path in shards:
        for words, places, blocks, targets in windows(*shard(path)):
            sees = torch.tensor(blocks[:, None] == blocks[None, :]).tril()[None, None]
            with torch.no_grad():
                logits = network(torch.tensor(words)[None], position_ids=torch.tensor(places)[None],
                                 attention_mask=sees).logits[0]
            wanted = torch.tensor(targets)
            total += torch.nn.functional.cross_entropy(logits.double(), wanted, ignore_index=-100, reduction="sum").item()
            count += int((wanted >= 0).sum())
    return total / count


def check(dtrain, model, folder):
    data = f"tokens:{folder}/shards/*.tokens,context={CONTEXT},documents=whole,test={folder}/shards/*.tokens"
    run, published = f"{folder}/{model}", f"{folder}/{model}-published"
    call(dtrain, "train", "--model", model, "--dataset", data, "--max-steps", "20", "--optimizer", "adamw", "--lr", "3e-3",
         "--global-batch-size", "8", "--eval-every", "0", "--run-dir", run)
    call(dtrain, "export", run, published, "--to", "huggingface")
    ours = json.loads(call(dtrain, "eval", "--checkpoint", run, "--batch-size", "7", "--json"))["loss"]
    theirs = loss_in_pytorch(published, sorted(Path(folder, "shards").glob("*.tokens")))
    print(f"{model}: loss {ours:.7f}, in PyTorch {theirs:.7f}")
    return abs(ours - theirs) <= 1e-5 * theirs


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    dtrain = sys.argv[1]
    drawn = random.Random(3)
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps({"prompt": f"say {i % 17} " * drawn.randint(0, 3), "completion": f"it is {i % 17}! " * drawn.randint(1, 3)})
                 for i in range(300)]
        Path(folder, "chat.jsonl").write_text("\n".join(lines) + "\n")
        call(dtrain, "tokenize", "--train", "300", "--input", f"{folder}/chat.jsonl", "--field", "completion", "--prompt", "prompt",
             "--output", f"{folder}/tokenizer")
        call(dtrain, "tokenize", "--tokenizer", f"{folder}/tokenizer", "--input", f"{folder}/chat.jsonl", "--field", "completion",
             "--prompt", "prompt", "--shard-tokens", "1500", "--output", f"{folder}/shards")
        right = [check(dtrain, model, folder) for model in ("gpt2-tiny", "llama-tiny")]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
