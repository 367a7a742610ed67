"""Micro-batches that are computed beside each other: bit for bit the training that computes one after the other."""
import pytest
from conftest import TCP, layout_of, read_log, start

STEPS = 4
EXPERTS = ("mesh ep = 2", "shard experts, batch over ep", "recompute selective")
MORE_EXPERTS = ("mesh dp = 2, ep = 2", "shard batch over dp", "shard experts, batch over ep", "zero 3 over dp, ep", "recompute full")
CASES = {  # model, lines of the layout, micro-batches of a step, of these beside each other, sequences of one on a rank, precision
    "llama-tp2": ("llama", layout_of("llama", dict(tp=2), otherwise=" else seq", recompute="selective"), 4, 2, 1, "bf16"),
    "llama-dp2-tp2-zero3": ("llama", layout_of("llama", dict(dp=2, tp=2), zero=3, otherwise=" else seq"), 4, 4, 1, "fp32"),
    "gpt2-dp2-zero2": ("gpt2", layout_of("gpt2", dict(dp=2), zero=2, recompute="full"), 2, 2, 2, "fp16"),
    "bert-tp2-zero1": ("bert", layout_of("bert", dict(dp=2, tp=2), zero=1), 6, 3, 1, "bf16"),
    "mixtral-ep2": ("mixtral", EXPERTS, 2, 2, 2, "bf16"),
    "deepseek-dp2-ep2": ("deepseek", MORE_EXPERTS, 4, 2, 1, "fp32"),
    "llama-params-away": ("llama", ("mesh dp = 1", "shard batch over dp", "offload optimizer, params, activations to disk"), 4, 2, 1, "fp32"),
    "gpt2-just-in-time": ("gpt2", ("mesh dp = 1", "shard batch over dp", "offload optimizer, activations to disk just_in_time"), 6, 2, 1, "bf16"),
    "llama-just-in-time-all": ("llama", ("mesh dp = 1", "shard batch over dp", "offload optimizer to disk just_in_time"), 4, 4, 1, "fp32"),
    "llama-tp2-zero1-away": ("llama", (*layout_of("llama", dict(dp=2, tp=2), zero=1, otherwise=" else seq"), "offload optimizer, activations to disk just_in_time"), 4, 2, 1, "bf16"),
    "llama-pp2-tp2": ("llama", layout_of("llama", dict(pp=2, tp=2), otherwise=" else seq", recompute="selective"), 6, 2, 1, "bf16"),
    "llama-pp2-interleaved-zero2": ("llama", layout_of("llama", dict(dp=2, pp=2), zero=2, schedule="interleaved", chunks=2), 8, 2, 1, "fp32"),
    "gpt2-pp2-zb-v-zero3": ("gpt2", layout_of("gpt2", dict(dp=2, pp=2), zero=3, schedule="zb", chunks=2), 4, 2, 1, "bf16"),
    "gpt2-pp2-gpipe": ("gpt2", layout_of("gpt2", dict(pp=2), schedule="gpipe", recompute="full"), 8, 4, 1, "fp16"),
    "gpt2-pp2-zb-one": ("gpt2", layout_of("gpt2", dict(pp=2), schedule="zb"), 2, 2, 1, "fp32"),
    "llama-pp2-naive": ("llama", layout_of("llama", dict(pp=2, tp=2), otherwise=" else seq", schedule="naive"), 4, 2, 1, "fp32"),
    "deepseek-pp2-ep2": ("deepseek", ("mesh pp = 2, ep = 2", "shard experts, batch over ep", "pipeline dense_layers, layers over pp", "recompute selective"), 4, 2, 1, "fp32"),
    "llama-one-rank": ("llama", ("mesh dp = 1", "shard batch over dp"), 4, 2, 1, "bf16"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits(case, compiled, text, tmp_path):
    model, layout, micros, abreast, sequences, precision = CASES[case]
    sizes = {"layers": 4} if "chunks = 2" in " ".join(layout) else {}
    ranks = 2 if "dp = 2" in layout[0] else 1
    ranks *= 2 if "ep = 2" in layout[0] else 1
    settings = {"batch": ranks * micros * sequences, "microbatch": sequences, "precision": precision, "clip": 0.5}
    found = []
    for count in (1, abreast):
        trainer, folder = compiled(model, layout, sizes, {**settings, "abreast": count}, *TCP), tmp_path / str(count)
        folder.mkdir()
        start(trainer.command("--data", text, "--data-format", "bytes", "--steps", STEPS, "--log", "log", "--save", "saved"), folder)
        log = [[line[key] for key in ("loss", "grad_norm")] for line in read_log(folder / "log")]
        found.append((log, {path.name: path.read_bytes() for path in sorted(folder.glob("saved*"))}))
    assert found[0][0] == found[1][0] and len(found[0][0]) == STEPS
    assert found[0][1] and found[0][1] == found[1][1]
