// The n-gram table from the command line.
#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string>

#include "tests/cli/program.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;

using namespace strata::test;

TEST_F(Program, ple_verify_reads_every_row) {
  const std::string path = converted();
  for (const char* mode : {"direct", "threads"}) {
    const Outcome r = run("ple verify --rows 0 --ngram-table " + std::string(mode) + " " + path);
    EXPECT_EQ(r.code, 0) << r.error;
    EXPECT_THAT(r.out, AllOf(HasSubstr("the bytes are the file's"), HasSubstr(path)));
    const std::string first = r.out.substr(0, r.out.find(" rows"));
    EXPECT_EQ(first.substr(0, first.find(" of ")), first.substr(first.find(" of ") + 4)) << r.out;
  }
}

TEST_F(Program, ple_bench_measures) {
  const std::string path = converted();
  const Outcome r = run("ple bench --json --rounds 1 --seconds 1 --depths 4 " + path);
  ASSERT_EQ(r.code, 0) << r.error;
  const auto json = boost::json::parse(r.out).as_object();
  const auto& reads = json.at("reads").as_array();
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].at("depth").to_number<int>(), 4);
  EXPECT_GT(reads[0].at("reads_per_s").to_number<double>(), 0);
  EXPECT_GT(json.at("token_p99_us").to_number<double>(), 0);
}

TEST_F(Program, ple_counts_the_hits_of_a_text) {
  const std::string text = (folder / "text").string();
  std::FILE* file = std::fopen(text.c_str(), "w");
  ASSERT_NE(file, nullptr);
  for (int i = 0; i < 200; ++i) std::fputs("the same words again and again\n", file);
  std::fclose(file);
  const Outcome r = run("ple bench --json --rounds 1 --seconds 1 --depths 1 --caches 1,4 --text " +
                        text + " " STRATA_SOURCE_DIR "/models/demo/strata-demo-46m.gguf");
  ASSERT_EQ(r.code, 0) << r.error;
  const auto json = boost::json::parse(r.out).as_object();
  const auto& caches = json.at("text").as_array();
  ASSERT_EQ(caches.size(), 2u);
  for (const auto& cache : caches) {
    const double rows = cache.at("rows").to_number<double>();
    EXPECT_GT(rows, 5'000);
    EXPECT_GT(cache.at("hits").to_number<double>() / rows, 0.9);
    EXPECT_LT(cache.at("hits").to_number<double>(), rows);
  }
}

TEST_F(Program, ple_claims_nothing_of_modes_that_do_not_read_the_disk) {
  for (const std::string command : {"verify", "bench"})
    for (const std::string mode : {"mmap", "resident"}) {
      const Outcome r = run("ple " + command + " --ngram-table " + mode + " " + converted());
      EXPECT_EQ(r.code, 1) << command << " " << mode;
      EXPECT_THAT(r.error, HasSubstr("--ngram-table is direct or threads"));
    }
}

TEST_F(Program, ple_verify_never_counts_more_rows_than_there_are) {
  const Outcome r = run("ple verify --rows 9223372036854775807 " + converted());
  ASSERT_EQ(r.code, 0) << r.error;
  const std::string first = r.out.substr(0, r.out.find(" rows"));
  EXPECT_EQ(first.substr(0, first.find(" of ")), first.substr(first.find(" of ") + 4)) << r.out;
}

TEST_F(Program, a_cache_smaller_than_its_read_buffers_is_said) {
  const std::string how = "run -n 1 -t 0 -p x --ngram-table direct --ngram-cache ";
  EXPECT_THAT(run(how + "1").error, HasSubstr("so no rows are kept; ask for a larger cache"));
  EXPECT_THAT(run(how + "128").error, testing::Not(HasSubstr("no rows are kept")));
}

TEST_F(Program, ple_bench_refuses_what_it_would_not_honour) {
  Outcome r = run("ple bench --ngram-cache 5 " + converted());
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("unknown option '--ngram-cache'"));
  r = run("ple bench --ngram-table threads --depths 1,65 " + converted());
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.error, HasSubstr("at most 64"));
  r = run("ple bench --depths a,b " + converted());
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("'a' is no whole number from 1 to 1024"));
  r = run("ple bogus");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("unknown command 'bogus' of 'ple'"));
  EXPECT_THAT(run("ple benhc").error, HasSubstr("did you mean 'bench'?"));
  EXPECT_THAT(run("ple").error, HasSubstr("'strata ple' needs a command: bench or verify"));
}

TEST_F(Program, ple_says_what_is_wrong) {
  Outcome r = run("ple verify " + (folder / "nothing.gguf").string());
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.error, HasSubstr("nothing.gguf"));
  r = run("ple verify " + converted() + " --ngram-table ssd");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("'ssd' is no way to read the n-gram table"));
  r = run("ple verify " + converted() + " --ngram-depth 5000");
  EXPECT_EQ(r.code, 2);
  r = run("ple");
  EXPECT_EQ(r.code, 2);
}

TEST_F(Program, answers_are_the_same_however_the_table_is_read) {
  std::string expected;
  for (const char* how : {"mmap", "resident", "direct", "threads", "direct --ngram-cache 0",
                          "direct --ngram-depth 1 --ngram-keep-alive 1"}) {
    const Outcome r =
        run("run -t 0 -n 12 --ngram-table " + std::string(how) + " -p 'What is two and three?'");
    ASSERT_EQ(r.code, 0) << how << ": " << r.error;
    if (expected.empty()) expected = r.out;
    EXPECT_EQ(r.out, expected) << how;
  }
}

TEST_F(Program, bench_counts_rows_of_the_table) {
  const Outcome r =
      run("bench -p 96 -n 4 -r 1 --chunk 32 --probe 0 --quiet 100 --json --ngram-table direct");
  ASSERT_EQ(r.code, 0) << r.error;
  const auto json = boost::json::parse(r.out).as_object();
  const auto& tests = json.at("tests").as_array();
  ASSERT_EQ(tests.size(), 2u);
  const auto& prompt = tests[0].at("ngram").as_object();
  EXPECT_GT(prompt.at("reads").to_number<int>(), 0);
  EXPECT_GT(prompt.at("prefetched_used").to_number<int>(), 0);  // the second chunk and the third
  EXPECT_EQ(tests[1].at("ngram").at("rows").to_number<int>() % 4, 0);
}

}  // namespace
