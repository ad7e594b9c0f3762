#!/usr/bin/env python3
"""Writes a random GGUF of architecture qwen4exp in the full production width.

usage: synth_gguf.py OUT.gguf [--mix MIX] [--experts N] [--used N] [--vocab N] [--layers N] [--seed N]

What it says is noise; every tensor is there in its real shape, with valid blocks of the types that
published files use (MIXES), scaled so that all weights have a spread of about 0.02 and activations
stay finite.
"""

import argparse

import numpy as np

import gguf_file
from gguf_file import Tensor

WIDTH, STREAMS, RANK = 2560, 4, 320
HEADS, KV_HEADS, HEAD_DIM = 24, 2, 256
INDEXER_HEADS, INDEXER_DIM, RATIO, BUDGET = 4, 128, 4, 2048
KEY_HEADS, VALUE_HEADS, STATE, TAPS = 16, 48, 128, 4
FEED_FORWARD = 640
NGRAM, NGRAM_HEADS, ROW = 3, 8, 160
INTERVAL, NGRAM_LAYER = 4, 1  # every fourth layer has attention
TABLE_ROWS = 5000             # the n-gram heads' sizes are the primes from here on

WIDE, CHANNELS = STREAMS * WIDTH, 2 * KEY_HEADS * STATE + VALUE_HEADS * STATE
NUMBERS = {name: number for number, (name, *_) in gguf_file.TYPES.items()}
PLAIN = {"f32", "f16", "bf16"}
# The fp16 fields of a block: (offset, the value that gives a spread near 0.02). The other bytes may
# have any value.
SCALES = {
    "q8_0": [(0, .00027)], "q5_0": [(0, .0022)], "q5_1": [(0, .0022), (2, -.0341)],
    "q4_k": [(0, .00011), (2, .00083)], "q5_k": [(0, 5.5e-5), (2, .00085)], "q6_k": [(208, 1.5e-5)],
    "iq2_xs": [(0, .0004)], "iq3_s": [(0, .00016)], "iq4_nl": [(0, .00029)], "iq4_xs": [(0, 1.6e-5)],
    "q2_0": [(0, .0163)], "q3_k": [(108, .00047)], "iq3_xxs": [(0, .0002)], "iq2_s": [(0, .0004)],
    "iq2_xxs": [(0, .0004)],
}
ROLES = ["gate_up", "down", "shared", "shared_down", "attention", "out", "residual", "inject", "router",
         "gates", "indexer", "ngram_key", "ngram_value", "embedding", "head", "table"]


def mix(default, **roles):
    return dict.fromkeys(ROLES, default) | roles


LOW = mix("bf16", shared="iq4_xs", shared_down="q5_0", attention="iq4_xs", out="q5_k", embedding="q4_k",
          head="q6_k", table="iq4_nl")
MIXES = {
    "f32": mix("f32"), "f16": mix("f16"), "bf16": mix("bf16"),
    "q4_k": mix("q8_0", gate_up="q4_k", down="q5_1", inject="f32", router="f32", gates="f32",
                indexer="bf16", head="q6_k", table="iq4_nl"),
    "q2_0": LOW | dict(gate_up="q2_0", down="q2_0"),
    "iq2_xs": LOW | dict(gate_up="iq2_xs", down="iq4_nl", attention="q3_k", shared="iq2_s"),
    "iq3_s": LOW | dict(gate_up="iq3_s", down="iq4_nl", embedding="iq4_xs", attention="iq3_xxs",
                        shared="iq2_xxs"),
}


class Random:
    """Blocks of one tensor, made when they are written and never all in memory."""

    PIECE = 1 << 25  # bytes

    def __init__(self, rng, kind, elements):
        _, self.weights, self.size, _ = gguf_file.TYPES[NUMBERS[kind]]
        if elements % self.weights:
            raise ValueError(f"{elements} weights are no whole number of {kind} blocks")
        self.rng, self.kind, self.blocks = rng, kind, elements // self.weights
        self.nbytes = self.blocks * self.size

    def tofile(self, out):
        step = self.PIECE // self.size
        for at in range(0, self.blocks, step):
            self.piece(min(step, self.blocks - at)).tofile(out)

    def piece(self, count):
        if self.kind in PLAIN:
            values = self.rng.standard_normal(count, dtype=np.float32) * np.float32(.02)
            if self.kind == "f16":
                return values.astype(np.float16)
            return values if self.kind == "f32" else (values.view(np.uint32) >> 16).astype(np.uint16)
        blocks = np.frombuffer(self.rng.bytes(count * self.size), np.uint8)
        blocks = blocks.reshape(count, self.size).copy()
        spread = self.rng.uniform(.5, 1.5, count).astype(np.float32)
        for offset, value in SCALES[self.kind]:
            scale = (spread * np.float32(value)).astype(np.float16)
            blocks[:, offset:offset + 2] = scale.view(np.uint8).reshape(count, 2)
        return blocks


def primes(start, count):
    found, n = [], start
    while len(found) < count:
        if all(n % divisor for divisor in range(2, int(n ** .5) + 1)):
            found.append(n)
        n += 1
    return found


def multipliers(vocabulary, seed=1234):
    """The n-gram hash's factors: splitmix64 of the seed."""
    mask, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15
    half = max(1, ((1 << 63) - 1) // vocabulary // 2)
    found = []
    for i in range(NGRAM):
        x = (seed + golden * (i + 2)) & mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        found.append(2 * ((x ^ x >> 31) % half) + 1)
    return found


def vocabulary(count):
    """256 byte tokens, then pairs, control tokens last: tokens, types, merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    byte = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    pairs = [(byte[a], byte[b]) for a in range(32, 127) for b in range(32, 127)]
    pairs = pairs[:count - 256 - len(special)]
    tokens = [byte[b] for b in range(256)] + [a + b for a, b in pairs] + special
    if len(tokens) != count:
        raise ValueError("a vocabulary of 259 to 9284 tokens can be made")
    return tokens, [1] * (count - len(special)) + [3] * len(special), [f"{a} {b}" for a, b in pairs]


class Builder:
    def __init__(self, types, layers, experts, vocab, seed):
        self.types, self.layers, self.experts, self.vocab = types, layers, experts, vocab
        self.rng = np.random.Generator(np.random.SFC64(seed))
        self.file = gguf_file.File()

    def add(self, name, dims, role):
        kind = self.types[role]
        elements = int(np.prod(dims, dtype=np.int64))
        self.file.tensors[name + ".weight"] = Tensor(dims, NUMBERS[kind],
                                                     Random(self.rng, kind, elements))

    def values(self, name, dims, values):
        self.file.tensors[name] = Tensor(dims, gguf_file.F32, values.astype(np.float32))

    def norm(self, name, width):
        self.values(name + ".weight", [width], 1 + .1 * self.rng.standard_normal(width))

    def convolution(self, name, width):
        self.values(name + ".weight", [TAPS, width], .3 * self.rng.standard_normal((width, TAPS)))

    def residual(self, name):
        self.norm(name + "_norm", WIDE)
        self.add(name + "_down", [WIDE, RANK], "residual")
        self.add(name + "_up", [RANK, WIDE], "residual")

    def attention(self, at):
        self.add(at + "attn_q", [WIDTH, 2 * HEADS * HEAD_DIM], "attention")
        self.add(at + "attn_k", [WIDTH, KV_HEADS * HEAD_DIM], "attention")
        self.add(at + "attn_v", [WIDTH, KV_HEADS * HEAD_DIM], "attention")
        self.add(at + "attn_output", [HEADS * HEAD_DIM, WIDTH], "out")
        self.norm(at + "attn_q_norm", HEAD_DIM)
        self.norm(at + "attn_k_norm", HEAD_DIM)
        self.add(at + "indexer.q_proj", [WIDTH, INDEXER_HEADS * INDEXER_DIM], "indexer")
        self.add(at + "indexer.k_proj", [WIDTH, INDEXER_DIM], "indexer")
        self.norm(at + "indexer.q_norm", INDEXER_DIM)
        self.norm(at + "indexer.k_norm", INDEXER_DIM)

    def delta_net(self, at):
        self.add(at + "attn_qkv", [WIDTH, CHANNELS], "attention")
        self.add(at + "attn_gate", [WIDTH, VALUE_HEADS * STATE], "attention")
        self.convolution(at + "ssm_conv1d", CHANNELS)
        self.values(at + "ssm_dt.bias", [VALUE_HEADS], self.rng.standard_normal(VALUE_HEADS))
        self.values(at + "ssm_a", [VALUE_HEADS], -np.exp(self.rng.uniform(-3, 1, VALUE_HEADS)))
        self.add(at + "ssm_beta", [WIDTH, VALUE_HEADS], "gates")
        self.add(at + "ssm_alpha", [WIDTH, VALUE_HEADS], "gates")
        self.norm(at + "ssm_norm", STATE)
        self.add(at + "ssm_out", [VALUE_HEADS * STATE, WIDTH], "out")

    def ngrams(self, at):
        self.add(at + "ple_key", [WIDTH, WIDE], "ngram_key")
        self.add(at + "ple_value", [WIDTH, WIDTH], "ngram_value")
        for name in ("ple_norm_key", "ple_norm_query", "ple_norm_conv"):
            self.norm(at + name, WIDE)
        self.convolution(at + "ple_conv1d", WIDE)

    def feed_forward(self, at):
        self.add(at + "ffn_gate_inp", [WIDTH, self.experts], "router")
        self.add(at + "ffn_gate_exps", [WIDTH, FEED_FORWARD, self.experts], "gate_up")
        self.add(at + "ffn_up_exps", [WIDTH, FEED_FORWARD, self.experts], "gate_up")
        self.add(at + "ffn_down_exps", [FEED_FORWARD, WIDTH, self.experts], "down")
        self.values(at + "ffn_gate_inp_shexp.weight", [WIDTH], .02 * self.rng.standard_normal(WIDTH))
        self.add(at + "ffn_gate_shexp", [WIDTH, FEED_FORWARD], "shared")
        self.add(at + "ffn_up_shexp", [WIDTH, FEED_FORWARD], "shared")
        self.add(at + "ffn_down_shexp", [FEED_FORWARD, WIDTH], "shared_down")

    def network(self, sizes):
        self.add("token_embd", [WIDTH, self.vocab], "embedding")
        self.add("output", [WIDTH, self.vocab], "head")
        self.residual("output_hc")
        self.add("per_layer_token_embd", [ROW, -(-sum(sizes) // 128) * 128], "table")
        for layer in range(self.layers):
            at = f"blk.{layer}."
            if layer == NGRAM_LAYER:
                self.ngrams(at)
            for name in ("hc_attn", "hc_ffn"):
                self.residual(at + name)
                self.add(at + name + "_inject", [WIDE, STREAMS], "inject")
            (self.attention if self.is_attention(layer) else self.delta_net)(at)
            self.feed_forward(at)

    @staticmethod
    def is_attention(layer):
        return layer % INTERVAL == INTERVAL - 1

    def metadata(self, used, sizes):
        put = self.file.set
        put("general.architecture", "text", "qwen4exp")
        put("general.name", "text", "random")
        put("general.quantization_version", "u32", 2)
        for key, value in {
                "block_count": self.layers, "context_length": 262144, "embedding_length": WIDTH,
                "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
                "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM,
                "rope.dimension_count": 64, "expert_count": self.experts, "expert_used_count": used,
                "expert_feed_forward_length": FEED_FORWARD,
                "expert_shared_feed_forward_length": FEED_FORWARD, "ssm.conv_kernel": TAPS,
                "ssm.state_size": STATE, "ssm.group_count": KEY_HEADS,
                "ssm.time_step_rank": VALUE_HEADS, "ssm.inner_size": VALUE_HEADS * STATE,
                "full_attention_interval": INTERVAL, "hyper_connection.count": STREAMS,
                "hyper_connection.low_rank": RANK, "attention.indexer.head_count": INDEXER_HEADS,
                "attention.indexer.key_length": INDEXER_DIM, "attention.indexer.top_k": BUDGET,
                "ple.ngram_size": NGRAM, "ple.heads_per_ngram": NGRAM_HEADS, "ple.conv_kernel": TAPS,
                "ple.eos_token_id": self.vocab - 3, "embedding_length_per_layer_input": ROW}.items():
            put("qwen4exp." + key, "u32", value)
        put("qwen4exp.attention.layer_norm_rms_epsilon", "f32", 1e-6)
        put("qwen4exp.rope.freq_base", "f32", 1e7)
        put("qwen4exp.rope.dimension_sections", "i32", [11, 11, 10, 0])
        put("qwen4exp.attention.compress_ratios", "i32",
            [RATIO if self.is_attention(layer) else 0 for layer in range(self.layers)])
        put("qwen4exp.ple.layers", "i32", [NGRAM_LAYER])
        put("qwen4exp.ple.layer_multipliers", "u64", multipliers(self.vocab))
        put("qwen4exp.ple.head_vocab_sizes", "u64", sizes)
        put("qwen4exp.ple.head_offsets", "u64", [sum(sizes[:i]) for i in range(len(sizes))])
        tokens, types, merges = vocabulary(self.vocab)
        put("tokenizer.ggml.model", "text", "gpt2")
        put("tokenizer.ggml.pre", "text", "qwen35")
        put("tokenizer.ggml.tokens", "text", tokens)
        put("tokenizer.ggml.token_type", "i32", types)
        put("tokenizer.ggml.merges", "text", merges)
        put("tokenizer.ggml.eos_token_id", "u32", self.vocab - 1)
        put("tokenizer.ggml.padding_token_id", "u32", self.vocab - 3)
        put("tokenizer.ggml.add_bos_token", "bool", False)


def write(path, mix="q4_k", layers=4, experts=16, used=10, vocab=2048, seed=1):
    if layers < INTERVAL or used > experts:
        raise ValueError("at least 4 layers, and no more experts used than there are")
    builder = Builder(MIXES[mix], layers, experts, vocab, seed)
    sizes = primes(TABLE_ROWS, (NGRAM - 1) * NGRAM_HEADS)
    builder.metadata(used, sizes)
    builder.network(sizes)
    builder.file.write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--mix", choices=MIXES, default="q4_k")
    for name, value in {"layers": 4, "experts": 16, "used": 10, "vocab": 2048, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = vars(parser.parse_args())
    write(arguments.pop("out"), **arguments)


if __name__ == "__main__":
    main()
