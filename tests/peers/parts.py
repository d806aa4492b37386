"""Stage 2 with and without each of its parts, beside the booster: one flat table and AMLSim, at random and by time.

    python3 tests/peers/parts.py AMLSIM_DIR OUT_DIR [--seeds 5] [--jobs 2] [--device cpu] [--only PATTERN] [--program graphsieve]

Makes the data (`synth --preset payments --scale 0.0455` and flat_table.py; amlsim.py --transfers edges), trains every
row for every seed of data, split and training, and prints the mean and deviation of average precision on validation,
and of the ROC-AUC and average precision of the test. A row wins where its mean on validation is above that of the first
row. Runs that are in OUT_DIR already are read, not trained again.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parent.parent / "configs"
LONG = {
    "train.epochs": 200,
    "train.learning_rate": 1e-2,
    "train.schedule": '"cosine"',
    "early_stop.metric": '"average_precision"',
    "drop_edge.rate": 0.0,
    "loss.lambda_unsup": 0.0,
}
# Stage 2 has not learned the validation labels either.
HELD_OUT = {"model.refit": "false"}
# Data, the booster's file and keys, Stage 2's file and keys, parts that these data cannot have.
DATA = {
    "flat-random": ("payments.toml", HELD_OUT, "stage2.toml", LONG, ["values"]),
    "flat-time": ("payments.toml", HELD_OUT, "payments-stage2.toml", {"model.pieces": 0, "model.dropout": 0.0}, ["values"]),
    "amlsim-random": ("stage3.toml", {"model.kind": '"booster"', "features.over": '"relations"'}, "stage2.toml", LONG, ["ages"]),
    "amlsim-time": ("stage3.toml", {"model.kind": '"booster"', "features.over": '"relations"'}, "stage2.toml", LONG, []),
}
PARTS = {
    "none": {},
    "values": {"model.edge_values": "true"},
    "ages": {"model.time_encoding": '"fixed"'},
    "labels": {"model.labels": "true"},
    "residual": {"model.residual": "true"},
    "jump": {"model.jump": '"concat"'},
    "gate": {"model.gate": "true"},
    "norm": {"model.norm": '"layer"'},
    "dropout": {"model.dropout": 0.2},
    "pieces": {"model.pieces": 6},
    "balanced": {"loss.positive_weight": 0.0},
    "focal": {"loss.focal_gamma": 2.0},
}


def options():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("amlsim", type=pathlib.Path)
    given.add_argument("out", type=pathlib.Path)
    given.add_argument("--seeds", type=int, default=5)
    given.add_argument("--jobs", type=int, default=2, help="trainings side by side")
    given.add_argument("--device", default="cpu")
    given.add_argument("--only", default="", help="rows whose `data part seed` match this pattern")
    given.add_argument("--program", default="graphsieve")
    return given.parse_args()


def call(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}")


def make(given, data, seed):
    """The data directory of one seed."""
    out = given.out / f"{data}-{seed}"
    if out.is_dir():
        return
    kind, split = data.split("-")
    tables = given.out / f"tables-{data}-{seed}"
    if kind == "flat":
        payments = given.out / f"payments-{seed}"
        if not payments.is_dir():
            call(given.program, "--quiet", "synth", "--preset", "payments", "--scale", 0.0455, "--seed", seed, "--out", payments)
        call(sys.executable, HERE / "flat_table.py", payments, tables, "--split", split, "--seed", seed)
    else:
        edges = ["--transfers", "edges", "--split", split, "--as-of", "before", "--seed", seed]
        call(sys.executable, HERE / "amlsim.py", given.amlsim, tables, *edges)
    call(given.program, "--quiet", "import", "tables", tables / "graph.toml", "--out", out)


def train(given, data, part, seed):
    """Figures of one training: average precision on validation, ROC-AUC and average precision of the test."""
    trees, trees_set, stage2, stage2_set, _ = DATA[data]
    file, keys = (trees, trees_set) if part == "booster" else (stage2, stage2_set | PARTS[part])
    runs = given.out / "runs" / f"{data}-{part}-{seed}"
    if not any(runs.glob("*/evaluation.json")):
        keys = keys | {"data.path": f'"{given.out / f"{data}-{seed}"}"', "output.dir": f'"{runs}"', "output.plots": "false", "seed": seed}
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        call(given.program, "--quiet", "train", CONFIGS / file, "--device", given.device, *sets)
    (evaluation,) = runs.glob("*/evaluation.json")
    parts = json.loads(evaluation.read_text())["evaluation"]
    validation, test = (parts[name]["overall"] for name in ("validation", "test"))
    return validation["average_precision"], test["roc_auc"], test["average_precision"]


def spread(values):
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values) if len(values) > 1 else 0:.3f}"


def main():
    given = options()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [(data, part) for data in DATA for part in ["booster", *PARTS] if part not in DATA[data][4]]
    seeds = range(1, given.seeds + 1)
    wanted = [(data, part, seed) for data, part in rows for seed in seeds if re.search(given.only, f"{data} {part} {seed}")]
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        # One seed's payments serve both splits: the first makes them.
        list(pool.map(lambda seed: [make(given, data, seed) for data in DATA if any((data, seed) == (d, s) for d, _, s in wanted)], seeds))
        print("data made", flush=True)
        trainings = {row: pool.submit(train, given, *row) for row in wanted}
        for data, part in dict.fromkeys((data, part) for data, part, _ in wanted):
            found = [trainings[data, part, seed].result() for seed in seeds if (data, part, seed) in trainings]
            validation, auroc, precision = map(list, zip(*found))
            print(f"| {data} | {part} | {spread(validation)} | {spread(auroc)} | {spread(precision)} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
