"""PyTorch's side of layers.cc: layers with the weights of torch.manual_seed(7)."""
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from more_reference import several


def layer(kind, *names, **fixed):
    """torch.nn.KIND of the options `names` in order; other options of the case go by their names."""
    def run(t, o):
        options = dict(o)
        args = [options.pop(name) for name in names]
        if "padding_idx" in fixed:
            options = {"padding_idx": options.pop("padding")}
        torch.manual_seed(7)
        made = getattr(torch.nn, kind)(*args, **options, **{k: v for k, v in fixed.items() if k != "padding_idx"})
        x = t["x"]
        return {"y": (made.to(x.dtype) if x.dtype.is_floating_point else made)(x)}
    return run


def recurrent(kind, **fixed):
    def run(t, o):
        options = {"num_layers" if name == "layers" else name: value for name, value in o.items()}
        torch.manual_seed(7)
        made = getattr(torch.nn, kind)(3, 4, **options, **fixed).to(t["x"].dtype)
        start = (t["h"], t["s"]) if t["s"] is not None else t["h"]
        if t["lengths"] is None:
            y, end = made(t["x"], start)
        else:
            first = made.batch_first
            packed = pack_padded_sequence(t["x"], t["lengths"], first, enforce_sorted=False)
            y, end = made(packed, start)
            y, _ = pad_packed_sequence(y, first, total_length=t["x"].size(1 if first else 0))
        return several((y, *end) if isinstance(end, tuple) else (y, end))
    return run


def mask_of(t, name):
    mask = t[name]
    return mask != 0 if mask is not None and mask.dtype == torch.int64 else mask


def causal(t, o, x):
    """The mask of a case, and what a causal one hides."""
    mask, length = mask_of(t, "mask"), x.size(1 if o.get("batch_first") or x.dim() == 2 else 0)
    length = x.size(0) if x.dim() == 2 else length
    return torch.ones(length, length, dtype=torch.bool).triu(1) if o.get("causal") else mask


def multihead_attention(t, o):
    torch.manual_seed(7)
    made = torch.nn.MultiheadAttention(4, 2, bias=o.get("bias", True), kdim=o.get("key_width"),
                                       vdim=o.get("value_width"), batch_first=o.get("batch_first", False))
    query = t["query"]
    key, value = (query if t[name] is None else t[name] for name in ("key", "value"))
    y, weights = made.to(query.dtype)(query, key, value, mask_of(t, "padding"), o.get("need_weights", False),
                                      causal(t, o, query), average_attn_weights=o.get("average", True))
    return {"y": y} if weights is None else several((y, weights))


def transformer(kind):
    def run(t, o):
        torch.manual_seed(7)
        made = getattr(torch.nn, kind)(4, 2, 6, 0.0, "gelu" if o.get("gelu") else "relu",
                                       batch_first=o.get("batch_first", False), norm_first=o.get("norm_first", False),
                                       bias=o.get("bias", True)).to(t["x"].dtype)
        if kind == "TransformerEncoderLayer":
            return {"y": made(t["x"], causal(t, o, t["x"]), mask_of(t, "padding"))}
        return {"y": made(t["x"], t["memory"], causal(t, o, t["x"]), mask_of(t, "memory_mask"), mask_of(t, "padding"))}
    return run


OPERATIONS = {
    "Conv2d_by_name": layer("Conv2d", "in", "out", "kernel"),
    "Conv1d_by_name": layer("Conv1d", "in", "out", "kernel", dilation=2),
    "Conv3d_by_name": layer("Conv3d", "in", "out", "kernel", bias=False),
    "ConvTranspose3d": layer("ConvTranspose3d", "in", "out", "kernel"),
    "ConvTranspose1d": layer("ConvTranspose1d", "in", "out", "kernel"),
    "ConvTranspose2d_by_name": layer("ConvTranspose2d", "in", "out", "kernel"),
    "BatchNorm1d": layer("BatchNorm1d", "in"), "BatchNorm3d": layer("BatchNorm3d", "in"),
    "GroupNorm": layer("GroupNorm", "groups", "in", eps=1e-3),
    "InstanceNorm1d": layer("InstanceNorm1d", "in"), "InstanceNorm3d": layer("InstanceNorm3d", "in"),
    "InstanceNorm2d": layer("InstanceNorm2d", "in", affine=True),
    "MaxPool1d": layer("MaxPool1d", kernel_size=3, stride=2, padding=1),
    "AvgPool1d": layer("AvgPool1d", kernel_size=3, stride=2, padding=1),
    "MaxPool2d": layer("MaxPool2d", kernel_size=(3, 2), stride=2, padding=(1, 0)),
    "MaxPool1d_dilated": layer("MaxPool1d", kernel_size=2, stride=1, padding=1, dilation=2),
    "MaxPool2d_dilated": layer("MaxPool2d", kernel_size=(3, 2), stride=(1, 2), padding=1, dilation=(2, 3)),
    "MaxPool3d_dilated": layer("MaxPool3d", kernel_size=2, stride=1, padding=(0, 1, 0), dilation=(2, 3, 1)),
    "AvgPool2d": layer("AvgPool2d", kernel_size=(1, 2)),
    "MaxPool3d": layer("MaxPool3d", kernel_size=(1, 2, 2)), "AvgPool3d": layer("AvgPool3d", kernel_size=(2, 1, 2)),
    "AdaptiveAvgPool1d": layer("AdaptiveAvgPool1d", output_size=3),
    "Upsample": layer("Upsample", scale_factor=2, mode="bilinear"),
    "ConstantPad1d": layer("ConstantPad1d", padding=1, value=0.5),
    "ConstantPad2d": layer("ConstantPad2d", padding=(1, 2, 0, 1), value=0.5),
    "ZeroPad1d": layer("ZeroPad1d", padding=1), "ZeroPad2d": layer("ZeroPad2d", padding=1),
    "ReflectionPad1d": layer("ReflectionPad1d", padding=(1, 2)),
    "ReflectionPad2d": layer("ReflectionPad2d", padding=(1, 2, 0, 1)),
    "ReplicationPad1d": layer("ReplicationPad1d", padding=2),
    "ReplicationPad2d": layer("ReplicationPad2d", padding=(1, 0, 2, 3)),
    "MultiheadAttention": multihead_attention,
    **{kind: transformer(kind) for kind in ("TransformerEncoderLayer", "TransformerDecoderLayer")},
    **{kind: layer(kind, "in", "out", "kernel") for kind in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d")},
    "Linear": layer("Linear", "in", "out"),
    "Embedding": layer("Embedding", "in", "out", padding_idx=True),
    "BatchNorm2d": layer("BatchNorm2d", "in"),
    "PReLU": layer("PReLU", "in"),
    "LayerNorm": layer("LayerNorm", "shape"),
    "RMSNorm": layer("RMSNorm", "shape"),
    "LeakyReLU": layer("LeakyReLU", negative_slope=0.2),
    "Softplus": layer("Softplus", beta=2.0, threshold=5.0),
    "Softmax": layer("Softmax", dim=0),
    **{kind: layer(kind) for kind in ("ReLU", "SiLU", "Sigmoid", "Tanh", "GELU")},
    **{kind: recurrent(kind) for kind in ("LSTM", "GRU", "RNN")},
    "RNN_relu": recurrent("RNN", nonlinearity="relu"),
}
