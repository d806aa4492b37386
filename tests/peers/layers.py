"""GCN and GAT of PyTorch Geometric on Cora's public split, beside `graphsieve bench accuracy`.

    python3 tests/peers/layers.py --data cora.npz --seeds 20

`cora.npz` is the file that `configs/cora-gcn.toml` reads: `node_features`, `node_labels`, `edges` and the three masks.
An epoch is a training step and a validation, as in `bench accuracy`. Needs numpy, torch and torch_geometric.
"""

import argparse
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as functional
import torch_geometric
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.utils import to_undirected

from graph import versions

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--data", required=True, help="npz file with node_features, node_labels, edges and masks")
arguments.add_argument("--seeds", type=int, default=20)
arguments.add_argument("--epochs", type=int, default=1000)
arguments.add_argument("--patience", type=int, default=100)
given = arguments.parse_args()

versions(torch_geometric)
data = np.load(given.data)
x = torch.from_numpy(data["node_features"].astype(np.float32))
x = x / x.sum(1, keepdim=True).clamp(min=1)
y = torch.from_numpy(data["node_labels"].astype(np.int64).reshape(-1))
pairs = torch.from_numpy(data["edges"].astype(np.int64))
edges = to_undirected(pairs.t() if pairs.shape[1] == 2 else pairs, num_nodes=len(x))
mask = {}
for name in ("train", "val", "test"):
    stored = data[f"{name}_mask" if f"{name}_mask" in data else f"{name}_masks"].astype(bool)
    mask[name] = torch.from_numpy(stored[0] if stored.ndim == 2 and stored.shape[1] == len(x) else stored.reshape(len(x), -1)[:, 0])
classes = int(y.max()) + 1


class Gcn(torch.nn.Module):
    rate, decay = 0.01, 5e-4

    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(x.shape[1], 16), GCNConv(16, classes)
        self.dropout = 0.5

    def forward(self, h):
        h = functional.dropout(h, self.dropout, self.training)
        h = functional.dropout(self.first(h, edges).relu(), self.dropout, self.training)
        return self.second(h, edges)


class Gat(torch.nn.Module):
    rate, decay = 0.005, 5e-4

    def __init__(self):
        super().__init__()
        self.first = GATConv(x.shape[1], 8, heads=8, dropout=0.6)
        self.second = GATConv(64, classes, heads=1, dropout=0.6)

    def forward(self, h):
        h = functional.dropout(h, 0.6, self.training)
        h = functional.dropout(functional.elu(self.first(h, edges)), 0.6, self.training)
        return self.second(h, edges)


def train(kind, seed):
    torch.manual_seed(seed)
    model = kind()
    optimiser = torch.optim.Adam(model.parameters(), lr=kind.rate, weight_decay=kind.decay)
    best, waited, test, times = float("inf"), 0, 0.0, []
    for _ in range(given.epochs):
        start = time.perf_counter()
        model.train()
        optimiser.zero_grad()
        functional.cross_entropy(model(x)[mask["train"]], y[mask["train"]]).backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            out = model(x)
            loss = functional.cross_entropy(out[mask["val"]], y[mask["val"]]).item()
        times.append(time.perf_counter() - start)
        if loss < best:
            best, waited = loss, 0
            test = (out[mask["test"]].argmax(1) == y[mask["test"]]).float().mean().item()
        else:
            waited += 1
            if waited == given.patience:
                break
    return 100 * test, 1e3 * statistics.median(times)


for kind in (Gcn, Gat):
    accuracy, took = zip(*(train(kind, seed) for seed in range(given.seeds)))
    spread = statistics.stdev(accuracy) if given.seeds > 1 else 0.0
    print(f"{kind.__name__}: test accuracy {statistics.mean(accuracy):.2f} ± {spread:.2f} %, epoch {statistics.median(took):.1f} ms")
