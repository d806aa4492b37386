"""Logistic regression, random forest and LightGBM on windowed features of the synthetic card payments.

    graphsieve synth --preset payments --seed 1 --out payments-1
    python3 tests/peers/payments.py --data payments-1 [--data payments-2 ...] [--scores RUN.csv ...]

Train on one week from 2018-07-25, leave out the seven days until its labels are known, test on the week from 2018-08-08
(options change all of this).
Features: amount, weekend, night; per customer the number of payments and their mean amount over 1, 7 and 30 days with
this payment; per terminal the number of payments and the share of fraud over 1, 7 and 30 days that end seven days
before. Payments of customers of whom a fraud since the beginning of the training is known seven days later are left out
of the test. Card precision: each day the 100 customers with the highest score of a payment, those that were found leave
the queue. Stopped: the share of the fraudulent amount that lies on those customers' payments of the day and behind.
`--scores` evaluates scores of other programs on the same payments: a CSV file per data directory with the columns id
and score. `graphsieve score RUN --node-type payment --format csv --out RUN.csv` makes one.
Needs numpy, pandas, scikit-learn and lightgbm.
"""

import argparse
import collections
import time

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

DAY = 86_400
KINDS = ["amount", "terminal", "card"]


def options():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--data", required=True, action="append", help="directory of synth --preset payments; again for more seeds")
    given.add_argument("--scores", action="append", default=[], help="CSV with id and score, one per --data")
    given.add_argument("--from", dest="start", default="2018-07-25", help="first day of the training")
    given.add_argument("--train-days", type=int, default=7)
    given.add_argument("--test", default="2018-08-08", help="first day of the test")
    given.add_argument("--test-days", type=int, default=7)
    given.add_argument("--delay", type=int, default=7, help="days until a label is known")
    given.add_argument("--known-from", default="2018-07-25", help="frauds before this day do not block a customer")
    given.add_argument("--queue", type=int, default=100, help="customers that are looked at in a day")
    given.add_argument("--jobs", type=int, default=2)
    given.add_argument("--no-peers", action="store_true", help="evaluate --scores alone")
    return given.parse_args()


def read(directory):
    table = pd.read_csv(f"{directory}/payments.csv", parse_dates=["time"], keep_default_na=False)
    table["seconds"] = table["time"].values.astype("datetime64[s]").astype(np.int64)
    table["day"] = table["seconds"] // DAY
    for column in ["customer", "terminal"]:
        table[column] = pd.factorize(table[column], sort=True)[0]
    return table


def window(table, entity, values, days, delay=0):
    """Number and sum of `values` of the payments of the same entity in (t - delay - days, t - delay]."""
    order = np.lexsort((table["seconds"].values, table[entity].values))
    key = table[entity].values[order] * (1 << 40) + table["seconds"].values[order]
    sums = np.concatenate([[0.0], np.cumsum(values[order])])
    last = np.searchsorted(key, key - delay * DAY, side="right")
    first = np.searchsorted(key, key - (delay + days) * DAY, side="right")
    # Not beyond the entity itself.
    start = np.searchsorted(key, table[entity].values[order] * (1 << 40), side="left")
    first, last = np.maximum(first, start), np.maximum(last, start)
    count, total = np.empty(len(order)), np.empty(len(order))
    count[order], total[order] = last - first, sums[last] - sums[first]
    return count, total


def features(table, delay):
    hour = table["seconds"] % DAY // 3600
    weekday = (table["day"] + 3) % 7
    columns = {"amount": table["amount"], "weekend": weekday >= 5, "night": hour <= 6}
    fraud = table["fraud"].values.astype(float)
    for days in [1, 7, 30]:
        count, amount = window(table, "customer", table["amount"].values, days)
        columns[f"customer_{days}d_count"], columns[f"customer_{days}d_mean"] = count, amount / count
        count, frauds = window(table, "terminal", fraud, days, delay)
        columns[f"terminal_{days}d_count"] = count
        columns[f"terminal_{days}d_risk"] = frauds / np.maximum(count, 1)
    return np.column_stack([np.asarray(column, dtype=np.float32) for column in columns.values()])


def first_day(text):
    return int(np.datetime64(text, "D").astype(np.int64))


def test_rows(table, given):
    """Payments of the test days, without those of customers of whom a fraud is known by then."""
    start, frauds = first_day(given.test), table[table["fraud"] == 1]
    frauds = frauds[frauds["day"] >= first_day(given.known_from)]
    rows = []
    for day in range(start, start + given.test_days):
        known = frauds.loc[frauds["day"] < day - given.delay, "customer"].unique()
        rows.append(np.flatnonzero((table["day"].values == day) & ~np.isin(table["customer"].values, known)))
    return np.concatenate(rows)


def queue(table, rows, score, given):
    """Share of the looked at customers who have a fraud that day, the same for each kind of fraud, and share of the
    fraudulent amount that is stopped: payments of customers found on a day before, and on the day itself."""
    test = table.iloc[rows][["day", "customer", "amount", "fraud", "kind"]].assign(score=score)
    found, precisions, kinds, stopped = set(), [], collections.defaultdict(list), 0.0
    for day, payments in test.groupby("day"):
        was_found = payments["customer"].isin(found)
        stopped += payments.loc[was_found & (payments["fraud"] == 1), "amount"].sum()
        payments = payments[~was_found]
        cards = payments.groupby("customer").agg(score=("score", "max"), fraud=("fraud", "max"))
        cards = cards.sort_values("score", ascending=False, kind="stable").head(given.queue)
        hits = set(cards.index[cards["fraud"] == 1])
        caught = payments["customer"].isin(hits) & (payments["fraud"] == 1)
        stopped += payments.loc[caught, "amount"].sum()
        precisions.append(len(hits) / given.queue)
        for kind in KINDS:
            kinds[kind].append(payments.loc[caught & (payments["kind"] == kind), "customer"].nunique() / given.queue)
        found |= hits
    total = test.loc[test["fraud"] == 1, "amount"].sum()
    return float(np.mean(precisions)), {kind: float(np.mean(each)) for kind, each in kinds.items()}, stopped / total


def evaluate(table, rows, score, given):
    label, kind = table["fraud"].values[rows], table["kind"].values[rows]
    precision, by_kind, stopped = queue(table, rows, score, given)
    figures = {
        "AUROC": roc_auc_score(label, score),
        "AP": average_precision_score(label, score),
        f"cards@{given.queue}": precision,
        "stopped": stopped,
    }
    for name in KINDS:
        # One kind against everything that is no fraud.
        kept = (kind == name) | (label == 0)
        if (kind == name).any():
            figures[f"AUROC {name}"] = roc_auc_score(label[kept], score[kept])
            figures[f"AP {name}"] = average_precision_score(label[kept], score[kept])
            figures[f"cards {name}"] = by_kind[name]
    return figures


def peers(given, seed):
    yield "logistic regression", make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    yield "random forest", RandomForestClassifier(n_estimators=100, random_state=seed, n_jobs=given.jobs)
    try:
        import lightgbm
    except ImportError:
        print("lightgbm is not installed: left out")
    else:
        yield "LightGBM", lightgbm.LGBMClassifier(n_estimators=100, random_state=seed, n_jobs=given.jobs, verbose=-1)


def show(name, figures):
    print(f"{name:<22}" + "  ".join(f"{key} {value:.3f}" for key, value in figures.items()), flush=True)


def main():
    given = options()
    results = collections.defaultdict(list)
    for seed, directory in enumerate(given.data):
        table = read(directory)
        start = first_day(given.start)
        train = np.flatnonzero((table["day"] >= start) & (table["day"] < start + given.train_days))
        test = test_rows(table, given)
        print(f"{directory}: {len(table)} payments, {100 * table['fraud'].mean():.2f} % fraud; {len(train)} for training, {len(test)} for the test,"
              f" {table['fraud'].values[test].sum()} of them fraud", flush=True)
        if not given.no_peers:
            x, y = features(table, given.delay), table["fraud"].values
            for name, model in peers(given, seed):
                begun = time.perf_counter()
                score = model.fit(x[train], y[train]).predict_proba(x[test])[:, 1]
                results[name].append(evaluate(table, test, score, given))
                show(name, results[name][-1] | {"s": time.perf_counter() - begun})
        if seed < len(given.scores):
            scores = pd.read_csv(given.scores[seed]).set_index("id")["score"]
            score = scores.reindex(table["id"].values[test]).values
            if np.isnan(score).any():
                raise SystemExit(f"{given.scores[seed]}: {np.isnan(score).sum()} payments of the test have no score")
            results["scores"].append(evaluate(table, test, score, given))
            show("scores", results["scores"][-1])
    if len(given.data) > 1:
        print("mean and standard deviation")
        for name, runs in results.items():
            table = pd.DataFrame(runs)
            print(f"{name:<22}" + "  ".join(f"{key} {table[key].mean():.3f} ± {table[key].std():.3f}" for key in table), flush=True)


if __name__ == "__main__":
    main()
