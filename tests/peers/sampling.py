"""DGL's neighbour sampling and PyTorch's way of moving rows, beside `graphsieve bench loader`.

    graphsieve synth --preset electronics --out artifacts/data/electronics
    python3 tests/peers/sampling.py --data artifacts/data/electronics --fanouts 15 10

Batches of 1,024 users; a fanout counts neighbours per node and relation. Needs numpy and torch; without dgl the
sampling is left out, without CUDA the rows.
"""

import argparse
import statistics
import time

import numpy as np
import torch

from graph import RELATIONS, Marketplace, row, versions

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--data", required=True, help="marketplace directory")
arguments.add_argument("--fanouts", type=int, nargs="+", default=[15, 10], help="next to the seeds first")
arguments.add_argument("--batch-size", type=int, default=1024)
arguments.add_argument("--batches", type=int, default=100)
arguments.add_argument("--rows", type=int, default=250_000)
given = arguments.parse_args()

versions()
market = Marketplace(given.data)
random = np.random.default_rng(0)
try:
    import dgl
except ImportError:
    print("dgl is not installed: sampling is left out")
else:
    edges = {}
    for relation, (destination, source, _) in RELATIONS.items():
        _, target, origin = market.csr(relation)
        edges[(source, relation, destination)] = (torch.from_numpy(origin), torch.from_numpy(target))
    graph = dgl.heterograph(edges, num_nodes_dict=market.count)
    # DGL wants the fanout next to the features first.
    sampler = dgl.dataloading.NeighborSampler(given.fanouts[::-1])
    took, sampled = [], []
    for _ in range(given.batches):
        seeds = torch.from_numpy(random.choice(market.count["users"], given.batch_size, replace=False))
        start = time.perf_counter()
        _, _, blocks = sampler.sample(graph, {"users": seeds})
        took.append(time.perf_counter() - start)
        sampled.append(sum(block.num_edges() for block in blocks))
    rate = statistics.median(count / seconds for count, seconds in zip(sampled, took))
    print(f"DGL {dgl.__version__}, {torch.get_num_threads()} threads: {rate / 1e6:.1f} M edges/s, {statistics.mean(sampled):.0f} edges a batch")

if torch.cuda.is_available():
    for dtype in (torch.float16, torch.float32):
        features = torch.zeros(market.nodes, 128, dtype=dtype)
        wanted = torch.from_numpy(random.integers(0, market.nodes, given.rows))
        copy = lambda: features.index_select(0, wanted).pin_memory().to("cuda", non_blocking=True)
        row(f"index_select, pin_memory, copy: {given.rows} rows, {dtype}", copy, "cuda")
else:
    print("no CUDA device: rows are left out")
