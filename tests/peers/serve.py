"""Load on `graphsieve serve`: scores by connections while events arrive, and memory over many events.

    graphsieve synth --preset payments --out payments ; graphsieve import tables payments/graph.toml --out data ; graphsieve train ...
    python3 tests/peers/serve.py bodies --payments payments --out load       # makes load/scores.ndjson and load/events.ndjson
    python3 tests/peers/serve.py bodies --data data --targets user --edges epu:product:user --out load  # of data without events instead
    python3 tests/peers/serve.py load --bodies load --cores 0,1 -- graphsieve serve RUN --data data --state state --listen 127.0.0.1:8080
    python3 tests/peers/serve.py soak --bodies load --events 10000000 --cores 0,1 -- graphsieve serve RUN --data data --state state --retention 7d ...
    python3 tests/peers/serve.py kills --bodies load --kills 50 --cores 0,1 -- graphsieve serve RUN --data data --state state ...

`load` starts the server on some cores and wrk (apt-get install wrk) on the others, once for each number of connections,
with `--rate` events a second beside it, and prints a row each: scores a second, latency, answers that were no score,
events a second that were acknowledged and their latency, cores that the server kept busy and its memory. The rate
beyond which latency grows and the cores are busy is saturation.
`soak` sends events, each later than the one before, as fast as they are acknowledged and prints memory and bytes on
disk now and then.
`kills` ends the server with SIGKILL at random moments under the load of `load`, starts it again, and fails where an
event that was acknowledged is not there or is there twice. It wants a state that is new, and events that are nodes.
A score body holds a new payment as the payment waits for its answer, or the id of a known node. Needs Python alone.
"""

import argparse
import csv
import datetime
import http.client
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent


def options():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = given.add_subparsers(dest="mode", required=True)
    bodies = modes.add_parser("bodies", help="make requests")
    bodies.add_argument("--payments", type=pathlib.Path, help="directory of synth --preset payments")
    bodies.add_argument("--targets", help="node type whose nodes are scored instead")
    bodies.add_argument("--data", type=pathlib.Path, help="data directory of --targets, which has node_id_mappings.json")
    bodies.add_argument("--edges", help="RELATION:SOURCE:DESTINATION, relation and node types of edges that are appended beside")
    bodies.add_argument("--count", type=int, default=20_000)
    bodies.add_argument("--seed", type=int, default=1)
    bodies.add_argument("--out", type=pathlib.Path, required=True)
    for name in ["load", "soak", "kills"]:
        mode = modes.add_parser(name)
        mode.add_argument("--bodies", type=pathlib.Path, required=True, help="what `bodies` made")
        mode.add_argument("--cores", default="0,1", help="cores of the server; clients have the others")
        if name == "kills":
            mode.set_defaults(pid=None)
        else:
            mode.add_argument("--pid", type=int, help="process of a server that runs already, at --address")
        mode.add_argument("--address", default="127.0.0.1:8080")
        mode.add_argument("--batch", type=int, default=50, help="events of a request")
        mode.add_argument("--token")
        mode.add_argument("server", nargs=argparse.REMAINDER, help="-- command that starts the server")
    load = modes.choices["load"]
    load.add_argument("--connections", default="1,2,4,8,16,32,64,128,256")
    load.add_argument("--seconds", type=int, default=30, help="of each number of connections")
    kills = modes.choices["kills"]
    kills.add_argument("--kills", type=int, default=50)
    kills.add_argument("--longest", type=float, default=4, help="seconds from a start to the kill, at most")
    kills.add_argument("--connections", type=int, default=8, help="of those that ask for scores")
    for mode in [load, kills]:
        mode.add_argument("--rate", type=int, default=1000, help="events a second")
    soak = modes.choices["soak"]
    soak.add_argument("--events", type=int, default=10_000_000)
    soak.add_argument("--step", type=int, default=3, help="seconds of the data between two events")
    soak.add_argument("--every", type=int, default=250_000, help="events between two lines")
    return given.parse_args()


def make_bodies(given):
    draw = random.Random(given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    scores, events = [], []
    if given.payments:
        with open(given.payments / "payments.csv", newline="") as table:
            rows = list(csv.DictReader(table))
        last = max(moment(row["time"]) for row in rows)
        columns = ["customer", "terminal", "amount"]

        def payment(number, seconds):
            row = draw.choice(rows)
            picked = {name: row[name] for name in columns}
            picked["amount"] = float(picked["amount"])
            return {"type": "payment", "id": f"load-{number}", "time": str(last + datetime.timedelta(seconds=seconds)), **picked}

        for number in range(given.count):
            if number % 2:
                row = payment(f"s{number}", given.count + number)
                scores.append({"nodes": [row], "targets": [f"payment:{row['id']}"]})
            else:
                scores.append({"targets": [f"payment:{draw.choice(rows)['id']}"]})
            events.append(payment(number, number))
    else:
        mappings = json.loads((given.data / "node_id_mappings.json").read_text())
        ids = {name.removesuffix("_map"): list(of) for name, of in mappings.items()}
        scores = [{"targets": [f"{given.targets}:{draw.choice(ids[given.targets])}"]} for _ in range(given.count)]
        if given.edges:
            relation, src, dst = given.edges.split(":")
            edges = ((draw.choice(ids[src]), draw.choice(ids[dst])) for _ in range(given.count))
            events = [{"relation": relation, "src": src, "dst": dst} for src, dst in edges]
    for name, lines in [("scores", scores), ("events", events)]:
        (given.out / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
        print(f"{given.out / name}.ndjson: {len(lines)} lines")


def moment(text):
    return datetime.datetime.fromisoformat(text)


class Server:
    """The process under load, and what the system says of it."""

    def __init__(self, given):
        self.address, self.token, self.child = given.address, given.token, None
        self.state, self.pid = None, given.pid
        command = given.server[1:] if given.server[:1] == ["--"] else given.server
        if given.pid is None:
            if not command:
                sys.exit("give --pid, or -- and the command that starts the server")
            self.command = ["taskset", "-c", given.cores, *command]
            self.address = value_of(command, "--listen", self.address)
            self.state = value_of(command, "--state", None)
            print(f"ready after {self.start():.1f} s, {self.memory() / 2**20:,.0f} MiB")

    def start(self):
        """Returns the seconds until it was ready."""
        begun = time.monotonic()
        self.child = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        self.pid = self.child.pid
        self.wait()
        return time.monotonic() - begun

    def wait(self):
        while True:
            if self.child.poll() is not None:
                sys.exit(f"the server ended with {self.child.returncode}")
            try:
                if self.ask("GET", "/readyz", b"", http.client.HTTPConnection(self.address, timeout=60)).status == 200:
                    return
            except OSError:
                time.sleep(0.05)

    def connect(self):
        return http.client.HTTPConnection(self.address, timeout=60)

    def ask(self, method, path, body, connection, headers=()):
        headers = dict(headers)
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.text = answer.read()
        return answer

    def memory(self):
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def busy(self):
        """Seconds of processors that it has used."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def disk(self):
        files = pathlib.Path(self.state).rglob("*") if self.state else []
        total = 0
        for file in files:
            try:
                total += file.stat().st_size if file.is_file() else 0
            except FileNotFoundError:
                pass  # A compaction removed it.
        return total

    def stop(self, by=signal.SIGTERM):
        if self.child:
            self.child.send_signal(by)
            self.child.wait()


def value_of(command, flag, otherwise):
    return command[command.index(flag) + 1] if flag in command else otherwise


class Events(threading.Thread):
    """Sends events at a rate, or as fast as they are acknowledged, until it is told to stop."""

    def __init__(self, server, events, rate, batch, keys=None):
        super().__init__(daemon=True)
        self.server, self.events, self.rate, self.batch, self.keys = server, events, rate, batch, keys
        self.took, self.sent, self.ends, self.fault = [], 0, threading.Event(), None
        # With keys: types and ids of all nodes that were sent, and the requests that have no answer yet.
        self.ids, self.open = [], []

    def run(self):
        connection, begun = self.server.connect(), time.monotonic()
        for number in itertools.count():
            batch = list(itertools.islice(self.events, self.batch))
            if not batch or self.ends.is_set():
                return
            ahead = begun + number * self.batch / self.rate - time.monotonic() if self.rate else 0
            if ahead > 0:
                time.sleep(ahead)
            body = "".join(json.dumps(event) + "\n" for event in batch).encode()
            headers = {"Content-Type": "application/x-ndjson"}
            if self.keys:
                headers["Idempotency-Key"] = f"{self.keys}-{number}"
                self.ids += [f"{event['type']}/{event['id']}" for event in batch]
                self.open = [(body, headers)]
            asked = time.monotonic()
            try:
                answer = self.server.ask("POST", "/v1/events", body, connection, headers)
            except (OSError, http.client.HTTPException) as fault:
                self.fault = repr(fault)
                return
            if answer.status != 200:
                self.fault = f"{answer.status}: {answer.text[:300]}"
                return
            self.open = []
            self.took.append(time.monotonic() - asked)
            self.sent += len(batch)


def growing(events, step):
    """The same events again and again, each with an id of its own and `step` seconds later than the one before; edges
    between other nodes."""
    if "relation" in events[0]:
        while True:
            yield {**random.choice(events), "src": random.choice(events)["src"]}
    begun = moment(events[0]["time"])
    run = f"{time.time_ns():x}"
    for number in itertools.count():
        event = dict(events[number % len(events)])
        event["id"] = f"{run}-{number}"
        event["time"] = str(begun + datetime.timedelta(seconds=number * step))
        yield event


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def percentile(values, share):
    values = sorted(values)
    return values[int((len(values) - 1) * share)] if values else float("nan")


def wrk(given, server, connections, seconds, cores):
    """What starts the tool that asks for scores."""
    threads = min(connections, max(1, cores))
    command = ["wrk", f"-t{threads}", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(HERE / "serve.lua")]
    environment = {**os.environ, "BODIES": str(given.bodies / "scores.ndjson")} | ({"TOKEN": given.token} if given.token else {})
    return {"args": [*command, f"http://{server.address}"], "env": environment}


def load(given):
    server = Server(given)
    own = {int(core) for core in given.cores.split(",")}
    others = sorted(os.sched_getaffinity(0) - own) or sorted(os.sched_getaffinity(0))
    shared = "" if not own & set(others) else ", shared with the server"
    print(f"server on cores {given.cores}, clients on {','.join(map(str, others))}{shared}")
    os.sched_setaffinity(0, others)
    events = lines(given.bodies / "events.ndjson")
    stream = growing(events, 1) if events and given.rate else iter(())
    columns = ["connections", "scores/s", "P50 ms", "P90 ms", "P99 ms", "max ms", "no score", "events/s", "event P99 ms", "cores", "MiB"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for connections in map(int, given.connections.split(",")):
        beside = Events(server, stream, given.rate, given.batch)
        beside.start()
        busy, begun = server.busy(), time.monotonic()
        said = subprocess.run(**wrk(given, server, connections, given.seconds, len(others)), capture_output=True, text=True)
        seconds = time.monotonic() - begun
        busy = (server.busy() - busy) / seconds
        beside.ends.set()
        beside.join()
        if said.returncode or beside.fault:
            sys.exit(f"wrk: {said.stderr}{said.stdout}\nevents: {beside.fault}")
        of = json.loads(said.stdout.strip().splitlines()[-1])
        good = of["requests"] - of["refused"]
        row = [connections, f"{good / of['seconds']:,.0f}", *(f"{of[name]:.2f}" for name in ["p50_ms", "p90_ms", "p99_ms", "max_ms"])]
        row += [of["refused"] + of["broken"], f"{beside.sent / seconds:,.0f}", f"{1e3 * percentile(beside.took, 0.99):.1f}"]
        row += [f"{busy:.2f}", f"{server.memory() / 2**20:,.0f}"]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
    server.stop()


def soak(given):
    server = Server(given)
    events = lines(given.bodies / "events.ndjson")
    stream = itertools.islice(growing(events, given.step), given.events)
    print("| events | seconds | events/s | event P99 ms | MiB | MiB on disk |\n|---|---|---|---|---|---|")
    sender, begun, told = Events(server, stream, 0, given.batch), time.monotonic(), 0
    sender.start()
    while True:
        sender.join(0.2)
        ended = not sender.is_alive()
        if sender.sent - told >= given.every or ended:
            told, seconds = sender.sent, time.monotonic() - begun
            took, sender.took = sender.took, []
            row = [f"{told:,}", f"{seconds:.0f}", f"{told / seconds:,.0f}", f"{1e3 * percentile(took, 0.99):.1f}"]
            row += [f"{server.memory() / 2**20:,.0f}", f"{server.disk() / 2**20:,.0f}"]
            print("| " + " | ".join(row) + " |", flush=True)
        if ended:
            break
    server.stop()
    if sender.fault:
        sys.exit(sender.fault)


def kills(given):
    events = lines(given.bodies / "events.ndjson")
    if not events or "type" not in events[0]:
        sys.exit(f"{given.bodies / 'events.ndjson'}: expected events that are nodes, as of `bodies --payments`")
    server, draw, stream = Server(given), random.Random(7), growing(events, 1)
    run, everything, starts = f"{time.time_ns():x}", [], []

    def check(ids):
        connection = server.connect()
        for node in ids:
            status = server.ask("GET", f"/v1/nodes/{node}?neighbours=0", b"", connection).status
            if status != 200:
                sys.exit(f"{node} was acknowledged and is lost: {status}")

    for number in range(given.kills):
        beside = Events(server, stream, given.rate, given.batch, f"{run}-{number}")
        scorers = subprocess.Popen(**wrk(given, server, given.connections, 600, 1), stdout=subprocess.DEVNULL)
        beside.start()
        time.sleep(draw.uniform(0, given.longest))
        if beside.fault:
            sys.exit(f"events: {beside.fault}")
        server.stop(signal.SIGKILL)
        beside.join()
        scorers.kill()
        scorers.wait()
        starts.append(server.start())
        # A client that got no answer asks again, with the same key.
        for body, headers in beside.open:
            answer = server.ask("POST", "/v1/events", body, server.connect(), headers)
            if answer.status != 200:
                sys.exit(f"events, again: {answer.status}: {answer.text[:300]}")
        check(beside.ids)
        everything += beside.ids
        print(f"kill {number + 1}: {len(beside.ids)} events, ready after {starts[-1]:.2f} s, {server.disk() / 2**20:,.0f} MiB on disk", flush=True)
    check(everything)
    # A position counts the events of the log: none is in it twice.
    answer = server.ask("POST", "/v1/events", json.dumps({"nodes": [next(stream)]}).encode(), server.connect())
    position = json.loads(answer.text)["position"]
    if position != len(everything) + 1:
        sys.exit(f"position {position} after {len(everything)} events and one")
    server.stop()
    print(f"{given.kills} kills, {len(everything):,} events, none lost, none doubled; ready after {percentile(starts, 0.5):.2f} s (median), {max(starts):.2f} s (slowest)")


if __name__ == "__main__":
    given = options()
    {"bodies": make_bodies, "load": load, "soak": soak, "kills": kills}[given.mode](given)
