"""The matching operators CMatch, CClean and AD-only match, and the cost model that chooses.

Nothing lives here yet: the operators stand on the index.
"""
