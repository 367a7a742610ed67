"""config.json of published models: (family of families.py, the keys besides names, dtypes and tokens), as they are on the Hub."""

LLAMA = dict(attention_bias=False, attention_dropout=0.0, hidden_act="silu", hidden_size=4096, initializer_range=0.02,
             intermediate_size=14336, max_position_embeddings=131072, mlp_bias=False, model_type="llama", num_attention_heads=32,
             num_hidden_layers=32, num_key_value_heads=8, pretraining_tp=1, rms_norm_eps=1e-05, rope_theta=500000.0,
             tie_word_embeddings=False, use_cache=True, vocab_size=128256)
STRETCH = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192, rope_type="llama3")
QWEN = dict(attention_dropout=0.0, hidden_act="silu", hidden_size=3584, initializer_range=0.02, intermediate_size=18944,
            max_position_embeddings=32768, max_window_layers=28, model_type="qwen2", num_attention_heads=28, num_hidden_layers=28,
            num_key_value_heads=4, rms_norm_eps=1e-06, rope_theta=1000000.0, sliding_window=131072, tie_word_embeddings=False,
            use_cache=True, use_mrope=False, use_sliding_window=False, vocab_size=152064)
BERT = dict(attention_probs_dropout_prob=0.1, gradient_checkpointing=False, hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=768,
            initializer_range=0.02, intermediate_size=3072, layer_norm_eps=1e-12, max_position_embeddings=512, model_type="bert",
            num_attention_heads=12, num_hidden_layers=12, pad_token_id=0, position_embedding_type="absolute", type_vocab_size=2,
            use_cache=True, vocab_size=30522)
MAMBA = dict(conv_kernel=4, expand=2, hidden_act="silu", hidden_size=768, initializer_range=0.1, layer_norm_epsilon=1e-05,
             model_type="mamba", num_hidden_layers=24, rescale_prenorm_residual=False, residual_in_fp32=True, state_size=16,
             time_step_floor=0.0001, time_step_init_scheme="random", time_step_max=0.1, time_step_min=0.001, time_step_rank=48,
             time_step_scale=1.0, use_bias=False, use_cache=True, use_conv_bias=True, vocab_size=50280)

PUBLISHED = {
    "gpt2": ("GPT-2", dict(
        activation_function="gelu_new", attn_pdrop=0.1, embd_pdrop=0.1, initializer_range=0.02, layer_norm_epsilon=1e-05,
        model_type="gpt2", n_ctx=1024, n_embd=768, n_head=12, n_layer=12, n_positions=1024, resid_pdrop=0.1,
        summary_activation=None, summary_first_dropout=0.1, summary_proj_to_labels=True, summary_type="cls_index",
        summary_use_proj=True, task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}}, vocab_size=50257)),
    "Llama-2-7b-hf": ("Llama 2, 3", {key: value for key, value in {
        **LLAMA, "max_position_embeddings": 4096, "num_key_value_heads": 32, "rope_scaling": None, "intermediate_size": 11008,
        "vocab_size": 32000}.items() if key not in ("rope_theta", "mlp_bias", "attention_bias", "attention_dropout")}),
    "Llama-3.1-8B": ("Llama 3.1, 3.3", dict(LLAMA, rope_scaling=STRETCH)),
    "Llama-3.2-1B": ("Llama 3.2", dict(LLAMA, head_dim=64, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                       rope_scaling=dict(STRETCH, factor=32.0), tie_word_embeddings=True)),
    "SmolLM2-135M": ("SmolLM", dict(
        {key: value for key, value in LLAMA.items() if key != "mlp_bias"}, hidden_size=576, intermediate_size=1536,
        is_llama_config=True, num_attention_heads=9, num_key_value_heads=3, rope_interleaved=False, rope_scaling=None,
        rope_theta=100000, tie_word_embeddings=True, vocab_size=49152,
        **{"transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}})),
    "Mistral-7B-v0.1": ("Mistral", dict(
        hidden_act="silu", hidden_size=4096, initializer_range=0.02, intermediate_size=14336, max_position_embeddings=32768,
        model_type="mistral", num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, rms_norm_eps=1e-05,
        rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False, use_cache=True, vocab_size=32000)),
    "Qwen2.5-7B": ("Qwen2, 2.5 from 7B", QWEN),
    "Qwen3-8B": ("Qwen3 from 8B", dict({key: value for key, value in QWEN.items() if key != "use_mrope"}, attention_bias=False, head_dim=128,
                                       max_window_layers=36, model_type="qwen3", num_attention_heads=32, num_key_value_heads=8,
                                       rope_scaling=None, sliding_window=None)),
    "OLMo-2-1124-7B": ("OLMo 2", dict(
        attention_bias=False, attention_dropout=0.0, hidden_act="silu", hidden_size=4096, initializer_range=0.02,
        intermediate_size=11008, max_position_embeddings=4096, model_type="olmo2", num_attention_heads=32, num_hidden_layers=32,
        num_key_value_heads=32, rms_norm_eps=1e-06, rope_scaling=None, rope_theta=500000, tie_word_embeddings=False, use_cache=True,
        vocab_size=100352)),
    "Phi-3-mini-4k-instruct": ("Phi-3", dict(
        attention_bias=False, attention_dropout=0.0, auto_map={"AutoConfig": "configuration_phi3.Phi3Config"}, embd_pdrop=0.0,
        hidden_act="silu", hidden_size=3072, initializer_range=0.02, intermediate_size=8192, max_position_embeddings=4096,
        model_type="phi3", num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32, original_max_position_embeddings=4096,
        resid_pdrop=0.0, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000.0, sliding_window=2047,
        tie_word_embeddings=False, use_cache=True, vocab_size=32064)),
    "Phi-4-mini-instruct": ("Phi-4 mini", dict(
        attention_bias=False, attention_dropout=0.0, auto_map={"AutoConfig": "configuration_phi3.Phi3Config"}, embd_pdrop=0.0,
        full_attn_mod=1, hidden_act="silu", hidden_size=3072, initializer_range=0.02, intermediate_size=8192, interpolate_factor=1,
        lm_head_bias=False, max_position_embeddings=131072, mlp_bias=False, model_type="phi3", num_attention_heads=24,
        num_hidden_layers=32, num_key_value_heads=8, original_max_position_embeddings=4096, partial_rotary_factor=0.75,
        resid_pdrop=0.0, rms_norm_eps=1e-05, rope_scaling=dict(  # the numbers of the lists are not the published ones
            long_factor=[1.0 + 0.5 * i for i in range(48)], short_factor=[1.0] * 48, type="longrope"),
        rope_theta=10000.0, sliding_window=262144, tie_word_embeddings=True, use_cache=True, vocab_size=200064)),
    "bert-base-uncased": ("BERT", BERT),
    "bert-base-multilingual-cased": ("BERT", dict(
        BERT, classifier_dropout=None, directionality="bidi", pooler_fc_size=768, pooler_num_attention_heads=12, pooler_num_fc_layers=3,
        pooler_size_per_head=128, pooler_type="first_token_transform", vocab_size=119547)),
    "roberta-base": ("RoBERTa", dict(
        {key: value for key, value in BERT.items() if key not in ("gradient_checkpointing", "position_embedding_type", "use_cache")},
        layer_norm_eps=1e-05, max_position_embeddings=514, model_type="roberta", pad_token_id=1, type_vocab_size=1, vocab_size=50265)),
    "xlm-roberta-base": ("RoBERTa, XLM-R", dict(
        BERT, layer_norm_eps=1e-05, max_position_embeddings=514, model_type="xlm-roberta", output_past=True, pad_token_id=1,
        type_vocab_size=1, vocab_size=250002)),
    "distilbert-base-uncased-finetuned-sst-2-english": ("DistilBERT", dict(
        activation="gelu", attention_dropout=0.1, dim=768, dropout=0.1, finetuning_task="sst-2", hidden_dim=3072,
        id2label={"0": "NEGATIVE", "1": "POSITIVE"}, initializer_range=0.02, label2id={"NEGATIVE": 0, "POSITIVE": 1},
        max_position_embeddings=512, model_type="distilbert", n_heads=12, n_layers=6, output_past=True, pad_token_id=0,
        qa_dropout=0.1, seq_classif_dropout=0.2, sinusoidal_pos_embds=False, tie_weights_=True, vocab_size=30522)),
    "pythia-160m": ("GPT-NeoX", dict(
        attention_bias=True, hidden_act="gelu", hidden_size=768, initializer_range=0.02, intermediate_size=3072, layer_norm_eps=1e-05,
        max_position_embeddings=2048, model_type="gpt_neox", num_attention_heads=12, num_hidden_layers=12, rotary_emb_base=10000,
        rotary_pct=0.25, tie_word_embeddings=False, use_cache=True, use_parallel_residual=True, vocab_size=50304)),
    "gemma-2-2b": ("Gemma 2", dict(
        attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=50.0, cache_implementation="hybrid",
        final_logit_softcapping=30.0, head_dim=256, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
        hidden_size=2304, initializer_range=0.02, intermediate_size=9216, max_position_embeddings=8192, model_type="gemma2",
        num_attention_heads=8, num_hidden_layers=26, num_key_value_heads=4, query_pre_attn_scalar=256, rms_norm_eps=1e-06,
        rope_theta=10000.0, sliding_window=4096, use_cache=True, vocab_size=256000)),
    "gemma-3-1b-pt": ("Gemma 3", dict(
        attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=None, cache_implementation="hybrid",
        final_logit_softcapping=None, head_dim=256, hidden_activation="gelu_pytorch_tanh", hidden_size=1152, initializer_range=0.02,
        intermediate_size=6912, max_position_embeddings=32768, model_type="gemma3_text", num_attention_heads=4, num_hidden_layers=26,
        num_key_value_heads=1, query_pre_attn_scalar=256, rms_norm_eps=1e-06, rope_local_base_freq=10000, rope_scaling=None,
        rope_theta=1000000, sliding_window=512, sliding_window_pattern=6, use_cache=True, vocab_size=262144)),
    "Mixtral-8x7B-v0.1": ("Mixtral", dict(
        attention_dropout=0.0, hidden_act="silu", hidden_size=4096, initializer_range=0.02, intermediate_size=14336,
        max_position_embeddings=32768, model_type="mixtral", num_attention_heads=32, num_experts_per_tok=2, num_hidden_layers=32,
        num_key_value_heads=8, num_local_experts=8, output_router_logits=False, rms_norm_eps=1e-05, rope_theta=1000000.0,
        router_aux_loss_coef=0.02, sliding_window=None, tie_word_embeddings=False, use_cache=True, vocab_size=32000)),
    "Qwen3-30B-A3B": ("Qwen3 with experts", dict(
        {key: value for key, value in QWEN.items() if key != "use_mrope"}, attention_bias=False, decoder_sparse_step=1, head_dim=128,
        hidden_size=2048, max_window_layers=48, mlp_only_layers=[], model_type="qwen3_moe", moe_intermediate_size=768,
        norm_topk_prob=True, num_attention_heads=32, num_experts=128, num_experts_per_tok=8, output_router_logits=False,
        rope_scaling=None, router_aux_loss_coef=0.001, sliding_window=None)),
    "Qwen1.5-MoE-A2.7B": ("Qwen1.5, Qwen2 with experts", dict(
        {key: value for key, value in QWEN.items() if key != "use_mrope"}, decoder_sparse_step=1, hidden_size=2048, max_window_layers=21,
        model_type="qwen2_moe", moe_intermediate_size=1408, norm_topk_prob=False, num_attention_heads=16, num_experts=60,
        num_experts_per_tok=4, num_key_value_heads=16, output_router_logits=False, router_aux_loss_coef=0.001,
        shared_expert_intermediate_size=5632)),
    "gpt-oss-20b": ("gpt-oss", dict(  # without quantization_config
        attention_bias=True, attention_dropout=0.0, experts_per_token=4, head_dim=64, hidden_act="silu", hidden_size=2880,
        initial_context_length=4096, initializer_range=0.02, intermediate_size=2880, layer_types=["sliding_attention", "full_attention"] * 12,
        max_position_embeddings=131072, model_type="gpt_oss", num_attention_heads=64, num_experts_per_tok=4, num_hidden_layers=24,
        num_key_value_heads=8, num_local_experts=32, output_router_logits=False, rms_norm_eps=1e-05, rope_scaling=dict(
            beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=4096, rope_type="yarn", truncate=False),
        rope_theta=150000, router_aux_loss_coef=0.9, sliding_window=128, swiglu_limit=7.0, tie_word_embeddings=False, use_cache=True,
        vocab_size=201088)),
    "mamba-130m-hf": ("Mamba", dict(
        MAMBA, d_inner=1536, d_model=768, fused_add_norm=True, intermediate_size=1536, n_layer=24, pad_vocab_size_multiple=8, rms_norm=True,
        ssm_cfg={})),
    "Mamba-Codestral-7B-v0.1": ("Mamba-Codestral", dict(
        {key: value for key, value in MAMBA.items() if key not in ("time_step_init_scheme", "time_step_scale")}, chunk_size=256,
        head_dim=64, hidden_size=4096, model_type="mamba2", n_groups=8, norm_before_gate=True, num_heads=128, num_hidden_layers=64,
        rms_norm=True, state_size=128, tie_word_embeddings=False, time_step_limit=[0.0, {"__float__": "Infinity"}], time_step_rank=256,
        vocab_size=32768)),
    "phi-2": ("Phi-1, 1.5, 2", dict(
        attention_dropout=0.0, embd_pdrop=0.0, hidden_act="gelu_new", hidden_size=2560, initializer_range=0.02, intermediate_size=10240,
        layer_norm_eps=1e-05, max_position_embeddings=2048, model_type="phi", num_attention_heads=32, num_hidden_layers=32,
        num_key_value_heads=32, partial_rotary_factor=0.4, qk_layernorm=False, resid_pdrop=0.1, rope_scaling=None, rope_theta=10000.0,
        tie_word_embeddings=False, use_cache=True, vocab_size=51200)),
    "rwkv-4-169m-pile": ("RWKV-4", dict(
        attention_hidden_size=768, context_length=1024, hidden_size=768, intermediate_size=3072, layer_norm_epsilon=1e-05,
        model_type="rwkv", num_hidden_layers=12, rescale_every=6, tie_word_embeddings=False, use_cache=True, vocab_size=50277)),
    "t5-v1_1-base": ("T5 1.1", dict(
        d_ff=2048, d_kv=64, d_model=768, decoder_start_token_id=0, dropout_rate=0.1, feed_forward_proj="gated-gelu",
        initializer_factor=1.0, is_encoder_decoder=True, layer_norm_epsilon=1e-06, model_type="t5", num_decoder_layers=12,
        num_heads=12, num_layers=12, output_past=True, relative_attention_num_buckets=32, tie_word_embeddings=False, use_cache=True,
        vocab_size=32128)),
}
