"""LeNet on Fashion-MNIST as Lightning's own introduction has it, for terminals.py.

usage: lightning_lenet.py EPOCHS DEVICES
"""
import sys

import lightning
import torch
from lenet import data, lenet


class LeNet(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = lenet()

    def step(self, batch, name):
        image, label = batch
        logits = self.net(image)
        loss = torch.nn.functional.cross_entropy(logits, label)
        self.log(f"{name}_loss", loss, prog_bar=True)
        self.log(f"{name}_accuracy", (logits.argmax(1) == label).float().mean(), prog_bar=True)
        return loss

    def training_step(self, batch, _):
        return self.step(batch, "train")

    def validation_step(self, batch, _):
        self.step(batch, "test")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    trainer = lightning.Trainer(max_epochs=int(sys.argv[1]), accelerator="cpu", devices=int(sys.argv[2]), logger=False,
                                enable_checkpointing=False)
    loaders = [torch.utils.data.DataLoader(data(train), batch_size=128, shuffle=train) for train in (True, False)]
    trainer.fit(LeNet(), *loaders)
