#include "constrain/json_schema.h"

#include "constrain/schema_grammar.h"

namespace strata::constrain {

namespace json = boost::json;

Result<Grammar::Expr> json_schema(Grammar& grammar, const json::value& schema,
                                  const JsonSchemaOptions& options) {
  STRATA_ASSIGN(SchemaDocument document, SchemaDocument::make(schema));
  Plan plan(document, options);
  STRATA_ASSIGN(const PlanId root, plan.make(schema));
  if (!plan.node(root).productive)
    return fail(ErrorCode::invalid_argument, "#: no document of finite size is valid");
  SchemaGrammar writer(grammar, plan, document, options);
  const Grammar::Expr out = writer.value(root);
  writer.finish();
  if (!grammar.status()) return tl::unexpected(grammar.status().error());
  return out;
}

Result<Grammar::Expr> json_value(Grammar& grammar, const JsonSchemaOptions& options) {
  const Grammar::Expr out = JsonTexts(grammar, options).value();
  if (!grammar.status()) return tl::unexpected(grammar.status().error());
  return out;
}

Result<Grammar::Expr> json_object(Grammar& grammar, const JsonSchemaOptions& options) {
  const Grammar::Expr out = JsonTexts(grammar, options).object();
  if (!grammar.status()) return tl::unexpected(grammar.status().error());
  return out;
}

}  // namespace strata::constrain
