"""GGUF v3 files as peers' tests need them: read, given other metadata or other tensors, written.

    file = gguf_file.read(path)           metadata as raw bytes by key, tensors as memory maps
    file.set(key, kind, value)            adds or replaces a value; a list is an array of the kind
    file.widen(ggml)                      every tensor as F32, decoded by ggml's own library
    file.write(path)                      tensors one by one, decoded while they are written

The reader trusts the file: it was written by Strata a moment before.
"""

import ctypes
import struct

import numpy as np

ALIGNMENT = 32
TEXT, ARRAY = 8, 9
KINDS = {"u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q")}
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
F32, F16, BF16 = 0, 1, 30
# ggml's numbers: (name, weights and bytes of a block, exported decoder)
TYPES = {
    F32: ("f32", 1, 4, None), F16: ("f16", 1, 2, None), BF16: ("bf16", 1, 2, None),
    2: ("q4_0", 32, 18, "q4_0"), 3: ("q4_1", 32, 20, "q4_1"), 6: ("q5_0", 32, 22, "q5_0"),
    7: ("q5_1", 32, 24, "q5_1"), 8: ("q8_0", 32, 34, "q8_0"), 10: ("q2_k", 256, 84, "q2_K"),
    11: ("q3_k", 256, 110, "q3_K"), 12: ("q4_k", 256, 144, "q4_K"), 13: ("q5_k", 256, 176, "q5_K"),
    14: ("q6_k", 256, 210, "q6_K"), 16: ("iq2_xxs", 256, 66, "iq2_xxs"),
    17: ("iq2_xs", 256, 74, "iq2_xs"), 18: ("iq3_xxs", 256, 98, "iq3_xxs"),
    20: ("iq4_nl", 32, 18, "iq4_nl"), 21: ("iq3_s", 256, 110, "iq3_s"),
    22: ("iq2_s", 256, 82, "iq2_s"), 23: ("iq4_xs", 256, 136, "iq4_xs"),
    42: ("q2_0", 64, 18, "q2_0"),
}


def packed_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_value(kind, value):
    if isinstance(value, list):
        if kind == "text":
            return struct.pack("<IIQ", ARRAY, TEXT, len(value)) + b"".join(map(packed_text, value))
        code, form = KINDS[kind]
        return struct.pack(f"<IIQ{len(value)}{form}", ARRAY, code, len(value), *value)
    if kind == "text":
        return struct.pack("<I", TEXT) + packed_text(value)
    return struct.pack("<I" + KINDS[kind][1], KINDS[kind][0], value)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at]).decode()

    def skip_value(self, kind):
        if kind == TEXT:
            self.text()
        elif kind == ARRAY:
            inner, count = self.take("I"), self.take("Q")
            if inner in FIXED:
                self.at += FIXED[inner] * count
            else:
                for _ in range(count):
                    self.skip_value(inner)
        else:
            self.at += FIXED[kind]


class Tensor:
    """dims: ggml's order. data: anything with nbytes and tofile(), e.g. a numpy array."""

    def __init__(self, dims, kind, data):
        self.dims, self.kind, self.data = dims, kind, data

    @property
    def elements(self):
        return int(np.prod(self.dims, dtype=np.int64))


class Decoded:
    """A tensor's values as float32, made when they are written."""

    def __init__(self, tensor, ggml):
        self.tensor, self.ggml, self.nbytes = tensor, ggml, 4 * tensor.elements

    def tofile(self, out):
        self.ggml.decode(self.tensor).tofile(out)


class File:
    def __init__(self):
        self.metadata, self.tensors = {}, {}  # both in the file's order; values as raw bytes

    def set(self, key, kind, value):
        self.metadata[key] = packed_value(kind, value)

    def widen(self, ggml):
        for name, tensor in self.tensors.items():
            self.tensors[name] = Tensor(tensor.dims, F32, Decoded(tensor, ggml))

    def write(self, path):
        head = [b"GGUF", struct.pack("<IQQ", 3, len(self.tensors), len(self.metadata))]
        head += [packed_text(key) + value for key, value in self.metadata.items()]
        offset = 0
        for name, tensor in self.tensors.items():
            head.append(packed_text(name) + struct.pack(f"<I{len(tensor.dims)}QIQ", len(tensor.dims),
                                                        *tensor.dims, tensor.kind, offset))
            offset += -(-tensor.data.nbytes // ALIGNMENT) * ALIGNMENT
        head = b"".join(head)
        with open(path, "wb") as out:
            out.write(head + bytes(-len(head) % ALIGNMENT))
            for tensor in self.tensors.values():
                tensor.data.tofile(out)
                out.write(bytes(-tensor.data.nbytes % ALIGNMENT))


def read(path):
    data = np.memmap(path, np.uint8, "r")
    reader = Reader(data)
    if bytes(data[:4]) != b"GGUF" or struct.unpack_from("<I", data, 4)[0] != 3:
        raise ValueError(f"{path} is no GGUF file of version 3")
    reader.at = 8
    tensor_count, key_count = reader.take("Q"), reader.take("Q")
    file, infos = File(), []
    for _ in range(key_count):
        key, start = reader.text(), reader.at
        reader.skip_value(reader.take("I"))
        file.metadata[key] = bytes(data[start:reader.at])
    for _ in range(tensor_count):
        name = reader.text()
        dims = [reader.take("Q") for _ in range(reader.take("I"))]
        infos.append((name, dims, reader.take("I"), reader.take("Q")))
    start = -(-reader.at // ALIGNMENT) * ALIGNMENT
    for name, dims, kind, offset in infos:
        _, weights, size, _ = TYPES[kind]
        count = int(np.prod(dims, dtype=np.int64)) // weights * size
        file.tensors[name] = Tensor(dims, kind, data[start + offset:start + offset + count])
    return file


class Ggml:
    """The decoders of ggml's library."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)

    def decode(self, tensor):
        if tensor.kind == F32:
            return tensor.data.view(np.float32).reshape(-1)
        if tensor.kind == F16:
            return tensor.data.view(np.float16).astype(np.float32)
        if tensor.kind == BF16:
            return (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        decoder = getattr(self.library, "dequantize_row_" + TYPES[tensor.kind][3])
        values = np.empty(tensor.elements, np.float32)
        decoder(tensor.data.ctypes.data_as(ctypes.c_void_p),
                values.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(tensor.elements))
        return values
