"""A vocabulary of another size at import, against numpy; and mpc export --ema."""
import json

import numpy as np
import pytest
from common import MPC, ROOT, read_tensors, run, write_tensors
from small_llama import CONFIG, tensors, write_llama

LLAMA = ROOT / "examples/llama.mdl"
NARROW = {"F32": np.float32, "F16": np.float16}


def imported(folder, out, *options, status=0):
    return run(MPC, "import", folder, "--model", LLAMA, "-o", out, *options, status=status)


def numbers(dtype, array):
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else array.astype(np.float32)


def stored(dtype, array):
    """In that dtype, as the file has it: bf16 cut off, so that the numbers are some."""
    return dtype, (np.asarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16) if dtype == "BF16" else array.astype(NARROW[dtype])


@pytest.mark.parametrize("dtype, near", [("F32", 1e-6), ("BF16", 2 ** -8), ("F16", 2 ** -11)])
def test_new_rows_are_the_mean_of_the_old_ones(tmp_path, dtype, near):
    weights = {name: stored(dtype, array) for name, array in tensors().items()}
    said = imported(write_llama(tmp_path / "there", weights=weights), tmp_path / "w", "-D", "vocab=20")
    assert "note: vocab is 16 in the folder and 20 here: 4 new rows of 'embedding', 'head_out' begin as the mean of the old ones\n" in said
    assert "-D vocab=20" in said and "vocab=16" not in said
    ours = read_tensors(tmp_path / "w")
    for mine, theirs in (("embedding", "model.embed_tokens.weight"), ("head_out", "lm_head.weight")):
        before = numbers(*weights[theirs])
        after = numbers(*ours[mine])
        after = after.T if mine == "head_out" else after
        assert after.shape == (20, 8) and np.array_equal(after[:16], before)
        mean = before.astype(np.float64).mean(0)
        assert np.abs(after[16:] - mean).max() <= near * np.abs(mean).max()
        assert np.abs(mean).min() > 0
    assert np.array_equal(ours["norm_f.gain"][1], weights["model.norm.weight"][1])


def test_fewer_rows(tmp_path):
    said = imported(write_llama(tmp_path / "there"), tmp_path / "w", "-D", "vocab=12")
    assert "note: vocab is 16 in the folder and 12 here: the last 4 rows of 'embedding', 'head_out' are left out\n" in said
    assert np.array_equal(read_tensors(tmp_path / "w")["embedding"][1], tensors()["model.embed_tokens.weight"][:12])


def test_the_same_size(tmp_path):
    there = write_llama(tmp_path / "there")
    assert "note:" not in imported(there, tmp_path / "w", "-D", "vocab=16")
    imported(there, tmp_path / "plain")
    assert (tmp_path / "w").read_bytes() == (tmp_path / "plain").read_bytes()


@pytest.mark.parametrize("define", ["vocab=0", "vocab=-3", "vocab=x", "layers=2", "embed=16"])
def test_other_sizes_stay(tmp_path, define):
    assert f"-D {define}: config.json sets this value" in imported(write_llama(tmp_path / "there"), tmp_path / "w", "-D", define, status=1)


def test_a_resized_model_is_exported_by_a_configuration_of_its_size(tmp_path):
    """And not by the folder that it came from."""
    there = write_llama(tmp_path / "there")
    imported(there, tmp_path / "w", "-D", "vocab=20")
    assert "[20, 8] there and [16, 8] in the model of the folder" in \
        run(MPC, "export", tmp_path / "w", "--like", there, "-o", tmp_path / "out", "--model", LLAMA, status=1)
    (tmp_path / "larger").mkdir()
    (tmp_path / "larger/config.json").write_text(json.dumps({**CONFIG, "vocab_size": 20}))
    run(MPC, "export", tmp_path / "w", "--like", tmp_path / "larger", "-o", tmp_path / "out", "--model", LLAMA)
    table = read_tensors(tmp_path / "out/model.safetensors")["model.embed_tokens.weight"][1]
    assert np.array_equal(table[:16], tensors()["model.embed_tokens.weight"])


# --- The mean of weights ---------------------------------------------------------------------------------------------

def test_the_mean_of_weights_is_exported(tmp_path):
    """ema = 0.5 over three steps, from the checkpoints of these steps."""
    there = write_llama(tmp_path / "there")
    imported(there, tmp_path / "w.safetensors")
    np.random.default_rng(1).integers(0, 16, 400).astype("<u2").tofile(tmp_path / "t.u16")
    sizes = {"layers": 1, "vocab": 16, "embed": 8, "kv_heads": 1, "group": 2, "head": 4, "ff": 4, "seq": 8, "eps": 1e-6}
    defines = [word for name, value in sizes.items() for word in ("-D", f"{name}={value}")]
    run(MPC, "compile", LLAMA, *defines, "--set", "train.ema=0.5", "--set", "train.batch=2", "--set", "train.precision=fp32",
        "--set", "train.schedule.warmup=1",
        "-o", tmp_path / "out", "--cflags=-O0")
    run(tmp_path / "out/trainer", "--load", tmp_path / "w.safetensors", "--weights-only", "--data", tmp_path / "t.u16", "--steps", 3,
        "--save", tmp_path / "a.safetensors", "--save-every", 1, "--keep", 3, MPC_PEAK_FLOPS="1e9")
    for options, name in (([], "last"), (["--ema"], "mean")):
        run(MPC, "export", tmp_path / "a.safetensors", "--like", there, "--model", LLAMA, "-o", tmp_path / name, *options)
    mean, steps = tensors()["lm_head.weight"], [read_tensors(tmp_path / f"a.step{n}.safetensors")["head_out"][1].T for n in (1, 2, 3)]
    for weight in steps:
        mean = 0.5 * mean + 0.5 * weight
    exported = {name: read_tensors(tmp_path / name / "model.safetensors")["lm_head.weight"][1] for name in ("last", "mean")}
    assert np.array_equal(exported["last"], steps[-1])
    assert np.abs(exported["mean"] - mean).max() < 1e-6 < 1e-4 < np.abs(exported["mean"] - steps[-1]).max()


def test_weights_that_are_not_trained_have_no_mean(tmp_path):
    there = write_llama(tmp_path / "there")
    imported(there, tmp_path / "w")
    own = {name: array for name, (_, array) in read_tensors(tmp_path / "w").items()}
    write_tensors(tmp_path / "w", {**own, "optimizer.ema.head_out": own["head_out"] + 1})
    run(MPC, "export", tmp_path / "w", "--like", there, "--model", LLAMA, "-o", tmp_path / "out", "--ema")
    out = read_tensors(tmp_path / "out/model.safetensors")
    assert np.array_equal(out["lm_head.weight"][1].T, own["head_out"] + 1)
    assert np.array_equal(out["model.embed_tokens.weight"][1], own["embedding"])


def test_no_mean(tmp_path):
    there = write_llama(tmp_path / "there")
    imported(there, tmp_path / "w")
    assert "w has no mean of weights: train { ema = 0.999 } keeps one" in \
        run(MPC, "export", tmp_path / "w", "--like", there, "--model", LLAMA, "-o", tmp_path / "out", "--ema", status=1)
