"""How to cite; the repository's CITATION.cff says the same."""

BIBTEX = """\
@article{{ishiguro2017averaged,
  title   = {{Averaged Collapsed Variational Bayes Inference}},
  author  = {{Ishiguro, Katsuhiko and Sato, Issei and Ueda, Naonori}},
  journal = {{Journal of Machine Learning Research}},
  volume  = {{18}},
  pages   = {{1--29}},
  year    = {{2017}}
}}

@software{{coblock,
  title   = {{coblock}},
  author  = {{{{The coblock developers}}}},
  version = {{{version}}},
  license = {{BSD-3-Clause}}
}}"""
