// Any bytes as a model file: its network and its tokenizer are loaded, or refused with a sentence.
// Every weight that a loaded network points at is read.
#include <cstdint>
#include <memory>
#include <span>

#include "base/file.h"
#include "model/network.h"
#include "tokenizer/tokenizer.h"

namespace {

unsigned touch(std::span<const float> values) {
  float sum = 0;
  for (const float value : values) sum += value;
  return sum == 1.5f;
}

unsigned touch(const strata::Matrix& matrix) {
  if (matrix.empty()) return 0;
  unsigned sum = 0;
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    for (const std::byte byte : std::span(matrix.row(row), matrix.row_bytes)) {
      sum += std::to_integer<unsigned>(byte);
    }
  }
  return sum;
}

unsigned touch(const strata::ExpertMatrices& experts) {
  unsigned sum = 0;
  for (std::uint32_t expert = 0; expert < experts.count; ++expert) sum += touch(experts.at(expert));
  return sum;
}

unsigned touch(const strata::Block& b) {
  const auto& d = b.delta_net;
  const auto& a = b.attention;
  const auto& e = b.experts;
  unsigned sum = touch(d.qkv) + touch(d.gate) + touch(d.conv) + touch(d.dt_bias) + touch(d.a) +
                 touch(d.alpha) + touch(d.beta) + touch(d.norm) + touch(d.out);
  sum += touch(a.q) + touch(a.k) + touch(a.v) + touch(a.out) + touch(a.q_norm) + touch(a.k_norm) +
         touch(a.index_q) + touch(a.index_k);
  sum += touch(e.router) + touch(e.gate) + touch(e.up) + touch(e.down) + touch(e.shared_router) +
         touch(e.shared_gate) + touch(e.shared_up) + touch(e.shared_down);
  for (const auto* r : {&b.attention_residual, &b.experts_residual}) {
    sum += touch(r->norm) + touch(r->down) + touch(r->up) + touch(r->inject);
  }
  if (b.ngram) sum += touch(b.ngram->key) + touch(b.ngram->value) + touch(b.ngram->conv);
  return sum;
}

// The last row and the rows of a token.
unsigned touch_table(const strata::Block& b) {
  if (!b.ngram_hash) return 0;
  std::vector<std::uint64_t> rows(b.ngram_hash->heads());
  const std::int32_t previous[] = {7, 8, 9};
  b.ngram_hash->rows(
      5, std::span(previous).first(std::min<std::size_t>(3, b.ngram_hash->ngram_size() - 1)), rows);
  rows.push_back(b.ngram_table->rows() - 1);
  std::vector<float> out(rows.size() * b.ngram_table->width());
  if (!b.ngram_table->gather(rows, out)) __builtin_trap();
  return touch(std::span<const float>(out));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  strata::MemoryFileSystem files;
  const auto bytes = std::as_bytes(std::span(data, size));
  files.put("model.gguf", strata::Bytes(bytes.begin(), bytes.end()));
  auto model = strata::open_gguf(files, "model.gguf");
  if (!model) return 0;
  const auto tokenizer = strata::Tokenizer::from_gguf(model->metadata);
  if (!tokenizer && tokenizer.error().message.empty()) __builtin_trap();
  const auto network =
      strata::load_network(std::make_shared<const strata::GgufModel>(std::move(*model)));
  if (!network && network.error().message.empty()) __builtin_trap();
  if (!network) return 0;
  unsigned sum = touch(network->embedding) + touch(network->head) + touch(network->mixer.down);
  for (const strata::Block& block : network->blocks) sum += touch(block) + touch_table(block);
  if (network->draft) sum += touch(network->draft->block) + touch(network->draft->input.combine);
  sum += static_cast<unsigned>(network->shape().layers.size());
  volatile unsigned keep = sum;  // the reads above must happen
  (void)keep;
  return 0;
}
