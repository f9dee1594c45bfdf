"""The experiments of the paper, and what it did not measure; `make paper` writes docs/paper.md.

Layers, from the bottom: ``published`` (the paper's own figures), ``experiments`` (what there is to
run), ``shapes`` and ``naive`` (relations and the slow sweep that only a benchmark needs),
``protocol`` and ``timing`` (one run each), ``store`` (finished runs on disk), ``runner`` (budget,
processes, progress), ``evidence`` (runs put together), ``tables``, ``figures`` and ``verdicts``
(what the page is made of), ``page``.
"""
