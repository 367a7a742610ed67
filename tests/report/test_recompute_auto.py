"""recompute auto(BYTES): the memory fits, with no more FLOPs than any policy that fits."""
import json
import re

import pytest

from conftest import HERE, MPC, ROOT, run, some

# Of eight small layers, in pipelines: stages differ in copies and in micro-batches in flight.
STAGED = (ROOT / "examples/gpt2.mdl", *"-Dlayers=8 -Dembed=64 -Dheads=4 -Dseq=64 -Dvocab=512 --set train.batch=16 --set train.microbatch=1".split())
CASES = {"pp-1f1b": (*STAGED, "--mesh=pp=4"),
         "pp-gpipe": (*STAGED, "--mesh=pp=4", "--schedule=gpipe"),
         "pp-uneven": (*STAGED, "--mesh=pp=2", "--stages=6,2"),
         "pp-interleaved": (*STAGED, "--mesh=pp=2", "--schedule=interleaved"),
         "pp-zb": (*STAGED, "--mesh=pp=2,dp=2", "--schedule=zb", "--zero=1"),
         "gpt": (HERE / "gpt.mdl",),
         "gpt-mesh": (HERE / "gpt.mdl", "--mesh=dp=2,tp=2", "--zero=1"),
         "gpt2": (ROOT / "examples/gpt2.mdl", "--mesh=dp=4", "--zero=3"),
         "llama": (ROOT / "examples/llama.mdl", "--mesh=dp=2,cp=2,tp=2", "--target=cuda"),
         "bert": (ROOT / "examples/bert.mdl", "-Dlayers=3"),
         "chars": (ROOT / "examples/chars.mdl",)}
STEPS = 6


def cost(words, policy):
    """Bytes and FLOPs of a rank."""
    figures = json.loads(run(MPC, "report", *words, "--json", f"--recompute={policy}").stdout)
    memory = figures["memory"]
    assert memory["arena"] == max(kind["arena"] for kind in memory.get("kinds", [memory]))
    return memory["arena"], figures["work"]["rank"]


def test_overlap_is_given_up(tmp_path):
    """Messages that run beside computation take memory for the tensors of a layer.  Where nothing fits with it, they do not,
    unless the file asks for it; where something fits, they do."""
    sizes = "-Dlayers=8 -Dembed=64 -Dheads=4 -Dseq=8 -Dvocab=64 --set train.batch=8 --set train.microbatch=1 --mesh=dp=8 --zero=3".split()
    text = (ROOT / "examples/gpt2.mdl").read_text()
    models = {}
    for name, options in ("default", ""), ("off", " (overlap_grads = false, overlap_params = false)"), ("on", " (overlap_grads, overlap_params)"):
        models[name] = (tmp_path / f"{name}.mdl", *sizes)
        models[name][0].write_text(text.replace("zero 1 over dp", f"zero 1 over dp{options}"))
    off, on = (cost(models[name], "full")[0] for name in ("off", "on"))
    assert off < on and cost(models["default"], "full")[0] == on
    for budget, wanted in (off, ("false", "recompute auto")), (on, ("true", "default")):
        assert cost(models["default"], f"auto({budget})")[0] <= budget
        run(MPC, "compile", *models["default"], f"--recompute=auto({budget})", "-o", tmp_path / "out", "--no-cc")
        settings = json.loads((tmp_path / "out/plan.json").read_text())["settings"]
        for option in ("overlap_grads", "overlap_params"):
            assert [(row["value"], row["from"]) for row in settings if row["name"] == f"parallel.zero.{option}"] == [wanted]
    said = run(MPC, "check", *models["on"], f"--recompute=auto({off})", status=1).stderr
    assert f"a rank needs at least {on:,} bytes" in said
    said = run(MPC, "check", *models["default"], f"--recompute=auto({off - 1})", status=1).stderr
    assert f"a rank needs at least {off:,} bytes" in said


# Without ALL a pipeline in chunks, one with a split backward and copies, and meshes of both targets.
@pytest.mark.parametrize("name", some(CASES, 3, 4, 6, 8))
def test_ladder(name):
    """The FLOPs that `none` recomputes cost nothing: they are part of the kernels that read the values."""
    words = CASES[name]
    policies = {policy: cost(words, policy) for policy in ("none", "selective", "full")}
    least, most, free = policies["full"][0], policies["none"][0], policies["none"][1]
    before, seen = float("inf"), set()
    for budget in (least + (most - least) * i // STEPS for i in range(STEPS + 1)):
        memory, flops = cost(words, f"auto({budget})")
        again = max(flops - free, 0)
        assert memory <= budget
        assert again <= before * (1 + 1e-9)
        for policy, (bytes_of_policy, flops_of_policy) in policies.items():
            assert bytes_of_policy > budget or flops <= flops_of_policy, f"{policy} fits, too"
        before = again
        seen.add((memory, flops))
    assert again == 0 and (memory, flops) == policies["none"]
    assert len(seen) > 3, "there is something between the policies"


# The rates that the choice is made with: FLOPs while a byte is moved one way.
A_BYTE = {"c": 100e9 / 2e9, "cuda": 400e12 / 50e9}
SIZES = {"c": "-Dembed=256 -Dheads=4 -Dseq=256 --set train.batch=16 --set train.microbatch=16",
         "cuda": "-Dembed=4096 -Dheads=32 -Dseq=8192 --set train.batch=4 --set train.microbatch=4"}


def cost_moving(words, target, policy, forward, free, *options):
    """Memory of a rank, and FLOPs beyond those of `none`, with those of the time in which transfers do not hide: out behind the
    forward, back behind the backward, which is twice as long, and what that recomputes."""
    figures = json.loads(run(MPC, "report", *words, "--json", f"--target={target}", f"--recompute={policy}", *options).stdout)
    moved = figures["memory"].get("offloaded", {}).get("written", 0) * A_BYTE[target]
    again = max(figures["work"]["rank"] - free, 0)
    return figures["memory"]["arena"], again + max(moved - forward, 0) + max(moved - 2 * forward - again, 0), moved, again


@pytest.mark.parametrize("target, tier", [("c", "disk"), ("cuda", "host")])
def test_offload_is_another_answer(target, tier):
    """Where activations may be offloaded, what fits costs no more than if all that is saved is kept, or all is offloaded."""
    option, words = f"--offload=activations to {tier}", (ROOT / "examples/gpt2.mdl", "-Dlayers=12", "-Dvocab=2000", *SIZES[target].split())
    policies = {policy: json.loads(run(MPC, "report", *words, "--json", f"--target={target}", f"--recompute={policy}").stdout) for policy in ("none", "full")}
    free, (least, most) = policies["none"]["work"]["rank"], (policies[policy]["memory"]["arena"] for policy in ("full", "none"))
    forward = free / 3  # with head and loss, which are small here
    everything = cost_moving(words, target, "none", forward, free, option)
    kinds = set()
    for budget in (least + (most - least) * i // 4 for i in range(5)):
        memory, cost, moved, again = cost_moving(words, target, f"auto({budget})", forward, free, option)
        kept = cost_moving(words, target, f"auto({budget})", forward, free)
        assert memory <= budget
        slack = forward / 8  # what hides costs a sixteenth; head and loss
        assert cost <= kept[1] + slack and (everything[0] > budget or cost <= everything[1] + slack)
        kinds.add((moved > 0, again > forward / 100))
    assert moved == again == 0, "all fits"
    assert any(moves for moves, _ in kinds), "nothing is ever offloaded"


def test_steps_between_the_policies_are_tried_in_pipelines():
    """What is kept for all micro-batches in flight comes off the peak as often: no set is skipped for less."""
    words = CASES["pp-gpipe"]
    (least, worst), (most, free) = cost(words, "full"), cost(words, "none")
    memory, flops = cost(words, f"auto({(least + most) // 2})")
    assert memory > least and flops - free < (worst - free) / 2


def test_a_policy_is_chosen_as_what_it_is(tmp_path):
    """Products that `none` takes out of a scan's backward; loops that `full` runs again."""
    scan = (ROOT / "examples/lstm.mdl", "-Dseq=8")
    assert cost(scan, f"auto({cost(scan, 'none')[0]})") == cost(scan, "none")
    nested = (ROOT / "tests/pass/recompute_nested.mdl",)
    assert cost(nested, "full")[0] < cost(nested, "selective")[0]
    assert cost(nested, f"auto({cost(nested, 'full')[0]})") == cost(nested, "full")
    run(MPC, "compile", *nested, "-o", tmp_path / "out", "--no-cc", f"--recompute=auto({cost(nested, 'full')[0]})")
    assert json.loads((tmp_path / "out/plan.json").read_text())["recompute"]["policy"] == "full"


def test_too_little(model):
    """The message reports the least BYTES that work, and these do."""
    least = cost((model(),), "full")[0] // 2
    said = run(MPC, "check", model(), f"--recompute=auto({least})", status=1).stderr
    needed = int(re.search(r"auto\((\d+)\) or more", said).group(1))
    assert cost((model(),), f"auto({needed})")[0] == needed
    run(MPC, "check", model(), f"--recompute=auto({needed - 1})", status=1)


def test_plan_and_ir_say_what_is_saved(model, tmp_path):
    none, full = (cost((model(),), policy)[0] for policy in ("none", "full"))
    option = f"--recompute=auto({(none + full) // 2})"
    run(MPC, "compile", model(), "-o", tmp_path / "out", "--no-cc", option, f"--dump-ir={tmp_path / 'ir'}")
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    assert plan["recompute"]["budget_bytes"] == (none + full) // 2 >= plan["memory"]["arena"]
    lists = {name: f"  save @{name}({', '.join(values)})\n" for name, values in plan["recompute"]["saved"].items()}
    for dump in sorted((tmp_path / "ir").glob("*.mir")):
        assert all(line in dump.read_text() for line in lists.values())
    run(MPC, "compile", f"--compile-from={tmp_path / 'ir/04-autodiff.mir'}", "-o", tmp_path / "again", "--no-cc")
    again = json.loads((tmp_path / "again/plan.json").read_text())
    assert again["memory"] == plan["memory"] and again["recompute"] == plan["recompute"]


def test_remarks_are_a_table(model, tmp_path):
    none, full = (cost((model(),), policy)[0] for policy in ("none", "full"))
    said = run(MPC, "compile", model(), "-o", tmp_path / "out", "--no-cc", f"--recompute=auto({(none + full) // 2})",
               "--remarks=recompute").stderr
    rows = re.findall(r"remark: recompute: \S*: (\S+) of @(\S+): [\d.]+ [kM]?B, [\d.]+ [kMG]?FLOP to recompute: (.*)", said)
    assert {what for _, _, what in rows} == {"saved", "recomputed"} and len(rows) == len(said.splitlines())
    plan = json.loads((tmp_path / "out/plan.json").read_text())
    saved = {(value, name) for name, values in plan["recompute"]["saved"].items() for value in values}
    assert {(value, name) for value, name, what in rows if what == "saved"} >= saved
