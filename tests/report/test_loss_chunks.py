"""A loss without its logits, at 8,192 tokens and a vocabulary of 128,256: what takes their place in memory, and what it costs."""
import pytest

from conftest import ROOT

LLAMA = ROOT / "examples" / "llama.mdl"
LARGE = dict(layers=16, seq=8192, embed=2048, kv_heads=8, group=4, head=64, ff=8192, batch=8, microbatch=1)
WORDS = 128256


def figures_of(report, policy, chunks=None, file=LLAMA, vocab=WORDS, **more):
    setting = ["--set", f"train.loss_chunks={chunks}"] if chunks else []
    return report("--recompute", policy, *setting, file=file, vocab=vocab, **{**LARGE, **more})


def beside_state(figures):
    """Bytes at the peak that are not of parameters, gradients and the optimizer."""
    classes = figures["memory"]["classes"]
    return sum(classes[name] for name in ("activations", "workspace"))


@pytest.mark.parametrize("policy", ["none", "selective", "full"])
@pytest.mark.parametrize("chunks", [8, 16, "auto"])
def test_logits_are_gone(report, policy, chunks):
    """What is left at the peak is what is left with 1,024 words, whose logits are 16 MB: those of 128,256 are 2.1 GB."""
    whole, cut = figures_of(report, policy), figures_of(report, policy, chunks)
    few = figures_of(report, policy, vocab=1024)
    logits = 2 * LARGE["seq"] * WORDS
    assert logits in {row["bytes"] for row in whole["memory"]["tensors"]}
    assert logits not in {row["bytes"] for row in cut["memory"]["tensors"]}
    assert beside_state(cut) == pytest.approx(beside_state(few), rel=0.002)
    norm = 4 * LARGE["embed"]  # what the last norm's gain has got, not yet added to the sum
    assert cut["memory"]["classes"]["gradients"] - 4 * cut["parameters"] in (0, norm)


@pytest.mark.parametrize("policy", ["none", "full"])
def test_no_product_more(report, policy):
    """The backward makes the logits of each chunk again, and the forward pass makes none."""
    whole, cut = (figures_of(report, policy, chunks)["work"]["rank_parts"]["products"] for chunks in (None, 8))
    assert cut == whole


def test_scan_of_a_user(report, model, tmp_path):
    """The same said in the language: the gradient of the head is added to the sum over micro-batches, not kept beside it."""
    text = LLAMA.read_text()
    tail = text[text.index("    logits = "):text.index("}", text.index("    logits = "))]
    text = text.replace("dim vocab", "const parts = 16\ndim part = parts\ndim place = seq / parts\ndim vocab").replace(tail, """\
    y = split(norm(x) as norm_f, seq -> (part, place))
    target = split(labels, seq -> (part, place))
    scan part {
        yield ce = cross_entropy(dot(y, head_out, embed), target, vocab)
    }
    loss mean(ce)
""")
    (tmp_path / "scan.mdl").write_text(text)
    scanned = figures_of(report, "full", file=tmp_path / "scan.mdl")
    assert scanned["memory"]["classes"]["gradients"] - 4 * scanned["parameters"] in (0, 4 * LARGE["embed"])
    assert beside_state(scanned) == pytest.approx(beside_state(figures_of(report, "full", 16)), rel=0.002)


def test_tied_tables(report):
    """What gpt2's table is as the head and as the embedding is added to the running sum, chunked or not."""
    sizes = {"file": ROOT / "examples" / "gpt2.mdl", "batch": 16, "microbatch": 8}
    whole, cut = (report("--set", f"train.loss_chunks={chunks}", **sizes) for chunks in ("none", "auto"))
    for figures in whole, cut:
        assert figures["memory"]["classes"]["gradients"] == 4 * figures["parameters"] + 4 * 47 * 768  # with its padding
    logits = 2 * 8 * 1024 * 50304
    assert whole["memory"]["arena"] - cut["memory"]["arena"] == pytest.approx(logits * 7 / 8, rel=0.02)
