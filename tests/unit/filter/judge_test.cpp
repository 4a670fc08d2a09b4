// The walk through chains, on rules that are made here.
#include "stack/filter/judge.h"

#include <gtest/gtest.h>

namespace vireo::filter {
namespace {

using Kind = Verdict::Kind;

Rule always(Kind k, std::string chain = {}) {
  return {.handle = 7, .exprs = {{.kind = Expr::Kind::kVerdict, .verdict = {k, std::move(chain)}}}};
}
Rule perhaps(Kind k, std::string chain = {}) {
  Rule r = always(k, std::move(chain));
  r.exprs.insert(r.exprs.begin(), Expr{.kind = Expr::Kind::kMaybe});
  return r;
}

/// What becomes of a listener's packets behind `input` and a chain `other`.
std::string said(std::vector<Rule> input, std::vector<Rule> other = {}, bool refuses = false) {
  Ruleset r;
  Table& t = r.table_at(Family::kInet, "inet", "f");
  t.chains.push_back(
      {.name = "in", .hook = Hook::kInput, .refuses = refuses, .rules = std::move(input)});
  t.chains.push_back({.name = "other", .rules = std::move(other)});
  return obstacle(r, {.local = {IpAddr::any_v4(), 80}, .begins_there = true}).value_or("");
}

TEST(Judge, TheFirstSureVerdictCounts) {
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({}, {}, true), "inet f in, policy");
  EXPECT_EQ(said({always(Kind::kAccept)}, {}, true), "");
  EXPECT_EQ(said({always(Kind::kAccept), always(Kind::kRefuse)}), "");
  EXPECT_EQ(said({always(Kind::kRefuse), always(Kind::kAccept)}), "inet f in, handle 7");
}

TEST(Judge, WhatMayMatchMayRefuse) {
  EXPECT_EQ(said({perhaps(Kind::kRefuse)}), "inet f in, handle 7");
  EXPECT_EQ(said({perhaps(Kind::kAccept)}, {}, true), "inet f in, policy");
  EXPECT_EQ(said({perhaps(Kind::kAccept)}), "");
}

TEST(Judge, JumpsComeBack) {
  EXPECT_EQ(said({always(Kind::kJump, "other")}, {always(Kind::kAccept)}, true), "");
  EXPECT_EQ(said({always(Kind::kJump, "other")}, {}, true), "inet f in, policy");
  EXPECT_EQ(said({always(Kind::kJump, "other"), always(Kind::kAccept)}, {}, true), "");
  EXPECT_EQ(said({always(Kind::kJump, "other")}, {always(Kind::kReturn), always(Kind::kRefuse)}),
            "");
  EXPECT_EQ(said({perhaps(Kind::kJump, "other")}, {always(Kind::kRefuse)}),
            "inet f other, handle 7");
}

TEST(Judge, WhoGoesDoesNotComeBack) {
  EXPECT_EQ(said({always(Kind::kGoto, "other"), always(Kind::kRefuse)}), "");
  EXPECT_EQ(said({always(Kind::kGoto, "other"), always(Kind::kAccept)}, {}, true),
            "inet f in, policy");
  EXPECT_EQ(said({perhaps(Kind::kGoto, "other"), always(Kind::kRefuse)}), "inet f in, handle 7");
}

TEST(Judge, EndlessJumpsAreRefused) {
  EXPECT_NE(said({always(Kind::kJump, "other")}, {always(Kind::kJump, "other")}), "");
  EXPECT_NE(said({always(Kind::kJump, "nowhere")}), "");
}

}  // namespace
}  // namespace vireo::filter
