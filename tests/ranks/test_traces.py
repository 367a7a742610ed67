"""Traces of pipelines: what each rank has done and when, and one trace of all ranks, made by `mpc trace merge`."""
import itertools
import json
import shutil
import subprocess

import pytest
from conftest import MPC, TCP, free_port, layout_of, mpirun, start
from test_tcp import ranks  # noqa: F401 (a fixture)

MICRO = 4
ACTIVATION = 2 * 16 * 32 * 4  # bytes: [batch 2, seq 16, embed 32] in f32
TRACED = ("--steps", 4, "--trace", "trace.json", "--trace-steps", 2, "--overwrite")  # steps 2 and 3

# What a stage does, by the definition of each schedule.
ORDERS = {
    "1f1b": ["F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"],
    "gpipe": ["F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 F2 F3 B0 B1 B2 B3"],
    "zb": ["F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3", "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3"],
}


def pipeline(compiled, schedule, *options, **how):
    return compiled("llama", layout_of("llama", dict(pp=2), schedule=schedule, **how), {"layers": 4}, {"microbatch": 2},
                    *options)


def events_of(path):
    """Those with times."""
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def end(event):
    return event["ts"] + event["dur"]


def lies_in(event, outer):
    return outer["ts"] - 1e-3 <= event["ts"] and end(event) <= end(outer) + 1e-3


@pytest.fixture(scope="session", params=list(itertools.product(ORDERS, ["mpi", "tcp"])), ids="-".join)
def traced(request, compiled, text, tmp_path_factory):
    """(schedule, the events of each rank, the merged trace)"""
    schedule, comm = request.param
    trainer = pipeline(compiled, schedule, *(TCP if comm == "tcp" else ()))
    folder = tmp_path_factory.mktemp("traced")
    start(trainer.command("--data", text, "--data-format", "bytes", *TRACED), folder)
    start([MPC, "trace", "merge", "trace.json", "-o", "all.json"], folder)
    return (schedule, [events_of(folder / name) for name in ("trace.json", "trace.rank1.json")],
            json.loads((folder / "all.json").read_text()))


def steps_of(events):
    return [event for event in events if event["cat"] == "step"]


def test_actions(traced):
    """Each once a step, in the order of the schedule, one after the other."""
    schedule, of_rank, _ = traced
    for stage, events in enumerate(of_rank):
        actions = [event for event in events if event["cat"] == "action"]
        assert [e["name"] for e in steps_of(events)] == ["step 2", "step 3"]
        for step in steps_of(events):
            assert [e["name"] for e in actions if lies_in(e, step)] == ORDERS[schedule][stage].split()
        assert len(actions) == 2 * len(ORDERS[schedule][stage].split())
        assert {e["tid"] for e in actions}.isdisjoint(e["tid"] for e in events if e["cat"] != "action")
        assert all(end(a) <= b["ts"] for a, b in zip(actions, actions[1:]))
        assert all(e["args"] == {"stage": stage, "micro": int(e["name"][1:]), "action": e["name"][0]} for e in actions)


def test_reductions(compiled, text, tmp_path):
    """A stage's begin when it has ended, while the other stage of the rank still works."""
    layout = layout_of("llama", dict(dp=2, pp=2), zero=1, schedule="interleaved", chunks=2, options="overlap_grads")
    trainer = compiled("llama", layout, {"layers": 4}, {"microbatch": 1})
    start(trainer.command("--data", text, "--data-format", "bytes", *TRACED), tmp_path)
    for rank, name in enumerate(["trace.json", "trace.rank1.json", "trace.rank2.json", "trace.rank3.json"]):
        events = events_of(tmp_path / name)
        for step in steps_of(events):
            actions = [e for e in events if e["cat"] == "action" and lies_in(e, step)]
            said = [(e["name"], e["args"]["stage"]) for e in actions]
            first, second = (said.index(("R", rank % 2 + 2 * chunk)) for chunk in (0, 1))
            assert second < first == len(said) - 1
            for at, stage in ((first, rank % 2), (second, rank % 2 + 2)):
                assert [name for name, of in said[:at] if of == stage].count("B3") == 1
                assert all(of != stage for _, of in said[at + 1:])
            ended = [e for e in events if e["cat"] == "collective" and lies_in(e, step) and ".chunk2" in e["name"]]
            assert len(ended) == 1 and actions[second]["ts"] <= ended[0]["ts"]


def test_events_lie_in_their_step_and_action(traced):
    """And say which; what runs between two actions waits for the one after it."""
    _, of_rank, _ = traced
    for events in of_rank:
        steps, actions = steps_of(events), [event for event in events if event["cat"] == "action"]
        for event in events:
            assert any(lies_in(event, step) for step in steps)
        inside = 0
        for event in events:
            if event["cat"] in ("step", "action", "message", "collective", "wait"):
                continue
            around = [action["args"] for action in actions if lies_in(event, action)]
            said = {key: event["args"].get(key) for key in ("stage", "micro", "action")}
            assert said == (around[0] if around else dict.fromkeys(said))
            inside += len(around)
        assert inside > 2 * MICRO * 10


def test_rows_nest(traced):
    """Of two events of a row, one lies within the other or after it: others are not drawn."""
    for events in traced[1]:
        for row in {e["tid"] for e in events}:
            around = []
            for event in sorted((e for e in events if e["tid"] == row), key=lambda e: (e["ts"], -e["dur"])):
                while around and end(around[-1]) <= event["ts"] + 1e-3:
                    around.pop()
                assert not around or lies_in(event, around[-1]), (around[-1], event)
                around.append(event)


def test_waits_say_what_for(traced):
    """A wait before an action of a micro-batch says which; with what messages say, it is all the time there is."""
    _, of_rank, _ = traced
    for stage, events in enumerate(of_rank):
        messages = [e for e in events if e["cat"] == "message"]
        waits = [e for e in events if e["cat"] == "wait" and e["args"]["kernel"] == messages[0]["args"]["kernel"]]
        assert len(waits) == len(messages)
        assert sum(e["dur"] for e in waits) == pytest.approx(sum(e["args"]["waited_us"] for e in messages), abs=1e-2)
        actions = [e for e in events if e["cat"] == "action"]
        for wait in waits:
            after = next((a for a in actions if a["ts"] >= end(wait) - 1e-3), None)
            if "action" in wait["args"]:
                assert wait["args"]["stage"] == stage
                assert after["name"] == f"{wait['args']['action']}{wait['args']['micro']}"


@pytest.mark.parametrize("stages, copies", [(None, [{0, 1}, {2, 3}]), ([3, 1], [{0, 1, 2}, {3}])])
def test_layers_have_the_numbers_of_the_model(compiled, text, tmp_path, stages, copies):
    trainer = pipeline(compiled, "1f1b", stages=stages)
    start(trainer.command("--data", text, "--data-format", "bytes", *TRACED), tmp_path)
    for rank, name in enumerate(["trace.json", "trace.rank1.json"]):
        products = [e for e in events_of(tmp_path / name) if e.get("args", {}).get("kernel") == "h.attn.q"]
        assert {e["args"]["h.copy"] for e in products} == copies[rank]
        assert all(e["name"] == f"h.{e['args']['h.copy']}.attn.q" for e in products)


# --- Messages --------------------------------------------------------------------------------------------------------

def test_messages(traced):
    """Each stage sends its neighbour an activation a micro-batch, and gets its gradient back."""
    _, of_rank, _ = traced
    said = [[(e["name"], e["args"]["stage"], e["args"]["from"], e["args"]["to"], e["args"]["bytes"])
             for e in events if e["cat"] == "message" and e["args"]["step"] == step]
            for events in of_rank for step in (2, 3)]
    first = {(f"send F{m} to stage 1", 0, 0, 1, ACTIVATION) for m in range(MICRO)} | \
            {(f"receive B{m} from stage 1", 0, 1, 0, ACTIVATION) for m in range(MICRO)}
    second = {(f"receive F{m} from stage 0", 1, 0, 1, ACTIVATION) for m in range(MICRO)} | \
             {(f"send B{m} to stage 0", 1, 1, 0, ACTIVATION) for m in range(MICRO)}
    assert [set(names) for names in said] == [first, first, second, second]
    assert all(len(names) == 2 * MICRO for names in said)


def event_at(events, flow):
    """The event that an arrow begins or ends in."""
    found = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (flow["pid"], flow["tid"])
             and e["ts"] - 1e-3 <= flow["ts"] <= end(e) + 1e-3]
    assert len(found) == 1 or (len(found) == 2 and end(found[0]) == pytest.approx(found[1]["ts"]))  # one goes after the other
    return found[-1 if flow["ph"] == "s" else 0]


def test_merged(traced):
    """All events of all ranks, and an arrow for each message, from where it is sent to where it is received."""
    _, of_rank, merged = traced
    events = merged["traceEvents"]
    assert [e for e in events if e["ph"] == "X"] == of_rank[0] + of_rank[1]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "rank 0 (pp 0)", 1: "rank 1 (pp 1)"}
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {rows[e["pid"], e["tid"]] for e in events if e["ph"] == "X" and e["cat"] == "action"} == {"pipeline"}
    begins, ends = ([e for e in events if e["ph"] == phase] for phase in "sf")
    assert sorted(e["id"] for e in begins) == sorted(e["id"] for e in ends) == list(range(1, 2 * 2 * MICRO + 1))
    for begin in begins:
        arrow = next(e for e in ends if e["id"] == begin["id"])
        sent, received = event_at(events, begin), event_at(events, arrow)
        assert sent["name"].startswith("send ") and received["name"].startswith("receive ")
        assert sent["name"].split()[1] == received["name"].split()[1]  # "F3"
        for key in ("step", "from", "to", "bytes", "micro", "action"):
            assert sent["args"][key] == received["args"][key]
        assert sent["pid"] == sent["args"]["from"] and received["pid"] == received["args"]["to"]
        assert sent["ts"] <= end(received)


def causes_are_before_effects(events, slack=1e-3):
    """On one clock: a stage runs what the other one has handed on, after that."""
    counts = 0
    actions = {(e["pid"], e["name"], step["name"]): e for step in steps_of(events) for e in events
               if e["cat"] == "action" and e["pid"] == step["pid"] and lies_in(e, step)}
    for (rank, name, step), action in actions.items():
        if rank == (1 if name[0] == "F" else 0) and name[0] != "W":
            assert end(actions[1 - rank, name, step]) <= action["ts"] + slack, (name, step)
            counts += 1
    return counts


def test_one_clock(traced):
    assert causes_are_before_effects([e for e in traced[2]["traceEvents"] if e["ph"] == "X"]) == 2 * 2 * MICRO


def has_time_namespaces():
    command = ["unshare", "--time", "--monotonic", "5000", "true"]
    return shutil.which("unshare") and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_time_namespaces(), reason="needs time namespaces, for a rank with a clock of its own")
def test_clocks_of_two_machines(compiled, ranks, tmp_path):  # noqa: F811
    """A rank whose clock is 5000 seconds ahead.  What is left is a part of a message's time, here far below 1 ms."""
    trainer, port = pipeline(compiled, "1f1b", *TCP), free_port()
    for rank, before in enumerate([(), ("unshare", "--time", "--monotonic", 5000)]):
        ranks.add(trainer.program, "--rank", rank, "--ranks", 2, "--master", f"127.0.0.1:{port}", *TRACED, before=before)
    status, _, stderr = ranks.end()
    assert status == [0, 0], stderr
    start([MPC, "trace", "merge", "trace.json", "-o", "all.json"], tmp_path)
    assert causes_are_before_effects(events_of(tmp_path / "all.json"), 1e3) == 2 * 2 * MICRO


# --- Several stages a rank ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("schedule, stages", [("interleaved", [(0, 2), (1, 3)]), ("zb", [(0, 3), (1, 2)])])
def test_chunks(compiled, text, tmp_path, schedule, stages):
    """Actions, layers and messages say of which stage they are; each follows what it needs."""
    trainer = pipeline(compiled, schedule, chunks=2)
    start(trainer.command("--data", text, "--data-format", "bytes", *TRACED), tmp_path)
    start([MPC, "trace", "merge", "trace.json", "-o", "all.json"], tmp_path)
    events = events_of(tmp_path / "all.json")
    steps, last = steps_of(events), max(map(max, stages))
    done = {}
    for e in events:
        if e["cat"] == "action":
            step, = [step["name"] for step in steps if step["pid"] == e["pid"] and lies_in(e, step)]
            key = step, e["args"]["action"], e["args"]["stage"], e["args"]["micro"]
            assert key not in done and e["args"]["stage"] in stages[e["pid"]] and e["name"] == f"{key[1]}{key[3]}"
            done[key] = e
    assert set(done) == set(itertools.product(["step 2", "step 3"], "FBW" if schedule == "zb" else "FB", range(last + 1), range(MICRO)))
    for (step, action, stage, micro), e in done.items():
        before = ("F", stage - 1) if action == "F" else ("B", stage + 1) if action == "B" and stage < last else ("F", stage)
        if before[1] >= 0:
            assert end(done[(step, *before, micro)]) <= e["ts"] + 1e-3
    layers = {(e["args"]["h.copy"], e["args"]["stage"], e["name"]) for e in events
              if e.get("args", {}).get("kernel") == "h.attn.q" and "stage" in e["args"]}
    assert layers == {(copy, copy, f"h.{copy}.attn.q") for copy in range(last + 1)}
    rank_of = {stage: rank for rank, own in enumerate(stages) for stage in own}
    borders = [s for s in range(last) if rank_of[s] != rank_of[s + 1]]
    said = [(e["args"]["step"], e["name"]) for e in events if e["cat"] == "message" and e["args"]["from"] == e["pid"]]
    assert sorted(said) == sorted((step, name) for step in (2, 3) for m in range(MICRO) for s in borders
                                  for name in (f"send F{m} to stage {s + 1}", f"send B{m} to stage {s}"))


# --- Without a schedule ------------------------------------------------------------------------------------------------

def test_micro_batches_of_one_rank(compiled, text, tmp_path):
    trainer = compiled("llama", (), {"layers": 4}, {"microbatch": 2})
    start(trainer.command("--data", text, "--data-format", "bytes", *TRACED), tmp_path)
    events = events_of(tmp_path / "trace.json")
    seen = [(e["args"]["micro"], e["args"]["h.copy"]) for e in events if e.get("args", {}).get("kernel") == "h.attn.q"]
    assert set(seen) == set(itertools.product(range(MICRO), range(4)))
    assert not any("stage" in e.get("args", {}) for e in events)
    start([MPC, "trace", "merge", "trace.json", "-o", "all.json"], tmp_path)
    assert events_of(tmp_path / "all.json") == events


def test_naive(compiled, text, tmp_path):
    """No actions; messages are there."""
    start(pipeline(compiled, "naive").command("--data", text, "--data-format", "bytes", *TRACED), tmp_path)
    events = events_of(tmp_path / "trace.rank1.json")
    assert not any(e["cat"] == "action" for e in events)
    messages = [(e["name"], e["args"]["micro"]) for e in events if e["cat"] == "message"]
    assert messages == 2 * [(name, m) for m in range(MICRO) for name in ("receive h from rank 0", "send h to rank 0")]
    start([MPC, "trace", "merge", "trace.json", "-o", "all.json"], tmp_path)
    assert (tmp_path / "all.json").read_text().count('"ph":"s"') == 2 * 2 * MICRO


def test_one_rank_is_traced(compiled, text, tmp_path):
    """As it may be: the other one takes part in comparing clocks."""
    trainer = pipeline(compiled, "1f1b")
    words = [trainer.program, "--data", text, "--data-format", "bytes"]
    start([*mpirun(1, *words, *TRACED), ":", "-n", 1, *words, "--steps", 4], tmp_path)
    assert not (tmp_path / "trace.rank1.json").exists()
    said = start([MPC, "trace", "merge", "trace.json", "-o", "all.json"], tmp_path, 1).stderr
    assert said.startswith("mpc: error: of the 2 ranks of this run there is no file of rank 1: ")
    said = start([MPC, "trace", "merge", "--partial", "trace.json", "-o", "all.json"], tmp_path).stderr
    assert said == "mpc: note: of the 2 ranks of this run there is no file of rank 1\n"
    assert events_of(tmp_path / "all.json") == events_of(tmp_path / "trace.json")
