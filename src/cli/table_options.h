// The options of how the n-gram table is read, for the subcommands that run a model.
#pragma once

#include "ple/open_table.h"

namespace CLI {
class App;
}

namespace strata {

// --ngram-table, --ngram-cache, --ngram-depth, --ngram-keep-alive
void add_table_options(CLI::App& command, TableOptions& options);

}  // namespace strata
