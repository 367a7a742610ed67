"""What a run says: lines, log, trace, evaluation, samples, memory, a loss that is no number."""
import json
import math
import os
import pty
import re
import resource
import subprocess

import numpy as np
import pytest
from conftest import BATCH, SEQ, read_checkpoint, read_log, write_checkpoint


def steps_in(text):
    return [int(n) for n in re.findall(r"^step (\d+)/", text, re.M)]


# --- Lines --------------------------------------------------------------------------------------

def test_lines(run, data):
    done = run("--data", "data.txt", "--steps", 25)
    assert steps_in(done.stdout) == [1, 10, 20, 25]
    assert steps_in(run("--data", "data.txt", "--steps", 9, "--print-every", 4).stdout) == [1, 4, 8, 9]
    form = r"step 1/25  loss \d\.\d{6}  norm [\d.]+  lr 0\.167  [\d.]+[kM]? tokens/s  mfu [\d.]+ %  \d\.\d\d MB( .*left)?"
    assert re.fullmatch(form, done.stdout.splitlines()[0])


def test_progress_line_of_a_terminal(trainer, tmp_path, data):
    ours, theirs = pty.openpty()
    with subprocess.Popen([trainer, "--data", "data.txt", "--steps", "12"], cwd=tmp_path, stdout=theirs,
                          stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 4096):
                text += part
        except OSError:  # how a terminal's end is told
            pass
    os.close(ours)
    assert process.returncode == 0
    assert [int(n) for n in re.findall(rb"\rstep (\d+)/12", text)] == list(range(1, 13))
    kept = [line for line in text.split(b"\r\n") if line]
    assert [int(re.findall(rb"step (\d+)/", line)[-1]) for line in kept] == [1, 10, 12]


def test_memory_is_told_before_training(run, data):
    line, = [l for l in run("--data", "data.txt", "--steps", 1).stderr.splitlines() if l.startswith("memory:")]
    assert re.fullmatch(r"memory: 1\.\d\d MB planned \(1\.\d\d MB tensors that stay, \d+\.\d+ kB of a step\), "
                        r"1\.00 kB workspace of libraries", line)


def test_out_of_memory_is_told_before_allocating(refused, run):
    message = refused("--steps", 0, TINY_ARENA=1 << 52)
    assert re.search(r"out of memory: 'tiny' is planned to need 4\.50 PB, and [\d.]+ [MGT]B are available; "
                     r"'mpc report' of the model, with its options and --memory=\d+, says what helps", message)
    if "-fsanitize" not in os.environ.get("EXTRA_CFLAGS", ""):  # a sanitizer needs more addresses than this
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 * 10**8, 3 * 10**8))
        assert "300.00 MB are available" in refused("--steps", 0, TINY_ARENA=2 * 10**9, before=limit)
        run("--steps", 0, before=limit)


# --- Log ----------------------------------------------------------------------------------------

def test_log_has_every_field(run, tmp_path, data, monkeypatch):
    monkeypatch.delenv("MPC_PEAK_FLOPS", raising=False)
    run("--data", "data.txt", "--steps", 3, "--log", "log")
    lines = read_log(tmp_path / "log")
    assert [line["step"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert list(line) == ["step", "loss", "grad_norm", "lr", "tokens_per_s", "step_ms", "mfu", "peak_bytes"]
        assert all(isinstance(value, (int, float)) for value in line.values())
        seconds = line["step_ms"] / 1e3
        # step_ms is written to a microsecond, mfu to 1e-4; tiny.c: 32 tokens, 1e6 flops, 1e9 flops/s, 1000 bytes.
        assert abs(line["tokens_per_s"] * seconds / 32 - 1) < 2e-6 / seconds
        peak = max(1e9, *(1e6 / (step["step_ms"] / 1e3) for step in lines[:line["step"]]), 0)
        assert abs(line["mfu"] - 1e6 / seconds / peak) < 1e-4 + 4e-6 / seconds * line["mfu"] and line["mfu"] <= 1
        assert line["peak_bytes"] > 1_000_000 and np.float32(line["loss"]) == np.float32(f"{line['loss']:.9g}")
    assert 5 < lines[0]["loss"] < 7  # near log(256)


def test_peak_that_is_said(run, refused, tmp_path, data):
    """A step faster than it shows a share above 1: what was said is not corrected."""
    run("--data", "data.txt", "--steps", 2, "--peak-flops", 1e3, "--log", "log")
    for line in read_log(tmp_path / "log"):  # tiny.c: 1e6 flops
        seconds = line["step_ms"] / 1e3  # to a microsecond
        assert line["mfu"] > 1 and abs(line["mfu"] * 1e3 * seconds / 1e6 - 1) < 1e-6 / seconds
    assert refused("--data", "data.txt", "--steps", 2, "--peak-flops", 0, status=2) == \
        "error: --peak-flops must be between 0.1 and 1e+18, not 0"


def test_log_of_a_fresh_run_replaces_the_old_one_where_it_may(run, refused, tmp_path, data):
    run("--data", "data.txt", "--steps", 5, "--log", "log")
    assert refused("--data", "data.txt", "--steps", 3, "--log", "log") == \
        ("error: --log log: the file already exists and would be lost; this run begins at step 0: give another name, "
         "or give --overwrite")
    assert len(read_log(tmp_path / "log")) == 5
    run("--data", "data.txt", "--steps", 3, "--log", "log", "--overwrite")
    assert [line["step"] for line in read_log(tmp_path / "log")] == [1, 2, 3]


def test_log_of_a_run_that_has_saved_nothing_does_not_stop_the_next_one(run, refused, tmp_path, data):
    """As a node that fails before the first checkpoint leaves it; steps that such a run cannot have done are kept."""
    again = ["--data", "data.txt", "--steps", 3, "--log", "log", "--save", "a", "--resume"]
    run("--data", "data.txt", "--steps", 8, "--log", "log")
    for every in ([], ["--save-every", 3]):
        assert "log: the file already exists" in refused(*again, *every)
    with open(tmp_path / "log", "a") as log:
        log.write('{"step": 9, "lo')
    run(*again, "--save-every", 4)
    assert [line["step"] for line in read_log(tmp_path / "log")] == [1, 2, 3]


def test_log_of_a_resumed_run_has_each_step_once(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 4, "--save", "a")
    run("--data", "data.txt", "--steps", 7, "--log", "log")
    with open(tmp_path / "log", "a") as log:
        log.write('{"step": 8, "lo')  # as a crash leaves it
    before = (tmp_path / "log").read_text().splitlines()[:4]
    run("--data", "data.txt", "--steps", 6, "--load", "a", "--log", "log")
    assert (tmp_path / "log").read_text().splitlines()[:4] == before
    assert [line["step"] for line in read_log(tmp_path / "log")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("text, line", [("notes\n", 1), ('{"step": 1}\nnotes\n{"step": 2}\n', 2), ("[1]\n", 1)])
def test_log_that_is_none_is_kept(run, refused, tmp_path, data, text, line):
    run("--data", "data.txt", "--steps", 4, "--save", "a")
    (tmp_path / "log").write_text(text)
    message = refused("--data", "data.txt", "--steps", 6, "--load", "a", "--log", "log")
    assert f"--log log: line {line} is not from a trainer's log and would be lost" in message
    assert (tmp_path / "log").read_text() == text


@pytest.mark.parametrize("path, said", [("/dev/full", "No space left on device"), ("none/log", "No such file"),
                                        (".", "Is a directory"), ("pipe", "No such device or address; start what reads this pipe")])
def test_log_that_cannot_be_written_is_found_before_training(refused, tmp_path, data, path, said):
    os.mkfifo(tmp_path / "pipe")
    message = refused("--data", "data.txt", "--steps", 3, "--log", path, TINY_DUMP="dump")
    assert f"--log {path}: cannot write it: {said}" in message
    assert not (tmp_path / "dump").exists()


def test_log_that_fails_on_the_way(run, refused, tmp_path, data):
    """What was trained until then is saved: files may grow to 1.3 MB, which is more than a checkpoint has."""
    run("--data", "data.txt", "--steps", 4, "--save", "a")
    (tmp_path / "log").write_text('{"step": 4, "filler": "%s"}\n' % ("x" * 1_290_000))
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_300_000, 1_300_000))
    message = refused("--data", "data.txt", "--steps", 1000, "--load", "a", "--save", "a", "--log", "log", before=limit)
    assert "--log log: cannot write it: File too large" in message
    last = [json.loads(line)["step"] for line in (tmp_path / "log").read_text().split("\n")[:-1]][-1]
    assert 4 < last <= int(read_checkpoint(tmp_path / "a")[0]["step"]) < 1000


# --- Trace --------------------------------------------------------------------------------------

def test_trace(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 5, "--trace", "trace.json", "--trace-steps", 2)
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert (trace["otherData"]["rank"], trace["otherData"]["ranks"], trace["otherData"]["place"]) == (0, 1, "rank 0")
    assert {e["name"]: e["args"].get("name") for e in trace["traceEvents"] if e["ph"] == "M"} == {
        "process_name": "rank 0", "process_sort_index": None, "thread_name": "computation", "thread_sort_index": None}
    steps = [e for e in events if e["cat"] == "step"]
    assert [e["name"] for e in steps] == ["step 2", "step 3"]
    tokens = [e for e in events if e["name"] == "token"]
    loops = [e for e in events if e["name"] == 'all "tokens"']
    assert len(tokens) == 64 and len(loops) == 2 and len(events) == 68
    assert all(e["ts"] >= 0 and e["dur"] >= 0 and e["pid"] == e["tid"] == 0 for e in events)
    assert tokens[0]["cat"] == "fused" and tokens[0]["args"]["where"] == "tiny.mdl:3:5"
    assert abs(tokens[0]["args"]["gflops_per_s"] * tokens[0]["dur"] * 1e3 - 1024) < 1e-3
    assert "gflops_per_s" not in loops[0]["args"]
    for loop, step in zip(loops, steps):  # nested in time as in the program
        assert step["ts"] <= loop["ts"] and loop["ts"] + loop["dur"] <= step["ts"] + step["dur"] + 1e-3
        assert sum(loop["ts"] <= e["ts"] and e["ts"] + e["dur"] <= loop["ts"] + loop["dur"] + 1e-3
                   for e in tokens) == 32


@pytest.mark.parametrize("steps, traced", [(1, ["step 1"]), (3, ["step 1", "step 2", "step 3"]),
                                           (4, ["step 2", "step 3", "step 4"])])
def test_trace_of_a_short_run(run, tmp_path, data, steps, traced):
    run("--data", "data.txt", "--steps", steps, "--trace", "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e["cat"] == "step"] == traced


def test_tracing_changes_no_result(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 4, "--save", "a", "--trace", "trace.json")
    run("--data", "data.txt", "--steps", 4, "--save", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_trace_that_cannot_be_written(refused, tmp_path, data):
    message = refused("--data", "data.txt", "--steps", 3, "--trace", "none/t", TINY_DUMP="dump")
    assert "--trace none/t: cannot write none/t.tmp" in message and not (tmp_path / "dump").exists()


# --- Evaluation ---------------------------------------------------------------------------------

def eval_loss(tensors, tokens, sequences):
    """Of tiny.c, in NumPy: the mean over the first sequences, which a call takes by two and a batch by four."""
    count = sequences * SEQ
    mixed = 0.01 * tensors["h.1.mixed"].astype(float)[0]
    logits = tensors["bias"] + tensors["h.0.w"].astype(float)[tokens[:count]] + tensors["h.1.w"][tokens[:count]]
    logits += np.resize(mixed, 256)
    logs = np.log(np.exp(logits).sum(1))
    return (logs - logits[np.arange(count), tokens[1:count + 1]]).mean()


@pytest.mark.parametrize("options, batches", [([], 31), (["--eval-batches", "2"], 2), (["--eval-batches", "999"], 31)])
def test_evaluation(run, tmp_path, data, options, batches):
    done = run("--steps", 0, "--eval-data", "data.txt", "--save", "a", *options)
    tensors = read_checkpoint(tmp_path / "a")[1]
    loss = float(re.fullmatch(r"eval loss ([\d.]+)\n", done.stdout)[1])
    assert abs(loss - eval_loss(tensors, data.astype(int), batches * BATCH)) < 1e-5


@pytest.mark.parametrize("sequences", range(1, 8))
def test_the_last_part_of_a_batch_is_evaluated(run, tmp_path, data, sequences):
    """Also of a file with less than a batch, or than a call."""
    data[:sequences * SEQ + 3].tofile(tmp_path / "part")
    done = run("--steps", 0, "--eval-data", "part", "--data-format", "bytes", "--save", "a")
    tensors = read_checkpoint(tmp_path / "a")[1]
    assert abs(float(done.stdout.removeprefix("eval loss ")) - eval_loss(tensors, data.astype(int), sequences)) < 1e-5


def test_evaluation_takes_fifty_batches(run, tmp_path, data):
    np.resize(data, 5000).tofile(tmp_path / "long.txt")
    loss = [run("--steps", 0, "--eval-data", "long.txt", *more).stdout for more in
            ([], ["--eval-batches", 50], ["--eval-batches", 51])]
    assert loss[0] == loss[1] != loss[2]


def test_evaluation_on_the_way_changes_nothing(run, tmp_path, data):
    run("--data", "data.txt", "--steps", 7, "--save", "a")
    done = run("--data", "data.txt", "--steps", 7, "--save", "b", "--eval-data", "data.txt", "--eval-every", 3,
               "--log", "log")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [line["step"] for line in read_log(tmp_path / "log") if "eval_loss" in line] == [3, 6, 7]
    assert re.findall(r"step (\d+)/7 .*eval loss", done.stdout) == ["3", "6", "7"]
    after = run("--steps", 0, "--load", "b", "--eval-data", "data.txt").stdout
    assert after == f"eval loss {read_log(tmp_path / 'log')[-1]['eval_loss']:.6f}\n"


# --- Samples ------------------------------------------------------------------------------------

@pytest.fixture
def speller(run, tmp_path):
    """A checkpoint after which each letter follows the one before it, nearly always."""
    run("--steps", 0, "--save", "a")
    _, tensors = read_checkpoint(tmp_path / "a")
    weights = {n: np.zeros_like(t) for n, t in tensors.items() if not n.startswith("optimizer.")}
    for byte in range(256):
        weights["h.0.w"][byte, (byte - 96) % 26 + 97 if 97 <= byte < 123 else 97] = 20
    write_checkpoint(tmp_path / "speller", weights)
    return ["--load", "speller", "--steps", 0]


def test_sample_follows_the_model(run, speller):
    # Longer than the model's sequence of 8: the window moves on.
    assert run(*speller, "--sample", 30, "--prompt", "xyz").stdout == "xyz" + "abcdefghijklmnopqrstuvwxyz" + "abcd\n"
    assert run(*speller, "--sample", 3).stdout == "abc\n"
    assert run(*speller, "--sample", 2, "--prompt", "a very long prompt, m").stdout == "a very long prompt, mno\n"


def test_sample_is_a_function_of_the_seed(run, tmp_path):
    draw = lambda *options: run("--steps", 0, "--sample", 40, *options).stdout
    assert draw() == draw() == draw("--seed", 42)
    run("--steps", 0, "--save", "a")
    loaded = lambda *options: draw("--load", "a", *options)
    assert loaded() == draw() and loaded("--seed", 7) == loaded("--seed", 7) != loaded()


def test_temperature_and_top_k(run, tmp_path, speller):
    greedy = run(*speller, "--sample", 20, "--temperature", 0).stdout
    assert greedy == run(*speller, "--sample", 20, "--top-k", 1, "--temperature", 100).stdout == "abcdefghijklmnopqrst\n"
    assert run(*speller, "--sample", 20, "--temperature", 100).stdout != greedy


def test_sampled_frequencies(run, tmp_path):
    run("--steps", 0, "--save", "a")
    tensors = read_checkpoint(tmp_path / "a")[1]
    weights = {n: np.zeros_like(t) for n, t in tensors.items() if not n.startswith("optimizer.")}
    weights["bias"][:] = -100
    weights["bias"][[97, 98, 99]] = np.log([1, 2, 4])
    write_checkpoint(tmp_path / "b", weights)
    n = 2000
    def shares(*options):
        text = run("--load", "b", "--steps", 0, "--sample", n, *options).stdout.strip()
        return np.array([text.count(c) for c in "abc"]) / n
    five_sigma = 5 * math.sqrt(0.25 / n)
    np.testing.assert_allclose(shares(), np.array([1, 2, 4]) / 7, atol=five_sigma)
    np.testing.assert_allclose(shares("--temperature", 0.5), np.array([1, 4, 16]) / 21, atol=five_sigma)
    np.testing.assert_allclose(shares("--top-k", 2), np.array([0, 2, 4]) / 6, atol=five_sigma)

    def nucleus(p, temperature=1.0, k=3):
        """The share of each letter, straight from the definition."""
        share = np.array([1, 2, 4]) ** (1 / temperature)
        share[np.argsort(-share)[k:]] = 0
        share /= share.sum()
        order = np.argsort(-share)
        before = np.cumsum(share[order]) - share[order]
        share[order[before >= p]] = 0
        return share / share.sum()
    for p, temperature, k in ((0.5, 1, 3), (0.6, 1, 3), (0.9, 1, 3), (0.9, 0.5, 3), (0.65, 2, 3), (0.7, 1, 2), (0, 1, 3)):
        drawn = shares("--top-p", p, "--temperature", temperature, *(("--top-k", k) if k < 3 else ()))
        expected = nucleus(p or 1e-9, temperature, k)
        np.testing.assert_allclose(drawn, expected, atol=five_sigma)
        assert (drawn[expected == 0] == 0).all()


# --- Losses that are no numbers -----------------------------------------------------------------

@pytest.mark.parametrize("bad, said", [("TINY_BAD_STEP", "step 5: the loss is nan"),
                                       ("TINY_BAD_NORM", "step 5: the gradient norm is inf")])
def test_divergence_ends_the_run_and_keeps_the_checkpoint(run, refused, tmp_path, data, bad, said):
    options = ["--data", "data.txt", "--steps", 9]
    run("--data", "data.txt", "--steps", 4, "--save", "good")
    message = refused(*options, "--save", "a", "--save-every", 2, status=3, **{bad: 4})
    assert said in message and "last checkpoint: a holds step 4" in message and "lower learning rate" in message
    assert (tmp_path / "a").read_bytes() == (tmp_path / "good").read_bytes()
    assert "last checkpoint: none (give --save with --save-every)" in refused(*options, status=3, **{bad: 4})
    assert "last checkpoint: --load good is intact" in refused(*options, "--load", "good", status=3, **{bad: 4})
