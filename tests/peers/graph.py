"""What the peers' scripts share: reading a marketplace directory of `graphsieve synth`, timing, memory."""

import json
import pathlib
import statistics
import time

import numpy as np
import torch

# relation: (destination type, source type, stream)
RELATIONS = {
    "epu": ("users", "products", "pu"),
    "epu_T": ("products", "users", "pu"),
    "eps": ("products", "sellers", "ps"),
    "eps_T": ("sellers", "products", "ps"),
    "euu": ("users", "users", "uu"),
}
TYPES = ("users", "products", "sellers")


class Marketplace:
    """Counts, relations as (row_ptr, col_idx) with local sources and without the self-loops of the files, labels."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        counts = json.loads((self.directory / "node_counts.json").read_text())
        self.count = {name: counts[name] for name in TYPES}
        self.offset = dict(zip(TYPES, np.cumsum([0] + [self.count[name] for name in TYPES])[:3].tolist()))
        self.nodes = sum(self.count.values())

    def csr(self, relation):
        destination, source, _ = RELATIONS[relation]
        row_ptr = np.fromfile(self.directory / f"{relation}_row_ptr.bin", dtype="<i4").astype(np.int64)
        column = np.fromfile(self.directory / f"{relation}_col_idx.bin", dtype="<i4").astype(np.int64)
        row = np.repeat(np.arange(len(row_ptr) - 1), np.diff(row_ptr))
        inside = (column >= self.offset[source]) & (column < self.offset[source] + self.count[source])
        loop = column == row + self.offset[destination]
        row, column = row[inside & ~loop], column[inside & ~loop] - self.offset[source]
        row_ptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=self.count[destination]))])
        return row_ptr, row, column

    def features(self):
        values = np.fromfile(self.directory / "X_combined.memmap", dtype="<f2")
        return values.reshape(self.nodes, -1).astype(np.float32)

    def labels(self):
        return np.load(self.directory / "labels.npy")


def synchronise(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def median_ms(function, device, runs=10, warm_up=3):
    """Median wall time of `function` in milliseconds; the device is idle before and after each run."""
    for _ in range(warm_up):
        function()
    times = []
    for _ in range(runs):
        synchronise(device)
        start = time.perf_counter()
        function()
        synchronise(device)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def row(name, function, device, **timing):
    """Measures and prints one line; a peer that runs out of memory says so and the rest goes on."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        took = median_ms(function, device, **timing)
    except torch.OutOfMemoryError as error:
        print(f"{name:<48} out of memory: {str(error).splitlines()[0]}", flush=True)
        return
    peak = f"  peak {torch.cuda.max_memory_allocated() / 1e9:.2f} GB" if device.startswith("cuda") else ""
    print(f"{name:<48} {took:10.3f} ms{peak}", flush=True)


def versions(*modules):
    """One line that says what was measured."""
    names = ", ".join(f"{module.__name__} {module.__version__}" for module in (torch, np, *modules))
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    print(f"{names}; {name}", flush=True)
