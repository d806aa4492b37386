"""What `run` writes and `check` reads: the record of the tests on a GPU."""

import hashlib
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "tests/record/device.json"
FORMAT = 1
STEPS = ["cuda", "vulkan", "bench", "memcheck", "racecheck", "initcheck"]
# What decides the code that runs on a device: the kernels, and the versions of the compilers that translate them.
SOURCES = ["kernels", "Cargo.lock"]


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def files(root):
    """Paths of the sources below `root`; where that is no clone but a copy, all that lie there."""
    if (root / ".git").exists():
        names = subprocess.run(["git", "ls-files", "-z", *SOURCES], cwd=root, check=True, capture_output=True).stdout
        found = [os.fsdecode(name) for name in names.split(b"\0") if name]
    else:
        found = [source for source in SOURCES if (root / source).is_file()]
        for source in SOURCES:
            for folder, below, names in os.walk(root / source):
                below[:] = [name for name in below if not name.startswith((".", "__")) and name != "target"]
                found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted((name for name in found if (root / name).is_file()), key=os.fsencode)


def digest_of_sources(root=ROOT):
    """As `git ls-files kernels Cargo.lock | LC_ALL=C sort | xargs sha256sum | sha256sum` gives it."""
    lines = [f"{sha256(root / name)}  {name}\n" for name in files(root)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def seal(record):
    """A checksum over all of the record but itself. It shows damage and edits by mistake; it is no signature."""
    text = json.dumps({key: value for key, value in record.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read(path):
    """The record in a file; a ValueError says what is wrong with it."""
    try:
        record = json.loads(pathlib.Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a record of format {FORMAT}")
    if record.get("sha256") != seal(record):
        raise ValueError(f"{path}: the checksum does not fit the content: it was changed after it was written")
    return record


def write(path, record):
    record["sha256"] = seal(record)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(record, indent=1) + "\n")
    new.replace(path)
