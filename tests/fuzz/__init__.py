"""Coverage-guided fuzzing of what strangers and damaged disks can reach, against lxml.

`make fuzz SECONDS=60` builds the native modules with AddressSanitizer, UBSan and gcc's coverage,
and runs `python -m tests.fuzz` on them:

- `targets` has what is fuzzed: a check that takes bytes, passes, or raises what is wrong with them.
- `mutation` makes new inputs of old ones; `coverage` says which of them took edges that none had
  taken before, and those are kept to be changed again.
- `__main__` runs each target in a process of its own: a crash is noticed by its end, and the input
  is known from a file. What was found is written into `corpus/TARGET/`.

`test_corpus.py` checks all inputs of the corpus with the rest of the tests, natively compiled as
usual. An input stays there for good.
"""
