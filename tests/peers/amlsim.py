"""Turns the AMLSim sample into tables, with transfers as events, and every account scored as of a step, or as edges.

A fraudulent account is scored as of the step of its fraud; one whose step is -1 has no label. Normal accounts are
scored as of steps that are drawn from those of the fraudulent ones, so that the step tells nothing. With `--transfers
edges` the amount and the step of a transfer are values of an edge between accounts. Divided at random, they then have
no time, all have a label, and see every transfer; divided by time, an account sees transfers until its step, from
accounts that are scored before it.

    python3 tests/peers/amlsim.py AMLSIM_DIR OUT_DIR [--split random|time] [--as-of after|before] [--seed 42]
    python3 tests/peers/amlsim.py AMLSIM_DIR OUT_DIR --transfers edges [--split random|time] [--as-of …] [--seed 42]
    graphsieve import tables OUT_DIR/graph.toml --out DATA
    graphsieve train configs/stage3.toml --set data.path=DATA --set model.kind=booster
"""

import argparse
import csv
import pathlib
import random

DESCRIPTION = """\
[split]
by = "{split}"

# Accounts, as of a step: what is before it may tell of them.
[[nodes]]
type = "account"
file = "accounts.csv"
id = "account"
time = "time"
label = "fraud"
features = {{ balance = "numeric" }}

[[nodes]]
type = "transfer"
file = "transfers.csv"
id = "transfer"
time = "time"
amount = "value"
features = {{ value = {{ kind = "numeric", log = true }} }}

[[edges]]
name = "received"
src = "transfer"
dst = "account.target"

[[edges]]
name = "sent"
src = "transfer"
dst = "account.source"

[[windows]]
nodes = "transfer"
spans = ["10d", "30d"]
last = [1, 5]
one_hop = []
"""

EDGES = """\
[split]
{split}

[[nodes]]
type = "account"
file = "accounts.csv"
id = "account"
{time}label = "fraud"
features = {{ balance = "numeric" }}

[[edges]]
name = "transfer"
file = "transfers.csv"
src = "account.source"
dst = "account.target"
time = "time"
values = {{ value = {{ kind = "numeric", log = true }}, step = "numeric" }}
"""

DAY = 86_400


def rows(path):
    with open(path, newline="") as file:
        yield from csv.DictReader(file)


def write(path, header, table):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--split", choices=["random", "time"], help="default: time, for edges random")
    parser.add_argument("--as-of", choices=["after", "before"], default="after", help="see the step itself, or not")
    parser.add_argument("--transfers", choices=["events", "edges"], default="events")
    parser.add_argument("--seed", type=int, default=42)
    arguments = parser.parse_args()
    arguments.split = arguments.split or ("random" if arguments.transfers == "edges" else "time")
    timeless = arguments.transfers == "edges" and arguments.split == "random"
    arguments.out.mkdir(parents=True)

    draw = random.Random(arguments.seed)
    accounts = list(rows(arguments.source / "nodes.csv"))
    steps = [int(row["fraudStep"]) for row in accounts if row["isFraud"] == "1" and int(row["fraudStep"]) >= 0]
    table = []
    for row in accounts:
        known = row["isFraud"] == "0" or int(row["fraudStep"]) >= 0 or timeless
        step = int(row["fraudStep"]) if row["isFraud"] == "1" and int(row["fraudStep"]) >= 0 else draw.choice(steps)
        # Half a step after or before the transfers of the step itself, which are the fraud.
        time = step * DAY + (DAY // 2 if arguments.as_of == "after" else -DAY // 2)
        table.append([row["nodeid"], time, row["init_balance"], row["isFraud"] if known else ""])
    write(arguments.out / "accounts.csv", ["account", "time", "balance", "fraud"], table)
    transfers = enumerate(rows(arguments.source / "transactions.csv"))
    write(
        arguments.out / "transfers.csv",
        ["transfer", "time", "step", "source", "target", "value"],
        [[at, int(r["time"]) * DAY, r["time"], r["sourceNodeId"], r["targetNodeId"], r["value"]] for at, r in transfers],
    )
    if arguments.transfers == "edges":
        split = f"seed = {arguments.seed}" if timeless else 'by = "time"'
        description = EDGES.format(split=split, time="" if timeless else 'time = "time"\n')
    else:
        description = DESCRIPTION.format(split=arguments.split)
    (arguments.out / "graph.toml").write_text(description)
    labelled = sum(row[3] != "" for row in table)
    print(f"{len(table)} accounts, {labelled} with a label, {len(steps)} fraudulent as of their step")


if __name__ == "__main__":
    main()
