"""RGCNConv and HANConv of PyTorch Geometric against the formulas of `graphsieve::nn`'s `RgcnConv` and of its
`HeteroConv` of `GatConv`s with `SemanticAttention`, written as loops in f64: those that tests/devices/nn/relations.rs
has for the layers.

    python3 tests/peers/relations.py

Fails where they differ by more than rounding. PyG knows nodes of one kind in the first and no bias behind attention in
the second; it adds a bias to projections there, which is set to zero here. Needs numpy, torch and torch_geometric.
"""

import numpy as np
import torch
import torch_geometric
from torch_geometric.nn import HANConv, RGCNConv

from graph import versions

TOLERANCE = 1e-12
random = np.random.default_rng(1)


def agree(name, got, want):
    error = np.abs(got.detach().numpy() - want).max() / np.abs(want).max()
    print(f"{name}: {error:.1e}")
    assert error < TOLERANCE, name


def filled(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(random.normal(size=tuple(parameter.shape))))
    return module


def values(parameter):
    return parameter.detach().numpy()


def edges(sources, destinations, count):
    """Parallel edges and loops by chance; the last destination has none."""
    return np.stack([random.integers(0, sources, count), random.integers(0, destinations - 1, count)])


def rgcn(conv, x, pairs, kinds, mean):
    y = x @ values(conv.root) + values(conv.bias)
    for relation in range(conv.num_relations):
        if conv.num_blocks is None:
            weight = values(conv.weight)
            weight = weight[relation] if conv.num_bases is None else np.tensordot(values(conv.comp)[relation], weight, 1)
        else:
            blocks = values(conv.weight)[relation]
            _, rows, columns = blocks.shape
            weight = np.zeros((conv.in_channels, conv.out_channels))
            for at, block in enumerate(blocks):
                weight[at * rows : (at + 1) * rows, at * columns : (at + 1) * columns] = block
        own = pairs[:, kinds == relation]
        degree = np.bincount(own[1], minlength=len(x))
        for source, destination in own.T:
            y[destination] += x[source] @ weight / (degree[destination] if mean else 1)
    return y


def leaky(score):
    return np.where(score > 0, score, 0.2 * score)


def attention(h_source, h_destination, a_source, a_destination, pairs, heads):
    """The rows of one relation before the activation."""
    channels = h_source.shape[1] // heads
    y = np.zeros_like(h_destination)
    for head in range(heads):
        columns = slice(head * channels, (head + 1) * channels)
        left, right = h_source[:, columns] @ a_source[head], h_destination[:, columns] @ a_destination[head]
        weight = np.exp(leaky(left[pairs[0]] + right[pairs[1]]))
        sums = np.bincount(pairs[1], weight, minlength=len(y))
        for (source, destination), share in zip(pairs.T, weight / sums[pairs[1]]):
            y[destination, columns] += share * h_source[source, columns]
    return y


def han(conv, x, relations):
    h = {kind: rows @ values(conv.proj[kind].weight).T for kind, rows in x.items()}
    arrived = {kind: [] for kind in x}
    for (source, name, destination), pairs in relations.items():
        key = f"{source}__{name}__{destination}"
        vectors = [values(part[key])[0] for part in (conv.lin_src, conv.lin_dst)]
        arrived[destination].append(np.maximum(attention(h[source], h[destination], *vectors, pairs, conv.heads), 0))
    result = {}
    for kind, parts in arrived.items():
        hidden = [np.tanh(z @ values(conv.k_lin.weight).T + values(conv.k_lin.bias)) for z in parts]
        scores = np.exp([(rows @ values(conv.q)[0]).mean() for rows in hidden])
        result[kind] = sum(score / scores.sum() * z for score, z in zip(scores, parts))
    return result


versions(torch_geometric)
torch.set_default_dtype(torch.float64)
x, pairs, kinds = random.normal(size=(30, 6)), edges(30, 30, 200), random.integers(0, 5, 200)
tensors = [torch.from_numpy(array) for array in (x, pairs, kinds)]
for name, settings in {"full": {}, "bases": {"num_bases": 2}, "blocks": {"num_blocks": 3}}.items():
    for mean in (True, False):
        conv = filled(RGCNConv(6, 9, num_relations=5, aggr="mean" if mean else "sum", **settings))
        agree(f"RGCNConv, {name}, {'mean' if mean else 'sum'}", conv(*tensors), rgcn(conv, x, pairs, kinds, mean))

x = {"users": random.normal(size=(20, 6)), "products": random.normal(size=(12, 4))}
relations = {
    ("users", "bought", "products"): edges(20, 12, 60),
    ("products", "bought_by", "users"): edges(12, 20, 60),
    ("users", "know", "users"): edges(20, 20, 80),
    ("users", "returned", "products"): edges(20, 12, 30),
}
conv = filled(HANConv({kind: rows.shape[1] for kind, rows in x.items()}, 8, (list(x), list(relations)), heads=2))
with torch.no_grad():
    for projection in conv.proj.values():
        projection.bias.zero_()
got = conv(*({key: torch.from_numpy(array) for key, array in part.items()} for part in (x, relations)))
for kind, want in han(conv, x, relations).items():
    agree(f"HANConv, {kind}", got[kind], want)
