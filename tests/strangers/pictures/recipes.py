"""The recipes of --augment as torchvision's transforms on PIL pictures, and single operations as torchvision has them."""
from torchvision import transforms
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms import functional as F

NORMALIZE = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
BILINEAR = InterpolationMode.BILINEAR


def trained(size, *changes, erase=0):
    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), *changes] + NORMALIZE
    return transforms.Compose(steps + ([transforms.RandomErasing(p=erase)] if erase else []))


def evaluated(size, short, *changes):
    return transforms.Compose([transforms.Resize(short), transforms.CenterCrop(size), *changes] + NORMALIZE)


def recipes(size, short):
    """By the text of --augment."""
    trivial, rand = transforms.TrivialAugmentWide(interpolation=BILINEAR), transforms.RandAugment(interpolation=BILINEAR)
    strong = transforms.RandAugment(num_ops=3, magnitude=20, interpolation=BILINEAR)
    return {
        "none": evaluated(size, short),
        "imagenet": trained(size),
        "imagenet-v2": trained(size, trivial, erase=0.1),
        "imagenet,randaugment": trained(size, rand),
        "imagenet,jitter=0.4/0.3/0.2/0.1,erase=0.5": trained(size, transforms.ColorJitter(0.4, 0.3, 0.2, 0.1), erase=0.5),
        "jitter=0/1.5/0/0.5,randaugment=3/20": evaluated(size, short, transforms.ColorJitter(0, 1.5, 0, 0.5), strong),
    }


FACTORS = {"Brightness": "brightness", "Color": "color", "Contrast": "contrast", "Sharpness": "sharpness"}
OTHERS = {"ShearX": "shear_x", "ShearY": "shear_y", "TranslateX": "translate_x", "TranslateY": "translate_y",
          "Rotate": "rotate", "Posterize": "posterize", "Solarize": "solarize", "AutoContrast": "auto_contrast",
          "Equalize": "equalize", "Identity": "identity"}
AMOUNTS = {
    **dict.fromkeys(FACTORS.values(), (0.0, 0.01, 0.55, 1.0, 1.37, 1.99)),
    **dict.fromkeys(("shear_x", "shear_y"), (-0.99, -0.21, 0.0, 0.3, 0.75)),
    **dict.fromkeys(("translate_x", "translate_y"), (-31.9, -7.0, 0.0, 3.2, 500.0)),
    "rotate": (-180.0, -135.0, -90.0, -31.5, 0.0, 4.5, 45.0, 90.0, 121.5, 180.0),
    "posterize": (1, 3, 6, 8), "solarize": (0.0, 76.5, 127.5, 255.0), "hue": (-0.5, -0.013, 0.0, 0.001, 0.1, 0.5),
    "auto_contrast": (0,), "equalize": (0,), "identity": (0,),
}


def changed(picture, kind, amount):
    """One operation, named as PictureOpKind, on a PIL picture."""
    if kind == "hue":
        return F.adjust_hue(picture, amount)
    for theirs, ours in FACTORS.items():
        if ours == kind:
            adjust = {"Brightness": F.adjust_brightness, "Color": F.adjust_saturation, "Contrast": F.adjust_contrast,
                      "Sharpness": F.adjust_sharpness}[theirs]
            return adjust(picture, amount)
    name = next(theirs for theirs, ours in OTHERS.items() if ours == kind)
    return _apply_op(picture, name, amount, interpolation=BILINEAR, fill=None)
