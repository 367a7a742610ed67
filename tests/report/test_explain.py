"""mpc explain: what decided how a tensor is held, and what the program does with it."""
import re

import pytest

from conftest import HERE, MPC, run, some


@pytest.fixture
def explain(model):
    def make(name, *options, file=None, status=0):
        done = run(MPC, "explain", file or model(), name, *options, status=status)
        return done.stderr if status else done.stdout
    return make


def stage(text, name):
    """The lines that a pass has caused."""
    return re.search(rf"^  {name} .*\n(?:    .*\n)*", text, re.M).group(0)


def test_parameter(explain):
    text = explain("h.3.attn.wq", "--mesh=dp=2,tp=2", "--zero=3")
    assert re.match(r"h\.3\.attn\.wq: parameter h\.\*\.attn\.wq, declared at gpt\.mdl:20:11", text)
    assert "f32[h.copy:4, embed:64, heads:4, head:16]" in stage(text, "as declared")
    assert "bf16[embed:64, heads:4, head:16]" in stage(text, "precision")
    assert "train.precision = bf16 (gpt.mdl:" in stage(text, "precision")
    layout = stage(text, "layout")
    assert "f32[h.copy:4, embed:64/dp, heads:4/tp, head:16]\n" in layout and "its gradient" in layout
    assert re.search(r"heads over tp: parallel\.shard\.tp = heads, ff, vocab else seq \(gpt\.mdl:\d+:5\)", layout)
    assert "embed over dp: parallel.zero = 3 (command line)" in layout


def test_gradient_pending(explain):
    layout = stage(explain("h.3.attn.wq", "--mesh=dp=2,tp=2", "--zero=1"), "layout")
    assert re.search(r"its gradient .*heads:4/tp.* partial\(dp\)", layout) and "pending over dp" in layout


def test_collectives_of_a_parameter(explain):
    text = explain("h.attn.wq", "--mesh=dp=2,tp=2", "--zero=3").split("collectives in a step\n")[1]
    moved = re.findall(r"^  (\w+) +over (\S+) +(\d+) times", text, re.M)
    ahead = 2 * [("all_gather", "dp", "12"), ("all_gather", "dp", "4")]  # of the next layer, and of the first one before the loop
    assert sorted(moved) == sorted([*ahead, ("reduce_scatter", "dp", "16")])
    memory = text.split("memory of a rank")[1]
    for name in ("master weights", "optimizer state m", "optimizer state v", "weights", "gradients"):
        assert re.search(rf"^  {name} +\d+\.\d\d [kM]B  in @", memory, re.M), name


UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def sent_by(text, collective=r"\w+", axis=r"\S+"):
    """Bytes of the collectives of a tensor."""
    rows = re.findall(rf"^  {collective} +over {axis} +\d+ times +([\d.]+) (\w+) sent ", text, re.M)
    return sum(float(number) * UNITS[unit] for number, unit in rows)


def test_bytes_of_a_parameter(explain):
    """Half of bf16 [embed, heads/tp, head] in each of 4 layers and 4 micro-batches, forward and backward; of f32, its gradient."""
    text = explain("h.attn.wq", "--mesh=dp=2,tp=2", "--zero=3")
    half = 64 * 2 * 16 / 2 * 16
    assert sent_by(text, "all_gather") == pytest.approx(2 * 2 * half, rel=1e-3)
    assert sent_by(text, "reduce_scatter") == pytest.approx(4 * half, rel=1e-3)
    # weights of the first layer before its loop, those of the next one in it; and the gradient
    assert len(re.findall("sent  forward, for zero", text)) == 2 and len(re.findall("sent  backward, for zero", text)) == 3
    assert "sent  update" not in text


@pytest.mark.parametrize("options", some([["--mesh=dp=4", "--zero=1"], ["--mesh=dp=2", "--zero=3"], ["--mesh=dp=2,tp=2", "--zero=2"]], 1, 2),
                         ids=" ".join)
def test_parameters_send_what_the_report_says(explain, report, options):
    """Each tensor of a message once: all parameters together send what the report counts op by op, of weights and gradients."""
    rows = report(*options)["communication"]["collectives"]
    expected = sum(row["sent"] for row in rows if row["axes"] == "dp" and row["class"] in ("weights", "gradients"))
    names = ["wte", "wpe", "ln_f.gain", "ln_f.bias"] + [f"h.{name}" for name in
             ("ln_1.gain", "ln_1.bias", "ln_2.gain", "ln_2.bias", *(f"attn.{name}" for name in ("wq", "wk", "wv", "bq", "bk", "bv", "wo", "bo")),
              *(f"mlp.{name}" for name in ("w_up", "b_up", "w_down", "b_down")))]
    assert expected > 0 and sum(sent_by(explain(name, *options), axis="dp") for name in names) == pytest.approx(expected, rel=1e-3)


def test_what_goes_to_the_next_chunk(explain):
    """The schedule sends it: forward from the last of two ranks to the first, backward from the first to the last."""
    gpt2 = HERE.parents[1] / "examples/gpt2.mdl"
    text = explain("h", "--mesh=pp=2", "--schedule=interleaved", "--chunks=2", "--set=train.batch=8", "--set=train.microbatch=1", file=gpt2)
    sends = re.findall(r"^  send +over pp +(\d+) times .* sent  (\w+), for", text, re.M)  # of the mean of both ranks
    assert sorted(sends) == [("4", "backward"), ("4", "forward")]
    assert sent_by(text, "send", "pp") == pytest.approx(8 * 1024 * 768 * 2, rel=1e-3)


def test_parameter_that_is_whole(explain):
    text = explain("ln_f.gain", "--mesh=dp=2")
    assert "f32[embed:64]" in stage(text, "as declared")
    assert not re.search(r"embed:64/", text)
    assert re.search(r"all_reduce +over dp +1 times", text)


def test_stages(explain):
    """Which copies a stage holds, and who said so."""
    gpt2 = HERE.parents[1] / "examples/gpt2.mdl"
    text = explain("h.attn.wq", "--mesh=dp=2,pp=2", "--stages=7,5", file=gpt2)
    assert "f32[h.copy:12/pp(7+5)" in text and "parallel.stages = 7+5 (command line)" in text and "null" not in text


def test_chunks(explain):
    """Copies of a chunk are a tensor of their own."""
    gpt2, layout = HERE.parents[1] / "examples/gpt2.mdl", ("--mesh=pp=2", "--schedule=zb", "--chunks=2", "--stages=4,3,3,2")
    for name, copies, type_ in [("h.attn.wq", "0 to 6", "h.copy:7/pp(4+3)"), ("h.6.attn.wq", "0 to 6", "h.copy:7/pp(4+3)"),
                                ("h.7.attn.wq", "7 to 11", "h.copy.chunk2:5/-pp(2+3)")]:
        text = explain(name, *layout, file=gpt2)
        assert f"copies {copies} are stored together" in text and f"f32[{type_}" in text
    assert "with 12 copies" in explain("h.12.attn.wq", *layout, file=gpt2, status=1)


def test_value(explain):
    text = explain("h.attn.q", "--mesh=tp=2")
    assert "heads:4/tp" in stage(text, "layout") and "heads over tp: parallel.shard.tp" in stage(text, "layout")
    assert re.search(r"all_gather +over tp", text) and re.search(r"activations +\d", text)
    assert "seq over tp by else: parallel.shard.tp" in stage(explain("x", "--mesh=tp=2"), "layout")


def test_nothing_moves_on_one_rank(explain):
    assert "collectives in a step\n  none\n" in explain("h.attn.wq")


@pytest.mark.parametrize("name, said", [
    ("h.attn.wqq", "no parameter or value 'h.attn.wqq': did you mean h.attn.wq?"),
    ("h.4.attn.wq", "there is no h.4.attn.wq: the parameter is h.*.attn.wq, with 4 copies"),
    ("h.4.attn.q", "there is no h.4.attn.q: h.attn.q has fewer copies"),
    ("zzzzzzzzzz", "no parameter or value 'zzzzzzzzzz'"),
    ("", "no parameter or value ''"),
    ("wq", "no parameter or value 'wq': did you mean h.attn.wq?"),
    ("h..attn.wq", "no parameter or value 'h..attn.wq': did you mean h.attn.wq?"),
])
def test_names_that_are_not_there(explain, name, said):
    assert said in explain(name, status=1)


def test_operands(model):
    assert "no tensor is given" in run(MPC, "explain", model(), status=2).stderr
    assert "no file is given" in run(MPC, "explain", status=2).stderr
    assert "leave 'b' out" in run(MPC, "explain", model(), "a", "b", status=2).stderr
