"""A tiny Llama as transformers would save it, without transformers."""
import json

import numpy as np
from common import write_tensors

SIZES = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
         "intermediate_size": 4}
CONFIG = {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False, **SIZES}


def tensors(tied=False):
    random = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (16, 8), "model.norm.weight": (8,), **({} if tied else {"lm_head.weight": (16, 8)})}
    layer = {"input_layernorm": (8,), "post_attention_layernorm": (8,), "self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8),
             "self_attn.v_proj": (4, 8), "self_attn.o_proj": (8, 8), "mlp.gate_proj": (4, 8), "mlp.up_proj": (4, 8), "mlp.down_proj": (8, 4)}
    shapes |= {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_llama(folder, config=None, weights=None):
    """config: what differs from CONFIG, or its text; weights: tensors, or the bytes of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(CONFIG | (config or {})))
    if isinstance(weights, bytes):
        (folder / "model.safetensors").write_bytes(weights)
    else:
        write_tensors(folder / "model.safetensors", weights or tensors())
    return folder
