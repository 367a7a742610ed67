"""How trainers of several ranks start, what they print, write and send."""
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from conftest import TCP, by_hand, error_of, layout_of, mpirun, read_log, start

SEQ = " else seq"


@pytest.fixture(scope="session")
def four(compiled):
    """llama on four ranks."""
    return compiled("llama", layout_of("llama", dict(dp=2, tp=2), SEQ, zero=1), (), {"microbatch": 4})


# --- Ranks ---------------------------------------------------------------------------------------------------------

def test_wrong_number_of_ranks(four, refused, tmp_path):
    for command, said in [(mpirun(3, four.program), "3 run:"), (mpirun(8, four.program), "8 run:"),
                          ([four.program], "1 runs (was it started without a launcher?):"),
                          ([four.program, "--rank", 0], "1 runs (--rank is for trainers compiled with --comm=tcp):")]:
        stderr = start([*command, "--steps", 0], tmp_path, 1).stderr
        errors = [line for line in stderr.splitlines() if "error: " in line]
        assert errors == [f"error: {four.program} was compiled for 4 ranks (dp=2,tp=2), but {said} start it with 'mpirun "
                          f"-n 4 {four.program} ...', or compile it for another mesh"]


def test_help_and_plan_need_no_ranks(four, tmp_path):
    assert "--print-mesh" in start([four.program, "--help"], tmp_path).stdout
    assert json.loads(start([four.program, "--plan"], tmp_path).stdout)


@pytest.mark.parametrize("option", ["--help", "--plan"])
def test_one_rank_answers(four, tmp_path, option):
    alone = start([four.program, option], tmp_path).stdout
    assert start(mpirun(4, four.program, option), tmp_path).stdout == alone


def test_names_like_options(four, tmp_path):
    """`--save --help` saves to a file of that name: nothing is answered."""
    assert start(four.command("--steps", 0, "--save", "--help"), tmp_path).stdout == ""
    assert (tmp_path / "--help").exists()


@pytest.mark.parametrize("options, said", [(["--steps"], "--steps needs a value"), (["--timeout", "0"], "--timeout must be between"),
                                           (["--steps", "3"], "nothing to train on"),
                                           (["--help=bad"], "--help must be one of markdown")])
def test_mistakes_on_the_command_line(four, refused, options, said):
    assert said in refused(four, *options, status=2)


def test_options_of_several_ranks_on_one(compiled, refused):
    for option in ("--print-mesh", "--print-traffic", "--timeout=3"):
        assert "has no effect on one rank" in refused(compiled("llama"), "--steps", 0, option, status=2)


def mesh_table(text):
    head, *rows = [line.split() for line in text.splitlines() if line and not line.startswith("step")]
    assert head == ["rank", "host", "local", "process", "threads", "dp", "tp"]
    return [dict(zip(head, row)) for row in rows]


def test_print_mesh(four, tmp_path):
    rows = mesh_table(start(four.command("--steps", 0, "--print-mesh"), tmp_path).stdout)
    assert [(row["rank"], row["dp"], row["tp"]) for row in rows] == [
        ("0", "0", "0"), ("1", "0", "1"), ("2", "1", "0"), ("3", "1", "1")]
    assert len({row["process"] for row in rows}) == 4 and [row["local"] for row in rows] == list("0123")
    assert {row["host"] for row in rows} == {os.uname().nodename[:63]}
    assert {row["threads"] for row in rows} == {"1"}


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory):
    """Preloaded, a machine on which each rank may use what a function of the shell says."""
    path = tmp_path_factory.mktemp("elsewhere") / "elsewhere.so"
    source = os.path.join(os.path.dirname(__file__), "..", "runtime", "elsewhere.c")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", source, "-o", path, "-ldl"], check=True)
    return path


# Of each rank: its processors and its cgroup; the limits of cgroups; the threads of each rank.
SHARES = {
    "one mask": (["0,1,2,3,4,5,6,7"] * 4, ["/"] * 4, {}, [2, 2, 2, 2]),
    "a mask too small": (["0,1,2"] * 4, ["/"] * 4, {}, [1, 1, 1, 1]),
    "masks of their own": (["0,1", "2,3,4", "5", "6,7,8,9"], ["/"] * 4, {}, [2, 3, 1, 4]),
    "two masks": (["0,1,2,3", "4,5,6,7"] * 2, ["/"] * 4, {}, [2, 2, 2, 2]),
    "masks that overlap": (["0,1,2,3", "2,3,4,5", "6", "6,7"], ["/"] * 4, {}, [3, 3, 1, 1]),
    "one quota": (["0,1,2,3,4,5,6,7"] * 4, ["/job"] * 4, {"job": 4}, [1, 1, 1, 1]),
    "quotas of their own": (["0,1,2,3,4,5,6,7"] * 4, ["/job/0", "/job/1", "/job/2", "/job/3"], {"job/0": 1, "job/1": 9}, [1, 2, 2, 2]),
    "quotas at two levels": ([",".join(map(str, range(32)))] * 4, ["/job/a", "/job/a", "/job/b", "/other"], {"job": 9, "job/a": 4}, [2, 2, 3, 8]),
}


@pytest.mark.parametrize("masks, groups, quotas, threads", SHARES.values(), ids=SHARES)
def test_ranks_share_what_they_may_use(four, elsewhere, tmp_path, masks, groups, quotas, threads):
    for rank, group in enumerate(groups):
        (tmp_path / f"{rank}/proc/self").mkdir(parents=True)
        (tmp_path / f"{rank}/proc/self/cgroup").write_text(f"0::{group}\n")
        (tmp_path / f"{rank}/proc/self/mountinfo").write_text("30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        (tmp_path / f"{rank}/proc/self/exe").symlink_to(four.program)
        (tmp_path / f"{rank}/sys/fs").mkdir(parents=True)
        (tmp_path / f"{rank}/sys/fs/cgroup").symlink_to(tmp_path / "groups")
    for group in groups:
        (tmp_path / f"groups{group}").mkdir(parents=True, exist_ok=True)
    for group, quota in quotas.items():
        (tmp_path / f"groups/{group}/cpu.max").write_text(f"{quota * 100000} 100000\n")
    choose = "case $OMPI_COMM_WORLD_RANK in " + " ".join(f"{rank}) export PROCESSORS={mask};;" for rank, mask in enumerate(masks))
    script = f'unset OMP_NUM_THREADS; {choose} esac; export ELSEWHERE={tmp_path}/$OMPI_COMM_WORLD_RANK LD_PRELOAD={elsewhere}; exec "$@"'
    command = mpirun(4, "sh", "-c", script, "sh", four.program, "--steps", 0, "--print-mesh")
    sanitized = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    rows = mesh_table(start(command, tmp_path, environment=sanitized).stdout)
    assert [int(row["threads"]) for row in rows] == threads


def test_threads_of_all_ranks(four, tmp_path):
    rows = mesh_table(start(four.command("--steps", 0, "--print-mesh", "--threads", 3), tmp_path).stdout)
    assert {row["threads"] for row in rows} == {"3"}


# --- Ranks that were told other things -----------------------------------------------------------------------------

OTHER = [
    (["--steps", 3], ["--steps", 4], "--steps: rank 0: 3, rank 2: 4"),
    (["--steps", 3, "--seed", 1], ["--steps", 3, "--seed", 2], "--seed: rank 0: 1, rank 2: 2"),
    (["--steps", 3, "--seed", 0], ["--steps", 3], "--seed: rank 0: 0, rank 2: not given"),
    (["--steps", 3], ["--steps", 3, "--save", "b"], "--save: rank 0: not given, rank 2: b"),
    (["--steps", 3], ["--steps", 3, "--no-shuffle"], "--no-shuffle: rank 0: not given, rank 2: given"),
    (["--steps", 3, "--load", "a"], ["--steps", 3], "--load: rank 0: given, rank 2: not given"),
    (["--steps", 3, "--load", "a"], ["--steps", 3, "--load", "c"], "the content of --load: rank 0: a (safetensors, "),
    (["--steps", 3, "--print-mesh"], ["--steps", 3], "--print-mesh: rank 0: given, rank 2: not given"),
]


@pytest.mark.parametrize("first, third, said", OTHER, ids=[said.split(":")[0] + str(i) for i, (*_, said) in enumerate(OTHER)])
def test_ranks_are_told_the_same(four, text, tmp_path, first, third, said):
    for name, seed in (("a", 1), ("c", 2)):
        if name in first:
            start(four.command("--steps", 0, "--save", "a", "--seed", 1), tmp_path)
            start(four.command("--steps", 0, "--save", "c", "--seed", 2), tmp_path)
            break
    message = differing(four, text, tmp_path, first, third)
    assert f"error: the ranks differ in {said}" in message and message.endswith("; start all of them with the same")


def differing(trainer, text, folder, first, third, data=None):
    """Rank 2 of four is told other things: the line that says so."""
    say = lambda options, data: [trainer.program, "--data", data, "--data-format", "bytes", *options]
    command = mpirun(2, *say(first, text)) + [":", "-n", 1, *say(third, data or text), ":", "-n", 1, *say(first, text)]
    return error_of(start(command, folder, 1).stderr)


@pytest.mark.parametrize("times, at", [(1, -1), (10, 100003), (1000, -1)])  # 20 MB: samples
def test_data_may_have_other_names_but_not_other_content(four, text, tmp_path, times, at):
    content = bytearray(text.read_bytes() * times)
    text = tmp_path / "long"
    text.write_bytes(content)
    shutil.copy(text, tmp_path / "copy")
    content[at] ^= 1
    (tmp_path / "other").write_bytes(content)
    steps = ["--steps", 3, "--save", "a"]
    message = differing(four, text, tmp_path, steps, steps, "other")
    assert re.search(rf"differ in the content of --data: rank 0: {text} \(bytes, {20000 * times} bytes, hash \w+\), rank 2: other \(",
                     message)
    say = lambda data: [four.program, "--data", data, "--data-format", "bytes", *steps]
    start(mpirun(3, *say(text)) + [":", "-n", 1, *say("copy")], tmp_path)


def test_another_program_over_mpi(four, compiled, tmp_path):
    other = compiled("llama", layout_of("llama", dict(dp=4)), (), {"microbatch": 2})
    command = mpirun(3, four.program, "--steps", 0) + [":", "-n", 1, other.program, "--steps", 0]
    assert "the ranks differ in the program that they run" in error_of(start(command, tmp_path, 1).stderr)


# --- What is written -----------------------------------------------------------------------------------------------

def test_rank_0_alone_speaks(four, train, text, tmp_path):
    done = start(four.command("--data", text, "--data-format", "bytes", "--steps", 3, "--print-every", 1, "--save", "a"),
                 tmp_path)
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["1/3", "2/3", "3/3"]
    assert len(re.findall("saved step 3 to a", done.stderr)) == len(re.findall("planned", done.stderr)) == 1
    assert "each of 4 ranks" in done.stderr


def test_log_has_every_field(four, train):
    for line in train(four, 3):
        assert list(line) == ["step", "loss", "grad_norm", "lr", "tokens_per_s", "step_ms", "mfu", "peak_bytes",
                              "sent_bytes", "comm_ms", "comm_wait_ms", "rank_wait_ms", "rank_late_ms"]
        assert len(line["rank_wait_ms"]) == len(line["rank_late_ms"]) == 4
        assert line["sent_bytes"] > 0 and 0 < line["comm_wait_ms"] < line["step_ms"]
        assert 0 < line["comm_ms"]


def test_trace_is_a_file_a_rank(four, train, tmp_path):
    train(four, 4, "--trace", "trace.json", "--trace-steps", 2)
    assert sorted(p.name for p in tmp_path.glob("trace*")) == ["trace.json"] + [f"trace.rank{r}.json" for r in (1, 2, 3)]
    seen = []
    for rank in range(4):
        path = tmp_path / (f"trace.rank{rank}.json" if rank else "trace.json")
        events = json.loads(path.read_text())["traceEvents"]
        assert {event["pid"] for event in events} == {rank}
        assert events[0]["args"]["name"] == f"rank {rank} (dp {rank // 2}, tp {rank % 2})"
        assert [event["name"] for event in events if event["cat"] == "step"] == ["step 2", "step 3"]
        waits = [event for event in events if event["cat"] == "wait"]
        assert waits and any(re.fullmatch(r"model\.mdl:\d+:\d+", event["args"]["where"]) for event in waits)
        seen.append([event["name"] for event in events if event["tid"] == 0])
    assert seen[0] == seen[1] == seen[2] == seen[3]  # one program


def test_evaluation_is_the_same_whatever_the_layout(four, compiled, text, tmp_path):
    """Two of its batches, and 13 sequences, which are one batch and a part of another; what a call takes is another number
    of sequences on each."""
    (tmp_path / "part").write_bytes(text.read_bytes()[:13 * 16 + 1])
    pipeline = layout_of("llama", dict(dp=2, pp=2))
    trainers = (compiled("llama", (), (), {"batch": 1, "microbatch": 1}), compiled("llama"), four,
                compiled("llama", (), (), {"microbatch": 2}), compiled("llama", layout_of("llama", dict(dp=4)), (), {"microbatch": 2}),
                compiled("llama", pipeline, (), {"microbatch": 2}, *TCP))
    for data, batches in ((text, 2), (tmp_path / "part", 50)):
        said = [float(start(trainer.command("--steps", 0, "--eval-data", data, "--data-format", "bytes", "--eval-batches",
                                            batches * (8 if trainer == trainers[0] else 1)),
                            tmp_path).stdout.removeprefix("eval loss ")) for trainer in trainers]
        assert said == pytest.approx([said[0]] * len(said), abs=2e-6)


# --- What is sent --------------------------------------------------------------------------------------------------

def traffic(trainer, text, folder, steps):
    """([(collective, axes, calls, bytes)], log): of rank 0, over all steps."""
    done = start(trainer.command("--data", text, "--data-format", "bytes", "--steps", steps, "--print-traffic", "--log",
                                 "log", "--overwrite"), folder)
    rows = re.findall(r"^(all_\w+|reduce_scatter) +(\w+(?:, \w+)*) +(\d+) +(\d+) ", done.stdout, re.M)
    log = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    assert rows and all(int(calls) > 0 for _, _, calls, _ in rows)  # none of programs that have not run
    return [(kind, axes, int(calls), int(sent)) for kind, axes, calls, sent in rows], log


def sizes(trainer):
    """Elements of the parameters of all layers, and of the others, of llama as compiled here."""
    layer = 2 * 32 + 32 * 64 + 2 * 32 * 32 + 64 * 32 + 3 * 32 * 64
    return 2 * layer, 2 * 256 * 32 + 32


# Elements sent a step by each of n ranks, over (n - 1) / n.  An all-reduce of N sends 2 N, an all-gather or a
# reduce-scatter N.  Stage 3 gathers a layer's parameters twice, and those outside of layers once: there forward and
# backward are one function.
FORMULAS = {
    0: lambda layers, others: 2 * (layers + others),
    1: lambda layers, others: 2 * (layers + others),
    2: lambda layers, others: 2 * (layers + others),
    3: lambda layers, others: 3 * layers + 2 * others,
}


@pytest.mark.parametrize("zero", FORMULAS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_of_data_parallelism(compiled, text, tmp_path, ranks, zero):
    trainer = compiled("llama", layout_of("llama", dict(dp=ranks), zero=zero), (), {"microbatch": 8 // ranks})
    rows, log = traffic(trainer, text, tmp_path, 2)
    expected = 4 * FORMULAS[zero](*sizes(trainer)) * (ranks - 1) / ranks
    scalars = 2 * 4 * 2 * (ranks - 1)  # the loss, and with a split gradient its norm
    for line in log:
        assert expected <= line["sent_bytes"] <= expected + scalars, line
    assert sum(sent for *_, sent in rows) == sum(line["sent_bytes"] for line in log)
    kinds = {kind for kind, axes, calls, sent in rows if calls and sent > 1000}
    assert kinds == ({"all_reduce"} if zero == 0 else {"reduce_scatter", "all_gather"})


def test_accumulation_reduces_once(compiled, text, tmp_path):
    """Gradients of micro-batches are added up before they are sent."""
    sent = []
    for accumulation in (1, 4):
        layout = layout_of("llama", dict(dp=2), zero=1)
        trainer = compiled("llama", layout, (), {"microbatch": 4 // accumulation})
        sent.append(traffic(trainer, text, tmp_path, 1)[1][0]["sent_bytes"])
    assert sent[0] == sent[1]


def test_data_parallelism_of_a_model_without_a_layout(compiled, text, tmp_path):
    """mpc compile --mesh dp=2: as one rank with that batch."""
    logs = []
    for trainer in (compiled("chars", (), (), {"microbatch": 4}), compiled("chars", (), (), {"microbatch": 4}, "--mesh=dp=2", *TCP)):
        command = [trainer.program, "--data", text, "--data-format", "bytes", "--steps", 3, "--log", "log", "--overwrite"]
        start(command if not logs else by_hand(2, *command), tmp_path)
        logs.append(read_log(tmp_path / "log"))
    np.testing.assert_allclose(*[[step["loss"] for step in log] for log in logs], rtol=1e-5)


# --- Threads -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("variables", [dict(OMP_DYNAMIC="true"), dict(OMP_MAX_ACTIVE_LEVELS="0")], ids=lambda v: next(iter(v)))
def test_openmp_that_would_run_fewer_threads(compiled, train, variables):
    """Parts of products would be missing: oneDNN divides them before it knows how many threads there are."""
    one = compiled("chars", (), dict(embed=128, seq=128))
    losses = [[line["loss"] for line in train(one, 3, "--threads", 4, environment=more)] for more in ({}, variables)]
    assert losses[0] == losses[1]
