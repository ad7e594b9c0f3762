// The options of where weights lie and how the n-gram table is read, for the subcommands that run a
// model.
#pragma once

#include "model/residence.h"
#include "ple/open_table.h"

namespace CLI {
class App;
}

namespace strata {

// --ngram-table, --ngram-cache, --ngram-depth, --ngram-keep-alive
void add_table_options(CLI::App& command, TableOptions& options);

// --weights
void add_weights_option(CLI::App& command, Residence& residence);

}  // namespace strata
