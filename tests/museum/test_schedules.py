"""Schedules that cannot be run: `mpc check` and `mpc compile` refuse each, with the cell that is wrong.

https://github.com/pytorch/pytorch/issues/172668: two ranks sent before they received, each in an order that was right for
itself, and waited for ever; so did, after one of them had exchanged both, the two orders that came of it.  Messages are not
in a table, but made by mpc: these two interleavings are refused in tests/unit/test_schedule.c.
https://github.com/pytorch/torchtitan/issues/775: with fewer micro-batches than stages, ranks hung in their warm-up.

Planted into the tables of 1f1b and zb: every action left out, doubled, moved to another rank and exchanged with those after
it; every rank in the order of another schedule.  Which of the exchanged ones are right is decided here, by doing the actions
of all ranks as long as one of them can be done.
"""
import itertools
import json
import subprocess

import pytest
from conftest import HERE, ranks

MODEL = HERE.parent / "report" / "pipe.mdl"
STAGES, MICROS = 3, 4
SAID = [f"--mesh=pp={STAGES}"]  # with 4 micro-batches, as the model says


def mpc(command, table, folder, *options):
    (folder / "x.csv").write_text("".join(",".join(line) + "\n" for line in table))
    return subprocess.run([ranks.MPC, command, MODEL, *SAID, "--schedule=./x.csv", *options], cwd=folder, capture_output=True,
                          text=True, timeout=60)


@pytest.fixture(scope="module")
def tables():
    """The table of each schedule with a name: a list of cells for each rank."""
    made = {}
    for name in ("naive", "gpipe", "1f1b", "zb"):
        done = subprocess.run([ranks.MPC, "report", MODEL, *SAID, f"--schedule={name}", "--json", "--actions"], capture_output=True,
                              text=True, check=True)
        made[name] = [[f"{a['kind']}{a['stage']}.{a['micro_batch']}" for a in rank["actions"]]
                      for rank in json.loads(done.stdout)["pipeline"]["ranks"]]
    return made


def parts(cell):
    stage, micro = cell[1:].split(".")
    return cell[0], int(stage), int(micro)


def needs(cell):
    """What has to be done before: by the stage itself, by its neighbour, and of earlier micro-batches."""
    kind, stage, micro = parts(cell)
    before = [("F", stage - 1, micro)] if kind == "F" else [("FB"[kind == "W"], stage, micro)]
    before += [("B", stage + 1, micro)] if kind == "B" else []
    return [*before, (kind, stage, micro - 1)]


def can_be_done(table):
    """Of tables that have each action once, on its rank."""
    done, left = set(), [list(line) for line in table]
    everything = {parts(cell) for line in table for cell in line}
    moved = True
    while moved:
        moved = False
        for line in left:
            while line and all(action in done or action not in everything for action in needs(line[0])):
                done.add(parts(line.pop(0)))
                moved = True
    return not any(left)


def changed(table, rank, line):
    return [*table[:rank], line, *table[rank + 1:]]


def left_out(table):
    for rank, line in enumerate(table):
        for i, cell in enumerate(line):
            yield changed(table, rank, line[:i] + line[i + 1:]), f"x.csv:{rank + 1}:1: error: rank {rank} lacks {cell}\n"


def doubled(table):
    for rank, line in enumerate(table):
        for i, cell in enumerate(line):
            column = len(",".join(line[:i + 1])) + 2
            yield (changed(table, rank, line[:i] + [cell] + line[i:]),
                   f"x.csv:{rank + 1}:{column}: error: rank {rank} does {cell} a second time\n")


def moved(table):
    """To the end of the next rank's line."""
    for rank, line in enumerate(table):
        for i, cell in enumerate(line):
            other = (rank + 1) % STAGES
            wrong = changed(changed(table, rank, line[:i] + line[i + 1:]), other, table[other] + [cell])
            yield wrong, f"{cell} is in the line of rank {other}, but stage {rank} is on rank {rank}\n"


def exchanged(table):
    """Two actions that follow each other, or nearly do; None: this can be done."""
    for rank, line in enumerate(table):
        for i, j in itertools.combinations(range(len(line)), 2):
            if j - i > 3:
                continue
            wrong = changed(table, rank, line[:i] + [line[j]] + line[i + 1:j] + [line[i]] + line[j + 1:])
            yield wrong, reason(wrong, rank)


def reason(table, rank):
    if can_be_done(table):
        return None
    overtakes = any(parts(a)[0] == parts(b)[0] and parts(a)[2] > parts(b)[2] for a, b in itertools.combinations(table[rank], 2))
    return f"error: rank {rank} does " if overtakes else "ranks wait for each other forever: rank "


def refused(mistakes, folder, least):
    """Each is refused for its reason, or accepted where there is none; gives how many were refused."""
    counts = {True: 0, False: 0}
    for table, why in mistakes:
        done = mpc("check", table, folder)
        counts[why is not None] += 1
        assert done.returncode == (why is not None), f"{table}\n{done.stderr}"
        assert why is None or (why in done.stderr and "= help: " in done.stderr), f"{table}\n{why}\n{done.stderr}"
    assert counts[True] >= least
    return counts


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b", "zb"])
def test_right(tables, tmp_path, name):
    assert can_be_done(tables[name])
    assert mpc("check", tables[name], tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["1f1b", "zb"])
@pytest.mark.parametrize("mistake", [left_out, doubled, moved], ids=lambda mistake: mistake.__name__)
def test_each_action(tables, tmp_path, name, mistake):
    actions = STAGES * MICROS * (3 if name == "zb" else 2)
    assert refused(mistake(tables[name]), tmp_path, actions)[False] == 0


@pytest.mark.parametrize("name", ["1f1b", "zb"])
def test_order(tables, tmp_path, name):
    """B before F, W before B, a micro-batch before another one, ranks that wait for each other."""
    assert refused(exchanged(tables[name]), tmp_path, 40)[False] > 0


def test_another_order_on_one_rank(tables, tmp_path):
    """Some go together: all micro-batches forward first on the first rank, say, and 1f1b on the others."""
    mixed = [changed(tables[name], rank, tables[other][rank])
             for name, other in itertools.permutations(("naive", "gpipe", "1f1b"), 2) for rank in range(STAGES)]
    waits = "ranks wait for each other forever: rank "
    assert refused([(table, None if can_be_done(table) else waits) for table in mixed], tmp_path, 6)[False] > 0


def test_weights_of_some(tables, tmp_path):
    """One rank that divides its backward action, among others that do not; and the other way round."""
    for name, other in (("1f1b", "zb"), ("zb", "1f1b")):
        for rank in range(STAGES):
            done = mpc("check", changed(tables[name], rank, tables[other][rank]), tmp_path)
            assert done.returncode == 1 and "W for all, or for none" in done.stderr, done.stderr


@pytest.mark.parametrize("mistake", [left_out, doubled, moved, exchanged], ids=lambda mistake: mistake.__name__)
def test_compile(tables, tmp_path, mistake):
    """Nothing is written."""
    table, why = next((table, why) for table, why in mistake(tables["1f1b"]) if why)
    done = mpc("compile", table, tmp_path, "--no-cc", "-o", tmp_path / "out")
    assert done.returncode == 1 and why in done.stderr and not (tmp_path / "out" / "trainer.c").exists()
