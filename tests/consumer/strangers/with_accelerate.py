# As its users write it: Hugging Face accelerate, which reads the workers' environment by itself.
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
set_seed(0)
inputs = torch.randn(512, 10)
data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
model, optimizer, data = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-2), data)
for epoch in range(3):
    for x, y in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
accelerator.print(f"accelerate: {accelerator.num_processes} processes, loss {mean:.4f}")
accelerator.end_training()
