"""Megatron-LM's arguments: what is written is read again, and what people paste is understood."""

from itertools import product

import pytest

from weft.plan.composing import Layout, from_megatron, read_megatron, to_megatron, words
from weft.plan.composing.command import launched
from weft.plan.composing.megatron.given import READ
from weft.plan.composing.megatron.names import IGNORED, RENAMED, UNCOUNTED, ignored
from weft.plan.shape import SHAPES, Experts, Latent, ModelShape, of_config

MODEL = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 "
    "--max-position-embeddings 2048 --vocab-size 51200 --micro-batch-size 2"
)
# Shortened from Megatron-LM's examples/gpt3/train_gpt3_175b_distributed.sh.
SCRIPT = r"""#!/bin/bash
# Runs the "175B" parameter model
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
# Change for multinode config
NUM_NODES=128
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
VOCAB_FILE=$2 #<Specify path to file>/gpt2-vocab.json

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --adam-beta1 0.9
    --init-method-std 0.006
    --fp16
    --lr 6.0e-5
)
MODEL_PARALLEL_ARGS=(
	--tensor-model-parallel-size 8
	--pipeline-model-parallel-size 16
)
DATA_ARGS="
    --data-path $4 \
    --vocab-file $VOCAB_FILE \
    --tokenizer-type GPT2BPETokenizer \
    --split 949,50,1
"
mkdir -p logs && torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \
    "${GPT_MODEL_ARGS[@]}" \
    ${TRAINING_ARGS[@]} ${MODEL_PARALLEL_ARGS[@]} \
    $DATA_ARGS 2>&1 | tee logs/run.txt
"""


def read(text: str, devices: int | None = 8):
    return from_megatron(words(f"{MODEL} {text}"), devices)


def test_the_example_of_175b_is_read_as_people_paste_it():
    line = read_megatron(words(SCRIPT))
    assert line.shape == SHAPES["gpt3-175b"]  # 50,257 tokens, made even: 51,200
    assert line.layout == Layout(p=16, t=8, d=8)
    assert (line.batch, line.dtype) == (1536, "fp16")
    assert "--lr" in line.ignored and "--data-path" in line.ignored
    assert line.uncounted == ("--rampup-batch-size: the step is counted at the full batch",)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_written_for_a_model_is_read_again(name):
    shape = SHAPES[name]
    grid = product((1, 2, 4), (1, 4), (1, 3), (1, 2), (1, 2), range(4), (False, True))
    for p, t, d, c, v, zero, sequence in grid:
        for recompute, microbatch in (("none", 1), ("selective", 2), ("full", 1)):
            if (v > 1 and p == 1) or (sequence and t == 1) or (zero > 1 and p > 1):
                continue
            layout = Layout(
                p, t, d, c, v=v, microbatch=microbatch, zero=zero, recompute=recompute,
                sequence_parallel=sequence,
            )  # fmt: skip
            batch = 4 * d * microbatch
            arguments = to_megatron(shape, layout, batch)
            assert from_megatron(arguments, layout.devices) == (shape, layout, batch)


@pytest.mark.parametrize("layers", range(8, 30))
@pytest.mark.parametrize(("p", "v"), [(2, 1), (3, 1), (4, 2), (8, 1)])
def test_layers_that_no_stage_divides_are_dealt_out(layers, p, v):
    shape, layout = ModelShape(layers, 64, 4, 512, 128), Layout(p=p, v=v)
    arguments = to_megatron(shape, layout, 8)
    line = read_megatron(arguments, layout.devices)
    assert (line.shape, line.layout, line.uncounted) == (shape, layout, ())
    if "--pipeline-model-parallel-layout" in arguments:
        stages = arguments[arguments.index("--pipeline-model-parallel-layout") + 1].split("|")
        sizes = [stage.count("t") for stage in stages]
        assert (sum(sizes), max(sizes)) == (layers, -(-layers // (p * v)))
        assert sizes[0] == min(sizes) and stages[0][0] == "E" and stages[-1][-1] == "L"


ODD_SHAPES = {
    "grouped, gated": ModelShape(4, 64, 8, 512, 64, kv_heads=2, hidden=192, gated=True),
    "bias of queries alone": ModelShape(4, 64, 8, 512, 64, bias=False, norms=1, biased=("qkv",)),
    "wide heads with norms": ModelShape(4, 64, 8, 512, 64, head=16, head_norms=True),
    "more positions": ModelShape(4, 64, 8, 512, 64, positions=100),
    "all layers look back": ModelShape(4, 64, 8, 512, 64, window=16, windowed=4),
    "every second looks back": ModelShape(4, 64, 8, 512, 64, window=16, windowed=2),
    "some look back": ModelShape(8, 64, 8, 512, 64, window=16, windowed=3),
    "sinks": ModelShape(4, 64, 8, 512, 64, sinks=True),
    "experts": ModelShape(4, 64, 8, 512, 64, experts=Experts(8, 2, 96)),
    "experts later": ModelShape(4, 64, 8, 512, 64, experts=Experts(8, 3, 96, 32, True, 3)),
    "latent": ModelShape(4, 64, 8, 512, 64, head=24, latent=Latent(32, 8, 16, 48)),
    "latent, plain queries": ModelShape(4, 64, 8, 512, 64, head=24, latent=Latent(32, 8, 16)),
}


@pytest.mark.parametrize("name", ODD_SHAPES)
@pytest.mark.parametrize("layout", [Layout(), Layout(p=2, t=2, d=2, e=2, sequence_parallel=True)])
def test_what_a_shape_can_have_is_written_and_read(name, layout):
    shape = ODD_SHAPES[name]
    if layout.e > 1 and not shape.experts:
        layout = Layout(p=2, t=2, d=2, sequence_parallel=True)
    again, same, batch = from_megatron(to_megatron(shape, layout, 4), layout.devices)
    assert (again, same, batch) == (shape, layout, 4)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584,
         "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
         "vocab_size": 152064, "max_position_embeddings": 32768},
        {"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096,
         "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
         "vocab_size": 32000, "max_position_embeddings": 32768},
        {"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
         "num_attention_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
         "max_position_embeddings": 4096},
    ],
    ids=lambda config: config["model_type"],
)  # fmt: skip
def test_a_model_on_hugging_face_is_written_and_read(config):
    shape = of_config(config)
    layout = Layout(p=2, t=4, d=8, e=8 if shape.experts else 1, zero=1, sequence_parallel=True)
    assert from_megatron(to_megatron(shape, layout, 64), 64)[0] == shape


def test_the_three_ways_to_interleave_come_to_the_same():
    for way in (
        "--num-layers-per-virtual-pipeline-stage 3",
        "--num-virtual-stages-per-pipeline-rank 2",
        "--pipeline-model-parallel-layout Ettt|(ttt|)*6tttL",
    ):
        layout = read(f"--pipeline-model-parallel-size 4 {way}")[1]
        assert layout == Layout(p=4, d=2, v=2, microbatch=2)


@pytest.mark.parametrize(
    ("text", "zero"),
    [
        ("", 0),
        ("--use-distributed-optimizer", 1),
        ("--use-megatron-fsdp", 0),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", 2),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", 3),
        ("--use-torch-fsdp2", 3),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", 2),
    ],
)
def test_stages_of_zero(text, zero):
    assert read(text)[1].zero == zero


@pytest.mark.parametrize(
    ("text", "recompute"),
    [
        ("", "none"),
        ("--recompute-activations", "selective"),
        ("--recompute-granularity selective", "selective"),
        ("--recompute-granularity=full --recompute-method uniform", "full"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 9", "full"),
    ],
)
def test_ways_to_recompute(text, recompute):
    assert read(text)[1].recompute == recompute


@pytest.mark.parametrize(
    ("text", "vocab"),
    [
        ("", 51200),
        ("--tensor-model-parallel-size 8 --vocab-size 50257", 51200),
        ("--vocab-size 50257", 50304),
        ("--vocab-size 50257 --make-vocab-size-divisible-by 1", 50257),
        ("--tokenizer-type NullTokenizer --vocab-size 51199", 51200),
        ("--tokenizer-type NullTokenizer --vocab-size 51200", 51328),  # one more ends a document
        ("--padded-vocab-size 60000", 60000),
    ],
)
def test_the_vocabulary_is_made_to_deal_out_evenly(text, vocab):
    assert read(text)[0].vocab == vocab


def test_a_gated_mlp_has_two_thirds_of_the_width_where_it_is_not_given():
    assert read("--swiglu")[0].ffn == 2688  # of 4096 two thirds, a multiple of 64
    assert read("--swiglu --ffn-hidden-size 2816")[0].ffn == 2816


def test_sequence_parallelism_takes_tensor_parallelism():
    assert not read("--sequence-parallel")[1].sequence_parallel
    assert read("--sequence-parallel --tensor-model-parallel-size 2")[1].sequence_parallel


def test_the_last_of_two_counts_and_the_batch_defaults_to_one_microbatch():
    shape, layout, batch = read("--num-layers 12 --context-parallel-size 2 --bf16")
    assert (shape.layers, layout, batch) == (12, Layout(d=4, c=2, microbatch=2), 8)


@pytest.mark.parametrize(
    ("text", "devices", "complaint"),
    [
        ("--tensor-model-paralel-size 2", 8, "did you mean --tensor-model-parallel-size"),
        ("--frobnicate", 8, "--frobnicate is no argument of Megatron-LM with core 0.16"),
        ("--model-parallel-size 2", 8, "use --tensor-model-parallel-size"),
        ("--batch-size 2", 8, "use --micro-batch-size"),
        ("--checkpoint-activations", 8, "use --recompute-granularity full"),
        ("--use-custom-fsdp", 8, "use --use-megatron-fsdp"),
        ("--swiglu true", 8, "--swiglu takes no value, has 'true'"),
        ("--num-layers", 8, "--num-layers has no value"),
        ("--num-layers $LAYERS", 8, "--num-layers is '$LAYERS', must be a whole number"),
        ("", None, "devices is None, must be given, or --nproc-per-node"),
        ("--tensor-model-parallel-size 3", 8, "must be a multiple of p * t * c = 3"),
        ("--num-query-groups 8", 8, "has no effect without --group-query-attention"),
        ("--pipeline-model-parallel-size 7", 7, "is 24, must be a multiple of --pipeline"),
        ("--global-batch-size 10", 8, "must be a multiple of --micro-batch-size * d = 2 * 8"),
        ("--expert-model-parallel-size 2", 8, "must be 1 without --num-experts"),
        ("--num-experts 6 --expert-model-parallel-size 4", 8, "must divide --num-experts = 6"),
        ("--num-experts 8 --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1", 8,
         "--expert-tensor-parallel-size is 1, must be 2"),
        ("--use-megatron-fsdp --pipeline-model-parallel-size 2", 8, "a pipeline of 2, must go"),
        ("--use-torch-fsdp2 --pipeline-model-parallel-size 2", 8, "a pipeline of 2, must go"),
        ("--recompute-granularity full", 8, "--recompute-method is missing"),
        ("--recompute-activations --recompute-method block", 8, "must be left out"),
        ("--recompute-granularity some", 8, "must be one of full, selective"),
        ("--data-parallel-sharding-strategy optim", 8, "must be given with --use-megatron-fsdp"),
        ("--seq-length 4096", 8, "--max-position-embeddings is 2048, must be at least 4096"),
        ("--num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 3", 8,
         "say the same: give one of them"),
        ("--num-virtual-stages-per-pipeline-rank 2", 8, "must be 1 without a pipeline"),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 5", 8,
         "must divide the 12 layers of a rank"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tL", 8,
         "has 2 layers, must have --num-layers = 24"),
        ("--window-size wide", 8, "must be two numbers such as 127,0"),
        ("--num-experts 4 --moe-layer-freq [0,1]", 8, "a 0 or 1 for each of 24 layers"),
        ("--num-experts 4 --moe-layer-freq ([0,1]*12", 8, "a parenthesis that does not end"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named(text, devices, complaint):
    with pytest.raises(ValueError) as caught:
        read(text, devices)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_and_a_missing_vocabulary_are_named():
    with pytest.raises(ValueError, match=r"must be a list of words: words\(line\)"):
        from_megatron("--num-layers 4", 8)
    line = words(MODEL.replace("--vocab-size 51200", "--tokenizer-type HuggingFaceTokenizer"))
    with pytest.raises(ValueError, match="HuggingFaceTokenizer has it in a file"):
        from_megatron(line, 8)


@pytest.mark.parametrize(
    ("shape", "layout", "complaint"),
    [
        (SHAPES["gpt-22b"], Layout(p=4, schedule="zb_h1"), "schedule is 'zb_h1', must be one of"),
        (SHAPES["gpt-22b"], Layout(p=4, d=2, zero=2), "zero is 2, must be 0 or 1 with p > 1"),
        (SHAPES["gpt-22b"], Layout(d=2, e=2), "e is 2, must be 1 for a model without experts"),
        (ODD_SHAPES["experts"], Layout(d=3, e=3), "e is 3, must divide the 8 experts"),
        (SHAPES["gpt-22b"], Layout(p=8, v=7), "p * v is 56, must be at most the 48 layers"),
        (ModelShape(4, 64, 4, 512, 64, embedding=32), Layout(), "embedding is 32"),
        (ModelShape(4, 64, 4, 512, 64, layer_norms=1), Layout(), "layer_norms is 1"),
        (ModelShape(4, 64, 4, 512, 64, bias=False, biased=("up",)), Layout(), "biased is ('up',)"),
    ],
)
def test_what_megatron_cannot_say_is_named(shape, layout, complaint):
    with pytest.raises(ValueError) as caught:
        to_megatron(shape, layout, 8 * layout.d)
    assert complaint in str(caught.value)


def test_uncounted_arguments_are_told_unless_they_are_neutral():
    said = "--optimizer adam --num-distributed-optimizer-instances 2 --recompute-modules core_attn"
    line = read_megatron(words(f"{MODEL} {said} --pipeline-model-parallel-size 4 "
                               "--decoder-last-pipeline-num-layers 3"), 8)  # fmt: skip
    assert [note.partition(":")[0] for note in line.uncounted] == [
        "--num-distributed-optimizer-instances", "--decoder-first/last-pipeline-num-layers",
    ]  # fmt: skip
    assert "7 layers, counted as 6" in line.uncounted[1]


def test_the_tables_of_names_do_not_overlap():
    assert not READ & set(UNCOUNTED) and not READ & set(RENAMED) and not READ & IGNORED
    assert not any(ignored(name) for name in READ | set(RENAMED))
    assert not IGNORED & set(UNCOUNTED) and not IGNORED & set(RENAMED)


@pytest.mark.parametrize(
    ("line", "devices", "started"),
    [
        ("torchrun --nproc-per-node 8 --nnodes=4 p.py --bf16", None, 32),
        ("python -m torch.distributed.run --nproc_per_node=4 p.py --bf16", None, 4),
        ("deepspeed --num_gpus 8 --num_nodes 2 p.py --bf16", None, 16),
        ("torchrun --nproc-per-node gpu --nnodes 4 p.py --bf16", 64, 64),
        ("A=2 N=3; torchrun --nproc-per-node ${A} --nnodes $N p.py --bf16", None, 6),
        ("torchrun --nproc-per-node ${A:-8} p.py --bf16 # all of it", None, 8),
        ("--nproc-per-node 8 --bf16", None, 8),
        ("p.py --bf16", None, None),
    ],
)
def test_what_a_launcher_starts(line, devices, started):
    assert launched(words(line), devices) == (started, ["--bf16"])


@pytest.mark.parametrize(
    ("line", "devices", "complaint"),
    [
        ("torchrun --nproc-per-node 8 p.py", 4, "devices is 4, must be 8"),
        ("torchrun --nnodes 1:4 p.py", None, "--nnodes is '1:4', must be a whole number"),
        ("torchrun --nproc-per-node 'eight p.py", None, "a quote that does not end"),
    ],
)
def test_a_launcher_that_cannot_be_read_is_named(line, devices, complaint):
    with pytest.raises(ValueError) as caught:
        launched(words(line), devices)
    assert complaint in str(caught.value)
