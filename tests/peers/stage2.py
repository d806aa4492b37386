"""Stage 2 in plain PyTorch (index_add and scatter_reduce), beside `graphsieve bench stage2` and `bench inference`.

    graphsieve synth --preset electronics --out artifacts/data/electronics
    python3 tests/peers/stage2.py --data artifacts/data/electronics --device cuda

The same model, loss and optimiser: two layers of attention per relation, DropEdge 0.85, cross-entropy of the labels,
smoothness of the scores along 5,000 edges per relation, Adam. Every row is computed (`train.rows = "all"`). Needs numpy
and torch.

    torchrun --nproc-per-node 2 tests/peers/stage2.py --data DIR      beside `graphsieve bench scale --devices 2`

Under torchrun each rank computes the whole graph for its part of the labels and edges of the loss, and
DistributedDataParallel takes the mean of the gradients.
"""

import argparse
import os

import torch
import torch.nn.functional as functional

from graph import RELATIONS, TYPES, Marketplace, row, versions

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--data", required=True, help="marketplace directory")
arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
arguments.add_argument("--width", type=int, default=128)
arguments.add_argument("--drop", type=float, default=0.85, help="share of edges that an epoch leaves out")
arguments.add_argument("--runs", type=int, default=10)
given = arguments.parse_args()
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
device = f"cuda:{os.environ['LOCAL_RANK']}" if "LOCAL_RANK" in os.environ and given.device == "cuda" else given.device
if device.startswith("cuda"):
    torch.cuda.set_device(device if ":" in device else 0)
if ranks > 1:
    torch.distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")


class Attention(torch.nn.Module):
    """One layer: what arrives at a node type over its relations, divided by its streams, through ELU."""

    def __init__(self, inputs, outputs, market):
        super().__init__()
        streams = sorted({stream for _, _, stream in RELATIONS.values()})
        self.project = torch.nn.ModuleDict({s: torch.nn.Linear(inputs, outputs, bias=False) for s in streams})
        self.of_target = torch.nn.ParameterDict({s: torch.nn.Parameter(0.1 * torch.randn(outputs)) for s in streams})
        self.of_source = torch.nn.ParameterDict({s: torch.nn.Parameter(0.1 * torch.randn(outputs)) for s in streams})
        self.market = market

    def attend(self, relation, target, origin, x):
        destination, source, stream = RELATIONS[relation]
        rows = self.market.count[destination]
        h_source, h_target = self.project[stream](x[source]), self.project[stream](x[destination])
        logit = (h_target @ self.of_target[stream])[target] + (h_source @ self.of_source[stream])[origin]
        logit = functional.leaky_relu(logit, 0.2)
        largest = torch.full((rows,), -torch.inf, device=logit.device).scatter_reduce(0, target, logit.detach(), "amax")
        weight = (logit - largest[target]).exp()
        total = torch.zeros(rows, device=logit.device).index_add(0, target, weight)
        share = (weight / total[target]).unsqueeze(1)
        return torch.zeros(rows, h_source.shape[1], device=logit.device).index_add(0, target, share * h_source[origin])

    def forward(self, x, edges, drop):
        arrived = {name: [] for name in TYPES}
        for relation, (target, origin) in edges.items():
            if drop > 0:
                kept = torch.rand(target.numel(), device=target.device) >= drop
                target, origin = target[kept], origin[kept]
            arrived[RELATIONS[relation][0]].append(self.attend(relation, target, origin, x))
        streams = {t: len({s for d, _, s in RELATIONS.values() if d == t}) for t in TYPES}
        return {t: functional.elu(sum(parts) / streams[t]) for t, parts in arrived.items()}


class Detector(torch.nn.Module):
    """Two layers and a head: the logits of all nodes."""

    def __init__(self, inputs, width, market):
        super().__init__()
        self.layers = torch.nn.ModuleList([Attention(inputs, width, market), Attention(width, width, market)])
        self.head = torch.nn.Linear(width, 1)

    def forward(self, x, edges, drop):
        for layer in self.layers:
            x = layer(x, edges, drop)
        return self.head(torch.cat([x[name] for name in TYPES])).squeeze(1)


if rank == 0:
    versions()
market = Marketplace(given.data)
edges = {}
for relation in RELATIONS:
    _, target, origin = market.csr(relation)
    edges[relation] = (torch.from_numpy(target).to(device), torch.from_numpy(origin).to(device))
features = torch.from_numpy(market.features()).to(device)
x = dict(zip(TYPES, features.split([market.count[name] for name in TYPES])))
labels = torch.from_numpy(market.labels().astype("int64")).to(device)
labels = labels[rank::ranks]
nodes, wanted = labels[:, 0], labels[:, 1].float()

torch.manual_seed(0)
model = Detector(features.shape[1], given.width, market).to(device)
if ranks > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
torch.manual_seed(rank)
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)


def epoch():
    optimiser.zero_grad()
    out = model(x, edges, given.drop)
    loss = functional.binary_cross_entropy_with_logits(out[nodes], wanted)
    score = out.sigmoid()
    for relation in ("epu", "eps", "euu"):
        destination, source, _ = RELATIONS[relation]
        target, origin = edges[relation]
        pick = torch.randint(target.numel(), (5000 // ranks,), device=device)
        ends = score[target[pick] + market.offset[destination]] - score[origin[pick] + market.offset[source]]
        loss = loss + 0.5 / 3 * ends.square().mean()
    loss.backward()
    optimiser.step()


def inference():
    with torch.no_grad():
        model(x, edges, 0.0)


of_rank = f", rank {rank} of {ranks}" if ranks > 1 else ""
row(f"Stage 2 epoch, all rows{of_rank}", epoch, device, runs=given.runs)
row(f"scores of all nodes{of_rank}", inference, device, runs=given.runs, warm_up=1)
if ranks > 1:
    torch.distributed.destroy_process_group()
