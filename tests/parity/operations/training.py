"""Losses, joining, normalisation, attention and recurrent cells, as training code uses them."""
import torch
import torch.nn.functional as F
from make_golden import Case

b = F.binary_cross_entropy
bl = F.binary_cross_entropy_with_logits


def module(kind, **options):
    torch.manual_seed(7)
    return getattr(torch.nn, kind)(3, 4, **options)


def run(kind, **options):
    m = module(kind, **options)
    states = 2 if kind == "LSTM" else 1

    def f(x, *s):
        y, end = m(x, s if states == 2 else s[0]) if s else m(x)
        return (y, *end) if states == 2 else (y, end)
    return f


def flat(f):  # the result of nested tuples
    def g(*inputs):
        return list(f(*inputs))
    return g


def embed(w, i):
    return F.embedding(i, w)


cases = {
    "binary_cross_entropy": Case([[3, 4], [3, 4]], lambda p, t: b(p, t.detach()), low=0.01, high=0.99),
    "binary_cross_entropy sum": Case([[7]], lambda p: b(p, torch.tensor([0., 1, 0, 1, 1, 0, .5]), reduction="sum"), low=1e-6, high=2e-6),
    "binary_cross_entropy at the ends": Case([[4]], lambda p: b(torch.stack([p[0] * 0, p[1] * 0 + 1, p[2], p[3]]), torch.tensor([0., 1, 1, 0]), reduction="none"), low=0.2, high=0.8),
    "binary_cross_entropy_with_logits": Case([[3, 4], [3, 4]], lambda x, t: bl(x, t), low=-30, high=30),
    "binary_cross_entropy_with_logits sum": Case([[3, 4], [3, 4]], lambda x, t: bl(x, t, reduction="sum")),
    "binary_cross_entropy_with_logits none": Case([[12]], lambda x: bl(x, torch.ones(12), reduction="none"), low=10, high=40),
    "l1_loss": Case([[3, 4], [3, 4]], F.l1_loss),
    "l1_loss sum": Case([[3, 4], [3, 4]], lambda x, y: F.l1_loss(x, y, reduction="sum")),
    "l1_loss none": Case([[3, 4], [3, 4]], lambda x, y: F.l1_loss(x, y, reduction="none")),
    "smooth_l1_loss": Case([[3, 4], [3, 4]], F.smooth_l1_loss, low=-2, high=2),
    "smooth_l1_loss beta 0.3 sum": Case([[3, 4], [3, 4]], lambda x, y: F.smooth_l1_loss(x, y, beta=0.3, reduction="sum")),
    "smooth_l1_loss beta 0 none": Case([[3, 4], [3, 4]], lambda x, y: F.smooth_l1_loss(x, y, beta=0.0, reduction="none")),
    "cat": Case([[2, 3], [2, 1], [2, 2]], lambda *x: torch.cat(x, 1)),
    "stack": Case([[2, 3], [2, 3]], lambda *x: torch.stack(x, -1)),
    "split": Case([[2, 5]], lambda x: flat(lambda: [t * t for t in torch.split(x, [1, 3, 1], 1)])()),
    "chunk": Case([[7, 2]], lambda x: [t * t for t in torch.chunk(x, 3)]),
    "unbind": Case([[2, 3]], lambda x: [t * t for t in torch.unbind(x, 1)]),
    "layer_norm": Case([[3, 5], [5], [5]], lambda x, w, c: F.layer_norm(x, [5], w, c)),
    "layer_norm two dimensions": Case([[2, 3, 4]], lambda x: F.layer_norm(x, [3, 4], eps=0.1)),
    "rms_norm": Case([[2, 3, 5], [5]], lambda x, w: F.rms_norm(x, [5], w, 1e-6)),
    "attention": Case([[2, 3, 4], [2, 5, 4], [2, 5, 6]], F.scaled_dot_product_attention, low=-3, high=3),
    "attention mask": Case([[2, 3, 4], [2, 5, 4], [2, 5, 6], [3, 5]], lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)),
    "attention causal": Case([[2, 2, 4, 3], [2, 2, 4, 3], [2, 2, 4, 3]], lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7)),
    "embedding": Case([[5, 3]], embed, indices=[[[0, 4, 4], [2, 0, 1]]]),
    "embedding padding": Case([[5, 3]], lambda w, i: F.embedding(i, w, padding_idx=4), indices=[[0, 4, 4, 2]]),
    "lstm_cell": Case([[2, 3], [2, 4], [2, 4], [16, 3], [16, 4], [16], [16]], lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w)),
    "gru_cell": Case([[2, 3], [2, 4], [12, 3], [12, 4], [12], [12]], torch.gru_cell),
    "rnn_tanh_cell": Case([[2, 3], [2, 4], [4, 3], [4, 4], [4], [4]], torch.rnn_tanh_cell),
    "rnn_relu_cell": Case([[2, 3], [2, 4], [4, 3], [4, 4], [4], [4]], torch.rnn_relu_cell),
    "lstm": Case([[5, 2, 3]], run("LSTM")),
    "lstm states": Case([[5, 2, 3], [1, 2, 4], [1, 2, 4]], run("LSTM")),
    "lstm 2 layers bidirectional": Case([[5, 2, 3], [4, 2, 4], [4, 2, 4]], run("LSTM", num_layers=2, bidirectional=True)),
    "gru batch first": Case([[2, 5, 3]], run("GRU", batch_first=True, num_layers=2)),
    "gru bidirectional no bias": Case([[5, 2, 3]], run("GRU", bidirectional=True, bias=False)),
    "rnn": Case([[5, 2, 3]], run("RNN")),
    "rnn relu one sequence": Case([[5, 3], [1, 4]], run("RNN", nonlinearity="relu")),
}
