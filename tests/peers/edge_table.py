"""Makes a large table of edges between numbered accounts, to measure imports within a limit of memory.

    python3 tests/peers/edge_table.py big --edges 100000000 --nodes 5000000 [--valued]
    python3 tests/peers/edge_table.py huge --edges 1000000000 --nodes 20000000 --parts 100   (needs numpy and pyarrow)
    graphsieve import tables big/graph.toml --out DATA --memory 2G        (under /usr/bin/time -v)

Ends are drawn evenly; every thousandth edge leads to account 1. `--valued` gives each edge a weight and a time. With
`--parts` it is a directory of so many Parquet files, whose ids are whole numbers of 4 bytes, instead of one of CSV.
"""

import argparse
import pathlib
import random

DESCRIPTION = """\
[[edges]]
name = "pays"
file = "edges.csv"
src = "account.src"
dst = "account.dst"
"""
VALUED = """\
weight = "amount"
time = "time"
"""
AT_ONCE = 1_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--valued", action="store_true")
    parser.add_argument("--parts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.parts and arguments.valued:
        parser.error("--parts goes without --valued")
    arguments.out.mkdir(parents=True)
    description = DESCRIPTION.replace("edges.csv", "edges") if arguments.parts else DESCRIPTION
    (arguments.out / "graph.toml").write_text(description + (VALUED if arguments.valued else ""))
    (parquet if arguments.parts else csv)(arguments)


def parquet(arguments):
    import numpy
    import pyarrow
    import pyarrow.parquet

    draw = numpy.random.default_rng(arguments.seed)
    (arguments.out / "edges").mkdir()
    for part in range(arguments.parts):
        count = (part + 1) * arguments.edges // arguments.parts - part * arguments.edges // arguments.parts
        src, dst = draw.integers(1, arguments.nodes, (2, count), numpy.int32, endpoint=True)
        dst[::1000] = 1
        table = pyarrow.table({"src": src, "dst": dst})
        file = arguments.out / "edges" / f"part-{part:05}.parquet"
        pyarrow.parquet.write_table(table, file, row_group_size=AT_ONCE, compression="none", use_dictionary=False)


def csv(arguments):
    draw = random.Random(arguments.seed)
    ids = [str(number) for number in range(1, arguments.nodes + 1)]
    values = [f"{number % 997}.{number % 100:02},{1_600_000_000 + number * 31}" for number in range(100_000)]
    with open(arguments.out / "edges.csv", "w") as file:
        file.write("src,dst,amount,time\n" if arguments.valued else "src,dst\n")
        for first in range(0, arguments.edges, AT_ONCE):
            count = min(AT_ONCE, arguments.edges - first)
            columns = [draw.choices(ids, k=count), draw.choices(ids, k=count)]
            columns[1][::1000] = ["1"] * len(columns[1][::1000])
            if arguments.valued:
                columns.append(draw.choices(values, k=count))
            file.write("\n".join(map(",".join, zip(*columns))))
            file.write("\n")


main()
