"""The families of models that mpc imports: a tiny configuration of transformers' own class, and the model's file."""
from dataclasses import dataclass, field

VOCAB, SEQ = 256, 24


@dataclass
class Family:
    name: str      # of the row in docs/models.md
    config: str    # transformers' class
    model: str     # transformers' class
    file: str      # the .mdl
    covers: str    # what it is, and what it is not
    arguments: dict = field(default_factory=dict)
    defines: dict = field(default_factory=dict)  # what the configuration does not say
    map: str = ""  # where it is not that of the file
    rate: float = 0.1  # of learning
    edit: tuple = ()  # what is changed in the file, and to what
    masked: int = 0  # the token in the place of masked ones, of every 7th
    later: bool = False  # trained only by make check-all
    says: bool = True  # False: what transformers says depends on how long the text is already, not on seq


LLAMA = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, pad_token_id=None,
             eos_token_id=None)  # the row of a padding token would have no gradient there

MAMBA = dict(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, expand=2, num_heads=6, head_dim=16, n_groups=2,
             state_size=10, chunk_size=8, pad_token_id=None)

STRETCHED = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                 original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=64, beta_fast=8.0, beta_slow=1.0)
DYNAMIC = dict(rope_type="dynamic", rope_theta=1e4, factor=3.0)
GEMMA = dict(LLAMA, tie_word_embeddings=True, head_dim=16, sliding_window=7, query_pre_attn_scalar=24)

FAMILIES = [
    Family("GPT-2", "GPT2Config", "GPT2LMHeadModel", "examples/gpt2.mdl", "all sizes; DistilGPT-2",
           dict(vocab_size=VOCAB, n_positions=SEQ, n_embd=48, n_layer=3, n_head=4, resid_pdrop=0, embd_pdrop=0,
                attn_pdrop=0)),
    Family("Llama 2, 3", "LlamaConfig", "LlamaForCausalLM", "examples/llama.mdl",
           "all sizes",
           dict(LLAMA, rope_theta=500000.0, rms_norm_eps=1e-5), dict(seq=SEQ)),
    Family("Mistral", "MistralConfig", "MistralForCausalLM", "examples/llama.mdl", "sliding window or none",
           dict(LLAMA, head_dim=16, sliding_window=7, rms_norm_eps=1e-6), dict(seq=SEQ)),
    Family("Llama, stretched", "LlamaConfig", "LlamaForCausalLM", "examples/llama.mdl", "`rope_scaling` of type `linear`",
           dict(LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.5)), dict(seq=SEQ)),
    Family("Qwen2, 2.5 to 3B", "Qwen2Config", "Qwen2ForCausalLM", "examples/qwen2.mdl", "one table for tokens and logits",
           dict(LLAMA, tie_word_embeddings=True, rope_theta=1e6), dict(seq=SEQ)),
    Family("Qwen2, 2.5 from 7B", "Qwen2Config", "Qwen2ForCausalLM", "examples/qwen2.mdl", "all sizes",
           dict(LLAMA, rope_theta=1e6), dict(seq=SEQ)),
    Family("Qwen3 to 4B", "Qwen3Config", "Qwen3ForCausalLM", "examples/qwen3.mdl", "one table for tokens and logits",
           dict(LLAMA, tie_word_embeddings=True, head_dim=12, rope_theta=1e6), dict(seq=SEQ)),
    Family("Qwen3 from 8B", "Qwen3Config", "Qwen3ForCausalLM", "examples/qwen3.mdl", "all dense sizes",
           dict(LLAMA, head_dim=12, rope_theta=1e6), dict(seq=SEQ), rate=0.3),
    Family("OLMo 2", "Olmo2Config", "Olmo2ForCausalLM", "examples/olmo2.mdl", "all sizes",
           dict(LLAMA, rope_theta=5e5), dict(seq=SEQ)),
    Family("Phi-3", "Phi3Config", "Phi3ForCausalLM", "examples/llama.mdl", "4k; no scaled rotary embedding",
           dict(LLAMA, sliding_window=9, resid_pdrop=0, embd_pdrop=0), dict(seq=SEQ), "examples/maps/phi3.map"),
    Family("Phi-3, long", "Phi3Config", "Phi3ForCausalLM", "examples/phi3long.mdl", "128k, Phi-3.5 mini: `longrope`",
           dict(LLAMA, sliding_window=9, resid_pdrop=0, embd_pdrop=0, max_position_embeddings=64, original_max_position_embeddings=16,
                rope_parameters=dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0, 1.1, 1.25, 1.5],
                                     long_factor=[1.0, 1.3, 2.5, 4.0])), dict(seq=SEQ), later=True),
    Family("Phi-4 mini", "Phi3Config", "Phi3ForCausalLM", "examples/phi3long.mdl", "`longrope`, for a part of each head; one table",
           dict(LLAMA, tie_word_embeddings=True, sliding_window=9, resid_pdrop=0, embd_pdrop=0, max_position_embeddings=64,
                original_max_position_embeddings=16, rope_parameters=dict(
                    rope_type="longrope", rope_theta=1e4, partial_rotary_factor=0.75, short_factor=[1.0, 1.1, 1.25],
                    long_factor=[1.0, 1.3, 2.5])), dict(seq=SEQ), later=True),
    Family("Llama 3.1, 3.3", "LlamaConfig", "LlamaForCausalLM", "examples/llama3.1.mdl", "all sizes",
           dict(LLAMA, head_dim=8, rope_parameters=STRETCHED), dict(seq=SEQ)),
    Family("Llama 3.2", "LlamaConfig", "LlamaForCausalLM", "examples/llama3.2.mdl", "1B, 3B: one table",
           dict(LLAMA, tie_word_embeddings=True, head_dim=8, rope_parameters=STRETCHED), dict(seq=SEQ)),
    Family("SmolLM", "LlamaConfig", "LlamaForCausalLM", "examples/llama3.2.mdl", "1 and 2; any Llama with one table",
           dict(LLAMA, tie_word_embeddings=True, rope_theta=1e5), dict(seq=SEQ)),
    Family("Llama with YaRN", "LlamaConfig", "LlamaForCausalLM", "examples/yarn.mdl", "`rope_scaling` of type `yarn`",
           dict(LLAMA, head_dim=16, rope_parameters=YARN), dict(seq=SEQ), "examples/maps/llama_yarn.map", rate=0.3, later=True),
    Family("Llama, dynamic", "LlamaConfig", "LlamaForCausalLM", "examples/yarn.mdl", "`rope_scaling` of type `dynamic`; biases of attention",
           dict(LLAMA, initializer_range=0.2, attention_bias=True, max_position_embeddings=16, rope_parameters=DYNAMIC), dict(seq=SEQ), "examples/maps/llama_yarn.map",
           later=True, says=False),
    Family("Qwen2.5 with YaRN", "Qwen2Config", "Qwen2ForCausalLM", "examples/yarn.mdl", "`rope_scaling` of type `yarn`, `dynamic`",
           dict(LLAMA, rope_parameters=dict(YARN, truncate=False)), dict(seq=SEQ), "examples/maps/qwen2_yarn.map",
           later=True),
    Family("Qwen3 with YaRN", "Qwen3Config", "Qwen3ForCausalLM", "examples/yarn.mdl", "`rope_scaling` of type `yarn`, `dynamic`",
           dict(LLAMA, tie_word_embeddings=True, head_dim=12, rope_parameters=YARN), dict(seq=SEQ), "examples/maps/qwen3_yarn.map", rate=0.3,
           later=True),
    Family("SmolLM3", "SmolLM3Config", "SmolLM3ForCausalLM", "examples/yarn.mdl", "3B: each fourth layer without positions",
           dict(LLAMA, tie_word_embeddings=True, num_hidden_layers=5, rope_theta=1e5), dict(seq=SEQ), "examples/maps/smollm3.map", rate=0.3,
           later=True),
    Family("GLM-4 0414", "Glm4Config", "Glm4ForCausalLM", "examples/glm4.mdl", "9B, 32B",
           dict(LLAMA, head_dim=16), dict(seq=SEQ), later=True),
    Family("GLM-4", "GlmConfig", "GlmForCausalLM", "examples/glm4.mdl", "9B", dict(LLAMA, head_dim=16), dict(seq=SEQ), "examples/maps/glm.map", later=True),
    Family("BERT", "BertConfig", "BertForMaskedLM", "examples/bert.mdl",
           "masked tokens of one sentence; the pooler is carried along",
           dict(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
                max_position_embeddings=SEQ, hidden_dropout_prob=0, attention_probs_dropout_prob=0, pad_token_id=None), masked=103),
    Family("RoBERTa, XLM-R", "XLMRobertaConfig", "XLMRobertaForMaskedLM", "examples/roberta.mdl",
           "masked tokens; CamemBERT",
           dict(vocab_size=VOCAB + 1, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
                max_position_embeddings=VOCAB + 1 + SEQ, type_vocab_size=1, hidden_dropout_prob=0,
                attention_probs_dropout_prob=0, pad_token_id=VOCAB), dict(masked=103), masked=103),
    Family("GPT-NeoX", "GPTNeoXConfig", "GPTNeoXForCausalLM", "examples/neox.mdl", "Pythia: all sizes",
           dict(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, num_attention_heads=3, intermediate_size=192,
                rotary_pct=0.25, bos_token_id=None, eos_token_id=None), dict(seq=SEQ)),
    Family("Gemma 2", "Gemma2Config", "Gemma2ForCausalLM", "examples/gemma2.mdl", "all sizes",
           dict(GEMMA, num_hidden_layers=4), dict(seq=SEQ)),
    Family("Gemma 3", "Gemma3TextConfig", "Gemma3ForCausalLM", "examples/gemma3.mdl", "270M, 1B; text alone",
           dict(GEMMA, num_hidden_layers=14), dict(seq=SEQ), rate=0.02),
    Family("Gemma 3 from 4B", "Gemma3TextConfig", "Gemma3ForCausalLM", "examples/gemma3.mdl", "text alone, without the tower for images",
           dict(GEMMA, num_hidden_layers=7, initializer_range=0.2, rope_parameters=dict(
               full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
               sliding_attention=dict(rope_type="default", rope_theta=1e4))), dict(seq=SEQ), rate=0.1),
    Family("Mixtral", "MixtralConfig", "MixtralForCausalLM", "examples/mixtral.mdl",
           "with `capacity = none`: transformers drops no rows",
           dict(LLAMA, num_local_experts=4, experts_implementation="eager"), dict(seq=SEQ, balance_weight=0), "examples/maps/mixtral.map",
           edit=("capacity = 1.25", "capacity = none")),
    Family("DeepSeek-V3", "DeepseekV3Config", "DeepseekV3ForCausalLM", "examples/deepseek.mdl",
           "all sizes, without YaRN and multi-token prediction; with `capacity = none`",
           dict(LLAMA, num_key_value_heads=6, n_shared_experts=1, n_routed_experts=8, moe_intermediate_size=20, n_group=4, topk_group=2,
                num_experts_per_tok=3, first_k_dense_replace=1, q_lora_rank=20, kv_lora_rank=12, qk_rope_head_dim=4,
                qk_nope_head_dim=8, v_head_dim=10, num_nextn_predict_layers=0, experts_implementation="eager"),
           dict(seq=SEQ, pace=0), "examples/maps/deepseek.map", rate=0.5,
           edit=("capacity = 1.5", "capacity = none")),
    Family("Qwen3 with experts", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", "examples/qwen3moe.mdl",
           "30B-A3B and larger; with `capacity = none`",
           dict(LLAMA, head_dim=12, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=True,
                experts_implementation="eager"), dict(seq=SEQ, balance_weight=0), "examples/maps/qwen3moe.map",
           edit=("capacity = 1.25", "capacity = none")),
    Family("Qwen1.5, Qwen2 with experts", "Qwen2MoeConfig", "Qwen2MoeForCausalLM", "examples/qwen2moe.mdl",
           "A2.7B, 57B-A14B; with `capacity = none`",
           dict(LLAMA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=28,
                experts_implementation="eager"), dict(seq=SEQ, balance_weight=0), "examples/maps/qwen2moe.map",
           edit=("capacity = 1.25", "capacity = none")),
    Family("gpt-oss", "GptOssConfig", "GptOssForCausalLM", "examples/gptoss.mdl",
           "20B, 120B, not quantised; with `capacity = none`",
           dict(LLAMA, head_dim=16, num_hidden_layers=4, initializer_range=0.2, num_local_experts=5, num_experts_per_tok=2, intermediate_size=20,
                sliding_window=7, swiglu_limit=1.1, experts_implementation="eager", rope_parameters=dict(
                    rope_type="yarn", rope_theta=150.0, factor=8.0, beta_fast=8.0, beta_slow=1.0, truncate=False,
                    original_max_position_embeddings=64)), dict(seq=SEQ, balance_weight=0), "examples/maps/gptoss.map", 0.1,
           edit=("capacity = 1.25", "capacity = none")),
    Family("Mamba-2", "Mamba2Config", "Mamba2ForCausalLM", "examples/mamba2.mdl", "all sizes", dict(MAMBA, tie_word_embeddings=True), dict(chunk=3)),
    Family("Mamba-Codestral", "Mamba2Config", "Mamba2ForCausalLM", "examples/mamba2.mdl", "a table of logits of their own",
           MAMBA, dict(chunk=3)),
    Family("Mamba", "MambaConfig", "MambaForCausalLM", "examples/mamba.mdl", "all sizes",
           dict(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, state_size=5, pad_token_id=None), dict(seq=SEQ)),
    Family("RWKV-4", "RwkvConfig", "RwkvForCausalLM", "examples/rwkv.mdl", "all sizes",
           dict(vocab_size=VOCAB, context_length=SEQ, hidden_size=48, attention_hidden_size=40, num_hidden_layers=3,
                intermediate_size=80), dict(seq=SEQ), rate=0.5),
    Family("Falcon", "FalconConfig", "FalconForCausalLM", "tests/models/falcon.mdl", "1 head of keys: 7B",
           dict(vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3, num_attention_heads=3), dict(seq=SEQ)),
    Family("BLOOM", "BloomConfig", "BloomForCausalLM", "tests/models/bloom.mdl",
           "ALiBi; heads that are a power of two: all sizes but 176B",
           dict(vocab_size=VOCAB, hidden_size=48, n_layer=3, n_head=4), dict(seq=SEQ)),
    Family("MPT", "MptConfig", "MptForCausalLM", "tests/models/mpt.mdl", "ALiBi; heads that are a power of two: 7B",
           dict(vocab_size=VOCAB, d_model=48, n_layers=3, n_heads=4, max_seq_len=SEQ), dict(seq=SEQ)),
    Family("GPT-J", "GPTJConfig", "GPTJForCausalLM", "tests/models/gptj.mdl", "6B",
           dict(vocab_size=VOCAB, n_embd=48, n_layer=3, n_head=3, rotary_dim=8, n_positions=SEQ), dict(seq=SEQ)),
    Family("Phi-1, 1.5, 2", "PhiConfig", "PhiForCausalLM", "tests/models/phi2.mdl", "all sizes",
           dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=3,
                rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)), dict(seq=SEQ)),
    Family("Command R+", "CohereConfig", "CohereForCausalLM", "tests/models/cohere.mdl", "with norms of queries and keys",
           dict(LLAMA, tie_word_embeddings=True, use_qk_norm=True, logit_scale=0.5), dict(seq=SEQ)),
    Family("Granite 3", "GraniteConfig", "GraniteForCausalLM", "tests/models/granite.mdl", "one table for tokens and logits",
           dict(LLAMA, tie_word_embeddings=True, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
                logits_scaling=2.0), dict(seq=SEQ)),
    Family("OLMoE", "OlmoeConfig", "OlmoeForCausalLM", "tests/models/olmoe.mdl", "1B-7B; with `capacity = none`",
           dict(LLAMA, num_experts=6, num_experts_per_tok=3, intermediate_size=20, experts_implementation="eager"),
           dict(seq=SEQ, balance_weight=0), "tests/models/maps/olmoe.map", edit=("capacity = 1.25", "capacity = none")),
    Family("StarCoder2", "Starcoder2Config", "Starcoder2ForCausalLM", "tests/models/starcoder2.mdl", "all sizes",
           dict(LLAMA, tie_word_embeddings=True, sliding_window=7, residual_dropout=0, embedding_dropout=0), dict(seq=SEQ)),
    Family("OPT", "OPTConfig", "OPTForCausalLM", "tests/models/opt.mdl", "all sizes but 350M",
           dict(vocab_size=VOCAB, hidden_size=48, ffn_dim=80, num_hidden_layers=3, num_attention_heads=3, dropout=0,
                max_position_embeddings=SEQ, word_embed_proj_dim=48, pad_token_id=None)),
    Family("ModernBERT", "ModernBertConfig", "ModernBertForMaskedLM", "tests/models/modernbert.mdl", "masked tokens; all sizes",
           dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=7, num_attention_heads=3,
                local_attention=8, pad_token_id=None), dict(seq=SEQ, masked=103), rate=0.02, masked=103),
]

ENCODER = dict(vocab_size=VOCAB + 1, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
               max_position_embeddings=VOCAB + 1 + SEQ, type_vocab_size=1, hidden_dropout_prob=0,
               attention_probs_dropout_prob=0, pad_token_id=VOCAB)

# Without a row of their own in docs/models.md.
OTHERS = [
    Family("RoBERTa", "RobertaConfig", "RobertaForMaskedLM", "examples/roberta.mdl", "", ENCODER, dict(masked=103), masked=103),
    Family("CamemBERT", "CamembertConfig", "CamembertForMaskedLM", "examples/roberta.mdl", "", ENCODER, dict(masked=103), masked=103),
    Family("T5 1.1", "T5Config", "T5ForConditionalGeneration", "examples/t5.mdl", "",
           dict(vocab_size=60, d_model=24, d_kv=8, d_ff=40, num_layers=3, num_heads=3, dropout_rate=0.0,
                relative_attention_num_buckets=8, relative_attention_max_distance=20, feed_forward_proj="gated-gelu",
                tie_word_embeddings=False, initializer_factor=0.2), dict(source=30, seq=14)),
    Family("DistilBERT", "DistilBertConfig", "DistilBertForSequenceClassification", "examples/distilbert.mdl", "",
           dict(vocab_size=60, max_position_embeddings=18, dim=24, n_layers=3, n_heads=3, hidden_dim=96, dropout=0.0,
                attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=3, pad_token_id=None), {"class": 3}),
    Family("Llama with adapters", "LlamaConfig", "LlamaForCausalLM", "tests/models/lora.mdl", "", dict(LLAMA, rope_theta=5e5), dict(seq=SEQ)),
    Family("ResNet", "ResNetConfig", "ResNetForImageClassification", "tests/models/resnet.mdl", "",
           dict(embedding_size=4, hidden_sizes=[8, 16, 24, 32], depths=[3, 2, 2, 2], layer_type="bottleneck", num_labels=5),
           {"row": 64, "class": 5}),
]
