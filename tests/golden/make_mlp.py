#!/usr/bin/env python3
"""Golden values for tests/t_golden.c: twenty steps of an MLP in PyTorch (f32, CPU).

    python3 tests/golden/make_mlp.py

writes tests/golden/mlp/: data.csv, init.safetensors, and for each case CASE.csv (the loss of every step) and
CASE.safetensors (the weights after step 20). The 100 samples make batches of 32, 32, 32 and 4, so the short
last batch is in it. Needs torch and safetensors.
"""
import csv
import os

import torch
from safetensors.torch import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mlp")
N, FEATURES, HIDDEN, CLASSES, BATCH, STEPS = 100, 12, 16, 4, 32, 20

CASES = {
    "sgd": dict(opt=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "nesterov": dict(opt=lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)),
    "adam": dict(opt=lambda p: torch.optim.Adam(p, lr=0.01)),
    "adamw": dict(opt=lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)),
    "clip": dict(opt=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), clip=0.5),
    "accumulate": dict(opt=lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1), micro=16),
}


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    )


# Where our mlp.lua has them: flatten is 1, linear 2, relu 3, dropout 4, linear 5.
NAMES = {"0.weight": "layers.2.weight", "0.bias": "layers.2.bias", "2.weight": "layers.5.weight", "2.bias": "layers.5.bias"}


def tensors(net):
    return {NAMES[k]: v.detach().clone() for k, v in net.state_dict().items()}


def run(name, x, y, start, opt, clip=0.0, micro=BATCH):
    net = model()
    net.load_state_dict(start)
    # weight decay is decoupled and not on biases, as the default groups are
    weights = [p for n, p in net.named_parameters() if n.endswith("weight")]
    biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
    groups = [{"params": weights}, {"params": biases, "weight_decay": 0.0}]
    o = opt(groups)
    loss_fn = torch.nn.CrossEntropyLoss(reduction="sum")
    losses, at = [], 0
    for _ in range(STEPS):
        xb, yb = x[at : at + BATCH], y[at : at + BATCH]
        at = (at + BATCH) % N if at + BATCH < N else 0
        o.zero_grad()
        total = 0.0
        for i in range(0, len(xb), micro):
            loss = loss_fn(net(xb[i : i + micro]), yb[i : i + micro]) / len(xb)
            loss.backward()
            total += loss.item()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        o.step()
        losses.append(total)
    with open(os.path.join(HERE, name + ".csv"), "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["step", "loss"])
        for s, v in enumerate(losses, 1):
            w.writerow([s, repr(v)])
    save_file(tensors(net), os.path.join(HERE, name + ".safetensors"))


def main():
    os.makedirs(HERE, exist_ok=True)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    x = torch.randn(N, FEATURES)
    teacher = torch.randn(FEATURES, CLASSES)
    y = (x @ teacher + 0.5 * torch.randn(N, CLASSES)).argmax(1)
    with open(os.path.join(HERE, "data.csv"), "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow([f"f{i}" for i in range(FEATURES)] + ["label"])
        for row, label in zip(x.tolist(), y.tolist()):
            w.writerow(["%.9g" % v for v in row] + [label])
    start = model().state_dict()
    net = model()
    net.load_state_dict(start)
    save_file(tensors(net), os.path.join(HERE, "init.safetensors"))
    for name, case in CASES.items():
        run(name, x, y, start, **case)


main()
