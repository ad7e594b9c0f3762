// Reads lines {"schema": ..., "texts": [...]} and writes for each a line {"verdicts": [true, ...]},
// or {"error": "..."} if the schema is refused. For the scripts of tests/peers.
#include <boost/json.hpp>
#include <chrono>
#include <iostream>
#include <string>

#include "tests/constrain/schema_documents.h"

namespace json = boost::json;
using namespace strata;
using namespace strata::constrain;

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    json::object out;
    const Result<json::value> input = parse_json_exact(line, "the line", 256);
    if (!input) {
      std::cerr << input.error().message << "\n";
      return 2;
    }
    const json::object& object = input->as_object();
    const auto start = std::chrono::steady_clock::now();
    const Result<SchemaDocuments> documents = SchemaDocuments::make(object.at("schema"));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (documents) {
      json::array verdicts;
      for (const json::value& text : object.at("texts").as_array())
        verdicts.emplace_back(documents->accepts(std::string_view(text.as_string())));
      out["verdicts"] = std::move(verdicts);
    } else {
      out["error"] = documents.error().message;
      out["code"] = to_string(documents.error().code);
    }
    out["milliseconds"] = took.count();
    std::cout << json::serialize(out) << "\n";
  }
}
