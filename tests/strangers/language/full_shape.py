#!/usr/bin/env python3
"""Networks of published shapes beside transformers: random weights that transformers writes, started from by dtrain; logits, the
gradients of a step and the losses of three steps of AdamW, in float32. By hand: it takes some minutes and 5 GB in --scratch, which
it removes.

gpt2 is GPT-2 124M and bert BERT-base, whole; llama has the widths, heads and rotary angles of LLaMA 3.2 1B, but 2 of its 16 layers
and an eighth of its words.

usage: full_shape.py DTRAIN [--only NAME] [--scratch FOLDER]    (run it with a Python that has torch and transformers)
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors.torch import load_file

BATCH, LENGTH, STEPS = 2, 128, 3
LOGITS, GRADIENTS, LOSSES = 1e-5, 1e-4, 1e-5
RATE = 2.0**20  # of a step of SGD: what the weights were is nothing beside what they become, the gradient times this


def networks():
    """(name, a network of transformers, the words it has, dtrain's options)"""
    torch.manual_seed(1)
    none = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
    yield "gpt2", lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**none)), 50257, []
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}
    yield "llama", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=16032, hidden_size=2048, intermediate_size=8192, num_hidden_layers=2, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=rope)), 16032, []
    yield "bert", lambda: transformers.BertForSequenceClassification(transformers.BertConfig(
        num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)), 30522, ["--task", "classification"]


def losses_of(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["event"] == "step"]


class Case:
    """One network here and there, on the same samples."""

    def __init__(self, program, folder, name, make, words, options):
        self.program, self.folder, self.options = program, folder, options
        self.classes = bool(options)
        self.network = make()
        self.network.save_pretrained(folder / "published")
        tokens = torch.randint(1, words, (BATCH, LENGTH + (not self.classes)))
        numpy.save(folder / "tokens.npy", tokens.numpy().astype("int32"))
        self.data = f"npy:tokens={folder}/tokens.npy,test.tokens={folder}/tokens.npy,vocabulary={words}"
        if self.classes:
            numpy.save(folder / "label.npy", numpy.arange(BATCH) % 2)
            self.data += f",label={folder}/label.npy,test.label={folder}/label.npy"
        self.tokens = tokens

    def outputs(self):
        """(logits, the loss) of transformers."""
        if self.classes:
            found = self.network(self.tokens, labels=torch.arange(BATCH) % 2)
            return found.logits, found.loss
        logits = self.network(self.tokens[:, :-1]).logits
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())

    def dtrain(self, *arguments):
        subprocess.run([self.program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    def trained(self, name, *options):
        published = self.folder / "published"
        self.dtrain("train", "--model", f"hf:{published}", "--init-from", published, "--dataset", self.data, "--batch-size", BATCH,
                    "--log-every", 1, "--eval-every", 0, "--run-dir", self.folder / name, *self.options, *options)
        return self.folder / name

    def logits(self):
        run = self.trained("start", "--max-steps", 0)
        self.dtrain("predict", run, "--input", self.folder / "tokens.npy", "--output", self.folder / "logits.npy")
        wanted = self.outputs()[0].detach().numpy()
        found = numpy.load(self.folder / "logits.npy").reshape(wanted.shape)
        return abs(found - wanted).max() / abs(wanted).max()

    def gradients(self):
        """The largest difference of a tensor's gradient, beside that tensor's largest."""
        run = self.trained("step", "--max-steps", 1, "--optimizer", "sgd", "--lr", RATE)
        self.dtrain("export", run, self.folder / "stepped", "--to", "huggingface")
        before = load_file(self.folder / "published" / "model.safetensors")
        after = load_file(self.folder / "stepped" / "model.safetensors")
        self.network.zero_grad()
        self.outputs()[1].backward()
        wanted = {name: parameter.grad for name, parameter in self.network.named_parameters() if parameter.grad is not None}
        worst, where, count = 0.0, "", 0
        for name in before:
            if name not in wanted:
                continue
            found = (before[name].double() - after[name].double()) / RATE
            apart = float((found - wanted[name].double()).abs().max() / wanted[name].abs().max().clamp_min(1e-30))
            # A gradient that is zero but for rounding (of keys' biases: softmax does not see them) is compared with the others.
            if wanted[name].abs().max() < 1e-7 * max(grad.abs().max() for grad in wanted.values()):
                apart = float((found - wanted[name].double()).abs().max() / max(grad.abs().max() for grad in wanted.values()))
            count += 1
            if apart > worst:
                worst, where = apart, name
        assert count == len(wanted), (count, len(wanted))
        return worst, where

    def losses(self):
        run = self.trained("adam", "--max-steps", STEPS, "--optimizer", "adamw", "--lr", 1e-4, "--weight-decay", 0.1)
        optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-4, weight_decay=0.1)
        worst = 0.0
        found = losses_of(run)
        assert len(found) == STEPS, found
        for here in found:
            optimizer.zero_grad()
            loss = self.outputs()[1]
            loss.backward()
            optimizer.step()
            worst = max(worst, abs(here - loss.item()) / abs(loss.item()))
        return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", default="")
    parser.add_argument("--scratch")
    options = parser.parse_args()
    failed = False
    for name, make, words, more in networks():
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            case = Case(options.program, pathlib.Path(folder), name, make, words, more)
            size = sum(parameter.numel() for parameter in case.network.parameters()) / 1e6
            logits, (gradients, where), losses = case.logits(), case.gradients(), case.losses()
        failed = failed or logits > LOGITS or gradients > GRADIENTS or losses > LOSSES
        print(f"{name}, {size:.0f} M parameters, {BATCH} × {LENGTH} tokens: logits {logits:.1e} (at most {LOGITS:.0e}), gradients "
              f"{gradients:.1e} in {where} ({GRADIENTS:.0e}), losses of {STEPS} steps {losses:.1e} ({LOSSES:.0e})", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
