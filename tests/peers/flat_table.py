"""Makes one flat table with few labels out of synthetic card payments: two fifths of the rows have no label.

    graphsieve synth --preset payments --scale 0.0455 --seed 1 --out payments-1        (about 80,000 rows)
    python3 tests/peers/flat_table.py payments-1 flat-1 [--split random|time] [--unlabelled 0.4] [--seed 1]
    graphsieve import tables flat-1/graph.toml --out DATA
    graphsieve train configs/payments.toml --set data.path=DATA

`time` learns from the first 60 % of the time, stops by the next 20 % and tests on the last 20 %.
"""

import argparse
import csv
import pathlib
import random

DESCRIPTION = """\
[split]
by = "{split}"

[[nodes]]
type = "payment"
file = "payments.csv"
id = "id"
time = "time"
amount = "amount"
label = {{ column = "fraud", delay = "7d" }}
features = {{ amount = "numeric" }}

[[edges]]
name = "paid_by"
src = "customer.customer"
dst = "payment"

[[edges]]
name = "paid_at"
src = "terminal.terminal"
dst = "payment"

[[windows]]
{labels}"""


def main():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("payments", type=pathlib.Path)
    given.add_argument("out", type=pathlib.Path)
    given.add_argument("--split", choices=["random", "time"], default="random")
    given.add_argument("--unlabelled", type=float, default=0.4, help="share of the rows without a label")
    given.add_argument("--seed", type=int, default=1)
    given = given.parse_args()
    draw = random.Random(given.seed)
    given.out.mkdir(parents=True)
    with open(given.payments / "payments.csv", newline="") as source, open(given.out / "payments.csv", "w", newline="") as to:
        table = csv.writer(to, lineterminator="\n")
        table.writerow(["id", "time", "customer", "terminal", "amount", "fraud"])
        for row in csv.DictReader(source):
            label = "" if draw.random() < given.unlabelled else row["fraud"]
            table.writerow([row[name] for name in ["id", "time", "customer", "terminal", "amount"]] + [label])
    # The results at random are those of windows without labels.
    labels = "labels = false\n" if given.split == "random" else ""
    (given.out / "graph.toml").write_text(DESCRIPTION.format(split=given.split, labels=labels))


if __name__ == "__main__":
    main()
