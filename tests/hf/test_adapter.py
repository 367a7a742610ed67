"""Adapters of low rank: trained beside a frozen Llama, merged into its weights, and as a folder of peft."""
import json
import shutil

import numpy as np
import pytest
from common import MPC, ROOT, compile_as_said, import_folder, read_tensors, run, write_tensors
from small_llama import tensors, write_llama

LORA = ROOT / "tests/models/lora.mdl"
LOW, ALPHA = 3, 6.0
OPTIONS = ["-D", f"low={LOW}", "-D", f"alpha={ALPHA}"]
NAMES = {"q": 8, "k": 4, "v": 4}  # rows of the weight


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    return write_llama(tmp_path_factory.mktemp("adapter") / "there", config={"architectures": ["LlamaForCausalLM"]})


@pytest.fixture(scope="module")
def tuned(there):
    """A checkpoint of three steps in which only the adapters are trained."""
    folder = there.parent
    np.random.default_rng(1).integers(0, 16, 400).astype("<u2").tofile(folder / "t.u16")
    words = import_folder(there, LORA, folder / "w.safetensors", *OPTIONS, "-D", "seq=8")
    trainer = compile_as_said(words, folder / "out", "--set", "train.precision=fp32", "--set", "train.batch=4", "--set",
                              "train.microbatch=4", "--set", "train.optimizer.lr=0.05", "--set", "train.schedule=constant(warmup = 0)")
    run(trainer, "--load", folder / "w.safetensors", "--weights-only", "--load-missing", "init", "--data", folder / "t.u16", "--steps", 3,
        "--save", folder / "tuned.safetensors", MPC_PEAK_FLOPS="1e9")
    return folder / "tuned.safetensors"


def export(tuned, there, out, *options, status=0):
    return run(MPC, "export", tuned, "--like", there, "--model", LORA, *OPTIONS, "-D", "seq=8", "-o", out, *options, status=status)


def products(tuned):
    """alpha / low * B A of each weight, of the parameters in the checkpoint."""
    own = {name: array.astype(np.float64) for name, (_, array) in read_tensors(tuned).items()}
    return {name: ALPHA / LOW * np.tensordot(own[f"h.0.attn.lora_{name}.a"], own[f"h.0.attn.lora_{name}.b"], 1).reshape(8, rows).T
            for name, rows in NAMES.items()}


def test_merged(tuned, there, tmp_path):
    said = export(tuned, there, tmp_path / "merged")
    assert "tensors of model lora, with its adapters merged, in" in said
    merged, before = read_tensors(tmp_path / "merged/model.safetensors"), tensors()
    assert merged.keys() == before.keys()
    for name, array in before.items():
        letter = name.split("self_attn.")[-1][0] if "self_attn." in name else ""
        wanted = array + products(tuned)[letter] if letter in NAMES else array
        assert np.abs(merged[name][1] - wanted).max() < (1e-6 if letter in NAMES else 1e-30)
    assert all(np.abs(product).max() > 1e-3 for product in products(tuned).values())


def test_as_a_folder_of_peft(tuned, there, tmp_path):
    export(tuned, there, tmp_path / "adapter", "--adapter")
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (LOW, ALPHA, "CAUSAL_LM")
    assert sorted(config["target_modules"]) == ["k_proj", "q_proj", "v_proj"]
    found = {name: array for name, (_, array) in read_tensors(tmp_path / "adapter/adapter_model.safetensors").items()}
    assert len(found) == 6
    for name, product in products(tuned).items():
        at = f"base_model.model.model.layers.0.self_attn.{name}_proj"
        ours = ALPHA / LOW * found[f"{at}.lora_B.weight"].astype(np.float64) @ found[f"{at}.lora_A.weight"]
        assert np.abs(ours - product).max() < 1e-7


def test_peft_gives_the_logits_of_the_merged_weights(tuned, there, tmp_path):
    peft, transformers, torch = (pytest.importorskip(name, reason="no peft: make hf") for name in ("peft", "transformers", "torch"))
    export(tuned, there, tmp_path / "merged")
    export(tuned, there, tmp_path / "adapter", "--adapter")
    tokens = torch.tensor([[1, 5, 2, 11, 3, 0, 15, 7]])
    load = transformers.AutoModelForCausalLM.from_pretrained
    with torch.no_grad():
        plain = load(there)(tokens).logits
        merged = load(tmp_path / "merged")(tokens).logits
        adapted = peft.PeftModel.from_pretrained(load(there), tmp_path / "adapter")(tokens).logits
    assert (merged - adapted).abs().max() < 1e-5 < 1e-2 < (plain - adapted).abs().max()


def test_an_adapted_model_is_asked_for(there, tmp_path):
    """Without --model a folder is that of the plain example."""
    assert "model llama of" in run(MPC, "import", there, "-o", tmp_path / "w")
    said = run(MPC, "import", there, "--model", LORA, "-o", tmp_path / "a", *OPTIONS, "-D", "seq=8")
    assert "; 6 of adapters begin as in a new run" in said and "--weights-only --load-missing init" in said
    assert read_tensors(tmp_path / "a").keys() == read_tensors(tmp_path / "w").keys()


def test_no_adapter_line(there, tmp_path):
    run(MPC, "import", there, "-o", tmp_path / "w")
    said = run(MPC, "export", tmp_path / "w", "--like", there, "-o", tmp_path / "out", "--adapter", status=1)
    assert "llama.map has no `adapter` line" in said


@pytest.mark.parametrize("change, message", [
    (lambda text: text.replace("adapter alpha", "adapter beta"), "model lora has no const 'beta', the alpha of its adapters"),
    (lambda text: text.replace("adapter alpha", "adapter eps", 1), "all adapters of a map have one alpha"),
    (lambda text: text.replace("k_proj.lora_B", "k_proj.lora_C"),
     "an adapter has two tensors, NAME.lora_A.weight and NAME.lora_B.weight: there is only"),
    (lambda text: text.replace("lora_A.weight [low, embed]               = h.*.attn.lora_q.a", "lora_A.weight [embed, low] = h.*.attn.lora_q.a"),
     "where [low, in] and [out, low] are needed"),
    (lambda text: text.replace("self_attn.v_proj.lora", "mlp.down_proj.lora"),
     "the adapter of 'model.layers.0.mlp.down_proj.weight' [8, 4] is for a weight [4, 8]"),
    (lambda text: text.replace("v_proj.lora", "w_proj.lora"),
     "the folder has no 'model.layers.0.self_attn.w_proj.weight' that"),
])
def test_maps_that_do_not_fit(tuned, there, tmp_path, change, message):
    (tmp_path / "maps").mkdir()
    shutil.copy(LORA, tmp_path)
    (tmp_path / "maps/lora.map").write_text(change((LORA.parent / "maps/lora.map").read_text()))
    said = run(MPC, "export", tuned, "--like", there, "--model", tmp_path / "lora.mdl", *OPTIONS, "-D", "seq=8", "-o", tmp_path / "out",
               status=1)
    assert message in said
    assert not (tmp_path / "out").exists()


def test_the_mean_of_weights(tuned, there, tmp_path):
    """--ema: of the adapters, which are all that is trained."""
    own = {name: array for name, (_, array) in read_tensors(tuned).items() if not name.startswith("optimizer.")}
    means = {f"optimizer.ema.{name}": 2 * array for name, array in own.items() if ".lora_" in name}
    write_tensors(tmp_path / "with", {**own, **means})
    export(tmp_path / "with", there, tmp_path / "mean", "--ema")
    merged = read_tensors(tmp_path / "mean/model.safetensors")["model.layers.0.self_attn.q_proj.weight"][1]
    assert np.abs(merged - tensors()["model.layers.0.self_attn.q_proj.weight"] - 4 * products(tuned)["q"]).max() < 1e-6
