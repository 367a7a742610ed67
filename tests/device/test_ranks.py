"""Trainers for several GPUs, one process a GPU, on emulated ones: every layout trains as one processor does, and a wait
that is left out is noticed."""
import json
import re
import shutil

import pytest
from conftest import IS_REAL, ROOT, Trainer, again, emulated, planned_bytes, read_log, some, start
from test_one_rank import assert_same

STEPS = 3
SETTINGS = (("batch", 8), ("microbatch", 8))
RUN = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def ranks_of(mesh):
    ranks = 1
    for axis in mesh.split(","):
        ranks *= int(axis.split("=")[1])
    return ranks


def run(trainer, mesh, data, directory, *options, status=0, steps=STEPS, environment=(), of_rank=""):
    """The ranks, by mpirun; what they say goes to each other in a folder that is gone afterwards."""
    ranks, messages = ranks_of(mesh), directory / "messages"
    shutil.rmtree(messages, ignore_errors=True)
    messages.mkdir(parents=True)
    (directory / "log").unlink(missing_ok=True)
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks]
    if IS_REAL:  # several ranks on one GPU, over sockets, as if each were on a machine of its own
        options = ("--share-gpu", *options)
    options = ("--log", "log", "--overwrite", *options) if steps else options
    command = trainer.command("--data", data, "--data-format", "bytes", "--steps", steps, *options)
    if of_rank:
        command = ["sh", "-c", f'{of_rank} exec "$@"', "sh", *command]
    done = start([*mpirun, *command], directory, status,
                 {**RUN, "EMULATED_GPUS": str(ranks), "EMULATED_MESSAGES": str(messages), **dict(environment)}.items())
    shutil.rmtree(messages)
    return done


@pytest.fixture(scope="session")
def reference(compiled, data, tmp_path_factory):
    """The log of one processor."""
    logs = {}

    def train(model, precision, *options):
        key = model, precision, options
        if key not in logs:
            folder = tmp_path_factory.mktemp("reference")
            trainer = compiled(model, "c", SETTINGS + (("precision", precision),), options)
            start(trainer.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--log", "log"), folder)
            logs[key] = read_log(folder / "log")
        return logs[key]
    return train


LAYOUTS = [  # model, mesh, zero, micro-batch: collectives of each kind, in one piece and in slots, and in zig-zag
    ("chars", "dp=2", 0, 4),
    ("chars", "tp=2", 0, 8),
    ("gpt2", "dp=2", 1, 2),
    ("gpt2", "dp=2", 3, 4),
    ("gpt2", "tp=4", 0, 8),
    ("llama", "cp=2", 0, 8),
    ("llama", "dp=4", 3, 2),
    ("llama", "dp=2,cp=2", 1, 4),
    ("llama", "dp=2,tp=2", 3, 2),
    ("bert", "dp=2,tp=2", 1, 4),
    ("mixtral", "ep=2", 1, 4),
    ("mixtral", "dp=2,ep=2", 3, 2),
    ("mixtral", "ep=4", 0, 2),
    ("deepseek", "ep=2", 2, 4),
]


def compile_layout(compiled, model, mesh, zero, microbatch, precision="fp32"):
    options = ["--mesh", mesh] + (["--zero", zero] if zero else [])
    return compiled(model, "cuda", SETTINGS + (("microbatch", microbatch), ("precision", precision)), tuple(options))


@emulated
@pytest.mark.parametrize("mesh,zero,microbatch", [("tp=4", 0, 8), ("dp=2", 3, 4), ("pp=2", 0, 4)])
def test_initial_weights(mesh, zero, microbatch, compiled, data, tmp_path):
    """Each GPU makes its own part of what one processor computes; also as a checkpoint in several files."""
    one = compiled("gpt2", "c", SETTINGS, ("-D", "layers=3"))
    start(one.command("--data", data, "--data-format", "bytes", "--steps", 0, "--save", "one"), tmp_path)
    options = ("-D", "layers=3", "--mesh", mesh, *(["--zero", zero] if zero else []))
    trainer = compiled("gpt2", "cuda", SETTINGS + (("microbatch", microbatch),), options)
    run(trainer, mesh, data, tmp_path, "--save", "all", steps=0)
    assert (tmp_path / "all").read_bytes() == (tmp_path / "one").read_bytes()
    run(trainer, mesh, data, tmp_path, "--save", "all.safetensors.index.json", steps=0)
    start(one.command("--load", "all.safetensors.index.json", "--steps", 0, "--save", "back"), tmp_path)
    assert (tmp_path / "back").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize("mesh,precision,how", some([("cp=4", "fp32", "attend = ring"), ("dp=2,cp=2", "bf16", "attend = ring"),
                                                     ("cp=2", "fp32", "attend = ring, blocks = 10")], 1))
def test_long_sequences(mesh, precision, how, compiled, reference, data, tmp_path):
    """Keys are gathered, or pass by in messages that start before the kernels of the block at hand."""
    trainer = compiled("llama", "cuda", SETTINGS + (("microbatch", 4), ("precision", precision)), ("--mesh", mesh),
                       edit=("shard seq over cp", f"shard seq over cp ({how})"))
    run(trainer, mesh, data, tmp_path)
    assert_same(read_log(tmp_path / "log"), reference("llama", precision), precision)


# Without ALL each model but chars, which the tests below train; each axis and stage of zero, slots and zig-zag.
@pytest.mark.parametrize("model,mesh,zero,microbatch", some(LAYOUTS, 4, 7, 9, 11, 13))
def test_layout(model, mesh, zero, microbatch, compiled, reference, data, tmp_path):
    trainer = compile_layout(compiled, model, mesh, zero, microbatch)
    need = planned_bytes(trainer)
    run(trainer, mesh, data, tmp_path, environment={"EMULATED_BYTES": str(need), "EMULATED_USED": "used"}.items())
    assert read_log(tmp_path / "log")[-1]["peak_bytes"] == need
    assert IS_REAL or int((tmp_path / "used").read_text()) == need
    assert_same(read_log(tmp_path / "log"), reference(model, "fp32"), "fp32")


def test_large_rows(compiled, data, tmp_path):
    """Copies of weights of 1 MiB, and their gradients, are gathered and scattered where they lie, one by one, which would be packed in 4 MiB."""
    sizes = ("-D", "embed=256", "-D", "heads=4", "-D", "seq=8")
    sgd = ("adamw(lr = 6e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1)", "sgd(lr = 1e-3)")
    one = compiled("gpt2", "c", SETTINGS, sizes, edit=sgd)
    start(one.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--log", "one"), tmp_path)
    trainer = compiled("gpt2", "cuda", (("batch", 8), ("microbatch", 4)), ("--mesh", "dp=2", "--zero", 1, *sizes), edit=sgd)
    need = planned_bytes(trainer)
    run(trainer, "dp=2", data, tmp_path, environment={"EMULATED_BYTES": str(need), "EMULATED_USED": "used"}.items())
    assert IS_REAL or int((tmp_path / "used").read_text()) == need
    assert json.loads((trainer.folder / "plan.json").read_text())["memory"]["messages"] < 4 << 20
    assert_same(read_log(tmp_path / "log"), read_log(tmp_path / "one"), "fp32")


@pytest.mark.parametrize("mesh,precision", some([("ep=1", "fp16"), ("dp=2,ep=2", "bf16")], 1))
def test_empty_rows(mesh, precision, compiled, data, tmp_path):
    """Where at most half of the rows can be filled, products leave the others out: forward, and both gradients."""
    settings, edit = SETTINGS + (("microbatch", 1), ("precision", precision)), ("capacity = capacity, within = batch", "capacity = none")
    one = compiled("mixtral", "c", settings, edit=edit)
    start(one.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--log", "one"), tmp_path)
    trainer = compiled("mixtral", "cuda", settings, ("--mesh", mesh), edit=edit)
    kernels = (trainer.folder / "kernels.cu").read_text()
    assert {size: f"<RT_COUNTED_{size}" in kernels for size in ("ROWS", "TERMS")} == {"ROWS": True, "TERMS": True}
    run(trainer, mesh, data, tmp_path)
    assert_same(read_log(tmp_path / "log"), read_log(tmp_path / "one"), precision)


# All tokens choose the same expert, whose rows come in four rounds: the rank that has it does all the work.
EXTREME = ("capacity = capacity, within = batch", "capacity = none, rounds = true")
SKEWED = ("softmax(dot(x, w, embed), experts)", "softmax(dot(x, w, embed) + 1000 * cast(iota(experts) == 2, f32), experts)")
ONCE = """    ye = dot(silu(dot(xe, w_gate, embed)) * dot(xe, w_up, embed) * pe, w_down, ff)
    return sum(combine(ye, chosen), choice)
"""
ROUNDS = ("    y = 0 * x\n    repeat 4 {\n", "        ye = dot(silu(dot(xe, w_gate, embed)) * dot(xe, w_up, embed) * pe, w_down, ff)\n"
          "        y = y + sum(combine(ye, chosen), choice)\n    }\n    return y\n")


def in_rounds():
    """An edit of mixtral.mdl."""
    text = (ROOT / "examples" / "mixtral.mdl").read_text()
    begin, end = text.index(SKEWED[0]), text.index(ONCE) + len(ONCE)
    before, after = text[begin:end].replace(*SKEWED).replace(*EXTREME).split("    xe = ")
    return text[begin:end], before + ROUNDS[0] + "    xe = " + after.replace(ONCE, ROUNDS[1])


@pytest.mark.parametrize("mesh,microbatch", some([("ep=2", 2), ("ep=4", 2)], 0))
def test_all_tokens_to_one_expert(mesh, microbatch, compiled, data, tmp_path):
    """In the memory that is planned, and nothing is lost."""
    one = compiled("mixtral", "c", SETTINGS, ("-D", "choice=1"), edit=in_rounds())
    start(one.command("--data", data, "--data-format", "bytes", "--steps", STEPS, "--log", "one"), tmp_path)
    trainer = compiled("mixtral", "cuda", SETTINGS + (("microbatch", microbatch),), ("-D", "choice=1", "--mesh", mesh),
                       edit=in_rounds())
    run(trainer, mesh, data, tmp_path, environment={"EMULATED_BYTES": str(planned_bytes(trainer))}.items())
    assert_same(read_log(tmp_path / "log"), read_log(tmp_path / "one"), "fp32")
    assert [line["expert_load"] for line in read_log(tmp_path / "log")] == [[4, 4]] * STEPS


@emulated
def test_the_processor_waits_for_no_part_of_a_step(compiled, data, tmp_path):
    """It waits when a step has been queued, and for each of its results: with experts for two more, their load and what
    was dropped; however many layers and micro-batches there are."""
    waits = []
    cases = some([("llama", "dp=2", 2, (), 3), ("mixtral", "ep=2", 1, (), 5), ("mixtral", "ep=2", 1, ("--no-graph",), 5), ("mixtral", "ep=4", 2, (), 5)], 0, 1)
    for model, mesh, layers, options, _ in cases:
        trainer = compiled(model, "cuda", SETTINGS + (("microbatch", 3 - layers),), ("-D", f"layers={layers}", "--mesh", mesh))
        counts = []
        for steps in (2, 4):
            folder = tmp_path / f"{model}{layers}{steps}{len(options)}"
            run(trainer, mesh, data, folder, *options, steps=steps, of_rank="EMULATED_WAITS=waits$OMPI_COMM_WORLD_RANK")
            counts.append([int((folder / f"waits{rank}").read_text()) for rank in range(ranks_of(mesh))])
        waits.append({(more - few) / 2 for few, more in zip(*counts)})
    assert waits == [{expected} for *_, expected in cases]


PIPELINES = [  # mesh, schedule, zero, micro-batch, options of the trainer
    ("dp=1,tp=1,pp=2", "1f1b", 0, 2, ()),
    ("dp=1,tp=1,pp=2", "1f1b", 0, 2, ("--no-graph",)),
    ("dp=2,tp=1,pp=2", "gpipe", 3, 1, ()),
    ("dp=1,tp=1,pp=2", "zb", 1, 1, ()),
    ("dp=1,tp=1,pp=4", "1f1b", 0, 1, ()),
]


@pytest.mark.parametrize("mesh,schedule,zero,microbatch,options", some(PIPELINES, 1, 3))
def test_pipeline(mesh, schedule, zero, microbatch, options, compiled, reference, data, tmp_path):
    """Stages on a GPU each, within the memory that is planned; a send ends only when its receiver has it."""
    layers = ("-D", "layers=4")
    trainer = compiled("gpt2", "cuda", SETTINGS + (("microbatch", microbatch), ("precision", "fp32")),
                       (*layers, "--mesh", mesh, "--schedule", schedule, "--zero", zero))
    run(trainer, mesh, data, tmp_path, *options, environment={"EMULATED_BYTES": str(planned_bytes(trainer))}.items())
    assert_same(read_log(tmp_path / "log"), reference("gpt2", "fp32", *layers), "fp32")


@emulated
@pytest.mark.parametrize("mesh,schedule,zero,microbatch,options", some(PIPELINES[2:4], 0))
def test_kernels_that_are_loaded_late(mesh, schedule, zero, microbatch, options, compiled, reference, data, tmp_path):
    """CUDA loads a kernel at its first launch, and the processor may have to wait then until the GPU has nothing to do, also
    for messages that are under way: no rank waits for ever."""
    layers = ("-D", "layers=4")
    trainer = compiled("gpt2", "cuda", SETTINGS + (("microbatch", microbatch), ("precision", "fp32")),
                       (*layers, "--mesh", mesh, "--schedule", schedule, "--zero", zero))
    run(trainer, mesh, data, tmp_path, *options, environment={"EMULATED_LAZY": "1"}.items())
    assert_same(read_log(tmp_path / "log"), reference("gpt2", "fp32", *layers), "fp32")


RECORDED = [  # model, mesh, schedule, chunks, numbers of micro-batches; llama's gradients are reduced early
    ("gpt2", "pp=2", "1f1b", 1, (2, 6)),
    ("gpt2", "pp=2,tp=2", "zb", 1, (4, 7)),
    ("gpt2", "pp=2", "interleaved", 2, (8, 12)),
    ("llama", "dp=2,cp=1,tp=1,pp=2", "1f1b", 1, (2, 6)),
    ("llama", "dp=1,cp=2,tp=1,pp=2", "1f1b", 1, (2, 4)),  # over the axis of collectives in actions
]
EARLY = ("zero 1 over dp, cp", "zero 1 over dp, cp (overlap_grads)")


@emulated
@pytest.mark.parametrize("model,mesh,schedule,chunks,micros", some(RECORDED, 0, 4))
def test_actions_are_recorded(model, mesh, schedule, chunks, micros, compiled, data, tmp_path):
    """One graph for each action and its slots, however many micro-batches; with the same bits as without graphs."""
    nodes = {}
    for count in micros:
        layout = ["--mesh", mesh, "--schedule", schedule, *(["--chunks", chunks] if chunks > 1 else [])]
        trainer = compiled(model, "cuda", (("batch", 2 * count if "dp=2" in mesh else count), ("microbatch", 1)),
                           ("-D", f"layers={2 * chunks}", "-D", "embed=16", "-D", "seq=8", *layout),
                           edit=EARLY if model == "llama" else ("", ""))
        assert (model == "llama") == ("void reduce_0(" in (trainer.folder / "trainer.c").read_text())
        logs = []
        for options in ((), ("--no-graph",)):
            folder = tmp_path / f"{count}{len(options)}"
            run(trainer, mesh, data, folder, *options, steps=3, of_rank="EMULATED_NODES=nodes$OMPI_COMM_WORLD_RANK",
                environment={"EMULATED_BYTES": str(planned_bytes(trainer))}.items())
            logs.append([(line["loss"], line["grad_norm"]) for line in read_log(folder / "log")])
        assert logs[0] == logs[1] and len(logs[0]) == 3
        nodes[count] = [(tmp_path / f"{count}0" / f"nodes{rank}").read_text() for rank in range(ranks_of(mesh))]
    assert nodes[micros[0]] == nodes[micros[1]], nodes


def test_early_reductions(compiled, reference, data, tmp_path):
    """Gradients of a stage are reduced while others work, on the GPU's own stream for it."""
    trainer = compiled("llama", "cuda", SETTINGS + (("microbatch", 1), ("precision", "fp32")),
                       ("--mesh", "dp=2,cp=1,tp=1,pp=2", "--schedule", "zb"), edit=EARLY)
    assert "{ reduce_0 }" in (trainer.folder / "trainer.c").read_text()
    run(trainer, "dp=2,pp=2", data, tmp_path, environment={"EMULATED_BYTES": str(planned_bytes(trainer))}.items())
    assert_same(read_log(tmp_path / "log"), reference("llama", "fp32"), "fp32")


def test_trace_of_a_pipeline(compiled, data, tmp_path):
    """Actions one after the other, and messages within the step; the computation waits only for what it needs."""
    trainer = compiled("gpt2", "cuda", SETTINGS + (("microbatch", 2), ("precision", "fp32")), ("--mesh", "pp=2", "--schedule", "1f1b"))
    run(trainer, "pp=2", data, tmp_path, "--trace", "trace.json", "--trace-steps", 1)
    orders = ["F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
    for stage, name in enumerate(["trace.json", "trace.rank1.json"]):
        events = [e for e in json.loads((tmp_path / name).read_text())["traceEvents"] if e["ph"] == "X"]
        actions, messages, waits = ([e for e in events if e["cat"] == cat] for cat in ("action", "message", "wait"))
        step, = [e for e in events if e["cat"] == "step"]
        assert " ".join(e["name"] for e in actions) == orders[stage]
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in zip(actions, actions[1:]))
        ways = [("receive B", "send F"), ("receive F", "send B")][stage]
        assert sorted(e["name"].rsplit(" ", 3)[0] for e in messages) == [f"{way}{m}" for way in ways for m in range(4)]
        assert sum(e["args"]["waited_us"] for e in messages) == pytest.approx(sum(e["dur"] for e in waits), abs=1e-2)
        assert len(waits) == len(messages) == 8
        assert all(step["ts"] <= e["ts"] and e["ts"] + e["dur"] <= step["ts"] + step["dur"] + 1 for e in events)


@again
def test_bf16(compiled, reference, data, tmp_path):
    run(compile_layout(compiled, "gpt2", "dp=2,tp=2", 1, 4, "bf16"), "dp=2,tp=2", data, tmp_path)
    assert_same(read_log(tmp_path / "log"), reference("gpt2", "bf16"), "bf16")


@pytest.fixture(scope="session")
def two(compiled):
    return compile_layout(compiled, "chars", "tp=2", 0, 8)


@pytest.mark.parametrize("microbatch", some([8, 2], 1))
def test_traffic_is_counted_through_graphs(microbatch, compiled, data, tmp_path):
    trainer = compile_layout(compiled, "chars", "tp=2", 0, microbatch)
    counted = [run(trainer, "tp=2", data, tmp_path, "--print-traffic", *options).stdout for options in ((), ("--no-graph",))]
    rows = [re.findall(r"^(?:all|reduce)_\w+ +tp +\d+ +\d+ +- +-", text, re.M) for text in counted]
    assert rows[0] == rows[1] and len(rows[0]) > 5
    assert all(int(row.split()[2]) % STEPS == 0 for row in rows[0])


@emulated
def test_missing_wait_is_noticed(two, data, tmp_path):
    """Each of the first waits for an event, left out as if the runtime had forgotten it, changes the training in some
    order of the streams."""
    run(two, "tp=2", data, tmp_path, steps=2)
    right = [(line["loss"], line["grad_norm"]) for line in read_log(tmp_path / "log")]
    for number in range(1, 7):
        for seed in range(6):
            run(two, "tp=2", data, tmp_path, "--no-graph", steps=2, status=None,
                environment={"EMULATED_FORGET_WAIT": str(number), "EMULATED_SEED": str(seed)}.items())
            log = tmp_path / "log"
            got = [(line["loss"], line["grad_norm"]) for line in read_log(log)] if log.exists() else None
            if got != right:
                break
        else:
            pytest.fail(f"without wait number {number} six orders of the streams train as with it")


@emulated
def test_same_bits_again(compiled, data, tmp_path):
    """Another order of streams does not change them.  Another order of NCCL's sums does: the test detects one that varies."""
    trainer, saved = compile_layout(compiled, "gpt2", "tp=4", 0, 8), []
    for number, environment in enumerate(({}, {"EMULATED_SEED": "1"}, {"EMULATED_FIRST_PART": "1"})):
        run(trainer, "tp=4", data, tmp_path, "--save", f"saved{number}", steps=2, environment=environment.items())
        saved.append((tmp_path / f"saved{number}").read_bytes())
    assert saved[0] == saved[1] != saved[2]


# --- What goes wrong --------------------------------------------------------------------------------------------------


def error_of(done):
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    return errors[0]


@emulated
@pytest.mark.parametrize("model,mesh,zero,communicators", [("llama", "dp=2,tp=2", 3, 3), ("gpt2", "dp=2,tp=1,pp=2", 2, 1)])
def test_memory_of_nccl(model, mesh, zero, communicators, compiled, reference, data, tmp_path):
    """The arena is NCCL's, and registered with each communicator but those over stages, on which offsets differ: the
    emulated NCCL compares them."""
    trainer, listed = compile_layout(compiled, model, mesh, zero, 2), tmp_path / "registered"
    run(trainer, mesh, data, tmp_path, "--nccl-memory", environment={"EMULATED_REGISTERED": str(listed)}.items())
    assert_same(read_log(tmp_path / "log"), reference(model, "fp32"), "fp32")
    assert len(listed.read_text().splitlines()) == communicators * ranks_of(mesh)
    run(trainer, mesh, data, tmp_path, "--nccl-memory", "--no-graph", steps=1)


@emulated
def test_shared_gpu(two, reference, data, tmp_path):
    """NCCL has to take each rank for a machine of its own; where two say that they are one machine, it refuses.  Newer versions
    have to be told, too."""
    for version in (22703, 23007):
        run(two, "tp=2", data, tmp_path / str(version), "--share-gpu",
            environment={"EMULATED_GPUS": "1", "EMULATED_NCCL": str(version)}.items())
        assert [line["loss"] for line in read_log(tmp_path / str(version) / "log")] == pytest.approx(
            [line["loss"] for line in reference("chars", "fp32")], rel=1e-5)
    done = run(two, "tp=2", data, tmp_path, "--share-gpu", status=1,
               environment={"EMULATED_GPUS": "1", "NCCL_HOSTID": "one"}.items())
    assert "NCCL cannot form a group: invalid usage" in error_of(done)


@emulated
def test_too_few_gpus(two, data, tmp_path):
    done = run(two, "tp=2", data, tmp_path, status=1, environment={"EMULATED_GPUS": "1"}.items())
    assert "ranks 0 and 1 have the same GPU (2 ranks on this machine see 1): start fewer ranks" in error_of(done)
    run(two, "tp=2", data, tmp_path, "--share-gpu", steps=1, environment={"EMULATED_GPUS": "1"}.items())
    run(two, "tp=2", data, tmp_path, steps=1, environment={"EMULATED_GPUS": "1"}.items(),  # each rank sees its own
        of_rank="export EMULATED_FIRST=$OMPI_COMM_WORLD_RANK;")


@emulated
def test_no_room_for_messages(compiled, data, tmp_path):
    """Nothing is allocated where all that is planned does not fit."""
    trainer = compile_layout(compiled, "llama", "cp=2", 0, 8)  # keys in zig-zag are packed
    room = {"EMULATED_BYTES": str(planned_bytes(trainer) - 1)}
    done = run(trainer, "cp=2", data, tmp_path, status=1, steps=1, environment=room.items())
    assert re.search(r"error: .*out of memory: 'llama' is planned to need .* for products, \S+ kB for messages, together ", done.stderr)


@emulated
def test_missing_rank(two, data, tmp_path):
    done = run(two, "tp=1", data, tmp_path, status=1)
    assert "was compiled for 2 ranks (tp=2), but 1 runs" in error_of(done)


@emulated
def test_error_of_nccl(two, data, tmp_path):
    """While a rank waits for another that has stopped, NCCL reports an error: with the collective under way."""
    done = run(two, "tp=2", data, tmp_path, "--timeout", 300, status=1, steps=50,
               of_rank="if [ $OMPI_COMM_WORLD_RANK = 0 ]; then export EMULATED_BREAK=60; else export EMULATED_STOP=100; fi;")
    assert re.search(r"rank 0 \(tp 0\): NCCL cannot \w+ over tp at '\S+' \(\S*chars.mdl:\d+:\d+; .*: emulated NCCL: an error",
                     error_of(done)), done.stderr


@emulated
def test_versions_of_nccl(two, data, tmp_path):
    done = run(two, "tp=2", data, tmp_path, status=1, of_rank="export EMULATED_NCCL=2270$OMPI_COMM_WORLD_RANK;")
    assert re.search(r"rank 0 on \S+ has NCCL 22700 and rank 1 on \S+ has NCCL 22701: give all ranks the same library",
                     error_of(done))


@emulated
def test_rank_that_stops(two, data, tmp_path):
    """One rank stops in the middle of a step: the other says what it waits for, and where that stands in the model."""
    done = run(two, "tp=2", data, tmp_path, status=1, steps=50,
               of_rank="if [ $OMPI_COMM_WORLD_RANK = 0 ]; then set -- \"$@\" --timeout 4; else export EMULATED_STOP=100; fi;")
    assert re.search(r"rank 0 \(tp 0\) has waited \d+ s in \w+ over tp at '\S+' \(\S*chars.mdl:\d+:\d+; ",
                     error_of(done)), done.stderr


@emulated
def test_ranks_take_the_same_products(compiled, data, tmp_path):
    """Each times other kernels of cuBLASLt as the fastest, and keeps them in a cache of its own: rank 0's are taken."""
    trainer = compile_layout(compiled, "chars", "dp=2", 0, 4)
    own = Trainer(trainer.folder, "cuda", None)
    run(own, "dp=2", data, tmp_path, of_rank="n=$OMPI_COMM_WORLD_RANK; export XDG_CACHE_HOME=cache$n EMULATED_CHOICES=choices$n EMULATED_FASTEST=$((n + 1));",
        environment=(("EMULATED_KERNELS", "4"), ("EMULATED_SLOW", "1")))
    used = [(tmp_path / f"choices{rank}").read_text().splitlines() for rank in range(2)]
    recorded = [[line for line in lines if "recorded" in line] for lines in used]
    assert recorded[0] == recorded[1] and "1 recorded" in recorded[0]
    assert all({"0", "1", "2", "3"} <= set(lines) for lines in used), "each has timed them"
