"""Keys that pass by: windows, which leave blocks out, blocks in a row and in zig-zag, and rings around other layouts."""
import re
import subprocess

import pytest

from layouts import MPC, ROOT, some

SIZES = ["-D", "layers=1", "-D", "embed=8", "-D", "kv_heads=2", "-D", "group=2", "-D", "head=2", "-D", "ff=8", "-D", "vocab=16",
         "--set", "train.batch=2", "--set", "train.precision=fp32"]
RULES = {  # mesh, lines in place of those of llama.mdl
    "cp4": ("cp=4", ["shard seq over cp (attend = ring)"]),
    "exchange-inside": ("out=2,inner=2", ["shard seq over out (attend = ring)", "shard seq over inner (attend = all_to_all)"]),
    "gather-inside": ("out=2,inner=2", ["shard seq over out (attend = ring)", "shard seq over inner"]),
    "blocks": ("cp=2", ["shard seq over cp (attend = ring, blocks = 4)"]),
    "gathered-blocks": ("cp=2,tp=2", ["shard seq over cp (blocks = 4)", "shard (kv_heads, group), ff, vocab over tp else seq"]),
    "blocks-of-parts": ("out=2,inner=2", ["shard seq over out (attend = ring, blocks = 4)", "shard seq over inner"]),
    "heads-of-queries": ("cp=2,tp=2", ["shard seq over cp (attend = all_to_all)", "shard kv_heads, ff over tp"]),
    "heads-of-queries-inside": ("out=2,inner=2,tp=2", ["shard seq over out (attend = ring)", "shard seq over inner (attend = all_to_all)",
                                                       "shard kv_heads, ff over tp"]),
    "seq-over-tp-too": ("cp=2,tp=2", ["shard seq over cp (attend = ring)", "shard ff over tp else seq"]),
}


def compile_ring(tmp_path, rules, seq, how, *options):
    mesh, lines = RULES[rules]
    text = (ROOT / "examples/llama.mdl").read_text().replace("causal = true, window = window", how).split("parallel {")[0]
    (tmp_path / "ring.mdl").write_text(text + f"parallel {{\n    mesh {mesh.replace(',', ', ')}\n" + "\n".join(lines) + "\n}\n")
    run = subprocess.run([MPC, "compile", tmp_path / "ring.mdl", "--no-cc", "-o", tmp_path, "-D", f"seq={seq}", *SIZES, *options],
                         capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr


MASKS = [(16, "causal = true"), (24, "causal = true, window = 3"), (16, "causal = true, window = 2"), (16, "window = 4"), (8, "causal = false")]


# Without ALL every second one: each of the rules with masks of both kinds.
@pytest.mark.parametrize("rules, seq, how", some([(rules, *mask) for mask in MASKS for rules in RULES], *range(0, 45, 2)))
def test_meaning(rules, seq, how, tmp_path):
    compile_ring(tmp_path, rules, seq, how, "--verify-passes=exact")


@pytest.mark.parametrize("seq, how, turns", [
    (16, "causal = true", [1, 1, 1]),
    (16, "causal = true, window = 2", [1, 2]),  # zig-zag: the neighbours on both sides
    (12, "causal = true, window = 2", [3]),     # in a row: the keys before
    (16, "window = 2", [1, 2]),
])
def test_blocks_that_nobody_sees_are_left_out(seq, how, turns, tmp_path):
    compile_ring(tmp_path, "cp4", seq, how, f"--dump-ir={tmp_path}")
    forward = re.search(r"func @h\.fwd\(.*?\n  }", (tmp_path / "08-collectives.mir").read_text(), re.S)[0]
    assert [int(n) for n in re.findall(r"= rotate .*?index=(\d+)", forward)] == [n for n in turns for _ in "kv"]
