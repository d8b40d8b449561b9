"""Writes what transformers computes with small models of seeded random weights: NAME.safetensors and NAME.json each.

Run: python3 make_golden.py [--out FOLDER] [--check FOLDER] [NAME ...]

NAME.json is the model's config.json. NAME.safetensors has its weights under transformers' names ("weight/..."), the
inputs of four batches, the outputs of the first ("output/0", ...), that batch's loss and the gradient of each weight
("gradient/..."), and "losses": those of 20 steps of AdamW (lr 1e-3, betas 0.9 0.95, weight decay 0.1 on matrices)
without dropout, in float32, step t with batch t % 4. BERT's samples end in padding and have two segments; one token in
six is to be told ("labels", -100 elsewhere). The others have "prompt", two rows of tokens, and what generate() makes of
it ("tokens/greedy", ...). lora_NAME.safetensors has what PEFT makes of the model NAME with adapters: those it begins with
("first/...", under the names of its files) and has after 20 steps ("last/..."), and their losses. language_parity_test.cc and generate_parity_test.cc compare. --check FOLDER loads a folder that
dtrain wrote and compares its weights and outputs with NAME.safetensors.
"""
import argparse, json, pathlib

import torch
from safetensors.torch import load_file, save_file
import peft
import transformers
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent
BATCHES, BATCH, LENGTH, STEPS, VOCABULARY = 4, 2, 20, 20, 64

llama = dict(vocab_size=VOCABULARY, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=24, bos_token_id=None, eos_token_id=None)
bert = dict(vocab_size=VOCABULARY, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=24,
            hidden_dropout_prob=0, attention_probs_dropout_prob=0)
MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=24, n_embd=24, n_layer=2, n_head=4, resid_pdrop=0,
                                               embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**llama, num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "llama_tied": lambda: LlamaForCausalLM(LlamaConfig(**llama, num_key_value_heads=4, tie_word_embeddings=True)),
    "bert": lambda: BertForPreTraining(BertConfig(**bert)),
    "bert_classes": lambda: BertForSequenceClassification(BertConfig(**bert, num_labels=3)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**llama, num_key_value_heads=1, tie_word_embeddings=True)),
}


LORA = {"gpt2": (["attn.c_attn", "mlp.c_proj"], 8), "llama": (["q_proj", "v_proj"], 16)}


def made(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    with torch.no_grad():  # values that a wrong order, a forgotten bias or norm would show
        for key, tensor in model.named_parameters():
            if tensor.dim() == 1:
                tensor.add_(torch.randn_like(tensor) * 0.1)
            else:
                tensor.mul_(3)
    return model


def inputs(name):
    torch.manual_seed(1)
    tokens = torch.randint(VOCABULARY, (BATCHES, BATCH, LENGTH))
    if not name.startswith("bert"):
        return dict(tokens=tokens)
    places = torch.arange(LENGTH)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCHES, BATCH, 1))
    told = (torch.rand(tokens.shape) < 1 / 6) & (places < lengths)
    told[:, :, 1] = True
    return dict(tokens=tokens, segments=(places >= lengths // 2).long(), visible=(places < lengths).long(),
                labels=torch.where(told, torch.randint(VOCABULARY, tokens.shape), -100), next=torch.randint(2, (BATCHES, BATCH)),
                classes=torch.randint(3, (BATCHES, BATCH)))


def forward(name, model, batch):
    """The loss, and the outputs."""
    if not name.startswith("bert"):
        result = model(batch["tokens"], labels=batch["tokens"])
        return result.loss, [result.logits]
    given = dict(input_ids=batch["tokens"], token_type_ids=batch["segments"], attention_mask=batch["visible"])
    if name == "bert_classes":
        result = model(**given, labels=batch["classes"])
        return result.loss, [result.logits]
    result = model(**given, labels=batch["labels"], next_sentence_label=batch["next"])
    return result.loss, [result.prediction_logits, result.seq_relationship_logits]


def train(name, model, batches):
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=p, weight_decay=w) for p, w in ((decayed, 0.1), (others, 0.0)) if p], lr=1e-3, betas=(0.9, 0.95))
    losses = []
    for step in range(STEPS):
        loss, _ = forward(name, model, {key: value[step % BATCHES] for key, value in batches.items()})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def adapted(name):
    """Adapters beside `name`'s layers, trained as above."""
    targets, scale = LORA[name]
    torch.manual_seed(2)
    model = peft.get_peft_model(made(name), peft.LoraConfig(r=4, lora_alpha=scale, target_modules=targets, task_type="CAUSAL_LM"))
    named = lambda prefix: {prefix + key: value.detach().clone().contiguous() for key, value in peft.get_peft_model_state_dict(model).items()}
    out = named("first/")
    losses = train(name, model.eval(), inputs(name))
    return out | named("last/") | {"losses": losses}


def golden(name):
    model, batches = made(name), inputs(name)
    tied = {"lm_head.weight", "cls.predictions.decoder.weight"} if model.config.tie_word_embeddings else set()
    tied |= {"cls.predictions.decoder.bias"}  # another name of cls.predictions.bias
    skipped = tied | {"bert.embeddings.position_ids"}
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items() if key not in skipped}
    loss, outputs = forward(name, model, {key: value[0] for key, value in batches.items()})
    loss.backward()
    out = {"weight/" + key: value for key, value in weights.items()}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    out |= {"gradient/" + key: parameters[key].grad.clone() for key in weights}
    out |= {key: value.to(torch.int32) for key, value in batches.items()}
    out |= {f"output/{i}": value.detach() for i, value in enumerate(outputs)} | {"loss": loss.detach().double().reshape(1)}
    out["losses"] = train(name, made(name), batches)
    if not name.startswith("bert"):
        out |= generated(model, batches["tokens"][0, :, :5])
    return model, {key: value.contiguous() for key, value in out.items()}


def generated(model, prompt):
    """15 tokens more: the likeliest, and drawn after torch.manual_seed(5)."""
    ways = {"greedy": dict(do_sample=False), "sampled": dict(do_sample=True, temperature=0.8, top_k=20, top_p=0.9),
            "sampled_plain": dict(do_sample=True, temperature=1.5, top_k=0, top_p=1.0)}
    out = {"prompt": prompt.to(torch.int32)}
    for way, options in ways.items():
        torch.manual_seed(5)
        out["tokens/" + way] = model.generate(prompt, max_new_tokens=15, pad_token_id=0, **options)[:, 5:].to(torch.int32)
    return out


def check(name, folder):
    expected = load_file(here / f"{name}.safetensors")
    kind = getattr(transformers, json.loads((here / f"{name}.json").read_text())["architectures"][0])
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    state = model.eval().state_dict()
    for key, value in expected.items():
        if key.startswith("weight/"):
            assert torch.equal(state[key[7:]], value), key
    batch = {key: value[0].long() for key, value in expected.items() if "/" not in key and not key.startswith("loss") and key != "prompt"}
    for i, output in enumerate(forward(name, model, batch)[1]):
        assert torch.allclose(output, expected[f"output/{i}"], rtol=1e-6, atol=1e-6), (output - expected[f"output/{i}"]).abs().max()
    print(f"{name}: transformers {transformers.__version__} reads {folder}, with equal weights and outputs")


p = argparse.ArgumentParser()
p.add_argument("--out", type=pathlib.Path, default=here)
p.add_argument("--check", type=pathlib.Path)
p.add_argument("names", nargs="*", default=None)
a = p.parse_args()
for name in a.names or [*MODELS, *("lora_" + name for name in LORA)]:
    if name.startswith("lora_"):
        save_file(adapted(name[5:]), a.out / f"{name}.safetensors", metadata={"format": "pt", "torch": torch.__version__, "peft": peft.__version__})
        (a.out / f"{name}.safetensors").chmod(0o644)
        continue
    if a.check:
        check(name, a.check)
        continue
    model, out = golden(name)
    save_file(out, a.out / f"{name}.safetensors", metadata={"format": "pt", "torch": torch.__version__, "transformers": transformers.__version__})
    (a.out / f"{name}.safetensors").chmod(0o644)
    config = json.loads(model.config.to_json_string())
    config.setdefault("architectures", [type(model).__name__])
    (a.out / f"{name}.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    print(name, sum(p.numel() for p in model.parameters()), "parameters, losses", out["losses"][[0, -1]].tolist())
