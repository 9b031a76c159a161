#!/usr/bin/env python3
"""The same MLP step in PyTorch: 784-256-128-10, batch 64, AdamW, data copied in each step. Prints milliseconds a step:
the best of eager and compiled (where torch.compile works) over 1 and 2 threads, each in a process of its own."""
import json
import subprocess
import sys
import time


def measure(threads, compiled):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    x, y = torch.randn(1280, 784), torch.randint(0, 10, (1280,))
    net = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    loss_fn = torch.nn.CrossEntropyLoss()

    def forward(a, b):
        return loss_fn(net(a), b)

    if compiled:
        forward = torch.compile(forward)

    def step(i):
        k = i % 20 * 64
        opt.zero_grad()
        forward(x[k : k + 64], y[k : k + 64]).backward()
        opt.step()

    for i in range(30):
        step(i)
    rounds = []
    for _ in range(9):
        t = time.perf_counter()
        for i in range(100):
            step(i)
        rounds.append((time.perf_counter() - t) / 100)
    return sorted(rounds)[4] * 1e3, torch.__version__


if len(sys.argv) > 2:
    ms, version = measure(int(sys.argv[1]), sys.argv[2] == "compiled")
    print(json.dumps({"ms": ms, "torch": version}))
    sys.exit(0)
results = []
for threads in (1, 2):
    for mode in ("eager", "compiled"):
        p = subprocess.run([sys.executable, __file__, str(threads), mode], capture_output=True, text=True)
        if p.returncode == 0:
            results.append(dict(json.loads(p.stdout.strip().splitlines()[-1]), threads=threads, mode=mode))
print(json.dumps({"what": "mlp step, PyTorch", "all": results, "best_ms": min(r["ms"] for r in results)}))
