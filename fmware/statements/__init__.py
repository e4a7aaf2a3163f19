"""Statements: what a user asks, of messages and of the corpus.

The way a statement goes:

1. `Statement.parse` reads one expression, `Statement.two_part` a filter and a match part;
   `read_statements` a file of either. What is wrong is an `XPathError` with a caret and a hint.
2. `Statement.filter` is what a `FilterEngine` takes. `Statement.crossings` are what
   `fmware.matching` asks the corpus: from which anchor, by which axis, which match part.
3. `Returns` says what of a match is wanted.
"""

from fmware.filtering.statements import BadStatement, StatementFileError, refusal
from fmware.statements.errors import StatementError
from fmware.statements.files import Statements, parse_statements, read_statements
from fmware.statements.lint import lint
from fmware.statements.parts import anchor_text, match_text
from fmware.statements.returns import Returns
from fmware.statements.statement import Statement

__all__ = [
    "BadStatement",
    "Returns",
    "Statement",
    "StatementError",
    "StatementFileError",
    "Statements",
    "anchor_text",
    "lint",
    "match_text",
    "parse_statements",
    "read_statements",
    "refusal",
]
