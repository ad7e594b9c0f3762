// strata bench: what is measured, in which forms it is printed, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>
#include <string>

#include "tests/cli/program.h"

namespace {

using namespace strata::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Bench : public Program {
 protected:
  boost::json::object json(const std::string& arguments) const {
    const Outcome r = run("bench --json " + arguments);
    EXPECT_EQ(r.code, 0) << r.error;
    return r.code == 0 ? boost::json::parse(r.out).as_object() : boost::json::object();
  }
};

TEST_F(Bench, without_a_probe_claims_no_share) {
  const std::string bench = "bench --probe 0 -p 16 -n 2 -r 1 ";  // of the demo model
  Outcome r = run(bench);
  EXPECT_EQ(r.code, 0) << r.error;
  EXPECT_THAT(r.out, AllOf(HasSubstr("| prompt 16 |"), HasSubstr("| decode 2 after 0 |"),
                           Not(HasSubstr("of read")), Not(HasSubstr("this machine"))));
  const auto out = json("--probe 0 -p 16 -n 2 -r 1");
  EXPECT_TRUE(out.at("read_gbps").is_null());
  EXPECT_TRUE(out.at("tests").at(0).at("share_of_int8_peak").is_null());
  EXPECT_TRUE(out.at("tests").at(1).at("share_of_read_bandwidth").is_null());
}

TEST_F(Bench, measures_what_is_asked_beside_the_machine) {
  // tiny-a has no tokenizer: speed needs none.
  const auto out =
      json("-m " + converted() + " --probe 64 -p 8,20 -n 3 -d 10,0 -b 1,2 -r 2 --parts --chunk 8");
  ASSERT_TRUE(out.contains("tests"));
  EXPECT_GT(out.at("read_gbps").as_double(), 0);
  EXPECT_GT(out.at("int8_peak_gops").as_double(), 0);
  EXPECT_EQ(out.at("chunk").to_number<int>(), 8);
  EXPECT_FALSE(out.at("synthetic").as_bool());
  std::set<std::string> names;
  for (const auto& test : out.at("tests").as_array()) {
    names.insert(std::string(test.at("test").as_string()));
    const auto number = [&](const char* key) { return test.at(key).to_number<double>(); };
    EXPECT_EQ(test.at("rates").as_array().size(), 2u);
    EXPECT_EQ(number("runs"), 2);
    EXPECT_LE(number("tokens_per_s_least"), number("tokens_per_s"));
    EXPECT_LE(number("tokens_per_s"), number("tokens_per_s_most"));
    const double gbps = number("tokens_per_s") * number("bytes_per_token") / 1e9;
    const double gops = 2 * number("tokens_per_s") * number("macs_per_token") / 1e9;
    EXPECT_NEAR(number("share_of_read_bandwidth"), gbps / number("read_gbps"), 1e-6);
    EXPECT_NEAR(number("share_of_int8_peak"), gops / number("int8_peak_gops"), 1e-6);
    double share = 0;
    for (const auto& part : test.at("parts").as_array())
      share += part.at("share_of_time").to_number<double>();
    EXPECT_NEAR(share, 1, 1e-6);
    EXPECT_EQ(test.at("parts").as_array().size(), 9u);
  }
  EXPECT_EQ(names, (std::set<std::string>{"prompt 8", "prompt 20", "decode 3 after 0",
                                          "decode 3 after 0, 2 at once", "decode 3 after 10",
                                          "decode 3 after 10, 2 at once"}));
}

TEST_F(Bench, csv_has_a_row_a_test) {
  const Outcome r = run("bench --csv --parts -m " + converted() + " --probe 0 -p 4 -n 2 -r 1");
  EXPECT_EQ(r.code, 0) << r.error;
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 3);
  const auto columns = [](const std::string& line) {
    return std::count(line.begin(), line.end(), ',');
  };
  const std::size_t head = r.out.find('\n'), first = r.out.find('\n', head + 1);
  EXPECT_THAT(r.out, testing::StartsWith("test,kind,tokens,"));
  EXPECT_EQ(columns(r.out.substr(0, head)), columns(r.out.substr(head + 1, first - head - 1)));
  EXPECT_EQ(run("bench --csv --json").code, 2);
  for (const std::string other :
       {"--csv", "--json", "--kernels", "--parts", "--plan", "-p 4", "-m x"})
    EXPECT_EQ(run("bench --kernel-speed " + other).code, 2) << other;
  const Outcome unknown = run("bench --kernel-speed --isa none");
  EXPECT_NE(unknown.code, 0);
  EXPECT_NE(unknown.error.find("instruction set 'none' is not to be had"), std::string::npos)
      << unknown.error;
}

TEST_F(Bench, a_table_with_parts) {
  const Outcome r = run("bench --parts -m " + converted() + " --probe 64 -p 4 -n 2 -r 1");
  EXPECT_EQ(r.code, 0) << r.error;
  EXPECT_THAT(r.out, AllOf(HasSubstr("of read"), HasSubstr("this machine in the same run"),
                           HasSubstr("| decode 2 after 0 | delta net |"),
                           HasSubstr("| prompt 4 | residual read |")));
}

TEST_F(Bench, the_context_is_checked_before_anything_is_measured) {
  const std::string model = " -m " + converted() + " ";
  Outcome r = run("bench -p 600000" + model);
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error,
              HasSubstr("'prompt 600000' needs a context of 600000 tokens; the model has"));
  EXPECT_EQ(r.out, "");
  r = run("bench -p 4 -n 5 -d 1048575" + model);
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("'decode 5 after 1048575' needs a context of 1048580 tokens"));
  r = run("bench -p 0 -n 0" + model);
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.error, HasSubstr("there is nothing to measure"));
  EXPECT_EQ(run("bench -b 65" + model).code, 2);
  EXPECT_EQ(run("bench --quiet nan" + model).code, 2);
  EXPECT_EQ(run("bench -p x" + model).code, 2);
}

}  // namespace
