"""The experiments of the paper, and others; `make paper` writes docs/paper.md.

From the bottom: ``published`` (the values printed in the paper), ``experiments`` (the jobs and
their order), ``shapes`` (generated relations), ``naive`` (the quadratic sweep, for comparison),
``internals`` (a fit whose sweeps are followed one by one), ``protocol`` and ``timing`` (one job
each), ``store`` (finished runs on disk), ``runner`` (time budget, processes, progress), ``results``
(means and tests over runs), ``tables``, ``figures`` and ``verdicts`` (parts of the page), ``page``.
"""
