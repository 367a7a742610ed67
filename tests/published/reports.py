"""What `mpc report --machine` says of the rows of published tables."""
import concurrent.futures
import csv
import json
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MPC = (ROOT / os.environ.get("BUILD", "build") / "mpc").resolve()


def rows(name):
    return list(csv.DictReader((HERE / name).open()))


def sizes(**given):
    return [word for name, value in given.items() for word in ("-D", f"{name}={value}")]


def settings(**given):
    return [word for name, value in given.items() for word in ("--set", f"train.{name}={value}")]


def report(words, machine):
    done = subprocess.run([MPC, "report", *words, "--target=cuda", "--json", "--no-remedies", "--machine", machine],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stderr}"
    return json.loads(done.stdout)


def reports(commands, machine):
    """Of rows that are alike, one is made."""
    commands = [tuple(map(str, words)) for words in commands]
    different = list(dict.fromkeys(commands))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = dict(zip(different, pool.map(lambda words: report(words, machine), different)))
    return [found[words] for words in commands]


def predictions(commands, machine):
    """The parts "time" of the reports."""
    return [found["time"] for found in reports(commands, machine)]


def quantile(values, share):
    return sorted(values)[int(share * len(values))]


def edited(path, changes, folder):
    """A copy of a model or of a machine with parts replaced, each of which is there once."""
    text = path.read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    copy = folder / path.name
    copy.write_text(text)
    return copy
