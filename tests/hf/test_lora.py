"""examples/lora.mdl: each family has the loss of its plain example, also of documents packed into records; and what its
adapters learn is in the weights that it exports."""
import json
import re

import numpy as np
import pytest
from common import MPC, ROOT, compile_as_said, import_folder, read_tensors, run, write_tensors

LORA = ROOT / "examples/lora.mdl"
PLACES, DOCUMENTS = 4, 24  # tokens of a document; a record has two
SIZES = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 20, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 100.0}
STRETCHED = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
FAMILIES = {  # the plain example, and what is in config.json
    "llama": ("llama", dict(model_type="llama", tie_word_embeddings=False)),
    "llama3": ("llama3.2", dict(model_type="llama", tie_word_embeddings=True, rope_scaling=STRETCHED)),
    "mistral": ("llama", dict(model_type="mistral", tie_word_embeddings=False, sliding_window=2)),
    "qwen2": ("qwen2", dict(model_type="qwen2", tie_word_embeddings=False, use_sliding_window=False)),
    "qwen3": ("qwen3", dict(model_type="qwen3", tie_word_embeddings=True, head_dim=6)),
}


def write_model(folder, config):
    """As transformers would save it, with random weights."""
    folder.mkdir()
    config = SIZES | config
    (folder / "config.json").write_text(json.dumps(config))
    embed, ff, head = config["hidden_size"], config["intermediate_size"], config.get("head_dim", 4)
    rows = {"q": config["num_attention_heads"] * head, "k": config["num_key_value_heads"] * head, "v": config["num_key_value_heads"] * head}
    layer = {"input_layernorm.weight": (embed,), "post_attention_layernorm.weight": (embed,), "mlp.gate_proj.weight": (ff, embed),
             "mlp.up_proj.weight": (ff, embed), "mlp.down_proj.weight": (embed, ff), "self_attn.o_proj.weight": (embed, rows["q"]),
             **{f"self_attn.{name}_proj.weight": (count, embed) for name, count in rows.items()}}
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (count,) for name, count in rows.items()}
    if config["model_type"] == "qwen3":
        layer |= {f"self_attn.{name}_norm.weight": (head,) for name in "qk"}
    shapes = {"model.embed_tokens.weight": (32, embed), "model.norm.weight": (embed,)}
    shapes |= {} if config["tie_word_embeddings"] else {"lm_head.weight": (32, embed)}
    shapes |= {f"model.layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    draw = np.random.default_rng(3)
    write_tensors(folder / "model.safetensors",
                  {name: draw.standard_normal(shape) * 0.5 + (len(shape) == 1) for name, shape in shapes.items()})
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same documents as a file of tokens, and as records of two documents each."""
    folder = tmp_path_factory.mktemp("data")
    tokens = np.random.default_rng(4).integers(0, 32, DOCUMENTS * PLACES + 1)
    tokens.astype("<u2").tofile(folder / "tokens.u16")
    shape = (DOCUMENTS // 2, 2 * PLACES)
    arrays = {"tokens": tokens[:-1], "labels": tokens[1:], "counts": np.ones(DOCUMENTS * PLACES, bool),
              "segment": np.arange(DOCUMENTS * PLACES) // PLACES % 2, "position": np.arange(DOCUMENTS * PLACES) % PLACES}
    write_tensors(folder / "records.safetensors", {name: ("BOOL", array.reshape(shape)) if array.dtype == bool else
                                                   ("I32", array.reshape(shape).astype(np.int32)) for name, array in arrays.items()})
    return folder


def loss_of(trainer, weights, path, *options):
    said = run(trainer, "--load", weights, "--weights-only", *options, "--steps", 0, "--eval-data", path, "--eval-batches", 1000)
    return float(re.search(r"eval loss (\S+)", said)[1])


def compiled(words, out, *settings):
    return compile_as_said(words, out, *(word for text in ("train.precision=fp32", "train.batch=4", "train.microbatch=4", *settings)
                                         for word in ("--set", text)))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name, data, tmp_path):
    example, config = FAMILIES[name]
    there = write_model(tmp_path / "there", config)
    plain_model = ROOT / f"examples/{example}.mdl"
    plain = compiled(import_folder(there, plain_model, tmp_path / "plain.safetensors", "-D", f"seq={PLACES}"), tmp_path / "plain")
    options = ["-D", f"seq={2 * PLACES}", "-D", "rank=3", "-D", "alpha=6.0"]
    own = compiled(import_folder(there, LORA, tmp_path / "base.safetensors", *options), tmp_path / "lora",
                   "train.optimizer.lr=0.02", "train.schedule=constant(warmup = 0)")
    before = loss_of(plain, tmp_path / "plain.safetensors", data / "tokens.u16")
    assert loss_of(own, tmp_path / "base.safetensors", data / "records.safetensors", "--load-missing", "init") == pytest.approx(before, rel=2e-6)

    run(own, "--load", tmp_path / "base.safetensors", "--weights-only", "--load-missing", "init", "--data", data / "records.safetensors", "--steps", 10,
        "--save", tmp_path / "tuned.safetensors", MPC_PEAK_FLOPS="1e9")
    after = loss_of(own, tmp_path / "tuned.safetensors", data / "records.safetensors")
    assert after < before - 0.3
    run(MPC, "export", tmp_path / "tuned.safetensors", "--like", there, "--model", LORA, *options, "-o", tmp_path / "merged")
    import_folder(tmp_path / "merged", plain_model, tmp_path / "merged.safetensors", "-D", f"seq={PLACES}")
    assert loss_of(plain, tmp_path / "merged.safetensors", data / "tokens.u16") == pytest.approx(after, rel=2e-5)
    changed = {tensor for tensor, (_, array) in read_tensors(tmp_path / "merged/model.safetensors").items()
               if not np.array_equal(array, read_tensors(there / "model.safetensors")[tensor][1])}
    assert changed == {f"model.layers.{i}.{part}_proj.weight" for i in range(2)
                       for part in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")}
