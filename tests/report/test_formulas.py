"""The figures of a report against published formulas; where the program does otherwise, the test says what and why."""
import pytest

from conftest import volume

LARGE = dict(layers=36, embed=4096, heads=32, vocab=51200, seq=1024, batch=64)  # 7.46e9 parameters


ALONE = ("zero 0 over dp", "zero 0 over dp (overlap_grads = false, overlap_params = false)")


# --- ZeRO (Rajbhandari et al., arXiv 1910.02054, figure 1: 7.5e9 parameters, 64 ranks) ------------------------------

@pytest.mark.parametrize("stage, gigabytes", [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_table(report, model, stage, gigabytes):
    """Per parameter the paper has 2 bytes of weights, 2 of gradients, and 12 of f32 weights and moments.  Gradients are f32
    here, as the main gradients of Megatron are: they are counted by half.  And the table counts no tensor that is not yet
    reduced, or gathered: of gradients one layer's and the embedding's, of weights two layers' at most.  While the layers
    run backward, when most is in use, nobody reads the embeddings' narrow weights any more."""
    figures = report("--mesh=dp=64", f"--zero={stage}", file=model(*ALONE), **LARGE)
    classes, n = figures["memory"]["classes"], figures["parameters"]
    layer, embeddings = 12 * 4096 ** 2 + 13 * 4096, (51200 + 1024) * 4096
    passing = {"gradients": (layer + 51200 * 4096) * 4 if stage >= 2 else 0,
               "weights": (2 * layer + 51200 * 4096) * 2 if stage == 3 else 0}
    state = classes["master weights"] + classes["optimizer state"]
    assert state == 12 * n / (64 if stage else 1)
    wanted = {"gradients": 4 * n / (64 if stage >= 2 else 1), "weights": 2 * n / (64 if stage == 3 else 1)}
    for name, least in wanted.items():
        gone = least * embeddings / n if name == "weights" else 0
        assert 0.998 * (least - gone) <= classes[name] <= least + passing[name], name
    as_published = (state + wanted["gradients"] / 2 + wanted["weights"]) * 7.5e9 / n / 1e9
    assert as_published == pytest.approx(gigabytes, rel=0.02)


@pytest.mark.parametrize("dtype, size", [("f32", 4), ("bf16", 2)])
@pytest.mark.parametrize("mesh, stage", [("dp=1", 0), ("dp=4", 1), ("dp=4", 2)])
def test_kept_gradients(report, model, mesh, stage, dtype, size):
    """The sums over micro-batches are n / N numbers from stage 2 on, else n.  Below it, most is in use while the logits are
    computed again: their product and the look-up add to the embedding's sum in place if it is in f32, else what both give it
    is beside it, in f32.  In stage 2 there is up to a layer's more, not yet reduced."""
    figures = report(f"--mesh={mesh}", f"--zero={stage}", file=model(*ALONE), **{**LARGE, "microbatch": 4, "grad_storage": dtype})
    kept = size * figures["parameters"] // (4 if stage == 2 else 1)
    passing = figures["memory"]["classes"]["gradients"] - kept
    layer, embedding = 4 * (12 * 4096 ** 2 + 13 * 4096), 4 * 51200 * 4096
    beside = embedding if dtype == "bf16" or stage == 2 else 0
    assert passing == beside if stage < 2 else beside <= passing <= beside + layer
    assert set(figures["precision"]["gradients"]["stored"]) == {"f32", dtype}


@pytest.mark.parametrize("stage, most", [(0, 4 * (1 + 1 / 36)), (1, 4 * (1 / 64 + 3 / 36)), (3, 4 * (1 / 64 + 3 / 36))])
def test_gradients_of_one_layer(report, stage, most):
    """Where gradients are reduced while the backward pass runs, as they are by default with one micro-batch: below stage 1
    there is one layer's reduced ones beside all, and else all shards, and whole gradients of the embedding, of the layer
    that is computed, and of the one that is sent."""
    figures = report("--mesh=dp=64", f"--zero={stage}", **LARGE)
    layers = figures["parameters"] - (51200 + 1024) * 4096
    assert figures["memory"]["classes"]["gradients"] <= most * layers + 4 * 51200 * 4096


def test_zero_sums_over_micro_batches(report, model):
    """Where gradients add up over micro-batches, what one of them adds is there beside the sum."""
    once, often = (report("--mesh=dp=4", "--zero=1", file=model(*ALONE), batch=batch)["memory"]["classes"] for batch in (4, 16))
    assert once["gradients"] <= often["gradients"] <= 2.1 * once["gradients"]


# --- Volume of communication, in elements (ZeRO, section 7: DDP 2 N, stages 1 and 2 2 N, stage 3 3 N) ----------------

@pytest.mark.parametrize("stage, times", [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_data_parallel_volume(report, stage, times):
    figures = report("--mesh=dp=64", f"--zero={stage}", **LARGE)
    moved = volume(figures, "dp", **{"class": "gradients"}) + volume(figures, "dp", **{"class": "weights"})
    n = figures["parameters"]
    # stage 3 gathers the embedding once for the look-up and once for the logits, and not again for the backward pass
    assert moved == pytest.approx(times * n, rel=0.004)
    assert volume(figures, "dp") - moved < 100  # loss and norm


def test_stage_3_gathers_forward_and_backward(report):
    rows = report("--mesh=dp=4", "--zero=3", batch=4)["communication"]["collectives"]
    gathered = [row for row in rows if row["collective"] == "all_gather" and row["class"] == "weights"]
    assert gathered and all(row["cause"].startswith("zero.") for row in gathered)
    assert {row["collective"] for row in rows if row["class"] == "gradients"} == {"reduce_scatter"}


def test_gradients_are_reduced_once_a_step(report):
    once, often = (report("--mesh=dp=4", batch=batch) for batch in (4, 32))
    assert volume(once, "dp", **{"class": "gradients"}) == volume(often, "dp", **{"class": "gradients"}) > 0


# --- Tensor and sequence parallelism (Shoeybi et al., arXiv 1909.08053; Korthikanti et al., arXiv 2205.05198) ---------

SHAPE = dict(layers=8, embed=256, heads=8, seq=512, vocab=512, batch=1)
SBH = 512 * 256


def per_layer(report, *options, **more):
    """Elements over tp of one layer, from the difference of 8 and 4 layers, without its parameters' gradients."""
    both = [report("--mesh=tp=4", *options, **{**SHAPE, "layers": layers}, **more) for layers in (8, 4)]
    eight, four = (volume(figures, "tp") - volume(figures, "tp", **{"class": "gradients"}) for figures in both)
    return (eight - four) / 4


def test_tensor_parallel_volume(report, model):
    """Four all-reduces of a layer's input, two of them in the backward pass: 8 sbh."""
    assert per_layer(report, file=model(" else seq", "")) == 8 * SBH


def test_sequence_parallel_volume(report):
    """The same in halves, 8 sbh; and the backward pass gathers again the inputs of two products, of which it has shards:
    Korthikanti et al., section 4.2.2."""
    assert per_layer(report) == 10 * SBH


def activations(report, *options, **more):
    """Bytes that one layer saves for the backward pass, in units of sbh."""
    figures = report(*options, **SHAPE, **more)
    saved = [tensor for tensor in figures["memory"]["tensors"]
             if tensor["class"] == "activations" and "h.copy" in tensor["type"]]
    return sum(tensor["bytes"] for tensor in saved) / 8 / SBH


# A layer saves 34 sbh + 5 a s^2 b.  Of these, attention is computed in tiles: nothing of size s x s is saved (5 as/h), but
# the log-sum-exp of each row (f32: 4 a/h).  Masks of dropout, where there are any, are made again from counters (2).  Norms
# save two f32 sums each (16/h).
SCORES = 5 * 8 * 512 / 256
STATISTICS = 4 * 8 / 256 + 16 / 256


def test_activations(report):
    saved = activations(report)
    assert saved == pytest.approx(34 - 2 + STATISTICS, abs=1e-9)
    assert saved < 34 + SCORES


def test_activations_of_tensor_parallelism(report, model):
    """10 + 24/t + 5as/ht: what lies between the products' two halves is split, and inputs of norms and products are not."""
    saved = activations(report, "--mesh=tp=4", file=model(" else seq", ""))
    assert saved == pytest.approx(10 - 2 + 24 / 4 + 4 * 8 / 256 / 4 + 16 / 256, abs=1e-9)


def test_activations_of_sequence_parallelism(report):
    """(34 + 5as/h)/t"""
    assert activations(report, "--mesh=tp=4") == pytest.approx((34 - 2 + STATISTICS) / 4, abs=1e-9)


def test_activations_of_recomputation(report):
    """Full: the layer's input, 2 sbh.  Selective saves what products and attention make, and so less than published: 34
    is all but the scores."""
    assert activations(report, "--recompute=full") == 2
    assert 2 < activations(report, "--recompute=selective") < activations(report)


# --- Work ------------------------------------------------------------------------------------------------------------

def test_work_is_that_of_the_model(report):
    """6 N a token, and attention: products forward and backward are three times those forward."""
    figures = report(**SHAPE)
    products = 6 * 512 * (12 * 256 ** 2 * 8 + 512 * 256)
    assert figures["work"]["rank_parts"]["products"] == products
    assert figures["work"]["model"] == products + 3 * 4 * 512 ** 2 * 256 * 8


def test_work_is_divided(report, model):
    one, split = report(**SHAPE)["work"], report("--mesh=tp=4", **SHAPE)["work"]
    assert split["rank_parts"]["products"] * 4 == one["rank_parts"]["products"]
    assert one["alike"] == 0 and split["alike"] < 1e-4 * split["rank"]
    alike = report("--mesh=tp=4", file=model(" else seq", ""), **SHAPE)["work"]
    assert alike["alike"] > 30 * split["alike"]
    assert any(row["op"].startswith("h.ln_") and row["axes"] == "tp" for row in alike["alike_ops"])


def test_recomputation_is_work(report):
    """Full recomputation runs each layer's forward pass again, all but its last product, whose result nobody needs."""
    none, full = (report(f"--recompute={policy}", **SHAPE)["work"]["rank_parts"]["products"] for policy in ("none", "full"))
    assert full - none == 2 * 512 * 8 * (12 * 256 ** 2 - 4 * 256 ** 2)
