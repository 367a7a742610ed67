"""Stages of a pipeline as processes: the training of one process, in every schedule; and a stage that does not answer.

Sums over micro-batches are added up in the same order as by one process, so that where nothing else is split every bit is
the same, even of parameters after some steps.  What two stages have in common is added up over both at the end of a step:
then only rounding differs."""
import re
import signal
import time

import pytest
from conftest import TCP, error_of, layout_of, memory_as_planned, read_log, some, start
from test_layouts import COMM, SEQ, reference, same_training  # noqa: F401 (a fixture)
from test_tcp import ranks, without_times  # noqa: F401 (a fixture)

STEPS = 8
FOUR = {"layers": 4}


def micro(mesh, accumulation):
    return {"microbatch": 8 // (mesh.get("dp", 1) * accumulation)}


# --- The same training ---------------------------------------------------------------------------------------------

KINDS = {  # mesh, micro-batches, settings of layout_of
    "pp2-naive": (dict(pp=2), 4, dict(schedule="naive")),
    "pp4-gpipe": (dict(pp=4), 8, dict(schedule="gpipe", recompute="full")),
    "pp4": (dict(pp=4), 8, {}),
    "pp4-few": (dict(pp=4), 2, {}),
    "dp2-pp2-zero1": (dict(dp=2, pp=2), 4, dict(zero=1)),
    "pp2-dp2-zero2-gpipe": (dict(pp=2, dp=2), 4, dict(zero=2, schedule="gpipe", recompute="selective")),
    "dp2-pp2-zero3": (dict(dp=2, pp=2), 2, dict(zero=3)),
    "pp2-tp2-seq": (dict(pp=2, tp=2), 4, dict(otherwise=SEQ, recompute="selective")),
    "cp2-pp2": (dict(cp=2, pp=2), 4, {}),
    "dp2-tp2-pp2-zero3": (dict(dp=2, tp=2, pp=2), 4, dict(zero=3, otherwise=SEQ)),
    "pp2-zb": (dict(pp=2), 8, dict(schedule="zb", recompute="selective")),
    "dp2-pp2-zero3-zb": (dict(dp=2, pp=2), 4, dict(zero=3, schedule="zb", stages=[3, 1])),
    "pp3-tp2-uneven": (dict(pp=3, tp=2), 4, dict(otherwise=SEQ, stages=[1, 2, 1])),
    "pp2-interleaved": (dict(pp=2), 4, dict(schedule="interleaved", chunks=2, recompute="selective")),
    "dp2-pp2-zero3-interleaved": (dict(dp=2, pp=2), 2, dict(zero=3, schedule="interleaved", chunks=2)),
    "pp2-tp2-zbv": (dict(pp=2, tp=2), 4, dict(schedule="zb", chunks=2, otherwise=SEQ)),
    "dp2-pp2-zbv": (dict(dp=2, pp=2), 4, dict(zero=1, schedule="zb", chunks=2)),
    "pp2-uneven-gpipe": (dict(pp=2), 8, dict(schedule="gpipe", stages=[1, 3])),
    "dp2-pp2-uneven-zero2": (dict(dp=2, pp=2), 4, dict(zero=2, stages=[3, 1], recompute="selective")),
    "dp2-pp2-overlap": (dict(dp=2, pp=2), 4, dict(options="overlap_grads")),
    "dp2-pp2-zero1-overlap-interleaved": (dict(dp=2, pp=2), 2, dict(zero=1, schedule="interleaved", chunks=2, options="overlap_grads")),
    "pp2-dp2-overlap-zbv": (dict(pp=2, dp=2), 4, dict(schedule="zb", chunks=2, options="overlap_grads, bucket = 4096")),
    # Early reductions over axes that actions have collectives over, too.
    "cp2-pp2-zero1-overlap": (dict(cp=2, pp=2), 4, dict(zero=1, over="cp", options="overlap_grads")),
    "dp2-cp2-pp2-zero1-overlap": (dict(dp=2, cp=2, pp=2), 2, dict(zero=1, over="dp, cp", options="overlap_grads")),
    "pp2-cp2-overlap-zbv": (dict(pp=2, cp=2), 4, dict(over="cp", schedule="zb", chunks=2, options="overlap_grads, bucket = 4096")),
    "cp2-pp2-zero1-overlap-ring": (dict(cp=2, pp=2), 4, dict(zero=1, over="cp", attend="ring", schedule="interleaved", chunks=2,
                                                              options="overlap_grads")),
    "dp2-pp2-zero3-prefetch": (dict(dp=2, pp=2), 4, dict(zero=3, options="overlap_params")),
    "pp2-dp2-zero3-prefetch-zb": (dict(pp=2, dp=2), 2, dict(zero=3, schedule="zb", recompute="full", options="overlap_params, overlap_grads")),
    "dp2-pp2-zero3-prefetch-naive": (dict(dp=2, pp=2), 2, dict(zero=3, schedule="naive", options="overlap_params, bucket = 4096")),
    "dp2-pp2-zero3-step": (dict(dp=2, pp=2), 4, dict(zero=3, options="gather = step, overlap_params")),
    "dp2-pp2-zero1-micro": (dict(dp=2, pp=2), 4, dict(zero=1, schedule="zb", options="gather = micro, overlap_grads")),
    "pp4-tp2-gpipe": (dict(pp=4, tp=2), 4, dict(schedule="gpipe", otherwise=SEQ)),
}
OF_EACH = {
    "llama": ["pp2-naive", "pp4-few", "dp2-pp2-zero1", "pp2-dp2-zero2-gpipe", "cp2-pp2", "dp2-tp2-pp2-zero3", "pp4-tp2-gpipe",
              "dp2-pp2-zero3-zb", "pp3-tp2-uneven", "dp2-pp2-zero3-interleaved", "pp2-tp2-zbv", "pp2-dp2-overlap-zbv",
              "dp2-pp2-zero1-micro", "dp2-pp2-zero3-prefetch", "cp2-pp2-zero1-overlap", "pp2-cp2-overlap-zbv",
              "cp2-pp2-zero1-overlap-ring"],
    "gpt2": ["pp4", "dp2-pp2-zero3", "pp2-zb", "pp2-interleaved", "pp2-uneven-gpipe", "dp2-pp2-uneven-zero2",
             "dp2-pp2-zero1-overlap-interleaved", "dp2-pp2-zero3-prefetch-naive", "dp2-cp2-pp2-zero1-overlap"],
    "bert": ["pp4-gpipe", "pp2-tp2-seq", "dp2-pp2-zbv", "dp2-pp2-zero3-step", "pp2-dp2-zero3-prefetch-zb", "dp2-pp2-overlap"],
}


@pytest.mark.parametrize("model, kind", [(model, kind) for model, kinds in OF_EACH.items()
                                         for kind in some(kinds, *range(0, len(kinds), 3 if model == "llama" else 2))])
def test_layout(compiled, train, reference, model, kind):  # noqa: F811
    """llama has a tensor at each end, gpt2 and bert one at both; bert has dropout."""
    mesh, accumulation, how = KINDS[kind]
    trainer = compiled(model, layout_of(model, mesh, **how), FOUR, micro(mesh, accumulation), *COMM[model])
    log = train(trainer, STEPS)
    same_training(log, reference(model, tuple(FOUR.items()))[:STEPS])
    memory_as_planned(trainer, mesh, log)


@pytest.mark.parametrize("how", some([dict(stages=[3, 1]), dict(schedule="gpipe"), dict(schedule="zb")], 0, 2))
def test_recompute_auto(compiled, train, reference, how):  # noqa: F811
    """Every kind of rank stays within the bytes, as planned, where one of them would not without recomputing."""
    mesh, settings = dict(pp=2), {"microbatch": 1}

    def arena(policy):
        trainer = compiled("llama", layout_of("llama", mesh, recompute=policy, **how), FOUR, settings, *TCP)
        log = train(trainer, STEPS)
        same_training(log, reference("llama", tuple(FOUR.items()))[:STEPS])
        return memory_as_planned(trainer, mesh, log)["arena"]

    most, least = arena("none"), arena("full")
    budget = (most + least) // 2
    assert min(most, least) <= arena(f"auto({budget})") <= budget


def test_short_floats(compiled, train, reference):  # noqa: F811
    mesh, precision = dict(dp=2, pp=2), "fp16"
    trainer = compiled("llama", layout_of("llama", mesh, zero=1), FOUR, {"precision": precision, **micro(mesh, 4)}, *TCP)
    same_training(train(trainer, STEPS), reference("llama", tuple(FOUR.items()), {"precision": precision})[:STEPS], precision)


def trained(trainer, text, folder, name, *options):
    """(the checkpoint, the numbers of each step)"""
    start(trainer.command("--data", text, "--data-format", "bytes", "--log", "log", "--overwrite", "--save", name, *options), folder)
    numbers = [(line["step"], line["loss"], line["grad_norm"]) for line in read_log(folder / "log")]
    return (folder / name).read_bytes(), numbers


@pytest.fixture(scope="session")
def alone(compiled, text, tmp_path_factory):
    """The checkpoint of one process that has the same micro-batches, none of whose gradients is clipped."""
    trainer = compiled("llama", (), FOUR, {"microbatch": 2, "clip": 1e9})
    return trained(trainer, text, tmp_path_factory.mktemp("alone"), "a", "--steps", STEPS)


@pytest.mark.parametrize("ranks, schedule, stages, chunks", some([
    (2, "1f1b", None, 1), (4, "naive", None, 1), (4, "gpipe", None, 1), (4, "1f1b", None, 1), (3, "1f1b", [1, 2, 1], 1),
    (2, "naive", [1, 3], 1), (2, "interleaved", None, 2), (2, "gpipe", None, 2), (2, "zb", None, 2)], 2, 4, 5, 6, 8))
def test_same_bits(compiled, text, tmp_path, alone, ranks, schedule, stages, chunks):
    layout = layout_of("llama", dict(pp=ranks), schedule=schedule, stages=stages, chunks=chunks)
    checkpoint, numbers = trained(compiled("llama", layout, FOUR, {"microbatch": 2, "clip": 1e9}, *TCP), text, tmp_path, "a", "--steps", STEPS)
    assert [line[:2] for line in numbers] == [line[:2] for line in alone[1]]
    assert checkpoint == alone[0]


EARLY = [  # mesh, zero, schedule, chunks, stages, how they are sent
    (dict(dp=2, pp=2), 0, "1f1b", 1, None, ""), (dict(dp=2, pp=2), 1, "interleaved", 2, None, ""), (dict(dp=2, pp=2), 0, "zb", 2, None, ""),
    (dict(cp=2, pp=2), 1, "1f1b", 1, None, ""), (dict(pp=2, dp=2), 1, "zb", 2, None, "grad_dtype = bf16"),
    (dict(dp=2, pp=2), 0, "1f1b", 1, [1, 3], "grad_dtype = bf16")]


@pytest.mark.parametrize("mesh, zero, schedule, chunks, stages, sent", some(EARLY, 1, 3, 4))
def test_early_reductions(compiled, text, tmp_path, mesh, zero, schedule, chunks, stages, sent):
    """Gradients that are reduced while other stages work are the same to the last bit, also in buckets of another size."""
    runs, over = [], "dp" if "dp" in mesh else "cp"
    for options in ("", "overlap_grads", "bucket = 4096, overlap_grads"):
        options = ", ".join(word for word in (sent, options) if word)
        layout = layout_of("llama", mesh, zero=zero, schedule=schedule, chunks=chunks, stages=stages, options=options, over=over)
        runs.append(trained(compiled("llama", layout, FOUR, {"microbatch": 1}, *TCP), text, tmp_path, "a", "--steps", 4))
    assert runs[0] == runs[1] == runs[2]


APART = [  # mesh, zero, sequences of a micro-batch, dtype: one micro-batch, or several
    (dict(dp=4), 0, 2, "fp32"), (dict(dp=4), 1, 2, "bf16"), (dict(dp=2), 2, 1, "fp32"), (dict(dp=2, tp=2), 3, 4, "bf16"), (dict(dp=2), 3, 1, "fp32"),
    (dict(dp=2, pp=2), 2, 1, "fp32"), (dict(dp=2, pp=2), 1, 4, "fp32"), (dict(dp=2, cp=2), 2, 1, "fp32")]


@pytest.mark.parametrize("mesh, zero, micro, precision", some(APART, 1, 4, 7))
def test_overlap_changes_no_bit(compiled, text, tmp_path, mesh, zero, micro, precision):
    """What is the default gives the losses and weights of before it was."""
    runs, sources = [], []
    for options in ("bucket = 4096, overlap_grads = false, overlap_params = false", "bucket = 4096"):
        layout = layout_of("llama", mesh, zero=zero, options=options, over=", ".join(axis for axis in ("dp", "cp") if axis in mesh))
        trainer = compiled("llama", layout, FOUR, {"microbatch": micro, "precision": precision}, *TCP)
        sources.append((trainer.program.parent / "trainer.c").read_text().count("rt_collective_start("))
        runs.append(trained(trainer, text, tmp_path, "a", "--steps", 4))
    assert sources[0] < sources[1], "nothing overlaps by default"
    assert runs[0] == runs[1]


TABLES = {
    "cyclic": "F0.0,F0.1,F2.0,F2.1,B2.0,B2.1,B0.0,B0.1,F0.2,F0.3,F2.2,F2.3,B2.2,B2.3,B0.2,B0.3\n"
              "F1.0,F1.1,F3.0,B3.0,F3.1,B3.1,B1.0,B1.1,F1.2,F1.3,F3.2,B3.2,F3.3,B3.3,B1.2,B1.3\n",
    "vee": "F0.0,F0.1,F3.0,B3.0,F3.1,B3.1,B0.0,B0.1,F0.2,F0.3,F3.2,B3.2,F3.3,B3.3,B0.2,B0.3\n"
           "F1.0,F2.0,F1.1,F2.1,B2.0,B1.0,B2.1,B1.1,F1.2,F2.2,F1.3,F2.3,B2.2,B1.2,B2.3,B1.3\n",
    "late": "F0.0,F0.1,F0.2,F0.3,B0.0,B0.1,B0.2,B0.3\nF1.0,F1.1,F1.2,B1.0,F1.3,B1.1,B1.2,B1.3\n",
    "weights last": "# by hand\n F0.0, F0.1, B0.0, F0.2, B0.1, F0.3, B0.2, B0.3, W0.0, W0.1, W0.2, W0.3\n\n"
                    "F1.0,B1.0,F1.1,B1.1,W1.0,F1.2,B1.2,F1.3,B1.3,W1.1,W1.2,W1.3\n",
}


@pytest.mark.parametrize("name", some(TABLES, 0, 3))
def test_table(compiled, train, reference, tmp_path, name):  # noqa: F811
    """A schedule of the user's own."""
    (tmp_path / "own.csv").write_text(TABLES[name])
    chunks = 2 if name in ("cyclic", "vee") else 1
    layout = layout_of("llama", dict(pp=2), schedule=f'"{tmp_path}/own.csv"', chunks=chunks)
    same_training(train(compiled("llama", layout, FOUR, {"microbatch": 2}, *TCP), STEPS), reference("llama", tuple(FOUR.items()))[:STEPS])


@pytest.mark.parametrize("kind", ["pp4", "dp2-tp2-pp2-zero3", "pp2-interleaved"])
def test_tcp(compiled, train, kind):
    """The same steps as over MPI, to the last bit."""
    mesh, accumulation, how = KINDS[kind]
    logs = [train(compiled("llama", layout_of("llama", mesh, **how), FOUR, micro(mesh, accumulation), *options), 5)
            for options in [(), TCP]]
    assert without_times(logs[0]) == without_times(logs[1])


# --- Checkpoints -----------------------------------------------------------------------------------------------------

def test_checkpoints(compiled, text, tmp_path):
    """Of one mesh, read and written by the others, byte for byte; going on with one's own is exact, too."""
    staged = [compiled("llama", layout_of("llama", mesh, **how), FOUR, micro(mesh, accumulation), *TCP)
              for mesh, accumulation, how in (KINDS["pp4"], KINDS["dp2-tp2-pp2-zero3"], KINDS["dp2-pp2-zbv"])]
    one = compiled("llama", (), FOUR, {"microbatch": 2, "clip": 1e9})
    for trainer in staged:
        half = trained(trainer, text, tmp_path, "half", "--steps", 2)[0]
        unbroken = trained(trainer, text, tmp_path, "a", "--steps", 4)
        assert trained(trainer, text, tmp_path, "a", "--steps", 4, "--load", "half") == unbroken
        for other in (one, *staged):
            start(other.command("--steps", 0, "--load", "half", "--save", "again", "--overwrite"), tmp_path)
            assert (tmp_path / "again").read_bytes() == half


def test_going_on_in_stages(compiled, text, tmp_path, alone):
    """What one process began."""
    trained(compiled("llama", (), FOUR, {"microbatch": 2, "clip": 1e9}), text, tmp_path, "half", "--steps", STEPS // 2)
    staged = compiled("llama", layout_of("llama", dict(pp=4)), FOUR, {"microbatch": 2, "clip": 1e9}, *TCP)
    assert trained(staged, text, tmp_path, "a", "--steps", STEPS, "--load", "half")[0] == alone[0]


# --- A stage that does not answer ------------------------------------------------------------------------------------

@pytest.fixture(scope="session")
def stages(compiled):
    return compiled("llama", layout_of("llama", dict(pp=4)), FOUR, {"microbatch": 1})


@pytest.fixture(scope="session")
def staged_tcp(compiled):
    return compiled("llama", layout_of("llama", dict(pp=4)), FOUR, {"microbatch": 1}, *TCP)


def assert_names(message, rank, seconds):
    """The rank that is silent, and the message or the sum that another one waits for, with its place in the model.  On a
    loaded machine a rank that waits for one that waits may be the first to give up, which it says."""
    said = re.match(r"error: (?:rank \d: )?rank (\d) \(pp \1\) has waited (\d+) s(?: before [FBW] of micro-batch \d+)? in (.*) for (.*), which "
                    r"(does not answer|answers, but waits for others): check", message)
    assert said and int(said[2]) >= seconds, message
    if said[5] == "does not answer":
        assert said[4] == f"rank {rank} (pp {rank})" and int(said[1]) != rank, message
    assert re.match(r"(send|all_reduce) over pp at '.+' \(|the meeting of all ranks between two steps|the barrier", said[3]), message


@pytest.mark.parametrize("rank", [0, 2])
def test_silence(stages, running, rank):
    one = running(stages, "--timeout", 1)
    begin = time.monotonic()
    one.signal(rank, signal.SIGSTOP)
    status, _, stderr = one.end()
    assert status == 1 and 1 <= time.monotonic() - begin < 40
    assert_names(error_of(stderr), rank, 1)


def test_killed(stages, running, tmp_path):
    one = running(stages, "--save", "a", "--save-every", 2)
    one.await_file("a")
    one.signal(2, signal.SIGKILL)
    status, _, stderr = one.end(20)
    assert status != 0 and "signal 9" in stderr
    start(stages.command("--steps", 0, "--load", "a"), tmp_path)


@pytest.mark.parametrize("how, rank", [("stopped", 1), ("killed", 2)])
def test_silence_over_tcp(staged_tcp, ranks, how, rank):  # noqa: F811
    ranks.add_numbered(staged_tcp, "--steps", 10**6, "--print-every", 1, "--timeout", 2)
    for _ in range(3):
        assert ranks.processes[0].stdout.readline().startswith("step ")
    ranks.processes[rank].send_signal(signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
    status, _, stderr = ranks.end()
    assert status == [-signal.SIGKILL if q == rank else 1 for q in range(4)]
    if how == "stopped":
        assert_names(error_of(stderr), rank, 2)
    else:
        assert f"rank {rank} (process {ranks.processes[rank].pid} on " in error_of(stderr)
        assert ") ended without a message" in error_of(stderr)


# A compiler that lets a stage get a signal before an action of the third step: SILENCE="stage F micro-batch signal".
SILENCER = """#!/bin/sh
for word in "$@"; do
    case $word in *.c)
        sed -i -E '/^(static )?void forward_action_0\\(.*micro\\)$/{n;s/$/ silence(rt_coordinate(rt, 0), 70, micro);/}
                   /^(static )?void backward_action_0\\(.*micro\\)$/{n;s/$/ silence(rt_coordinate(rt, 0), 66, micro);/}' "$word" ;;
    esac
done
exec cc -include "$(dirname "$0")/silence.h" "$@"
"""
SILENCE = """#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static inline void silence(int stage, char action, long micro)
{
    static int times;
    int at, number;
    char what;
    long of;
    if (sscanf(getenv("SILENCE"), "%d %c %ld %d", &at, &what, &of, &number) == 4 && at == stage && what == action &&
        of == micro && ++times == 3)
        raise(number);
}
"""
PHASES = {"warm-up": ("F", 1), "steady": ("B", 3), "drain": ("B", 6)}  # of stage 1 of 4 with 8 micro-batches


@pytest.fixture(scope="session")
def silenced(compiled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("silencer")
    (folder / "silence.h").write_text(SILENCE)
    (folder / "cc").write_text(SILENCER)
    (folder / "cc").chmod(0o755)
    return compiled("llama", layout_of("llama", dict(pp=4)), FOUR, {"microbatch": 1}, *TCP, "--cc", folder / "cc")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("phase", PHASES)
def test_silence_in_each_phase(silenced, ranks, monkeypatch, phase, number):  # noqa: F811
    """The others say who is gone, whatever it was about to do."""
    action, micro_batch = PHASES[phase]
    monkeypatch.setenv("SILENCE", f"1 {action} {micro_batch} {int(number)}")
    ranks.add_numbered(silenced, "--steps", 10, "--timeout", 2)
    silent = ranks.processes[1]
    others = [process for process in ranks.processes if process is not silent]
    said = [process.communicate(timeout=60)[1] for process in others]
    assert [process.returncode for process in others] == [1, 1, 1], said
    error = error_of("".join(said))
    if number == signal.SIGKILL:
        assert silent.wait() == -signal.SIGKILL and f"rank 1 (process {silent.pid} on " in error
        assert ") ended without a message" in error
    else:
        silent.kill()
        assert_names(error, 1, 2)


def test_signal_to_one_stage(stages, running, tmp_path):
    """All finish the same step and save it."""
    one = running(stages, "--save", "a", "--log", "log")
    one.signal(2, signal.SIGTERM)
    status, _, stderr = one.end()
    assert status == 128 + signal.SIGTERM and "error: " not in stderr
    step = int(re.search(r"interrupted at step (\d+): resume with --load a", stderr)[1])
    assert read_log(tmp_path / "log")[-1]["step"] == step
