"""Makes the golden of `src/bench/gad`: draws of numpy's legacy generator and splits of GADBench on labels made up here.

    python3 tests/golden/make_gad_splits.py tests/golden/gad_splits.json      # needs numpy and scikit-learn

Node i of n with a anomalous ones is anomalous where 7 i mod n < a. Of every part there are: number of nodes, sum of
their numbers, and sum of their squares times 1 (normal) or 2 (anomalous), each modulo 2^32.
"""
import json
import sys

import numpy as np
from sklearn.model_selection import train_test_split

SPLITS, FEW = 10, 20


def seed(split):
    return 3407 + 10 * split


def sums(nodes, labels):
    nodes = np.sort(np.asarray(nodes)).astype(object)
    weights = [int(labels[node]) + 1 for node in nodes]
    return [int(value) % 2**32 for value in (len(nodes), sum(nodes), sum(n * n * w for n, w in zip(nodes, weights)))]


def full(labels, shares, split):
    nodes = np.arange(len(labels))
    settings = dict(random_state=seed(split), shuffle=True)
    train, rest = train_test_split(nodes, train_size=shares[0], stratify=labels, **settings)
    count = int(len(labels) * shares[1])
    validation, test = train_test_split(rest, train_size=count, stratify=labels[rest], **settings)
    return [sums(part, labels) for part in (train, validation, test)]


def semi(labels):
    """All ten: the global generator goes on from split to split."""
    np.random.seed(seed(SPLITS - 1))
    nodes = np.arange(len(labels))
    anomalous, normal = nodes[labels == 1], nodes[labels == 0]
    for _ in range(SPLITS):
        some = np.random.choice(anomalous, size=2 * FEW, replace=False)
        others = np.random.choice(normal, size=8 * FEW, replace=False)
        train = np.concatenate([some[:FEW], others[: 4 * FEW]])
        validation = np.concatenate([some[FEW:], others[4 * FEW :]])
        test = np.setdiff1d(nodes, np.concatenate([train, validation]))
        yield [sums(part, labels) for part in (train, validation, test)]


def case(nodes, anomalous, shares=(0.4, 0.2), splits=range(SPLITS)):
    labels = (np.arange(nodes) * 7 % nodes < anomalous).astype(int)
    made = {"nodes": nodes, "anomalous": anomalous, "shares": shares}
    made["full"] = {str(split): full(labels, shares, split) for split in splits}
    if anomalous > 2 * FEW and nodes - anomalous > 8 * FEW:
        made["semi"] = {str(split): parts for split, parts in enumerate(semi(labels))}
    return made


def permutations(number, sizes):
    random = np.random.RandomState(number)
    return {"seed": number, "drawn": [random.permutation(size).tolist() for size in sizes]}


golden = {
    "permutations": [permutations(3407, [1, 2, 3, 10, 33]), permutations(0, [7]), permutations(2**32 - 1, [700, 5])],
    # The third has classes of one size and an odd number of draws: which class gets one more is drawn.
    "cases": [case(10984, 366), case(1003, 97, (0.5, 0.25)), case(110, 55, (0.5, 0.25)), case(31, 4, splits=[0, 3])],
}
with open(sys.argv[1], "w") as out:
    json.dump(golden, out)
    out.write("\n")
