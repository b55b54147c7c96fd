"""Rules that one run cannot measure, each with what can be asked instead."""

from __future__ import annotations

from specbench_client.analysis.decision.rules.rule import FREE_LUNCH, ILLUSION, PRODUCTION, SPEED_BENCH, Rule

HIGH_OVERLAP = Rule(
    "ngram-at-high-overlap",
    "Where BLEU-4 of prompt and output is above 0.6, n-gram beats EAGLE",
    ILLUSION,
    unmeasured="a summary holds no texts: `specbench replay` judges it of a run that kept them (--keep-text)",
)
UNMEASURED = (
    HIGH_OVERLAP,
    Rule(
        "latency-over-perplexity",
        "A drafter's latency matters more than its perplexity",
        FREE_LUNCH,
        unmeasured="no perplexity is measured; two drafters as arms of one run show which is faster",
    ),
    Rule(
        "data-mix-over-size",
        "The mix of a drafter's training data matters more than its size",
        FREE_LUNCH,
        unmeasured="how a drafter was trained is not in a run; two of them as arms show which is faster",
    ),
    Rule(
        "slo-table",
        "P95 TPOT under 20 ms or cheapest: EAGLE-3 with 5 drafts; under 35 ms: draft model or Medusa; most throughput:"
        " EAGLE-3 with 7 drafts at concurrency 8 or less",
        PRODUCTION,
        unmeasured="the winners of one setup; ask for yours with --slo-tpot-ms and --objective",
    ),
    Rule(
        "checklist",
        "Look at workload, batch, output length, acceptance, 2 to 8 GB of memory, and framework",
        FREE_LUNCH,
        unmeasured="a list of what to look at, and no prediction: it stands in the report, with what each was here",
    ),
    Rule(
        "method-by-use",
        "Draft models for large targets, n-gram for editing, MTP where the target brings it",
        SPEED_BENCH,
        unmeasured="a comparison of targets and workloads, so of several runs; within one, see speed-ups by category",
    ),
    Rule(
        "switch-by-load",
        "Switch drafts on and off by load",
        PRODUCTION,
        unmeasured="a design, and no prediction: the answer at each load says from which one on it pays",
    ),
    Rule(
        "memory-constrained",
        "Short of memory: self-speculation or n-gram; frequent target updates: what needs no training",
        FREE_LUNCH,
        unmeasured="a constraint that is yours: --can-train no and --spare-memory-gb rule the other arms out",
    ),
)
