"""PyTorch's and PyTorch Geometric's time for one relation, beside `graphsieve bench kernels` and `bench messages`.

    graphsieve synth --preset electronics --out artifacts/data/electronics
    python3 tests/peers/operators.py --data artifacts/data/electronics --device cuda

`torch.sparse_csr_tensor(...) @ x` multiplies by a value per edge (cuSPARSE on CUDA, MKL on the CPU); `GATConv` projects
first, as `gat` of graphsieve does not: its projection is timed with it, and so are both of `GATv2Conv`. With values of
edges, `GATConv` and `GATv2Conv` have them in the score and `TransformerConv` in score and message. Needs numpy, torch
and torch_geometric.
"""

import argparse

import torch
import torch_geometric
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from graph import RELATIONS, Marketplace, row, versions

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--data", required=True, help="marketplace directory")
arguments.add_argument("--relation", default="euu", choices=RELATIONS)
arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
arguments.add_argument("--channels", type=int, nargs="+", default=[4, 32, 128, 256])
arguments.add_argument("--width", type=int, default=128, help="channels of GATConv, all heads together")
arguments.add_argument("--runs", type=int, default=10)
given = arguments.parse_args()
device, runs = given.device, given.runs

versions(torch_geometric)
market = Marketplace(given.data)
destination, source, _ = RELATIONS[given.relation]
rows, columns = market.count[destination], market.count[source]
row_ptr, target, origin = (torch.from_numpy(part).to(device) for part in market.csr(given.relation))
print(f"{given.relation}: {rows} rows, {origin.numel()} edges")

generator = torch.Generator(device=device).manual_seed(0)
value = torch.rand(origin.numel(), device=device, generator=generator)
narrow_ptr, narrow_col = row_ptr.int(), origin.int()  # cuSPARSE is faster with 32-bit indices
for dtype in (torch.float32, torch.float16):
    if device == "cpu" and dtype == torch.float16:
        continue  # MKL has no half precision
    adjacency = torch.sparse_csr_tensor(narrow_ptr, narrow_col, value.to(dtype), (rows, columns))
    for channels in given.channels:
        x = torch.randn(columns, channels, device=device, generator=generator).to(dtype)
        row(f"torch.sparse @ x, {channels} channels, {dtype}", lambda: adjacency @ x, device, runs=runs)
    del adjacency, x

if device != "cpu":
    pattern = torch.sparse_csr_tensor(narrow_ptr, narrow_col, torch.zeros_like(value), (rows, columns))
    for channels in given.channels:
        left = torch.randn(rows, channels, device=device, generator=generator)
        right = torch.randn(channels, columns, device=device, generator=generator)
        row(f"torch.sparse.sampled_addmm, {channels} channels", lambda: torch.sparse.sampled_addmm(pattern, left, right), device, runs=runs)
    del pattern, left, right

if source != destination:
    raise SystemExit("GATConv is measured on a relation of one node type, such as euu")
edges = torch.stack([origin, target])
kept = edges[:, torch.rand(edges.shape[1], device=device, generator=generator) < 0.15]
x = torch.randn(columns, given.width, device=device, generator=generator, requires_grad=True)
few = {"runs": min(runs, 3), "warm_up": 1}
for heads in (1, 4):
    layer = GATConv(given.width, given.width // heads, heads=heads, add_self_loops=False, bias=False).to(device)

    def forward(which=edges):
        with torch.no_grad():
            layer(x, which)

    def both(which=edges):
        out = layer(x, which)
        out.backward(torch.ones_like(out))
        x.grad = None
        layer.zero_grad()

    row(f"GATConv forward, {heads} heads", forward, device, **few)
    row(f"GATConv forward + backward, {heads} heads", both, device, **few)
    row(f"GATConv forward + backward, {heads} heads, 15 % of edges", lambda: both(kept), device, **few)

layer = GATv2Conv(given.width, given.width, add_self_loops=False, bias=False).to(device)
row("GATv2Conv forward, 1 head", forward, device, **few)
row("GATv2Conv forward + backward, 1 head", both, device, **few)

values = torch.randn(edges.shape[1], 4, device=device, generator=generator)
loops = {"add_self_loops": False}
for peer, settings in ((GATConv, loops), (GATv2Conv, loops), (TransformerConv, {"root_weight": False})):
    layer = peer(given.width, given.width, edge_dim=4, bias=False, **settings).to(device)

    def carried():
        out = layer(x, edges, edge_attr=values)
        out.backward(torch.ones_like(out))
        x.grad = None
        layer.zero_grad()

    row(f"{peer.__name__} forward + backward, 1 head, 4 values an edge", carried, device, **few)
