"""mpc plan as a command: what it is asked for, what it answers and writes, and large spaces."""
import json
import math
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from spaces import GPT, LLAMA, MIXTRAL, PROCESSORS, WEIGHTS, plan
from texts import BUILD, PARALLEL, ROOT, example, mpc, report, without_layout
from test_search import check_sums

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/published"))
from cover import ALL  # noqa: E402
from published import DGX  # noqa: E402
from reports import settings, sizes  # noqa: E402

SMALL = [f"-D{size}" for size in GPT.split()]
GPT2 = [ROOT / "examples/gpt2.mdl", *SMALL, "--ranks=2", "--machine=h100", "--set=train.batch=4"]


def mpc_plan(*words, text=None, status=0):
    """Standard output and standard error."""
    done = subprocess.run(list(map(str, [BUILD / "mpc", "plan", *words])), input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


# --- What is asked for ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kept, key, values", [
    ("dp=2", ("mesh", "dp"), {2}), ("pp=2", ("mesh", "pp"), {2}), ("microbatch=1", ("microbatch",), {1}), ("recompute=full", ("recompute",), {"full"}),
    ("zero=2", ("zero",), {None, 2}), ("overlap=1", ("overlap",), {None, True}), ("schedule=zb", ("schedule",), {None, "zb"}),
    ("schedule=interleaved", ("schedule",), {None, "interleaved"}), ("chunks=2", ("chunks",), {None, 2}),
    ("pieces=4", ("pieces",), {None, 4}), ("abreast=2", ("abreast",), {2})])
def test_what_is_kept(kept, key, values):
    """In all rows; None: of what makes no difference to the layout."""
    rows = plan(*GPT2, f"--keep={kept}", *(["--keep=microbatch=1"] if key != ("microbatch",) else []))["best"]
    found = set()
    for row in rows:
        for name in key:
            row = row.get(name) if row else None
        found.add(row)
    assert found == values


def test_what_to_do_next(tmp_path):
    """The command that is named compiles the layout that --write has written."""
    path = tmp_path / "my model.mdl"
    path.write_text(example("gpt2"))
    words = [path, *GPT2[1:], "--top=1"]
    first, second = mpc_plan(*words)[0].splitlines()[-2:]
    assert first == f"next: the same with --write, which puts the first layout into {path}; then"
    assert "next:" not in mpc_plan(*words, "--write")[0]
    named = subprocess.run(f"{BUILD}/{second.strip().replace('OUT', str(tmp_path / 'out'))} --no-cc", shell=True, capture_output=True, text=True)
    assert named.returncode == 0 and "rt_collective" in (tmp_path / "out/trainer.c").read_text(), named.stderr


def test_refined():
    """Listed is what is the fastest of all numbers of pieces and of micro-batches abreast, asked for one by one."""
    words = [ROOT / "examples/llama3.1.mdl", "--ranks=8", "--machine=h100", "-Dlayers=4", "--set=train.batch=32", "--keep=tp=8", "--keep=microbatch=2", "--top=1"]
    (row,) = plan(*words)["best"]
    refined = plan(*words, "--refine")
    kept = [f"--keep={name}={row[name]}" for name in ("recompute",)]
    each = {(pieces, abreast): plan(*words, *kept, f"--keep=pieces={pieces}", f"--keep=abreast={abreast}")["best"][0]["seconds"]
            for pieces in (1, 2, 4) for abreast in (1, 2, 4)}
    (best,) = refined["best"]
    assert best["seconds"] == min(each.values()) == each[best["pieces"], best["abreast"]] < row["seconds"] == each[1, 1]
    assert refined["refined"] == len(each) - 1 and refined["proved"]
    assert plan(*words, "--refine", "--keep=pieces=2", "--keep=abreast=2")["refined"] == 0


@pytest.mark.parametrize("attend", ["gather", "ring", "all_to_all"])
def test_how_attention_is_kept(attend):
    words = [f"-D{size}" for size in LLAMA.replace("layers=4", "layers=2").split()]
    (row,) = plan(ROOT / "examples/llama.mdl", *words, "--ranks=2", "--machine=a100", "--set=train.batch=2", "--keep=cp=2", f"--keep=attend={attend}",
                  "--keep=zero=1", "--keep=overlap=0", "--keep=recompute=none")["best"]
    assert row["attend"] == attend and f"attend = {attend}" in row["parallel"]


KEPT = "dp=N, tp=N, pp=N, microbatch=N, zero=0|1|2|3, overlap=0|1, recompute=none|selective|full, attend=gather|ring|all_to_all, pieces=1|2|4, abreast=1|2|3|4, schedule="


@pytest.mark.parametrize("options, status, message", [
    (["--keep=tp"], 2, "--keep needs NAME=VALUE, not 'tp'"), (["--keep=foo=2"], 1, "--keep=foo=2: there is nothing of that name\n      = help: " + KEPT),
    (["--keep=tp=x"], 1, "--keep=tp=x: that is no value of it\n      = help: " + KEPT), (["--keep=tp=0"], 1, "--keep=tp=0: that is no value of it"),
    (["--keep=zero=4"], 1, "--keep=zero=4: that is no value of it"), (["--keep=zero=1x"], 1, "--keep=zero=1x: that is no value of it"),
    (["--keep=overlap=2"], 1, "--keep=overlap=2: that is no value of it"), (["--keep=recompute=auto"], 1, "--keep=recompute=auto: that is no"),
    (["--keep=schedule=gpipe"], 1, "--keep=schedule=gpipe: that is no"), (["--keep=attend=round"], 1, "--keep=attend=round: that is no"),
    (["--keep=pieces=3"], 1, "--keep=pieces=3: that is no"), (["--keep=chunks=1000"], 1, "--keep=chunks=1000: that is no"), (["--keep=tp=4"], 1, "the model has no layout of 2 ranks; ranks can divide "),
    (["--keep=abreast=5"], 1, "--keep=abreast=5: that is no"), (["--keep=abreast=3"], 1, "--keep abreast=3: it does not divide the "),
    (["--keep=microbatch=3"], 1, "the model has no layout of 2 ranks; ranks can divide "), (["--top=0"], 2, "--top needs a number above 0"),
    (["--memory=few"], 2, "--memory needs a number above 0"), (["--memory=-1"], 2, "--memory needs a number above 0"),
    (["--mesh=dp=2"], 2, "--mesh is an option of")])
def test_wrong_options(options, status, message):
    out, err = mpc_plan(*GPT2, *options, status=status)
    assert message in err and not out


@pytest.mark.parametrize("ranks, machine, status, message", [
    (None, "h100", 2, "on how many ranks? give --ranks N"), (2, None, 2, "on which machine? give --machine NAME, of a100, "),
    (0, "h100", 2, "--ranks needs a number above 0"), (10**12, "h100", 1, "--ranks=1000000000000: a number from 1 to 2147483647"),
    (2, "v100", 1, "cannot read the machine v100")])
def test_ranks_and_machines(ranks, machine, status, message):
    words = [*([f"--ranks={ranks}"] if ranks is not None else []), *([f"--machine={machine}"] if machine else [])]
    assert message in mpc_plan(ROOT / "examples/chars.mdl", *words, status=status)[1]


def test_ranks_that_nothing_connects(tmp_path):
    """A machine file that says nothing of messages between machines is for one machine."""
    own = tmp_path / "alone.machine"
    own.write_text("".join(line for line in PROCESSORS.read_text().splitlines(True) if "between" not in line))
    words = [ROOT / "examples/chars.mdl", f"--machine={own}", "--set=train.batch=8", "--keep=microbatch=1", "--keep=zero=0"]
    assert plan(*words, "--ranks=4")["machine"] == str(own)
    assert f"--machine {own}: it does not say how 8 ranks are connected" in mpc_plan(*words, "--ranks=8", status=1)[1]


def test_a_batch_that_ranks_cannot_share():
    """Three sequences are not for two ranks; other axes have layouts."""
    answer = plan(*GPT2[:-1], "--set=train.batch=3", "--keep=recompute=none")
    assert answer["space"]["indivisible_meshes"] == 1 and all(row["mesh"]["dp"] == 1 for row in answer["best"])


def test_how_many_are_listed():
    words = [*GPT2, "--keep=microbatch=1", "--keep=recompute=none"]
    answers = [plan(*words, f"--top={top}") for top in (1, 2, 100)]
    assert [len(answer["best"]) for answer in answers] == [1, 2, 3]
    assert answers[0]["best"] == answers[2]["best"][:1]
    for answer in answers:
        check_sums(answer)
        seconds = [row["seconds"] for row in answer["best"]]
        assert seconds == sorted(seconds)


def test_the_least_memory():
    """What is said to be needed is enough to be asked for, and less than that is not: bounds are below what layouts need."""
    words = [*GPT2, "--keep=dp=2", "--keep=recompute=none"]
    rows = plan(*words)["best"]
    words += ["--offload=none"]
    err = mpc_plan(*words, "--memory=1e6", status=1)[1]
    least, unit = re.search(r"no layout of 2 ranks fits into 1.00 MB a rank: each needs ([\d.]+) (MB|KB) or more", err).groups()
    least = float(least) * {"MB": 1e6, "KB": 1e3}[unit]
    assert 1e6 < least <= 1.001 * min(row["arena_bytes"] + row["beside_bytes"] for row in rows)
    need = rows[0]["arena_bytes"] + rows[0]["beside_bytes"]
    assert plan(*words, f"--memory={need}")["best"][0]["seconds"] == rows[0]["seconds"]
    answer = json.loads(mpc_plan(*words, f"--memory={least}", "--json", status=1)[0])
    assert answer["best"] == [] and answer["space"]["do_not_fit"] == answer["space"]["layouts"]


# --- Layouts that offload ---------------------------------------------------------------------------------------------

LARGE = [ROOT / "examples/gpt2.mdl", *(f"-D{size}" for size in WEIGHTS.split()), "--ranks=2", "--machine=h100", "--set=train.batch=4",
         "--keep=pp=1", "--keep=microbatch=1", "--keep=overlap=0"]


def bytes_of(row):
    return row["arena_bytes"] + row["beside_bytes"]


def test_nothing_fits_without_offload():
    """First with the optimizer's state on the host, then with weights there, too; less than that is refused."""
    every = {word: plan(*LARGE, "--memory=1e15", "--top=100", f"--offload={word}")["best"] for word in ("none", "optimizer to host", "optimizer, params to host")}
    least = {word: min(map(bytes_of, rows)) for word, rows in every.items()}
    assert least["none"] > 1.5 * least["optimizer to host"] > 1.5 * least["optimizer, params to host"]
    assert plan(*LARGE, f"--memory={least['none']}")["offload"] == "none"
    for word, below in ("optimizer to host", "none"), ("optimizer, params to host", "optimizer to host"):
        answer = plan(*LARGE, f"--memory={0.9 * least[below]}")
        row = answer["best"][0]
        assert answer["offload"] == word and answer["proved"] and bytes_of(row) <= 0.9 * least[below] < answer["least_without"] <= least["none"]
        assert f"    offload {word}\n}}" in row["parallel"]
        assert row["seconds"] == min(plan(*LARGE, f"--memory={0.9 * least[below]}", f"--offload={word}", "--exhaustive")["best"], key=lambda r: r["seconds"])["seconds"]
    out = mpc_plan(*LARGE, f"--memory={0.9 * least['none']}")[0]
    assert out.startswith("nothing fits without 'offload': each layout needs ") and "; offload optimizer to host\n" in out
    for words in ["--offload=none"], ["--offload=optimizer to host keep 1e15"]:
        assert "no layout of 2 ranks fits" in mpc_plan(*LARGE, f"--memory={0.9 * least['none']}", *words, status=1)[1]
    assert ", and with optimizer and params offloaded " in mpc_plan(*LARGE, "--memory=4e7", status=1)[1]


def test_what_a_file_offloads(tmp_path):
    """Its statement is kept, and the option is as good; written, it is in the file again, with the figures of its report."""
    path = tmp_path / "offload.mdl"
    path.write_text(LARGE[0].read_text().replace("\nparallel {", "\nparallel {\n    offload optimizer to host just_in_time"))
    answer = plan(path, *LARGE[1:])
    assert answer["offload"] == "optimizer to host just_in_time"
    assert answer["best"] == plan(*LARGE, "--offload=optimizer to host just_in_time")["best"]
    mpc_plan(path, *LARGE[1:], "--write")
    assert path.read_text().count("offload optimizer to host just_in_time") == 1
    found = report(path, *LARGE[1:6], "--set=train.batch=4", "--target=cuda", "--machine=h100")
    assert found["time"]["memory_bytes"] == bytes_of(answer["best"][0])
    assert found["time"]["seconds"] == pytest.approx(answer["best"][0]["seconds"], rel=1e-9)


def test_what_is_recomputed_beside_transfers():
    """The first micro-batch, beside which state is fetched, is a copy of the program: its backward pass is computed once, too."""
    words = [LARGE[0], "-Dlayers=32", "-Dvocab=64", "-Dseq=1024", "-Dembed=512", "-Dheads=4", "--ranks=2", "--machine=h100", "--set=train.batch=4",
             "--offload=optimizer to host", *(f"--keep={kept}" for kept in ("pp=1", "dp=2", "microbatch=1", "zero=3", "overlap=1"))]
    none, full = (plan(*words, f"--keep=recompute={policy}")["best"][0] for policy in ("none", "full"))
    assert none["recomputed"] < 0.03 * none["seconds"] and full["recomputed"] > 0.06 * full["seconds"]


def test_offload_that_the_machine_does_not_know():
    assert "it has no line 'host', the rate of what the layout offloads" in mpc_plan(
        *LARGE[:6], "--ranks=2", f"--machine={PROCESSORS}", "--set=train.batch=4", "--target=cuda", "--offload=optimizer to host", status=1)[1]


# --- What is answered -------------------------------------------------------------------------------------------------

def test_keys():
    answer = plan(*GPT2, "--keep=pp=2", "--keep=recompute=none")
    assert list(answer) == ["mpc", "model", "machine", "target", "ranks", "memory", "sequences", "offload", "proved", "gap", "overrun", "overrun_memory", "space", "refusals", "best"]
    assert (answer["machine"], answer["target"], answer["ranks"], answer["sequences"], answer["memory"]) == ("h100", "cuda", 2, 4, 85.52e9)
    assert list(answer["space"]) == ["meshes", "indivisible_meshes", "layouts", "do_not_fit", "by_a_bound", "refused", "slower", "open", "compiled", "programs"]
    (row,) = answer["best"]  # of pp=2
    assert list(row) == ["mesh", "microbatch", "recompute", "schedule", "chunks", "parallel", "seconds", "per_second", "mfu", "arena_bytes",
                         "beside_bytes", "fits", "parts", "recomputed", "exposed", "bound"]
    assert row["per_second"] == pytest.approx(4 * 64 / row["seconds"])
    assert sum(row["parts"].values()) == pytest.approx(row["seconds"])
    assert plan(*GPT2[:-2], f"--machine={PROCESSORS}", "--keep=dp=2", "--keep=zero=0", "--set=train.batch=2")["target"] == "c"


def test_the_table_has_the_figures_of_json():
    words = [*GPT2, "--keep=recompute=none"]
    answer = plan(*words)
    out, _ = mpc_plan(*words)
    row = answer["best"][0]
    name = ",".join(f"{axis}={size}" for axis, size in row["mesh"].items() if size > 1)
    assert re.search(rf"^ +{name} +{row['microbatch']} .* {row['seconds']:.5f} +{(row['arena_bytes'] + row['beside_bytes']) / 1e9:.2f} +{100 * row['mfu']:.1f} %", out, re.M)
    assert "proved by bounds" in out and f"{answer['space']['compiled']} were compiled" in out


# --- What is written --------------------------------------------------------------------------------------------------

def rewritten(path, *words):
    mpc_plan(path, *words, "--write")
    return path.read_text()


@pytest.mark.parametrize("name, options, block", [("gpt2", GPT, True), ("gpt2", GPT, False), ("mixtral", MIXTRAL, False), ("chars", "", True)])
def test_written(name, options, block, tmp_path):
    """The file has the layout and its micro-batch and compiles; written again it stays; for others, only the layout changes."""
    path = tmp_path / "m.mdl"
    text = example(name) if block else without_layout(example(name))
    path.write_text(text)
    defines = [f"-D{size}" for size in options.split()]
    words = [*defines, "--set=train.batch=4", "--machine=h100", "--keep=recompute=none", "--keep=overlap=0", "--keep=microbatch=1"]
    row = plan(path, *words, "--ranks=2", "--top=1")["best"][0]
    first = rewritten(path, *words, "--ranks=2", "--top=1")
    assert row["parallel"] in first and re.search(r"^# mpc plan, \d{4}-\d\d-\d\d: 2 ranks of h100, [\d.e-]+ s a step, [\d.]+ [MG]B a rank$", first, re.M)
    assert re.findall(r"\n +microbatch *= *(\d+)", first) == ["1"]
    mpc("check", path, *defines, "--set=train.batch=4", "--target=cuda")
    assert rewritten(path, *words, "--ranks=2", "--top=1") == first
    second = rewritten(path, *words, "--ranks=1", "--top=1")
    apart = [re.sub(r"^# mpc plan, .*\n", "", PARALLEL.sub("", either), flags=re.M) for either in (first, second)]
    assert apart[0] == apart[1] and second.count("# mpc plan, ") == 1 and len(PARALLEL.findall(second)) == 1


def test_a_written_file_is_planned_for_less(tmp_path):
    """Its mesh, chunks and micro-batch are not those of the space: it has fewer sequences, layers and ranks."""
    path = tmp_path / "m.mdl"
    path.write_text(example("gpt2"))
    rewritten(path, *SMALL, "--set=train.batch=16", "--machine=h100", "--ranks=4", "--keep=pp=2", "--keep=dp=2", "--keep=microbatch=4", "--keep=schedule=zb",
              "--keep=chunks=2", "--keep=recompute=none", "--keep=zero=1", "--keep=overlap=0")
    less = [*SMALL[1:], "-Dlayers=2", "--set=train.batch=2", "--machine=h100", "--ranks=2", "--keep=recompute=none"]
    assert plan(path, *less)["best"] == plan(ROOT / "examples/gpt2.mdl", *less)["best"]


def test_standard_input():
    words = ["-", *GPT2[1:], "--keep=recompute=none", "--keep=dp=2"]
    assert "--write needs a file to write to, not standard input" in mpc_plan(*words, "--write", text=example("gpt2"), status=2)[1]
    assert "<stdin> on 2 ranks of h100" in mpc_plan(*words, text=example("gpt2"))[0]


def test_a_model_without_anything_to_split():
    err = mpc_plan("-", "--ranks=2", "--machine=h100", text="model m {\n    param w : [] = ones\n    loss square(w)\n}\n", status=1)[1]
    assert "<stdin> has nothing that ranks can split" in err


@pytest.mark.parametrize("kept", ["attend=ring", "schedule=zb", "chunks=2"])
def test_what_no_axis_has_is_not_kept(kept):
    text = without_layout(example("chars")) + "parallel {\n    mesh dp = 1\n    shard batch over dp\n}\n"
    assert "has no effect" in mpc_plan("-", "--ranks=2", "--machine=h100", f"--keep={kept}", "--set=train.batch=4", text=text, status=1)[1]


def test_a_micro_batch_that_is_set_is_kept():
    answer = plan(*GPT2, "--set=train.microbatch=2", "--keep=recompute=none")
    assert {row["microbatch"] for row in answer["best"]} == {2}
    assert "--keep=microbatch=x: " in mpc_plan(*GPT2, "--set=train.microbatch=x", status=1)[1]


def test_why_layouts_are_refused():
    """Chunks of logits need a size that they divide: 62 positions on two ranks have none.  The text has the reason that JSON has."""
    words = [ROOT / "examples/gpt2.mdl", *sizes(layers=2, vocab=512, seq=62, embed=64, heads=4), *settings(batch=2, loss_chunks=2), "--ranks=2", "--machine=h100",
             "--keep=recompute=none", "--keep=overlap=0", "--keep=zero=1"]
    answer = plan(*words, "--exhaustive")
    (refusal,) = answer["refusals"]
    assert refusal["layouts"] == answer["space"]["refused"] == 1 and refusal["first"] == "tp=2"
    assert "no number from 2 to 2 divides the 62 elements of 'seq'" in refusal["reason"]
    assert f"1 cannot be compiled:\n    tp=2: {refusal['reason']}\n" in mpc_plan(*words, "--exhaustive")[0]
    found = plan(*words)
    assert found["space"]["refused"] == sum(each["layouts"] for each in found["refusals"])


def test_lost_machines():
    """The best on at most seven ranks is the best of all numbers of ranks up to seven; on all eight it is faster."""
    words = [*GPT2[:-1], "--set=train.batch=12", "--keep=recompute=none", "--keep=overlap=0", "--keep=microbatch=1", "--top=1"]
    words = [word for word in words if not str(word).startswith("--ranks")]
    left = plan(*words, "--ranks=8", "--elastic=7")["best"][0]
    alone = [plan(*words, f"--ranks={ranks}")["best"][0]["seconds"] for ranks in (1, 2, 3, 4, 6)]  # no layout has 5 or 7
    assert left["seconds"] == pytest.approx(min(alone), rel=1e-9)
    assert math.prod(left["mesh"].values()) <= 7
    out = mpc_plan(*words, "--ranks=8", "--elastic=7")[0]
    assert re.match(r"with all 8 ranks: ", out) and " on at most 7 ranks of " in out
    assert plan(*words, "--ranks=8", "--elastic=7")["all_ranks"] == plan(*words, "--ranks=8")["best"][0]
    assert "--elastic=8: a number from 1 to 7" in mpc_plan(*words, "--ranks=8", "--elastic=8", status=1)[1]


# --- Where bounds say little ------------------------------------------------------------------------------------------

def test_a_search_that_ends_early():
    """Updates just in time, in a pipeline: what is left may be faster than the fastest that was compiled, and the answer says by how much."""
    words = [ROOT / "examples/gpt2.mdl", "-Dlayers=8", "-Dvocab=64", "-Dseq=16", "-Dembed=64", "-Dheads=4", "--set=train.batch=64", "--ranks=8",
             "--machine=h100", "--offload=optimizer to host just_in_time", "--top=1"]
    answer = plan(*words)
    check_sums(answer)
    space, (row,) = answer["space"], answer["best"]
    assert not answer["proved"] and 0 < answer["gap"] < 1 and answer["overrun"] == 0
    assert 110 <= space["compiled"] < 115 and space["open"] > 1000 and row["fits"]
    out = mpc_plan(*words)[0]
    assert "the search ended early" in out and f"may take up to {100 * answer['gap']:.1f} % less than the first" in out
    assert f"; {space['open']:,} were not looked at\n" in out
    kept = [f"--keep={name}={row['mesh'].get(name, row.get(name))}" for name in ("dp", "tp", "pp", "microbatch", "recompute")]
    assert plan(*words, *kept)["best"][0]["seconds"] <= row["seconds"]  # all schedules of it


SIMCLR = [ROOT / "tests/models/simclr.mdl", "--machine=h100"]


def test_a_loss_that_mixes_sequences(tmp_path):
    """All layouts are compiled, with one micro-batch; times are those of the report; a file may say another micro-batch."""
    answer = plan(*SIMCLR, "--ranks=4")
    check_sums(answer)
    (row,) = answer["best"]
    assert answer["proved"] and row["microbatch"] * row["mesh"]["dp"] == answer["sequences"] == 256
    assert answer["space"]["compiled"] == answer["space"]["layouts"] > 10
    assert "all layouts were compiled, as the loss mixes the sequences of a batch" in mpc_plan(*SIMCLR, "--ranks=4")[0]
    each = [plan(*SIMCLR, "--ranks=4", f"--keep=zero={zero}", f"--keep=recompute={policy}")["best"][0]["seconds"]
            for zero in range(4) for policy in ("none", "selective", "full")]
    assert min(each) == row["seconds"] == plan(*SIMCLR, "--ranks=4", "--exhaustive")["best"][0]["seconds"]
    path = tmp_path / "model.mdl"
    path.write_text(SIMCLR[0].read_text().replace("    batch     = 256", "    batch = 256\n    microbatch = 64").replace("mesh dp = 1", "mesh dp = 4"))
    assert plan(path, SIMCLR[1], "--ranks=4")["best"] == answer["best"]
    mpc_plan(path, SIMCLR[1], "--ranks=8", "--write")
    found = report(path, "--target=cuda", SIMCLR[1])
    assert found["time"]["seconds"] == pytest.approx(plan(path, SIMCLR[1], "--ranks=8")["best"][0]["seconds"], rel=1e-9)


@pytest.mark.parametrize("options, status, message", [
    (["--ranks=4", "--set=train.microbatch=64"], 0, ""), (["--ranks=1", "--set=train.microbatch=256"], 0, ""),
    (["--ranks=4", "--set=train.microbatch=256"], 1, "the model has no layout of 4 ranks; ranks can divide 256 sequences"), (["--ranks=4", "--keep=microbatch=32"], 1, "the model has no layout of 4 ranks; ranks can divide 256 sequences"),
    (["--ranks=4", "--set=train.microbatch=64", "--set=train.batch=64"], 1, "the model has no layout of 4 ranks; ranks can divide 64 sequences")])
def test_micro_batches_of_a_loss_that_mixes_sequences(options, status, message):
    assert message in mpc_plan(*SIMCLR, *options, status=status)[1]


# --- Large spaces -------------------------------------------------------------------------------------------------------

def test_many_ranks():
    """Llama 3.1 70B on 256 ranks of 32 machines, with the axes between machines kept."""
    answer = plan(ROOT / "tests/published/llama.mdl", *sizes(layers=80, seq=8192, vocab=128256, head=128, **DGX["70b"]), *settings(batch=512), "--ranks=256",
                  "--machine=h100", "--top=1", "--keep=tp=4", "--keep=cp=1", "--keep=zero=1", "--keep=recompute=none", "--keep=microbatch=1")
    check_sums(answer)
    assert answer["proved"] and answer["best"][0]["fits"]
    assert answer["space"]["by_a_bound"] > 0


def test_progress_on_a_terminal():
    """From the second second on, in one line, which is taken away."""
    terminal, other_end = pty.openpty()
    began = time.monotonic()
    done = subprocess.run([BUILD / "mpc", "plan", ROOT / "tests/published/llama.mdl", *sizes(layers=126, seq=8192, vocab=128256, head=128, **DGX["405b"]),
                           *settings(batch=2048), "--ranks=16384", "--machine=h100", "--top=1"], stdout=subprocess.PIPE, stderr=other_end, text=True)
    os.close(other_end)
    took = time.monotonic() - began
    said = os.read(terminal, 10_000).decode() if select.select([terminal], [], [], 0)[0] else ""
    assert done.returncode == 0 and "proved by bounds" in done.stdout
    assert took < 2 or "looking at 1,254,852 layouts: " in said  # it may be too fast to say anything
    assert not said or said.endswith("\r\033[K")


@pytest.mark.skipif(not ALL, reason="minutes of processors")
@pytest.mark.parametrize("path, given, batch, ranks, machine", [
    ("tests/published/llama.mdl", dict(layers=126, seq=8192, vocab=128256, head=128, **DGX["405b"]), 2048, 16384, "h100"),
    ("examples/deepseek.mdl", {}, 4096, 2048, "h200")], ids=["Llama 3.1 405B", "DeepSeek-V3"])
def test_thousands_of_ranks(path, given, batch, ranks, machine):
    answer = plan(ROOT / path, *sizes(**given), *settings(batch=batch), f"--ranks={ranks}", f"--machine={machine}", "--top=1")
    check_sums(answer)
    assert answer["proved"] and answer["best"][0]["fits"]
