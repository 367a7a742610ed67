"""What mpc report says where memory does not suffice: each remedy against a report with its options, and what remedies
save against formulas."""
import json
import re
import shlex
import subprocess

import pytest
from conftest import MPC, ROOT, run, words_of

LLAMA = ROOT / "examples/llama.mdl"
SMALL = dict(layers=4, vocab=4096, seq=64, embed=64, kv_heads=2, group=2, head=16, ff=128, batch=16, microbatch=4)
LARGE = dict(layers=32, vocab=128256, seq=8192, embed=4096, kv_heads=8, group=4, head=128, ff=14336, batch=8, microbatch=1)
GPU = ["--target=cuda", "--machine=h100"]


def reported(*words):
    return json.loads(run(MPC, "report", LLAMA, "--json", *words).stdout)


def needed(made):
    """The arena, and what the runtime has beside it, of a rank."""
    memory = made["memory"]
    return memory["arena"] + memory["messages"] + memory.get("products", 0) + memory.get("offloaded", {}).get("buffers", 0)


def replaced(words, told):
    """The command with options in place of its own."""
    kept, told = list(words), list(told)
    for at, word in enumerate(told):
        if word == "--set":
            key = told[at + 1].split("=")[0]
            same = [i for i in range(1, len(kept)) if kept[i - 1] == "--set" and kept[i].startswith(f"{key}=")]
            for i in same:
                del kept[i - 1:i + 1]
        elif word.startswith("--"):
            kept = [other for other in kept if not other.startswith(f"{word}=")]
    return kept + told


def all_of(found):
    return found["remedies"] + ([found["together"]] if "together" in found else [])


@pytest.mark.parametrize("words", [
    [*words_of(**LARGE), *GPU],                                                     # the state alone is too much
    [*words_of(**LARGE), *GPU, "--memory=40e9"],                                    # and the activations
    [*words_of(**LARGE), *GPU, "--memory=165e9"],                                   # little is missing
    [*words_of(**LARGE), *GPU, "--memory=40e9", "--offload=optimizer to host keep 20e9"],
    [*words_of(**SMALL), "--memory=9e6"],                                           # work and bytes in place of times
    [*words_of(**SMALL), "--memory=4e6", "--mesh=dp=4"],
    [*words_of(**SMALL), "--memory=6e6", "--mesh=pp=2,dp=2", "--schedule=1f1b"],
    [*words_of(**SMALL), "--memory=100"],
], ids=lambda words: " ".join(word for word in words if re.match("--[mos]", word) and "train" not in word))
def test_remedies_do_what_they_say(words):
    """Recomputed by a command that a user would paste; seconds too."""
    base = reported(*words)
    found = base["does_not_fit"]
    room = found["room_bytes"]
    assert found["needed_bytes"] == needed(base) > room
    remedies = all_of(found)
    assert remedies
    for remedy in remedies:
        told = replaced(words, shlex.split(remedy["options"]))
        made = reported(*(told if remedy["fits"] else replaced(told, ["--memory", "1e18"])))  # else it would search, too
        assert "does_not_fit" not in made
        assert remedy["memory_bytes"] == needed(made) < needed(base)
        assert remedy["fits"] == (needed(made) <= room)
        assert remedy["flops"] == made["work"]["rank"]
        far = made["memory"].get("offloaded", {"read": 0, "written": 0})
        sent = sum(row["sent"] for row in made["communication"]["collectives"])
        assert remedy["moved_bytes"] == pytest.approx(far["read"] + far["written"] + sent, rel=1e-9)
        if "--machine=h100" in words:
            assert remedy["seconds"] == pytest.approx(made["time"]["seconds"], rel=1e-12)
        else:
            assert "seconds" not in remedy
    alone = [remedy["fits"] for remedy in found["remedies"]]
    assert all(alone) or not any(alone)
    assert any(alone) or "together" in found
    if any(alone) and "together" in found:  # and it is faster
        assert found["together"]["fits"] and found["together"]["seconds"] < found["remedies"][0]["seconds"]
    if any(alone):  # the cheapest first, but what rounds
        order = [(remedy["rounds"], remedy.get("seconds", 0)) for remedy in found["remedies"]]
        assert order == sorted(order)


MICROS = 4
WAITING = dict(layers=8, vocab=4096, seq=512, embed=256, kv_heads=2, group=2, head=64, ff=512, batch=MICROS, microbatch=1)


@pytest.mark.parametrize("options", [
    ["--offload=optimizer to host"],
    ["--offload=optimizer to host just_in_time"],
    ["--offload=optimizer to host", "--memory=120e6"],  # nothing offloaded does not fit
    ["--offload=optimizer to host keep 1000000", "--memory=120e6"],
    ["--offload=optimizer, params, activations to host"],
    ["--offload=optimizer to host", "--mesh=dp=2", "--zero=1"],  # refuses more forward passes than one
    ["--offload=optimizer to host", "--mesh=dp=2,pp=2", "--schedule=1f1b"],
], ids=" ".join)
def test_faster_ways_to_offload(options):
    """Each against a report with its options, and all against those with the other numbers: none that is missing is faster in as
    little memory."""
    words = [*words_of(**WAITING), *GPU, *options, "--recompute=full"]
    base = reported(*words)
    room = base["time"]["memory_room_bytes"]
    found = base["faster"]
    assert found and "does_not_fit" not in base
    for way in found:
        made = reported(*replaced(words, shlex.split(way["options"])), "--no-remedies")
        assert way["memory_bytes"] == needed(made) <= room and way["fits"]
        assert way["seconds"] == pytest.approx(made["time"]["seconds"], rel=1e-12)
        assert way["seconds"] <= 0.99 * base["time"]["seconds"]
    assert [way["seconds"] for way in found] == sorted(way["seconds"] for way in found)
    assert [way["memory_bytes"] for way in found] == sorted((way["memory_bytes"] for way in found), reverse=True)
    parts = options[0].split("=")[1].split(" to ")[0]
    others = ["none"] + [f"{what} to host{when}" for what in ("optimizer", "activations", "optimizer, params", "optimizer, activations") if set(what.split(", ")) <= set(parts.split(", "))
                         for when in ("", *(" just_in_time", " just_in_time 2", f" just_in_time {MICROS}") * ("optimizer" in what and "params" not in what))]
    for other in others:
        tried = run_or_none(*replaced(words, ["--offload", other]), "--no-remedies")
        if tried and needed(tried) <= room and tried["time"]["seconds"] <= 0.99 * base["time"]["seconds"]:
            assert any(way["seconds"] <= tried["time"]["seconds"] * (1 + 1e-12) and way["memory_bytes"] <= needed(tried) for way in found), other


def run_or_none(*words):
    done = subprocess.run([MPC, "report", LLAMA, "--json", *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 or "just_in_time" in done.stderr, done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


def test_nothing_is_faster():
    """Without times, or where that is not to be searched; where transfers hide; and where it does not fit, that is said first."""
    words = [*words_of(**WAITING), "--target=cuda", "--recompute=full", "--offload=optimizer to host"]
    assert "faster" in reported(*words, "--machine=h100")
    assert "faster" not in reported(*words)
    assert "faster" not in reported(*words, "--machine=h100", "--no-remedies")
    assert "faster" not in reported(*replaced(words, ["--offload", "none"]), "--machine=h100")
    short = reported(*words, "--machine=h100", "--memory=1e6")
    assert "faster" not in short and "does_not_fit" in short
    hidden = reported(*words_of(**{**WAITING, "seq": 32768, "layers": 4}), *GPU, "--recompute=full", "--offload=activations to host")
    exposed = sum(axes["exposed"] for axes in hidden["time"]["axes"])
    assert exposed < 0.01 * hidden["time"]["seconds"] and "faster" not in hidden


def test_faster_ways_as_text():
    said = run(MPC, "report", LLAMA, *words_of(**WAITING), *GPU, "--recompute=full", "--offload=optimizer to host", "--memory=120e6").stdout
    [first, title, *ways] = said[said.index("the step waits for offloaded tensors"):said.index("communication of a rank")].strip().split("\n")
    assert title.split("  ")[-1] in ("this is faster", "these are faster")
    assert ways and all(re.fullmatch(r" +[\d.]+ MB +[\d.]+ ms  --offload '.*'", way) for way in ways)


def test_updates_may_wait():
    """Where the program does not fit, of the ways to offload the state the fastest one that fits; without times the one that moves
    the fewest bytes, which has no more forward passes with the updates than it needs."""
    plain = [*words_of(**WAITING), "--target=cuda", "--recompute=full"]
    ways = {when: reported(*plain, "--machine=h100", f"--offload=optimizer to host{when}", "--no-remedies") for when in ("", " just_in_time", " just_in_time 2", " just_in_time 4")}
    memory = {when: needed(made) for when, made in ways.items()}
    assert memory[""] < memory[" just_in_time"] < memory[" just_in_time 2"] < memory[" just_in_time 4"]
    for when, room in memory.items():
        [told] = [remedy for remedy in reported(*plain, "--machine=h100", f"--memory={room}")["does_not_fit"]["remedies"] if "offload" in remedy["options"]]
        best = min((way for way in ways if memory[way] <= room), key=lambda way: ways[way]["time"]["seconds"])
        assert told["options"] == f"--offload 'optimizer to host{best}'"
    [told] = [remedy for remedy in reported(*plain, f"--memory={memory[' just_in_time 4']}")["does_not_fit"]["remedies"] if "offload" in remedy["options"]]
    assert told["options"] == "--offload 'optimizer to host just_in_time'"


def test_fewer_forward_passes_fit():
    """Of a program that has updates wait already."""
    words = [*words_of(**WAITING), *GPU, "--recompute=full", "--offload=optimizer to host just_in_time 4"]
    memory = [needed(reported(*replaced(words, ["--offload", f"optimizer to host just_in_time {count}"]))) for count in (4, 2, 1)]
    found = reported(*words, f"--memory={memory[0] - 1}")["does_not_fit"]
    assert [remedy["options"] for remedy in found["remedies"] if "offload" in remedy["options"]] == ["--offload 'optimizer to host just_in_time 2'"]
    found = reported(*words, f"--memory={memory[1] - 1}")["does_not_fit"]
    assert [remedy["options"] for remedy in found["remedies"] if "offload" in remedy["options"]] == ["--offload 'optimizer to host just_in_time'"]
    assert memory[0] > memory[1] > memory[2]


def test_no_more_than_fits(report):
    """To the byte; and nothing is said of a program that fits, or where nothing says how much there is."""
    made = report(layers=2, batch=8)
    assert "does_not_fit" not in made
    assert "does_not_fit" not in report(f"--memory={needed(made)}", layers=2, batch=8)
    assert "does_not_fit" not in report("--memory=1", "--no-remedies", layers=2, batch=8)
    assert report(f"--memory={needed(made) - 1}", layers=2, batch=8)["does_not_fit"]["needed_bytes"] == needed(made)


@pytest.mark.parametrize("ranks", [2, 4])
def test_zero_saves_the_state(ranks):
    """ZeRO 1 (arXiv 1910.02054, 3.1): of 12 bytes of each parameter, two moments and the weight in f32, 1 / N are left."""
    words = words_of(**{**SMALL, "seq": 256}) + [f"--mesh=dp={ranks}", "--zero=0"]
    base = reported(*words)
    found = reported(*words, f"--memory={needed(base) - 1}")["does_not_fit"]
    [zero] = [remedy for remedy in found["remedies"] if remedy["options"] == "--zero 1"]
    made = reported(*replaced(words, ["--zero", "1"]))
    assert zero["memory_bytes"] == needed(made) and zero["fits"]
    saved = 12 * base["parameters"] * (ranks - 1) / ranks
    assert base["memory"]["arena"] - made["memory"]["arena"] == pytest.approx(saved, rel=0.01)


def test_offload_saves_the_state():
    """Two moments and a weight in f32 are 12 bytes of each parameter in bf16; a layer's are in memory while it is updated,
    and what is outside of layers is moved as a whole."""
    base = reported(*words_of(**LARGE), *GPU)
    host = reported(*words_of(**LARGE), *GPU, "--offload=optimizer to host", "--no-remedies")
    saved, layer = 12 * base["parameters"], 12 * (base["parameters"] - 2 * 128256 * 4096) / 32
    assert saved - 3 * layer < needed(base) - needed(host) < saved


def line_of(text):
    [line] = [number for number, line in enumerate(LLAMA.read_text().split("\n"), 1) if line.strip().startswith(text)]
    return f"llama.mdl:{line}:"


def test_text_names_lines():
    """The logits of 128,256 words make the peak; the state is most of it: 8 bytes of 8.03e9 parameters."""
    said = run(MPC, "report", LLAMA, *words_of(**LARGE), *GPU).stdout
    [first, at, title, remedy] = said[said.index("does not fit: "):].split("\n")[:4]
    assert re.fullmatch(r"does not fit: 171\.\d+ GB of 85\.52 GB, 86\.\d+ GB are missing", first)
    assert f"logits ({line_of('logits')}" in at and f"64.24 GB optimizer state, the largest h.*.mlp.w_gate ({line_of('param w_gate')}" in at
    assert title.split("  ")[-1] == "with one of these it fits"
    assert re.fullmatch(r" +77\.\d+ GB +\d+\.\d+ s  --offload 'optimizer to host just_in_time'", remedy)


def test_nothing_is_enough():
    said = run(MPC, "report", LLAMA, *words_of(**SMALL), "--memory=1").stdout
    assert "each of these helps, none is enough" in said and "the least without more ranks" in said


def test_what_does_not_help_is_not_said():
    """One rank has nothing to partition; where the state is most, a smaller loss saves nothing that is missing."""
    found = reported(*words_of(**LARGE), *GPU, "--memory=40e9", "--recompute=full")["does_not_fit"]
    assert not any(re.search("zero|recompute|microbatch", remedy["options"]) for remedy in all_of(found))
    for remedy in found["remedies"]:
        assert 100 * (found["needed_bytes"] - remedy["memory_bytes"]) >= found["needed_bytes"] - found["room_bytes"]


@pytest.mark.parametrize("command", ["check", "report", "compile"])
def test_auto_names_remedies(command, tmp_path):
    """What the error of recompute auto offers is enough, each of it."""
    out = ["-o", tmp_path / "out", "--no-cc"] if command == "compile" else []
    words = [*words_of(**SMALL), "--recompute=auto(14000000)"]
    said = run(MPC, command, LLAMA, *words, *out, status=1).stderr
    help = said.split("= help: ")[1].strip()
    offered = re.split(r", (?=--)", help.split(", auto(")[0])
    assert len(offered) >= 2 and help.endswith("or more, or more ranks")
    for options in offered:
        run(MPC, command, LLAMA, *replaced(words, shlex.split(options)), *out)
