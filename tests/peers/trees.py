"""LightGBM and XGBoost on the rows of `graphsieve bench trees --export`.

    graphsieve bench trees --rows 1000000 --features 64 --export rows.npz
    OMP_WAIT_POLICY=PASSIVE python3 tests/peers/trees.py --rows rows.npz --threads 2

100 trees of 31 leaves, 255 bins, learning rate 0.1, at least 20 rows in a leaf. Needs numpy, lightgbm and xgboost; a
package that is missing is named and left out.
"""

import argparse
import resource
import time

import numpy as np

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--rows", required=True, help="npz file of bench trees --export")
arguments.add_argument("--threads", type=int, default=2)
arguments.add_argument("--trees", type=int, default=100)
given = arguments.parse_args()
data = np.load(given.rows)
parts = {name: data[name] for name in data.files}


def auroc(label, score):
    """Area under the ROC curve: ranks of equal scores are averaged."""
    order = np.argsort(score, kind="stable")
    rank = np.empty(len(score))
    rank[order] = np.arange(1, len(score) + 1)
    _, first, inverse, count = np.unique(score, return_index=True, return_inverse=True, return_counts=True)
    rank = (np.bincount(inverse, weights=rank) / count)[inverse]
    positive = label == 1
    n, m = positive.sum(), (~positive).sum()
    return (rank[positive].sum() - n * (n + 1) / 2) / (n * m)


def report(name, bins, trees, model_auroc):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{name:<24} bins {bins:6.2f} s  trees {trees:6.2f} s  AUROC {model_auroc:.5f}  peak {peak:.0f} MB with Python", flush=True)


def columns():
    """Training and test rows."""
    x, y = parts["x"], parts["y"]
    return x, y, parts["x_test"], parts["y_test"]


x, y, x_test, y_test = columns()
try:
    import lightgbm
except ImportError:
    print("lightgbm is not installed: left out")
else:
    start = time.perf_counter()
    rows = lightgbm.Dataset(x, y, params={"max_bin": 255, "num_threads": given.threads, "verbose": -1}).construct()
    binned = time.perf_counter()
    settings = {"objective": "binary", "num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 20, "num_threads": given.threads, "verbose": -1}
    model = lightgbm.train(settings, rows, given.trees)
    done = time.perf_counter()
    report(f"LightGBM {lightgbm.__version__}", binned - start, done - binned, auroc(y_test, model.predict(x_test)))
try:
    import xgboost
except ImportError:
    print("xgboost is not installed: left out")
else:
    start = time.perf_counter()
    rows = xgboost.QuantileDMatrix(x, y, max_bin=255, nthread=given.threads)
    binned = time.perf_counter()
    settings = {
        "objective": "binary:logistic", "tree_method": "hist", "grow_policy": "lossguide", "max_leaves": 31, "max_depth": 0,
        "max_bin": 255, "learning_rate": 0.1, "min_child_weight": 1e-3, "lambda": 0.0, "nthread": given.threads,
    }
    model = xgboost.train(settings, rows, given.trees)
    done = time.perf_counter()
    score = model.predict(xgboost.DMatrix(x_test))
    report(f"XGBoost {xgboost.__version__}", binned - start, done - binned, auroc(y_test, score))
