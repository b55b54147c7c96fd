"""Whether an arm's answers are equal to the baseline's.

- `losslessness`: the conclusion for one cell; at temperature 0, how often answers differ, compared with the baseline's
  own repeats, and where they begin to differ.
- `sampled`: at other temperatures, the conclusion from permutation tests of openings and of lengths, with the smallest
  difference that they would detect.
- `answer_texts`: answers read again from the records, because tidy rows contain only a digest.

Answers are compared and counted in `metrics.divergence`, which the check GreedyDivergence uses too.
"""
