"""Makes tables with a graph.toml out of public data, which are not part of this repository.

    python3 tests/peers/public_tables.py transactions S-FFSD.csv OUT [--split random|time] [--ahead]
    python3 tests/peers/public_tables.py cards simulated-data-raw/data OUT
    graphsieve import tables OUT/graph.toml --out DATA
    graphsieve train configs/payments.toml --set data.path=DATA

`transactions`: S-FFSD of https://github.com/AI4Risk/antifraud, 77,881 rows; label 2 is none. `--split time` learns from
the first 80 % of the rows, their last sixth being the validation part, and tests on the others; `--ahead` adds windows
over later rows.
`cards`: the simulated payments of https://github.com/Fraud-Detection-Handbook/simulated-data-raw, a pickled table a
day, with the split and the columns of `graphsieve synth --preset payments`; `tests/peers/payments.py --data OUT` has
the peers. Needs pandas.
"""

import argparse
import pathlib

import pandas as pd

KINDS = {0: "", 1: "amount", 2: "terminal", 3: "card"}


def edge(name, column, of, to="payment"):
    return f'\n[[edges]]\nname = "{name}"\nsrc = "{of}.{column}"\ndst = "{to}"\n'


def transactions(given):
    table = pd.read_csv(given.source)
    table.insert(0, "id", [f"p{row}" for row in range(len(table))])
    table["Labels"] = table["Labels"].map({0: "0", 1: "1", 2: ""})
    table.to_csv(given.out / "payments.csv", index=False)
    end = table["Time"].max() + 1
    test = end - int(0.8 * end)
    validation = (end - test) // 6
    split = 'by = "random"\n'
    if given.split == "time":
        split = f'by = "time"\ntrain = "{end - test - validation}s"\nvalidation = "{validation}s"\ntest = "{test}s"\n'
    # Windows that look ahead count labels only where no event is joined to another.
    history = "history = 0\n" if given.ahead else ""
    yield f'[split]\n{split}\n[[nodes]]\ntype = "payment"\nfile = "payments.csv"\nid = "id"\ntime = "Time"\namount = "Amount"\n{history}'
    yield 'label = "Labels"\nfeatures = { Amount = "numeric", Location = "categorical", Type = "categorical" }\n'
    yield edge("paid_by", "Source", "source") + edge("paid_to", "Target", "target")
    yield edge("at", "Location", "location") + edge("of_type", "Type", "kind")
    yield "\n[[windows]]\n" + ("ahead = true\n" if given.ahead else "")


def cards(given):
    days = [pd.read_pickle(day) for day in sorted(given.source.glob("*.pkl"))]
    table = pd.concat(days).sort_values("TX_DATETIME", kind="stable")
    pd.DataFrame(
        {
            "id": table["TRANSACTION_ID"],
            "time": table["TX_DATETIME"].dt.strftime("%Y-%m-%d %H:%M:%S"),
            "customer": "C" + table["CUSTOMER_ID"].astype(str),
            "terminal": "T" + table["TERMINAL_ID"].astype(str),
            "amount": table["TX_AMOUNT"],
            "fraud": table["TX_FRAUD"],
            "kind": table["TX_FRAUD_SCENARIO"].map(KINDS),
        }
    ).to_csv(given.out / "payments.csv", index=False)
    yield '[split]\nby = "time"\ntrain = "21d"\nvalidation = "7d"\ntest = "7d"\ntest_from = "2018-08-08"\nblocked = "customer"\n'
    yield '\n[[nodes]]\ntype = "payment"\nfile = "payments.csv"\nid = "id"\ntime = "time"\namount = "amount"\nalert = "customer"\n'
    yield 'label = { column = "fraud", delay = "7d" }\nfeatures = { amount = "numeric" }\n'
    yield edge("paid_by", "customer", "customer") + edge("paid_at", "terminal", "terminal") + "\n[[windows]]\n"


def main():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("what", choices=["transactions", "cards"])
    given.add_argument("source", type=pathlib.Path)
    given.add_argument("out", type=pathlib.Path)
    given.add_argument("--split", choices=["random", "time"], default="random")
    given.add_argument("--ahead", action="store_true")
    given = given.parse_args()
    given.out.mkdir(parents=True)
    make = transactions if given.what == "transactions" else cards
    (given.out / "graph.toml").write_text("".join(make(given)))


if __name__ == "__main__":
    main()
