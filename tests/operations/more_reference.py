"""PyTorch's side of the operations of layer_functions.cc."""
import torch
import torch.nn.functional as F

REDUCTIONS = ("mean", "sum", "none", "batchmean")


def one(function):
    return lambda t, o: {"y": function(t, o)}


def of_pair(function):
    return one(lambda t, o: function(t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]]))


def smooth_l1(t, o):
    return F.smooth_l1_loss(t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]], beta=o.get("beta", 1.0))


def sort(t, o):
    values, indices = torch.sort(t["x"], dim=o["dim"], descending=o.get("descending", False), stable=True)
    return {"y": values, "indices": indices}


def topk(t, o):
    values, indices = torch.topk(t["x"], o["k"], o["dim"], o.get("largest", False))
    return {"y": values, "indices": indices}


def split(t, o):
    parts = torch.split(t["x"], o["size"], o["dim"])
    return {"y": parts[0], "z": parts[-1]}


def convolution(function):
    return one(lambda t, o: function(t["x"], t["weight"], t["bias"], o.get("stride", 1), o.get("padding", 0),
                                     o.get("dilation", 1), o.get("groups", 1)))


def conv_transpose(function):
    return one(lambda t, o: function(t["x"], t["weight"], t["bias"], o.get("stride", 1), o.get("padding", 0),
                                     o.get("output_padding", 0), o.get("groups", 1), o.get("dilation", 1)))


def split_sizes(t, o):
    return several(torch.split(t["x"], o["sizes"], o["dim"]))


def several(results):
    return {("y", "z")[i] if i < 2 else f"y{i}": result for i, result in enumerate(results)}


def lstm_cell(t, _):
    return several(torch.lstm_cell(t["x"], (t["h"], t["c"]), *weights(t)))


def weights(t):
    return t["weight_ih"], t["weight_hh"], t["bias_ih"], t["bias_hh"]


def cell(function):
    return one(lambda t, o: function(t["x"], t["h"], *weights(t)))


def attention(t, o):
    """In its parts: PyTorch's own takes one of several ways, which differ in what is allowed and kept."""
    scale = o.get("scale", t["query"].size(-1) ** -0.5)
    scores = torch.matmul(t["query"] * scale, t["key"].transpose(-2, -1))
    if t["mask"] is not None:
        scores = scores + t["mask"]
    if o.get("causal"):
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + o.get("first_query", 0))
        scores = scores.masked_fill(hidden, -torch.inf)
    keys = torch.arange(scores.size(-1))
    if t["lengths"] is not None:
        scores = scores.masked_fill((keys >= t["lengths"][:, None])[:, None, None], -torch.inf)
    if t["segments"] is not None:
        own = t["segments"][:, o.get("first_query", 0):][:, :scores.size(-2), None]
        scores = scores.masked_fill((own != t["segments"][:, None])[:, None], -torch.inf)
    return torch.matmul(torch.softmax(scores, -1), t["value"])


def shared_attention(t, o):
    """Heads of queries that share a head of keys and values are neighbours."""
    heads = t["query"].size(-3) if t["query"].dim() > 3 else 1
    shares = heads // t["key"].size(-3) if heads > 1 else 1
    if shares > 1 and t["query"].dim() == 4:
        t = {**t, "key": t["key"].repeat_interleave(shares, 1), "value": t["value"].repeat_interleave(shares, 1),
             **{name: t[name] for name in ("mask", "lengths", "segments")}}
    return attention(t, o)


def packed_attention(t, o):
    heads, groups = o["heads"], o.get("key_heads", 0) or o["heads"]
    batch, length, width = t["qkv"].shape
    size = width // (heads + 2 * groups)
    if o.get("by_group"):
        rows = t["qkv"].reshape(batch, length, groups, heads // groups + 2, size)
        query, key, value = rows[:, :, :, :-2].reshape(batch, length, heads, size), rows[:, :, :, -2], rows[:, :, :, -1]
    else:
        query, key, value = t["qkv"].reshape(batch, length, heads + 2 * groups, size).split((heads, groups, groups), 2)
    y = shared_attention({"query": query.transpose(1, 2), "key": key.transpose(1, 2), "value": value.transpose(1, 2),
                          **{name: t[name] for name in ("mask", "lengths", "segments")}}, o)
    return y.transpose(1, 2).reshape(batch, length, heads * size)


def rotary_embedding(t, o):
    pairs = t["cosines"].size(-1)
    x, stays = t["x"][..., :2 * pairs], t["x"][..., 2 * pairs:]
    a, b = (x[..., 0::2], x[..., 1::2]) if o.get("interleaved") else (x[..., :pairs], x[..., pairs:])
    cosines, sines = t["cosines"], t["sines"]
    if cosines.dim() == 3:  # places of their own for each row of the batch
        cosines, sines = (angles.reshape(len(angles), *[1] * (x.dim() - 3), *angles.shape[1:]) for angles in (cosines, sines))
    turned = a * cosines - b * sines, b * cosines + a * sines
    y = torch.stack(turned, -1).flatten(-2) if o.get("interleaved") else torch.cat(turned, -1)
    return torch.cat((y, stays), -1)


OPERATIONS = {
    "leaky_relu": one(lambda t, o: F.leaky_relu(t["x"], o["slope"])),
    "silu": one(lambda t, o: F.silu(t["x"])),
    "silu_mul": one(lambda t, o: F.silu(t["a"]) * t["b"]),
    "gelu_tanh": one(lambda t, o: F.gelu(t["x"], approximate="tanh")),
    "softsign": one(lambda t, o: F.softsign(t["x"])),
    "softplus": one(lambda t, o: F.softplus(t["x"], o.get("beta", 1), o.get("threshold", 20))),
    "clamp": one(lambda t, o: torch.clamp(t["x"], o.get("min"), o.get("max"))),
    "prelu": one(lambda t, o: F.prelu(t["x"], t["weight"])),
    "pow_tensor": one(lambda t, o: torch.pow(t["a"], t["b"])),
    "gather": one(lambda t, o: torch.gather(t["x"], o["dim"], t["index"])),
    "scatter_add": one(lambda t, o: torch.scatter_add(t["x"], o["dim"], t["index"], t["source"])),
    "embedding": one(lambda t, o: F.embedding(t["index"], t["weight"], o.get("padding"))),
    "cumsum": one(lambda t, o: torch.cumsum(t["x"], o["dim"])),
    "sort": sort,
    "topk": topk,
    "pad": one(lambda t, o: F.pad(t["x"], o["amounts"], value=o.get("value", 0))),
    "cat": one(lambda t, o: torch.cat((t["a"], t["b"]), o["dim"])),
    "stack": one(lambda t, o: torch.stack((t["a"], t["b"]), o["dim"])),
    "split": split,
    "split_sizes": split_sizes,
    "chunk": lambda t, o: several(torch.chunk(t["x"], o["count"], o["dim"])),
    "unbind": lambda t, o: several(torch.unbind(t["x"], o["dim"])),
    "conv1d": convolution(F.conv1d),
    "conv3d": convolution(F.conv3d),
    "conv_transpose2d": conv_transpose(F.conv_transpose2d), "conv_transpose3d": conv_transpose(F.conv_transpose3d),
    "layer_norm": one(lambda t, o: F.layer_norm(t["x"], o["shape"], t["weight"], t["bias"], o.get("eps", 1e-5))),
    "rms_norm": one(lambda t, o: F.rms_norm(t["x"], o["shape"], t["weight"], o["eps"])),
    "scaled_dot_product_attention": one(shared_attention),
    "packed_attention": one(packed_attention),
    "rotary_embedding": one(rotary_embedding),
    "binary_cross_entropy": of_pair(F.binary_cross_entropy),
    "binary_cross_entropy_with_logits": of_pair(F.binary_cross_entropy_with_logits),
    "l1_loss": of_pair(F.l1_loss),
    "smooth_l1_loss": one(smooth_l1),
    "linear_cross_entropy": one(lambda t, o: F.cross_entropy(F.linear(t["x"], t["weight"]), t["target"],
                                                             reduction=REDUCTIONS[o["reduction"]],
                                                             ignore_index=o.get("ignore", -10**9))),
    "lstm_cell": lstm_cell,
    "gru_cell": cell(torch.gru_cell),
    "rnn_tanh_cell": cell(torch.rnn_tanh_cell),
    "rnn_relu_cell": cell(torch.rnn_relu_cell),
}
