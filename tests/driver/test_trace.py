"""mpc trace merge, on traces that are written here: what it makes of them, and what it refuses.  tests/ranks has those of
trainers."""
import json
import math
import os
import re
import subprocess

import pytest

from conftest import MPC, ROOT


def event(rank, name="h.0.q", start=10.0, length=5.0, row=0, category="fused", **said):
    return {"name": name, "cat": category, "ph": "X", "ts": start, "dur": length, "pid": rank, "tid": row, "args": said}


def message(rank, source, target, start=20.0, length=4.0, **said):
    verb = "send" if source == rank else "receive"
    return event(rank, verb, start, length, 3, "message", **{"step": 2, "collective": 0, "from": source, "to": target, **said})


def metadata(rank):
    return {"name": "process_name", "cat": "__metadata", "ph": "M", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}}


def text_of(rank, /, *events, ranks=2, **facts):
    facts = {"format": "mpc trace 1", "model": "tiny", "run": "0123456789abcdef", "rank": rank, "ranks": ranks, **facts}
    return ('{"displayTimeUnit": "ms", "otherData": ' + json.dumps(facts) + ', "traceEvents": [\n' +
            ",\n".join(json.dumps(one) for one in (metadata(rank), *events)) + "\n]}\n")


@pytest.fixture
def files(mpc):
    """Two ranks; the first has sent two messages to the second, the second one to the first."""
    first = [event(0), message(0, 0, 1, 20), message(0, 1, 0, 21, 30, collective=1), message(0, 0, 1, 30)]
    second = [message(1, 0, 1, 5, 19), message(1, 1, 0, 40, 9, collective=1), message(1, 0, 1, 33), event(1)]
    (mpc.directory / "trace.json").write_text(text_of(0, *first))
    (mpc.directory / "trace.rank1.json").write_text(text_of(1, *second))
    return mpc.directory


def merged(mpc, *files):
    return json.loads(mpc("trace", "merge", *files).stdout)


@pytest.mark.parametrize("mesh", ["dp=1", "dp=2", "tp=2", "dp=2,tp=2", "pp=2", "cp=2"])
def test_work_of_products(mpc, mesh):
    """What trainers divide by the time of a product is the work of its matrices on one rank, and a little for bias and activation."""
    mpc("compile", ROOT / "examples/llama.mdl", "--mesh", mesh, "--no-cc", "-o", "out", *"-D layers=2 -D vocab=96 -D seq=16 -D embed=32".split(),
        *"-D kv_heads=2 -D group=2 -D head=8 -D ff=48 --set train.batch=8 --set train.microbatch=2".split())
    text = (mpc.directory / "out/trainer.c").read_text()
    flops = [float(row) for row in re.findall(r'^    \{ "[^"]*", "[^"]*", "[^"]*", ([^,]*), [^,]* \},$', text, re.M)]
    shapes = [math.prod(map(int, shape)) for shape in re.findall(r"\.m = (\d+), \.n = (\d+), \.k = (\d+), \.batch = (\d+)", text)]
    calls = re.findall(r"RT_RUN\(rt, (\d+), rt_product(?:_with)?\(\s*rt, (\d+),", text)
    assert len(calls) > 20
    for row, product in calls:
        assert 1 <= flops[int(row)] / (2 * shapes[int(product)]) < 1.1


@pytest.mark.parametrize("names", [["trace.json"], ["trace.json", "trace.rank1.json"], ["trace.rank1.json", "trace.json"],
                                   ["./trace.json", "--", "trace.rank1.json"]])
def test_ranks_in_order(mpc, files, names):
    result = merged(mpc, *names)
    assert result["otherData"] == {"format": "mpc trace 1, merged", "model": "tiny", "run": "0123456789abcdef", "ranks": 2}
    there = [json.loads((files / name).read_text())["traceEvents"] for name in ("trace.json", "trace.rank1.json")]
    assert [e for e in result["traceEvents"] if e["ph"] in "MX"] == there[0] + there[1]


def test_arrows(mpc, files):
    """The n-th that is sent is the n-th that is received, of a collective in one direction; an arrow leads forward in time."""
    flows = [e for e in merged(mpc, "trace.json")["traceEvents"] if e["ph"] in "sf"]
    assert [(e["ph"], e["id"], e["pid"], e["ts"], e["tid"]) for e in flows] == [
        ("s", 1, 0, 20, 3), ("f", 1, 1, 20, 3),  # waited for since 5
        ("s", 2, 0, 30, 3), ("f", 2, 1, 33, 3),
        ("s", 3, 1, 40, 3), ("f", 3, 0, 40, 3)]
    assert all((e["ph"] == "f") == (e.get("bp") == "e") for e in flows)


def test_other_names(mpc, files):
    """As given to --trace: without an ending, with dots in the folder."""
    (files / "a.b").mkdir()
    for name, other in (("a.b/trace", "a.b/trace.rank1"), ("x.tar.gz", "x.tar.rank1.gz")):
        (files / "trace.json").rename(files / name)
        (files / "trace.rank1.json").rename(files / other)
        assert len([e for e in merged(mpc, name)["traceEvents"] if e["ph"] == "s"]) == 3
        (files / name).rename(files / "trace.json")
        (files / other).rename(files / "trace.rank1.json")


def test_written_whole_or_not_at_all(mpc, files):
    mpc("trace", "merge", "trace.json", "-o", "there/all.json")
    whole = (files / "there/all.json").read_bytes()
    assert json.loads(whole) == merged(mpc, "trace.json")
    (files / "trace.rank1.json").write_text((files / "trace.rank1.json").read_text()[:-200])
    mpc("trace", "merge", "trace.json", "-o", "there/all.json", status=1)
    assert (files / "there/all.json").read_bytes() == whole and os.listdir(files / "there") == ["all.json"]


def test_inputs_are_not_written_over(mpc, files):
    (files / "link.json").symlink_to("trace.rank1.json")
    (files / "hard.json").hardlink_to(files / "trace.json")
    before = [(files / name).read_bytes() for name in ("trace.json", "trace.rank1.json")]
    for name in ("trace.json", "trace.rank1.json", "./trace.rank1.json", "link.json", "hard.json"):
        said = mpc("trace", "merge", "trace.json", "-o", name, status=1).stderr
        assert said.startswith(f"mpc: error: cannot write {name}") and "it is the input file" in said
    assert [(files / name).read_bytes() for name in ("trace.json", "trace.rank1.json")] == before


def refused(mpc, *words):
    done = mpc("trace", "merge", *words, "-o", "all.json", status=1)
    assert len(done.stderr.splitlines()) == 1 and not list(mpc.directory.glob("all*"))
    return done.stderr.removeprefix("mpc: error: ").strip()


def test_missing_rank(mpc, files):
    (files / "trace.json").write_text(text_of(0, message(0, 0, 1), message(0, 0, 2), ranks=4))
    (files / "trace.rank2.json").write_text(text_of(2, message(2, 0, 2), ranks=4))
    (files / "trace.rank1.json").unlink()
    assert refused(mpc, "trace.json") == ("of the 4 ranks of this run there is no file of rank 1, rank 3: give it too, or merge "
                                          "the others with --partial")
    done = mpc("trace", "merge", "trace.json", "--partial")
    assert done.stderr == "mpc: note: of the 4 ranks of this run there is no file of rank 1, rank 3\n"
    assert [(e["pid"], e["id"]) for e in json.loads(done.stdout)["traceEvents"] if e["ph"] in "sf"] == [(0, 1), (2, 1)]


def test_one_file_twice(mpc, files):
    assert refused(mpc, "trace.json", "./trace.json") == "trace.json and ./trace.json are both of rank 0: leave one out"


@pytest.mark.parametrize("facts", [{"run": "fedcba9876543210"}, {"ranks": 3}])
def test_different_runs(mpc, files, facts):
    (files / "trace.rank1.json").write_text(text_of(1, **facts))
    assert refused(mpc, "trace.json").startswith("trace.json and trace.rank1.json are of different runs (0123456789abcdef of tiny on 2, ")


def test_merged_again(mpc, files):
    mpc("trace", "merge", "trace.json", "-o", "whole.json")
    assert refused(mpc, "whole.json") == "whole.json:1: this trace has been merged: give the files of the ranks"


NO_TRACE = ["", "\n", "{}", "[1]\n", '{"traceEvents": [\n]}\n', "\x00\xff" * 5000, text_of(0, format="mpc trace 2"),
            text_of(0, rank=2), text_of(0, rank=-1), text_of(0, rank=0.5), text_of(0, run=7), text_of(0, ranks="2"),
            "x" * 100000]


@pytest.mark.parametrize("text", NO_TRACE, ids=range(len(NO_TRACE)))
def test_no_trace(mpc, files, text):
    (files / "trace.json").write_text(text)
    assert refused(mpc, "trace.json").startswith("trace.json:") and "this is no trace of this version of mpc" in refused(mpc, "trace.json")


LINES = [  # an event that no trainer writes
    "", "{", "7", "[]", '"X"', "{}", json.dumps(event(1)), json.dumps({**event(0), "ph": "B"}), json.dumps({**event(0), "ts": "1"}),
    json.dumps({**event(0), "dur": -1}), json.dumps({**event(0), "name": None}),
    json.dumps(event(0)) + "," + json.dumps(event(0)), json.dumps(message(0, 1, 1)), json.dumps(message(0, 0, 0)),
    json.dumps(message(0, 0, 2)), json.dumps(message(0, 0, 1, step=-1)), json.dumps(message(0, 0, 1, collective=0.5)),
    json.dumps({**metadata(0), "cat": "message"}),
]


@pytest.mark.parametrize("line", LINES)
def test_changed_line(mpc, files, line):
    text = (files / "trace.json").read_text().split("\n")
    (files / "trace.json").write_text("\n".join([*text[:2], line + ",", *text[2:]]))
    assert refused(mpc, "trace.json") == "trace.json:3: this is no event of a trace of mpc: the file has been changed"


def test_every_cut_is_noticed(mpc, files):
    text = (files / "trace.json").read_text()
    for length in range(0, len(text) - 1, 7):
        (files / "trace.json").write_text(text[:length])
        assert refused(mpc, "trace.json").startswith("trace.json:")
    for more in ("x", "\n", "{}\n", text):
        (files / "trace.json").write_text(text + more)
        assert "unexpected text after the end of the trace" in refused(mpc, "trace.json")


def test_message_without_counterpart(mpc, files):
    (files / "trace.rank1.json").write_text(text_of(1, message(1, 1, 0, collective=1), message(1, 0, 1)))
    assert refused(mpc, "trace.json") == ("in step 2 rank 0 has sent 2 messages of collective 0 to rank 1, which has received 1: the "
                                          "files have been changed")


def test_unreadable(mpc, files):
    assert refused(mpc, "none.json") == "cannot read none.json: No such file or directory"
    assert refused(mpc, ".") == "cannot read .: Is a directory"


def test_full_disk(mpc, files):
    assert "cannot write /dev/full: No space left" in mpc("trace", "merge", "trace.json", "-o", "/dev/full", status=1).stderr
    with open("/dev/full", "w") as full:
        done = subprocess.run([MPC, "trace", "merge", "trace.json"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=files)
    assert done.returncode == 1 and "cannot write to standard output: No space left" in done.stderr


def test_many_events(mpc, files):
    """More than fit in a buffer, of several ranks."""
    for rank in range(5):
        name = f"many.rank{rank}.json" if rank else "many.json"
        said = [message(rank, 0, rank, 10 * i) for i in range(3000)] if rank else \
            [message(0, 0, other, 10 * i) for i in range(3000) for other in range(1, 5)]
        (files / name).write_text(text_of(rank, *said, ranks=5))
    flows = [e for e in merged(mpc, "many.json")["traceEvents"] if e["ph"] in "sf"]
    assert len(flows) == 2 * 4 * 3000 and {e["id"] for e in flows} == set(range(1, 4 * 3000 + 1))
