"""The arguments of Megatron-LM: those that say nothing of a layout, and those that were renamed.

megatron/training/arguments.py as it stood for core 0.16, and the fields of core 0.16.1's
TransformerConfig and ModelParallelConfig, which later releases turn into arguments.
"""

RELEASE = "Megatron-LM with core 0.16"
PAD = 128  # --make-vocab-size-divisible-by where it is not given; times the tensor ranks
STRATEGIES = "no_shard", "optim", "optim_grads", "optim_grads_params"  # stages 0 to 3 of ZeRO

# What Megatron-LM itself refuses, or another program of the same name took -> what to write.
RENAMED = {
    "--batch-size": "--micro-batch-size",
    "--model-parallel-size": "--tensor-model-parallel-size",
    "--intra-layer-model-parallel-size": "--tensor-model-parallel-size",
    "--warmup": "--lr-warmup-fraction",
    "--checkpoint-activations": "--recompute-granularity full --recompute-method uniform",
    "--checkpoint-num-layers": "--recompute-num-layers",
    "--activations-checkpoint-method": "--recompute-granularity full --recompute-method",
    "--activations-checkpoint-num-layers": "--recompute-num-layers",
    "--use-custom-fsdp": "--use-megatron-fsdp",
    "--moe-extended-tp": "--expert-tensor-parallel-size",
    "--moe-layer-recompute": "--recompute-granularity selective --recompute-modules moe",
    "--zero-stage": "--use-distributed-optimizer, or --use-megatron-fsdp with "
    "--data-parallel-sharding-strategy",
    "--ds-sequence-parallel-size": "--context-parallel-size",
    "--embed-layernorm": "nothing: Megatron-LM has no norm behind the embedding",
}

# What changes time or memory and has no place in a Layout or a ModelShape -> what is counted.
UNCOUNTED = {
    "--num-distributed-optimizer-instances": "states are counted as dealt out over all of d",
    "--use-tp-pp-dp-mapping": "ranks are counted in the order tp-cp-ep-dp-pp",
    "--optimizer-cpu-offload": "the optimizer is counted on the device",
    "--cpu-offloading-num-layers": "activations are counted on the device",
    "--fine-grained-activation-offloading": "activations are counted on the device",
    "--use-precision-aware-optimizer": "the optimizer is counted in 32 bits",
    "--main-grads-dtype": "gradients are counted as the recipe has them",
    "--main-params-dtype": "the optimizer is counted in 32 bits",
    "--exp-avg-dtype": "the optimizer is counted in 32 bits",
    "--exp-avg-sq-dtype": "the optimizer is counted in 32 bits",
    "--fp8-param-gather": "weights are counted in 16 bits",
    "--fp4-format": "matmuls are counted in bf16",
    "--mtp-num-layers": "the layers that predict further tokens are not counted",
    "--rampup-batch-size": "the step is counted at the full batch",
    "--moe-expert-capacity-factor": "experts are counted at even load",
    "--recompute-modules": "selective is counted as the attention between its projections",
    "--distribute-saved-activations": "inputs of layers are counted whole on each tensor rank",
    "--hierarchical-context-parallel-sizes": "one ring is counted",
    "--optimizer": "Adam's states are counted",
    "--yaml-cfg": "what that file says is not read",
    "--use-checkpoint-args": "what the checkpoint says is not read",
    "--use-mp-args-from-checkpoint-args": "what the checkpoint says is not read",
    "--experimental-attention-variant": "attention is counted as plain",
    "--spec": "the layer is counted as a plain one",
    "--is-hybrid-model": "all layers are counted as attention and MLP",
    "--hybrid-attention-ratio": "all layers are counted as attention and MLP",
    "--hybrid-mlp-ratio": "all layers are counted as attention and MLP",
    "--hybrid-override-pattern": "all layers are counted as attention and MLP",
    "--heterogeneous-layers-config-path": "all layers are counted as alike",
    "--heterogeneous-layers-config-encoded-json": "all layers are counted as alike",
    "--retro-add-retriever": "the retriever is not counted",
}

# What a whole group of names begins with, of which none bears on a layout.
GROUPS = (
    "--adlr-", "--bert-", "--biencoder-", "--ckpt-", "--dino-", "--dist-ckpt-", "--ict-",
    "--indexer-", "--inference-", "--inprocess-", "--kitchen-", "--langrl-", "--log-", "--lr-",
    "--mamba-", "--muon-", "--no-log-", "--non-persistent-", "--one-logger-", "--profile", "--rl-",
    "--grpo-", "--retriever-", "--retro-", "--swin-", "--tensorboard-", "--tiktoken-",
    "--tokenizer-m", "--vision-", "--wandb-", "--straggler-", "--error-injection-", "--qk-clip",
    "--linear-", "--dsa-", "--sft",
)  # fmt: skip

OTHERS = """
    accumulate-allreduce-grads-in-fp32 activation-func-clamp-value adam-beta1
    adam-beta2 adam-eps allow-ambiguous-pad-tokens app-tag-run-name app-tag-run-version
    apply-layernorm-1p apply-query-key-layer-scaling apply-residual-connection-post-layernorm
    async-save attention-backend attention-dropout attention-output-gate
    attention-softmax-in-fp32 auto-detect-ckpt-format batch-invariant-mode block-data-path
    cache-mla-latents calc-ft-timeouts calculate-per-token-loss check-for-large-grads
    check-for-spiky-loss check-weight-hash-across-dp-replicas-interval classes-fraction
    clip-grad config-logger-dir cp-comm-type cross-entropy-fusion-impl cross-entropy-loss-fusion
    cuda-graph-impl cuda-graph-scope cuda-graph-warmup-steps data-args-path data-cache-path
    data-parallel-random-init data-path data-per-class-fraction dataloader-type
    ddp-average-in-collective ddp-bucket-size ddp-num-buckets
    ddp-pad-buckets-for-high-nccl-busbw ddp-reduce-scatter-with-fp32-accumulation
    decode-only-cuda-graphs decoder-seq-length decoupled-lr decoupled-min-lr
    decrease-batch-size-if-needed defer-embedding-wgrad-compute delay-wgrad-compute
    deterministic-mode disable-bf16-reduced-precision-matmul disable-chunked-prefill
    disable-gloo-process-groups disable-mamba-mem-eff-path disable-msc
    disable-straggler-on-startup disable-symmetric-registration disable-tp-comm-bulk-dgrad
    disable-tp-comm-bulk-wgrad disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs
    disable-tp-comm-split-ag disable-tp-comm-split-rs
    distrib-optim-fully-reshardable-mem-efficient distributed-backend
    distributed-timeout-minutes distributed-timeout-seconds-after-init
    dump-param-to-param-group-map embedding-init-method-std embedding-path
    empty-unused-memory-level enable-cuda-graph enable-experimental enable-ft-package
    enable-full-sharding-in-hsdp end-weight-decay eod-mask-loss
    ep-overlap-early-attn-memory-release eval-interval eval-iters evidence-data-path
    exit-duration-in-mins exit-interval exit-on-missing-checkpoint exit-signal-handler
    external-cuda-graph finetune first-last-layers-bf16 flash-decode fp16-lm-cross-entropy
    fp32-residual-connection fp4-param-gather fp4-quantizer-factory fp4-recipe
    fp8-amax-compute-algo fp8-amax-history-len fp8-dot-product-attention fp8-interval fp8-margin
    fp8-multi-head-attention fp8-quantizer-factory fp8-recipe fsdp-double-buffer full-validation
    fused-single-qkv-rope glu-linear-offset grad-reduce-in-bf16 head-lr-mult hidden-dropout
    high-priority-stream-groups hysteresis img-h img-w init-method-std
    init-method-xavier-uniform init-model-with-meta-device initial-loss-scale iter-per-epoch
    iterations-to-skip keep-fp8-transpose-cache lazy-mpu-init legacy-tokenizer load
    load-main-params-from-ckpt local-rank logging-level loss-scale loss-scale-window lr
    manual-gc manual-gc-interval mask-factor mask-prob mask-type max-tokens-to-oom
    memory-snapshot-path merge-file microbatch-group-size-per-virtual-pipeline-stage
    mid-level-dataset-surplus min-loss-scale min-lr mlp-chunks-for-prefill mmap-bin-files
    mock-data moe-apply-probs-on-input moe-aux-loss-coeff moe-deepep-num-sms moe-enable-deepep
    moe-enable-routing-replay moe-flex-dispatcher-backend moe-grouped-gemm moe-hybridep-num-sms
    moe-input-jitter-eps moe-pad-expert-input-to-capacity
    moe-pad-experts-for-cuda-graph-inference moe-per-layer-logging moe-permute-fusion
    moe-router-bias-update-rate moe-router-dtype moe-router-enable-expert-bias
    moe-router-force-load-balancing moe-router-fusion moe-router-group-topk
    moe-router-load-balancing-type moe-router-num-groups moe-router-padding-for-fp8
    moe-router-padding-for-quantization moe-router-pre-softmax moe-router-score-function
    moe-router-topk-limited-devices moe-router-topk-scaling-factor moe-shared-expert-overlap
    moe-token-dispatcher-type moe-token-drop-policy moe-token-dropping moe-upcycling-granularity
    moe-use-legacy-grouped-gemm moe-use-upcycling moe-z-loss-coeff mrope-section mscale
    mscale-all-dim mtp-loss-scaling-factor multiple-validation-sets nccl-all-reduce-for-prefill
    nccl-communicator-config-path no-align-grad-reduce no-align-param-gather
    no-async-tensor-model-parallel-allreduce no-barrier-with-level-1-timing
    no-bias-dropout-fusion no-bias-gelu-fusion no-bias-swiglu-fusion
    no-check-for-nan-in-loss-and-grad no-ckpt-fully-parallel-save
    no-clone-scatter-output-in-embedding no-create-attention-mask-in-dataloader no-data-sharding
    no-fp8-wgrad no-gradient-accumulation-fusion no-gradient-reduce-div-fusion no-initialization
    no-load-optim no-load-rng no-manual-gc-eval no-masked-softmax-fusion no-mmap-bin-files
    no-one-logger no-overlap-p2p-communication no-persist-layer-norm no-pin-cpu-grads
    no-pin-cpu-params no-rope-freq no-rope-fusion no-save-optim no-save-rng
    no-scatter-gather-tensors-in-pipeline no-strict-fsdp-dtensor-load
    no-use-tokenizer-model-from-checkpoint-args norm-epsilon num-channels num-classes
    num-dataset-builder-threads num-layers-at-end-in-bf16 num-layers-at-start-in-bf16
    num-workers object-storage-cache-path offload-modules onnx-safe openai-gelu
    optimizer-offload-fraction original-max-position-embeddings output-bert-embeddings
    overlap-cpu-optimizer-d2h-h2d overlap-grad-reduce overlap-moe-expert-parallel-comm
    overlap-p2p-communication-warmup-flush overlap-param-gather
    overlap-param-gather-with-optimizer-step override-opt-param-scheduler
    override-opt_param-scheduler patch-dim per-split-data-args-path perform-rl-step
    persistent-save-interval pipeline-model-parallel-comm-backend pretrained-checkpoint
    qk-l2-norm query-in-block-prob record-memory-history relative-attention-max-distance
    relative-attention-num-buckets replication replication-factor replication-jump rerun-mode
    reset-attention-mask reset-position-ids result-rejected-tracker-filename
    reuse-grad-buf-for-mxfp8-param-ag rope-scaling-factor rope-type rotary-base
    rotary-interleaved rotary-percent rotary-scaling-factor rotary-seq-len-interpolation-factor
    run-workload-inspector-server sample-rate save save-interval save-retain-interval seed
    sgd-momentum sharp-enabled-group short-seq-prob skip-train split squared-relu
    start-weight-decay suggested-communication-unit-size symmetric-ar-type te-rng-tracker
    test-data-path test-mode timing-log-level timing-log-option titles-data-path
    tp-comm-bootstrap-backend tp-comm-overlap tp-comm-overlap-cfg tp-comm-overlap-disable-fc1
    tp-comm-overlap-disable-qkv tp-comm-overlap-rs-dgrad tp-only-amax-red train-data-path
    train-iters train-samples train-sync-interval transformer-impl trust-remote-code
    use-checkpoint-opt-param-scheduler use-checkpoint-opt_param-scheduler use-cpu-initialization
    use-dist-ckpt use-flash-attn use-fused-weighted-squared-relu use-legacy-models
    use-legacy-static-engine use-mcore-models use-nccl-ub use-one-sent-docs
    use-persistent-ckpt-worker use-pytorch-profiler use-ring-exchange-p2p use-rope-scaling
    use-sharp use-te-activation-func use-torch-optimizer-for-cpu-offload valid-data-path
    variable-seq-lengths vocab-file weight-decay weight-decay-incr-style wgrad-deferral-limit
"""
IGNORED = frozenset(f"--{name}" for name in OTHERS.split())


def ignored(name: str) -> bool:
    """Whether an argument of that name bears on no layout."""
    return name in IGNORED or name.startswith(GROUPS)
