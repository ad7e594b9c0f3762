"""Writes the GGUF files of this folder with the public `gguf` Python package (pip install gguf),
so that our reader is tested against another writer. Run inside this folder."""
import gguf
import numpy as np

writer = gguf.GGUFWriter("gguf-py.gguf", "qwen4exp")
writer.add_uint8("t.u8", 255)
writer.add_int8("t.i8", -128)
writer.add_uint16("t.u16", 65535)
writer.add_int16("t.i16", -32768)
writer.add_uint32("t.u32", 4294967295)
writer.add_int32("t.i32", -2147483648)
writer.add_uint64("t.u64", 2**64 - 1)
writer.add_int64("t.i64", -(2**63))
writer.add_float32("t.f32", 0.1)
writer.add_float64("t.f64", 0.1)
writer.add_bool("t.bool", True)
writer.add_string("t.string", "Grüße")
writer.add_array("t.tokens", ["a", "", "bc"])
writer.add_array("t.ints", [0, 0, 0, 4])
writer.add_array("t.floats", [0.5, 1.5])
writer.add_array("t.bools", [True, False])
writer.add_tensor("a.weight", np.arange(6, dtype=np.float32).reshape(2, 3))
writer.add_tensor("b.weight", np.arange(5, dtype=np.float16))
writer.add_tensor(
    "c.weight",
    np.arange(2 * 34, dtype=np.uint8).reshape(2, 34),
    raw_dtype=gguf.GGMLQuantizationType.Q8_0,
)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

writer = gguf.GGUFWriter("split.gguf", "qwen4exp", split_max_tensors=2)
for i in range(5):
    writer.add_tensor(f"t.{i}", np.full((2, 3), i, dtype=np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
