"""PyTorch's side of layers.cc: layers with the weights of torch.manual_seed(7)."""
import torch

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
        y, end = made(t["x"], start)
        return several((y, *end) if isinstance(end, tuple) else (y, end))
    return run


OPERATIONS = {
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
