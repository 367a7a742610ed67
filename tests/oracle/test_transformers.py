"""A small Mixtral against transformers' own, where that is installed: losses and gradient norms of ten steps."""

import numpy as np
import pytest
import torch
from common import PLAIN_SGD, ROOT, batches, compile_model, follows_transformers, fused_experts, initial_weights, train, write_text

transformers = pytest.importorskip("transformers")
MixtralForCausalLM = pytest.importorskip("transformers", minversion="5.0").MixtralForCausalLM

LAYERS, EMBED, KV, GROUP, HEAD, FF, EXPERTS, VOCAB, SEQ, BATCH, STEPS = 2, 48, 2, 3, 8, 40, 5, 256, 24, 4, 10
SIZES = dict(layers=LAYERS, embed=EMBED, kv_heads=KV, group=GROUP, head=HEAD, ff=FF, experts=EXPERTS, vocab=VOCAB,
             seq=SEQ, balance_weight=0)


def reference_model():
    config = transformers.MixtralConfig(
        vocab_size=VOCAB, hidden_size=EMBED, intermediate_size=FF, num_hidden_layers=LAYERS,
        num_attention_heads=KV * GROUP, num_key_value_heads=KV, num_local_experts=EXPERTS, num_experts_per_tok=2,
        rms_norm_eps=1e-5, rope_theta=1e6, sliding_window=None, tie_word_embeddings=False)
    return MixtralForCausalLM(config)


def load(model, w):
    """Weights of the .mdl in the shapes of transformers: [out, in], heads in one dim."""
    state = {"model.embed_tokens.weight": w["embedding"], "model.norm.weight": w["norm_f.gain"],
             "lm_head.weight": w["head_out"].T}
    for i in range(LAYERS):
        to = f"model.layers.{i}."
        state[to + "input_layernorm.weight"] = w[f"attn_norm.{i}.gain"]
        state[to + "post_attention_layernorm.weight"] = w[f"moe_norm.{i}.gain"]
        for key in "qkv":
            state[to + f"self_attn.{key}_proj.weight"] = w[f"attn.{i}.w{key}"].reshape(EMBED, -1).T
        state[to + "self_attn.o_proj.weight"] = w[f"attn.{i}.wo"].reshape(-1, EMBED).T
        state[to + "mlp.gate.weight"] = w[f"router.{i}.w"].T
        experts = fused_experts(*(w[f"moe.{i}.w_{key}"] for key in ("gate", "up", "down")))
        state |= {f"{to}mlp.experts.{key}": value for key, value in experts.items()}
    model.load_state_dict({key: torch.tensor(np.ascontiguousarray(value)) for key, value in state.items()})


def test_mixtral_follows_transformers(tmp_path):
    source = (ROOT / "examples" / "mixtral.mdl").read_text().replace("capacity = 1.25", "capacity = none")
    sizes = [word for key, value in SIZES.items() for word in ("-D", f"{key}={value}")]
    out = compile_model(source, tmp_path, *sizes, *PLAIN_SGD, f"--set=train.batch={BATCH}")
    text = write_text(tmp_path / "text", 2000)
    model = reference_model()
    load(model, initial_weights(out, text))
    log = train(out, "--data", text, "--no-shuffle", "--steps", STEPS)
    assert follows_transformers(log, model, batches(text, BATCH, SEQ)) and len(log) == STEPS
