# As its users write it: Lightning with strategy ddp, which takes the processes it finds for its own.
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


lightning.seed_everything(0)
inputs = torch.randn(512, 10)
data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16, shuffle=True)
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, logger=False,
                            enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Net(), data)
if trainer.is_global_zero:
    print(f"lightning: {trainer.world_size} processes, loss {trainer.callback_metrics['loss'].item():.4f}")
