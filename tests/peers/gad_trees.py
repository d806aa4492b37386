"""scikit-learn, LightGBM and XGBoost on the columns, splits and settings of `graphsieve bench gad --export`.

    graphsieve bench gad --data reddit.npz --protocol full --export gad
    python3 tests/peers/gad_trees.py --export gad

The setting of a split is chosen as there: by the average precision on validation nodes, where there are several. Needs
numpy, scikit-learn, lightgbm and xgboost; a package that is missing is named and left out.
"""

import argparse
import json
import pathlib
import time

import numpy as np

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--export", required=True, type=pathlib.Path, help="directory of bench gad --export")
arguments.add_argument("--models", help="some of them, separated by commas")
arguments.add_argument("--threads", type=int, default=2)
given = arguments.parse_args()
features, labels, splits = (np.load(given.export / f"{name}.npy") for name in ("features", "labels", "splits"))
settings = json.loads((given.export / "settings.json").read_text())


def area(label, score):
    """Area under the ROC curve: equal scores count half."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    n, m = (label == 1).sum(), (label == 0).sum()
    return (rank[label == 1].sum() - n * (n + 1) / 2) / (n * m)


def average_precision(label, score):
    """Sum over thresholds of precision times the recall that is added."""
    order = np.argsort(-score, kind="stable")
    hit, score = np.cumsum(label[order] == 1), score[order]
    last = np.append(score[1:] != score[:-1], True)
    hit, taken = hit[last], (np.arange(len(score)) + 1)[last]
    return (hit / taken * np.diff(hit, prepend=0)).sum() / hit[-1]


def recall_at_k(label, score):
    """Share of the K anomalous nodes among the K highest scores; equal scores share what is left."""
    k = (label == 1).sum()
    border = np.sort(score)[-k]
    above, at = score > border, score == border
    return (label[above].sum() + (k - above.sum()) * label[at].mean()) / k


def scikit_learn(setting, weight, seed):
    from sklearn.ensemble import RandomForestClassifier

    def fit(x, y):
        columns = max(1, round(setting["columns_per_node"] * x.shape[1]))
        model = RandomForestClassifier(
            n_estimators=setting["trees"],
            max_features=columns,
            min_samples_leaf=setting["min_data_in_leaf"],
            random_state=seed,
            n_jobs=given.threads,
        )
        return model.fit(x, y, sample_weight=np.where(y == 1, weight, 1.0))

    return fit


def lightgbm(setting, weight, seed):
    from lightgbm import LGBMClassifier

    def fit(x, y):
        model = LGBMClassifier(
            n_estimators=setting["rounds"],
            learning_rate=setting["learning_rate"],
            num_leaves=setting["num_leaves"],
            max_depth=setting["max_depth"] or -1,
            min_child_samples=setting["min_data_in_leaf"],
            min_child_weight=setting["min_sum_hessian"],
            reg_lambda=setting["lambda_l2"],
            feature_fraction_bynode=setting["columns_per_node"],
            subsample=setting["rows_per_tree"],
            subsample_freq=1,
            extra_trees=setting["random_thresholds"],
            scale_pos_weight=weight,
            random_state=seed,
            n_jobs=given.threads,
            verbose=-1,
        )
        return model.fit(x, y)

    return fit


def xgboost(setting, weight, seed):
    from xgboost import XGBClassifier

    if setting["random_thresholds"] or not setting["max_depth"]:
        return None  # XGBoost has neither random thresholds nor a smallest number of rows in a leaf

    def fit(x, y):
        model = XGBClassifier(
            n_estimators=setting["rounds"],
            learning_rate=setting["learning_rate"],
            max_depth=setting["max_depth"],
            min_child_weight=setting["min_sum_hessian"],
            reg_lambda=setting["lambda_l2"],
            colsample_bynode=setting["columns_per_node"],
            subsample=setting["rows_per_tree"],
            tree_method="hist",
            random_state=seed,
            n_jobs=given.threads,
        )
        return model.fit(x, y, sample_weight=np.where(y == 1, weight, 1.0))

    return fit


def measured(library, model):
    """Figures of every split; None where the library lacks what all settings need."""
    columns = settings["inputs"][model["inputs"]]
    rows = []
    for at, seed in enumerate(settings["seeds"]):
        part = [splits[:, at] == code for code in (1, 2, 3)]
        x, y = [features[p][:, columns] for p in part], [labels[p] for p in part]
        best = None
        for setting in model["candidates"]:
            weight = (y[0] == 0).sum() / (y[0] == 1).sum() if setting["balanced"] else 1.0
            fit = library(setting, weight, seed)
            if fit is None:
                continue
            fitted = fit(x[0], y[0])
            chosen = average_precision(y[1], fitted.predict_proba(x[1])[:, 1])
            if best is None or chosen > best[0]:
                best = chosen, fitted
        if best is None:
            return None
        score = best[1].predict_proba(x[2])[:, 1]
        rows.append([area(y[2], score), average_precision(y[2], score), recall_at_k(y[2], score), best[0]])
    return 100 * np.array(rows)


print(f"{'test, in %':<24} {'library':<14}" + "".join(f"{name:>16}" for name in ("AUROC", "AUPRC", "Rec@K", "validation")))
wanted = given.models.split(",") if given.models else [model["name"] for model in settings["models"]]
for model in settings["models"]:
    for library in [scikit_learn] if model["learner"] == "forest" else [lightgbm, xgboost]:
        if model["name"] not in wanted:
            continue
        started = time.time()
        try:
            figures = measured(library, model)
        except ImportError as missing:
            print(f"{model['name']:<24} {library.__name__:<14} left out: {missing}")
            continue
        if figures is not None:
            text = "".join(f"{mean:9.2f} +- {spread:<4.2f}" for mean, spread in zip(figures.mean(0), figures.std(0, ddof=1)))
            print(f"{model['name']:<24} {library.__name__:<14}{text}  {time.time() - started:7.1f} s", flush=True)
