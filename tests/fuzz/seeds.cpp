// Writes the corpora that the fuzzers start from: small valid files of each kind, made by the
// program's own writers where there is one.
//
//   fuzz_seeds FOLDER SOURCE     FOLDER/fuzz_NAME/* for every fuzzer; SOURCE is the root of the
//   tree
#include <boost/json/serialize.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "engine/conversation_format.h"
#include "gguf/gguf.h"
#include "gguf/safetensors.h"
#include "model/hyperparams.h"
#include "tests/chat/specimens.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace strata;
namespace fs = std::filesystem;

fs::path g_folder;

void put(const std::string& fuzzer, const std::string& name, std::string_view content) {
  const fs::path folder = g_folder / fuzzer;
  fs::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << content;
}

std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void require(const Status& status) {
  if (status) return;
  std::cerr << "fuzz_seeds: " << status.error().message << "\n";
  std::exit(1);
}

// --- GGUF ---

using Shapes = std::vector<std::pair<std::string, std::vector<std::uint64_t>>>;

std::string gguf(const std::vector<std::pair<std::string, MetaValue>>& metadata,
                 const Shapes& shapes, TensorType type = TensorType::F32) {
  MemoryFileSystem files;
  auto writer = GgufWriter::create(files, "m.gguf");
  if (!writer) require(tl::unexpected<Error>(writer.error()));
  for (const auto& [key, value] : metadata) writer->metadata().set(key, value);
  std::vector<std::uint64_t> sizes;
  for (const auto& [name, ne] : shapes) {
    require(writer->declare(name, type, ne));
    std::uint64_t values = 1;
    for (const std::uint64_t n : ne) values *= n;
    sizes.push_back(bytes_of(type, values).value());
  }
  for (const std::uint64_t size : sizes) {
    require(writer->write_data(Bytes(static_cast<std::size_t>(size))));
  }
  require(writer->finish());
  return std::string(text_of(files.get("m.gguf").value()));
}

void write_gguf() {
  const std::string every_kind =
      gguf({{"general.architecture", MetaValue::string("qwen4exp")},
            {"general.alignment", MetaValue::u32(32)},
            {"a.u8", {MetaType::u8, {}, std::int64_t{3}}},
            {"a.i16", {MetaType::i16, {}, std::int64_t{-3}}},
            {"a.u64", MetaValue::u64(1ull << 40)},
            {"a.f32", MetaValue::f32(0.5f)},
            {"a.f64", {MetaType::f64, {}, 0.5}},
            {"a.bool", MetaValue::boolean(true)},
            {"a.integers", MetaValue::array(MetaType::i16, {1, -2, 3})},
            {"a.bools", MetaValue::array(MetaType::boolean, {1, 0})},
            {"a.floats", MetaValue::floats({0.5, 2})},
            {"tokens", MetaValue::strings({"", "a", "bc"})}},
           {{"w", {32, 3}}, {"norm", {32}}, {"cube", {32, 2, 2}}}, TensorType::Q8_0);
  put("fuzz_gguf_file", "every_kind", every_kind);
  std::string version2 = every_kind;
  version2[4] = 2;
  put("fuzz_gguf_file", "version2", version2);
  put("fuzz_gguf_file", "empty", gguf({}, {}));
}

// --- safetensors ---

std::string safetensors(const std::string& header, std::size_t data) {
  const std::uint64_t size = header.size();
  std::string out(sizeof size, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  return out + header + std::string(data, 'd');
}

void write_safetensors() {
  put("fuzz_gguf_safetensors", "empty", safetensors("{}", 0));
  put("fuzz_gguf_safetensors", "three",
      safetensors(R"({"__metadata__":{"format":"pt"},)"
                  R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                  R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
                  R"("c.weight":{"dtype":"F8_E4M3","shape":[0,7],"data_offsets":[26,26]}}  )",
                  26));
}

// --- tokenizers ---

// One token for each byte and a merge or two, in the form of HF's tokenizer.json.
std::string tokenizer_json() {
  std::string vocabulary;
  int extra = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    vocabulary += fmt::format("\"\\u{:04x}\":{},", plain ? byte : 256 + extra++, byte);
  }
  return R"({"added_tokens":[{"id":259,"content":"<|endoftext|>","special":true},)"
         R"({"id":260,"content":"<think>","special":false}],"normalizer":{"type":"NFC"},)"
         R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
         R"("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|)"
         R"([^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|)"
         R"(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)"
         R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)"
         R"("model":{"type":"BPE","vocab":{)" +
         vocabulary + R"("ll":256,"el":257,"ell":258},"merges":["l l",["e","l"],"e ll"]}})";
}

// --- models ---

// Every kind of layer in the least width: a delta net with an n-gram table, sparse attention, and a
// draft block.
std::string model() {
  HyperParams p;
  p.layers = 2;
  p.draft_layers = 1;
  p.hidden = 4;
  p.vocabulary = 261;
  p.context = 64;
  p.kinds = {LayerKind::gdn, LayerKind::qsa};
  p.streams = 2;
  p.stream_rank = 1;
  p.heads = p.kv_heads = 1;
  p.head_dim = 2;
  p.rotary_dims = 2;
  p.rope_sections = {1, 0, 0, 0};
  p.indexer_heads = 1;
  p.indexer_dim = 2;
  p.indexer_budget = 4;
  p.compress_ratios = {0, 2};
  p.gdn_key_heads = p.gdn_value_heads = 1;
  p.gdn_key_dim = p.gdn_value_dim = 2;
  p.gdn_conv_kernel = 2;
  p.experts = 2;
  p.experts_used = 1;
  p.expert_ff = p.shared_ff = 2;
  p.ngram_size = 2;
  p.heads_per_ngram = 1;
  p.ngram_row_width = 2;
  p.ngram_conv_kernel = 2;
  p.ngram_eos = 0;
  p.ngram_layers = {{0, {3, 5}, {7}, {0}}};
  Metadata metadata;
  write_hyperparams(p, metadata);
  const auto tokenizer = Tokenizer::from_tokenizer_json(tokenizer_json());
  if (!tokenizer) require(tl::unexpected<Error>(tokenizer.error()));
  write_tokenizer(*tokenizer, metadata);

  Shapes shapes = {{"token_embd.weight", {p.hidden, p.vocabulary}},
                   {"per_layer_token_embd.weight", {p.ngram_row_width, 7}}};
  const auto residual = [&](const std::string& prefix, bool inject) {
    shapes.push_back({prefix + "norm.weight", {p.wide()}});
    shapes.push_back({prefix + "down.weight", {p.wide(), p.stream_rank}});
    shapes.push_back({prefix + "up.weight", {p.stream_rank, p.wide()}});
    if (inject) shapes.push_back({prefix + "inject.weight", {p.wide(), p.streams}});
  };
  residual("output_hc_", false);
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> ne) {
    shapes.push_back({name, std::move(ne)});
  };
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const std::string b = fmt::format("blk.{}.", layer);
    residual(b + "hc_attn_", true);
    residual(b + "hc_ffn_", true);
    if (layer == 0) {
      add(b + "attn_qkv.weight", {p.hidden, p.gdn_conv_channels()});
      add(b + "attn_gate.weight", {p.hidden, p.gdn_inner()});
      add(b + "ssm_conv1d.weight", {p.gdn_conv_kernel, p.gdn_conv_channels()});
      add(b + "ssm_dt.bias", {1});
      add(b + "ssm_a", {1});
      add(b + "ssm_alpha.weight", {p.hidden, 1});
      add(b + "ssm_beta.weight", {p.hidden, 1});
      add(b + "ssm_norm.weight", {p.gdn_value_dim});
      add(b + "ssm_out.weight", {p.gdn_inner(), p.hidden});
      add(b + "ple_key.weight", {p.ngram_width(), p.wide()});
      add(b + "ple_value.weight", {p.ngram_width(), p.hidden});
      for (const char* name : {"ple_norm_key", "ple_norm_query", "ple_norm_conv"}) {
        add(b + name + ".weight", {p.wide()});
      }
      add(b + "ple_conv1d.weight", {p.ngram_conv_kernel, p.wide()});
    } else {
      add(b + "attn_q.weight", {p.hidden, 2ull * p.head_dim});
      add(b + "attn_k.weight", {p.hidden, p.head_dim});
      add(b + "attn_v.weight", {p.hidden, p.head_dim});
      add(b + "attn_output.weight", {p.head_dim, p.hidden});
      add(b + "attn_q_norm.weight", {p.head_dim});
      add(b + "attn_k_norm.weight", {p.head_dim});
      add(b + "indexer.q_proj.weight", {p.hidden, p.indexer_dim});
      add(b + "indexer.k_proj.weight", {p.hidden, p.indexer_dim});
      add(b + "indexer.q_norm.weight", {p.indexer_dim});
      add(b + "indexer.k_norm.weight", {p.indexer_dim});
    }
    add(b + "ffn_gate_inp.weight", {p.hidden, p.experts});
    add(b + "ffn_gate_up_exps.weight", {p.hidden, 2ull * p.expert_ff, p.experts});
    add(b + "ffn_down_exps.weight", {p.expert_ff, p.hidden, p.experts});
    add(b + "ffn_gate_inp_shexp.weight", {p.hidden});
    add(b + "ffn_gate_shexp.weight", {p.hidden, p.shared_ff});
    add(b + "ffn_up_shexp.weight", {p.hidden, p.shared_ff});
    add(b + "ffn_down_shexp.weight", {p.shared_ff, p.hidden});
  }
  add("blk.2.nextn.enorm.weight", {p.hidden});
  add("blk.2.nextn.hnorm.weight", {p.wide()});
  add("blk.2.nextn.eh_proj.weight", {2ull * p.hidden, p.hidden});
  residual("blk.2.nextn.hc_head_", false);
  return gguf(metadata.entries(), shapes);
}

// --- texts ---

void copy_templates(const fs::path& source) {
  for (const auto& entry : fs::directory_iterator(source / "tests/peers/jinja_templates")) {
    std::ifstream file(entry.path(), std::ios::binary);
    put("fuzz_chat_template", entry.path().stem(),
        std::string(std::istreambuf_iterator<char>(file), {}));
  }
}

// What models wrote (chat_output_fuzz.cpp says what the first bytes and the markers' bytes mean).
void write_answers() {
  using chat::Specimen;
  constexpr std::string_view kMarkers[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};
  int number = 0;
  for (const Specimen& specimen : chat::specimens()) {
    std::string text(specimen.text);
    for (std::size_t i = 0; i < std::size(kMarkers); ++i) {
      for (std::size_t at = 0; (at = text.find(kMarkers[i], at)) != std::string::npos;) {
        text.replace(at, kMarkers[i].size(), 1, static_cast<char>(0x10 + i));
      }
    }
    for (const auto& [long_name, name] : {std::pair{"=get_weather", "=f"},
                                          {"=search", "=f"},
                                          {"=write_file", "=f"},
                                          {"=city", "=s"},
                                          {"=days", "=i"},
                                          {"=content", "=s"}}) {
      for (std::size_t at = 0; (at = text.find(long_name, at)) != std::string::npos;) {
        text.replace(at, std::strlen(long_name), name);
      }
    }
    const char setup = static_cast<char>((specimen.thinking ? 1 : 0) | (specimen.complete ? 0 : 4) |
                                         (specimen.recover ? 32 : 0) | (number % 3 == 0 ? 8 : 0));
    put("fuzz_chat_output", std::to_string(number++), std::string{setup, '\x05'} + text);
  }
}

// The first byte of a request's seed picks its dialect.
void write_server() {
  const char* requests[] = {
      R"(0{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant",
        "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}],
        "tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"n":2,"stop":["a"],
        "logit_bias":{"5":1},"reasoning_effort":"low","stream":true})",
      R"(1{"prompt":["a",[1,2]],"echo":true,"logprobs":2,"max_tokens":0,"suffix":""})",
      R"(2{"system":[{"type":"text","text":"s"}],"max_tokens":5,"messages":[{"role":"assistant",
        "content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"1","name":"f",
        "input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1",
        "content":[{"type":"image"}]}]}],"thinking":{"type":"enabled","budget_tokens":5}})",
      R"(3{"input":[{"type":"reasoning","encrypted_content":"SG0u"},{"type":"function_call",
        "name":"f","arguments":"{"},{"type":"function_call_output","output":"x"}],"tools":[{"type":
        "namespace","name":"n","tools":[{"type":"custom","name":"c"}]}],"background":true})"};
  int number = 0;
  for (const char* request : requests)
    put("fuzz_server_requests", std::to_string(number++), request);
  put("fuzz_server_http", "length",
      "POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
  put("fuzz_server_http", "chunks",
      "POST /?a=b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nGET / "
      "HTTP/1.0\r\n\r\n");
  put("fuzz_server_wire", "ping", std::string_view("\x09\0\0\0\x04\1\0\0\0\0\0\0\0", 13));
  put("fuzz_server_wire", "progress",
      std::string_view("\x11\0\0\0\x14\1\0\0\0\0\0\0\0\2\0\0\0\3\0\0\0", 21));
}

}  // namespace

// --- saved conversations ---

void write_conversations() {
  const ConversationShape shape{3, 4, 24, 16};
  SavedPoint point;
  point.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  point.state = std::make_shared<Bytes>(shape.state_bytes);
  for (std::size_t i = 0; i < shape.pages(point.tokens.size()); ++i)
    point.pages.push_back(std::make_shared<std::byte[]>(shape.page_bytes));
  const std::span<const std::byte> page(point.pages[0].get(), shape.page_bytes);
  const Hash128 id = page_id(shape, page);
  MemoryFileSystem files;
  const auto write = [&](const std::string& path, auto content) {
    auto out = files.create(path);
    if (!out) require(tl::unexpected<Error>(out.error()));
    require(content(**out));
    require((*out)->finish());
    return std::string(text_of(files.get(path).value()));
  };
  const std::string page_file =
      write("page", [&](OutputFile& out) { return write_page(out, shape, page, id); });
  const std::vector<Hash128> ids = {id, id};
  const std::string point_file =
      write("point", [&](OutputFile& out) { return write_point(out, shape, point, ids); });
  put("fuzz_engine_conversation", "page", "\x03" + page_file);
  put("fuzz_engine_conversation", "point", "\x02" + point_file);
  put("fuzz_engine_conversation", "point_mended", "\x06" + point_file);
}

// Each schema of the tests.
void write_schemas(const fs::path& source) {
  std::ifstream file(source / "tests/constrain/json_schema_cases.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto cases = parse_json(text, "json_schema_cases.json", 256);
  if (!cases) require(tl::unexpected<Error>(cases.error()));
  std::size_t number = 0;
  for (const auto& it : cases->as_array()) {
    put("fuzz_constrain_schema", std::to_string(number++),
        boost::json::serialize(it.as_object().at("schema")));
  }
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: fuzz_seeds FOLDER SOURCE\n";
    return 2;
  }
  g_folder = argv[1];
  write_gguf();
  write_safetensors();
  write_conversations();
  put("fuzz_tokenizer_json", "bytes", tokenizer_json());
  put("fuzz_model_network", "tiny", model());
  put("fuzz_terminal_markdown", "blocks",
      "\x51\x03# Head\n\n- **bold** `code` *it*\n1. one\n> said\n\n```cpp\nint "
      "x;\n```\n---\n\x1b[31m");
  put("fuzz_base_json", "object",
      R"({"a":[1,-2.5e3,true,null,"\u00e9\ud83d\ude00"],"b":{"c":[]}})");
  const std::string zero(1, '\0');
  put("fuzz_constrain_grammar", "json",
      R"(root ::= %json {"type":"object","properties":{"a":{"$ref":"#"},"b":{"maxLength":9}}})" +
          zero + R"({"a":{"b":"x"}})");
  put("fuzz_constrain_grammar", "left",
      "root ::= root \"+\" n | n # sums\nn ::= [0-9]{1,4} | \"(\" root \")\"" + zero + "(1+2)+3");
  put("fuzz_constrain_grammar", "tokens",
      "root ::= <x> !<[257]>* <[257]> (\"ab\" | \"aba\")+ .?" + zero + "abab");
  put("fuzz_constrain_regex", "name", "^[A-Za-z_][A-Za-z0-9_]{0,63}$\nname_1");
  put("fuzz_constrain_regex", "places", "(^|,)(?!no)\\b\\w+?(?<=x)(?:,|$)\nax,bx");
  put("fuzz_constrain_regex", "characters", "[^\\p{Lu}\\u{1F600}-\\ud83d\\ude02]*\\s\n\u00e9 ");
  write_schemas(argv[2]);
  write_server();
  write_answers();
  copy_templates(argv[2]);
}
