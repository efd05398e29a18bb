"""The rules of Penstock, pure.

Nothing here knows sockets, files, clocks, random numbers, processes, proton, Kubernetes or Spark: what happens outside
comes in as an argument and what is to be done goes out as a value. Each module answers one question and names its
source; the attach rules are the table of seed 000 and the decisions of section 3 of the design, printed in
``docs/rules.md``.
"""
