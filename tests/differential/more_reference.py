"""PyTorch's side of the operations of more_operations.cc."""
import torch
import torch.nn.functional as F

REDUCTIONS = ("mean", "sum", "none")


def one(function):
    return lambda t, o: {"y": function(t, o)}


def of_pair(function):
    return one(lambda t, o: function(t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]]))


def smooth_l1(t, o):
    return F.smooth_l1_loss(t["a"], t["b"], reduction=REDUCTIONS[o["reduction"]], beta=o["beta"])


def sort(t, o):
    values, indices = torch.sort(t["x"], dim=o["dim"], descending=o["descending"], stable=True)
    return {"y": values, "indices": indices}


def topk(t, o):
    values, indices = torch.topk(t["x"], o["k"], o["dim"], o["largest"])
    return {"y": values, "indices": indices}


def split(t, o):
    parts = torch.split(t["x"], o["size"], o["dim"])
    return {"y": parts[0], "z": parts[-1]}


def convolution(function):
    return one(lambda t, o: function(t["x"], t["weight"], t["bias"], o["stride"], o["padding"], o["dilation"],
                                     o["groups"]))


def conv_transpose2d(t, o):
    return F.conv_transpose2d(t["x"], t["weight"], t["bias"], o["stride"], o["padding"], o["output_padding"],
                              o["groups"], o["dilation"])


def attention(t, o):
    """In its parts: PyTorch's own takes one of several ways, which differ in what is allowed and kept."""
    scores = torch.matmul(t["query"] * t["query"].size(-1) ** -0.5, t["key"].transpose(-2, -1))
    if t["mask"] is not None:
        scores = scores + t["mask"]
    if o["causal"]:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.matmul(torch.softmax(scores, -1), t["value"])


OPERATIONS = {
    "leaky_relu": one(lambda t, o: F.leaky_relu(t["x"], o["slope"])),
    "silu": one(lambda t, o: F.silu(t["x"])),
    "softsign": one(lambda t, o: F.softsign(t["x"])),
    "softplus": one(lambda t, o: F.softplus(t["x"], o["beta"], o["threshold"])),
    "clamp": one(lambda t, o: torch.clamp(t["x"], o.get("min"), o.get("max"))),
    "prelu": one(lambda t, o: F.prelu(t["x"], t["weight"])),
    "pow_tensor": one(lambda t, o: torch.pow(t["a"], t["b"])),
    "gather": one(lambda t, o: torch.gather(t["x"], o["dim"], t["index"])),
    "scatter_add": one(lambda t, o: torch.scatter_add(t["x"], o["dim"], t["index"], t["source"])),
    "embedding": one(lambda t, o: F.embedding(t["index"], t["weight"], o.get("padding"))),
    "cumsum": one(lambda t, o: torch.cumsum(t["x"], o["dim"])),
    "sort": sort,
    "topk": topk,
    "pad": one(lambda t, o: F.pad(t["x"], o["amounts"], value=o["value"])),
    "cat": one(lambda t, o: torch.cat((t["a"], t["b"]), o["dim"])),
    "split": split,
    "conv1d": convolution(F.conv1d),
    "conv3d": convolution(F.conv3d),
    "conv_transpose2d": one(conv_transpose2d),
    "layer_norm": one(lambda t, o: F.layer_norm(t["x"], o["shape"], t["weight"], t["bias"], o["eps"])),
    "rms_norm": one(lambda t, o: F.rms_norm(t["x"], o["shape"], t["weight"], o["eps"])),
    "attention": one(attention),
    "binary_cross_entropy": of_pair(F.binary_cross_entropy),
    "binary_cross_entropy_with_logits": of_pair(F.binary_cross_entropy_with_logits),
    "l1_loss": of_pair(F.l1_loss),
    "smooth_l1_loss": one(smooth_l1),
}
