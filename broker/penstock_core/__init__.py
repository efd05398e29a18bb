"""The rules of Penstock, as pure functions.

Nothing here knows sockets, files, clocks, random numbers, processes, proton, Kubernetes or Spark: what happens outside
comes in as an argument, and what is to be done is returned as a value. Each module answers one question and names its
source. The rules for attaching to subscriptions are the table of the attach table and the decisions 1 to 17 in
``docs/decisions``, printed in ``docs/reference/rules.md``; "decision 5" is ``docs/decisions/005-decide-then-steal.md``.
"""
