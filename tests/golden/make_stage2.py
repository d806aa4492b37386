"""Makes the golden of `tests/program/golden.rs`: a tiny marketplace, a random Stage-2 state dict and its scores in f64.

Dense and slow on purpose: every relation is a matrix of 0 and 1, attention is a masked softmax over it.

    python3 tests/golden/make_stage2.py tests/golden/stage2      # needs numpy and torch
"""
import json
import pathlib
import sys

import numpy as np
import torch

USERS, PRODUCTS, SELLERS, WIDTH = 23, 17, 5, 16
COUNT = {"user": USERS, "product": PRODUCTS, "seller": SELLERS}
OFFSET = {"user": 0, "product": USERS, "seller": USERS + PRODUCTS}
STREAMS = ("pu", "ps", "uu")
# stem: (destination, source, stream)
RELATIONS = {
    "epu": ("user", "product", "pu"),
    "epu_T": ("product", "user", "pu"),
    "eps": ("product", "seller", "ps"),
    "eps_T": ("seller", "product", "ps"),
    "euu": ("user", "user", "uu"),
}

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True)
rng = np.random.default_rng(20)
torch.manual_seed(20)

bought = rng.random((USERS, PRODUCTS)) < 0.2
bought[3] = False  # a user without purchases
sold = np.zeros((PRODUCTS, SELLERS), dtype=bool)
sold[np.arange(PRODUCTS), rng.integers(0, SELLERS - 1, PRODUCTS)] = True  # the last seller sells nothing
together = np.triu(rng.random((USERS, USERS)) < 0.15, 1)
together = together | together.T | np.eye(USERS, dtype=bool)
adjacency = {"epu": bought, "epu_T": bought.T, "eps": sold, "eps_T": sold.T, "euu": together}

for stem, matrix in adjacency.items():
    destination, source, _ = RELATIONS[stem]
    rows = []
    for i, row in enumerate(matrix):
        ids = np.flatnonzero(row) + OFFSET[source]
        own = i + OFFSET[destination]  # the original appends the row's own id, whatever the relation
        rows.append(np.unique(np.append(ids, own)))
    np.cumsum([0] + [len(r) for r in rows]).astype("<i4").tofile(out / f"{stem}_row_ptr.bin")
    np.concatenate(rows).astype("<i4").tofile(out / f"{stem}_col_idx.bin")

total = sum(COUNT.values())
counts = {"users": USERS, "products": PRODUCTS, "sellers": SELLERS, "total": total}
(out / "node_counts.json").write_text(json.dumps(counts) + "\n")
z = rng.standard_normal((total, WIDTH)).astype(np.float32)
np.save(out / "Z_embeddings_stage1.npy", z)

state = {}
for layer in (1, 2):
    for stream in STREAMS:
        state[f"gat{layer}.W_{stream}.weight"] = torch.randn(WIDTH, WIDTH) * WIDTH**-0.5
        state[f"gat{layer}.a_{stream}"] = torch.randn(2 * WIDTH) * 0.4
state["score_head.weight"] = torch.randn(1, WIDTH) * 0.5
state["score_head.bias"] = torch.randn(1) * 0.5
torch.save(state, out / "gat_stage2_best.pt")

w = {name: tensor.double() for name, tensor in state.items()}
h = torch.from_numpy(z).double()
for layer in (1, 2):
    parts = {t: torch.zeros(n, WIDTH, dtype=torch.float64) for t, n in COUNT.items()}
    for stem, (destination, source, stream) in RELATIONS.items():
        projected = h @ w[f"gat{layer}.W_{stream}.weight"].T
        dst = projected[OFFSET[destination] : OFFSET[destination] + COUNT[destination]]
        src = projected[OFFSET[source] : OFFSET[source] + COUNT[source]]
        a = w[f"gat{layer}.a_{stream}"]
        logits = torch.nn.functional.leaky_relu((dst @ a[:WIDTH])[:, None] + (src @ a[WIDTH:])[None, :], 0.2)
        edges = torch.from_numpy(adjacency[stem].copy())
        weights = torch.nan_to_num(torch.softmax(logits.masked_fill(~edges, -torch.inf), dim=1))
        parts[destination] += weights @ src
    streams_into = {"user": 2, "product": 2, "seller": 1}
    h = torch.cat([torch.nn.functional.elu(parts[t] / streams_into[t]) for t in COUNT])
scores = torch.sigmoid(h @ w["score_head.weight"].T + w["score_head.bias"]).squeeze(1)
np.save(out / "expected_scores.npy", scores.float().numpy())
np.save(out / "expected_embeddings.npy", h.float().numpy())
