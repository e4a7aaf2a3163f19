"""Streams of messages that cite records of a bibliography by key.

Reviews, orders and citation notices. An element that stands for a publication has the tag and key
of the corpus record, so an identity rule such as `article=@key` finds it; popular records are
cited by Zipf's law, and a fraction of the keys exists nowhere.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from fmware.datasets.bibliography import Record, record
from fmware.datasets.chance import check, ranks
from fmware.datasets.values import prose, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INFINITE = float("inf")
#: Indexes from here on belong to no corpus: the keys of unknown records.
BEYOND = 10**12
#: A prime above any corpus, so that stepping by it visits every record once.
_STRIDE = 2_147_483_647
_PROSE = 512


def citations(
    count: int,
    *,
    seed: int = 0,
    corpus_seed: int = 0,
    records: int,
    unknown: float = 0.05,
    skew: float = 0.8,
    cited: int = 6,
) -> Iterator[bytes]:
    """Yield `count` messages of about 0.5 to 4 KB, valid under notices.dtd.

    corpus_seed, records: those of the corpus that is cited.
    unknown: the fraction of cited keys that the corpus does not hold.
    skew: how much more often popular records are cited.
    cited: the most publications in one message.
    """
    check("count", count, 0, INFINITE)
    check("records", records, 1, _STRIDE - 1)
    check("unknown", unknown, 0, 1)
    check("skew", skew, 0, INFINITE)
    check("cited", cited, 1, INFINITE)
    maker = _Notices(seed, corpus_seed, records, unknown, skew, cited)
    return (maker.notice(number).encode() for number in range(count))


class _Notices:
    def __init__(
        self, seed: int, corpus_seed: int, records: int, unknown: float, skew: float, cited: int
    ) -> None:
        rng = Random(f"messages {seed}")
        self.random = rng.random
        self.corpus_seed = corpus_seed
        self.records = records
        self.unknown = unknown
        self.cited = cited
        self.rank = ranks(rng, records, skew)
        self.texts = [text.strip() for text in prose(rng, vocabulary(2000), _PROSE)]
        self.kinds: tuple[Callable[[], str], ...] = (self._review, self._order, self._citation)

    def notice(self, number: int) -> str:
        random = self.random
        priority = ("", ' priority="high"', ' priority="low"')[int(random() * 3)]
        sender = ("library", "reader", "shop", "index")[int(random() * 4)]
        return (
            f'<notice number="n{number}"{priority}><sender kind="{sender}">'
            f"<name>{self._text()}</name><mail>{sender}{int(random() * 500)}@mail.example</mail>"
            f"</sender><sent>{self._date()}</sent>{self.kinds[int(random() * 3)]()}</notice>"
        )

    # -- the three kinds

    def _review(self) -> str:
        verdict = ("accept", "revise", "reject")[int(self.random() * 3)]
        paras = "".join(f"<para>{self._texts(4)}</para>" for _ in range(1 + int(self.random() * 4)))
        return (
            f'<review round="{1 + int(self.random() * 3)}"><reviewer>{self._text()}</reviewer>'
            f"<verdict>{verdict}</verdict>{self._publications(self._rating)}"
            f"<summary>{paras}</summary></review>"
        )

    def _order(self) -> str:
        currency = ("EUR", "USD", "JPY")[int(self.random() * 3)]
        return (
            f'<order currency="{currency}"><customer>{self._text()}</customer>'
            f"{self._publications(self._quantity)}<total>{int(self.random() * 900)}</total></order>"
        )

    def _citation(self) -> str:
        return (
            f'<citation style="number"><citing>{self._publication(self._passage)}</citing>'
            f"<cited>{self._publications(self._passage)}</cited></citation>"
        )

    # -- publications

    def _publications(self, detail: Callable[[], str]) -> str:
        many = 1 + int(self.random() * self.cited)
        return "".join(self._publication(detail) for _ in range(many))

    def _publication(self, detail: Callable[[], str]) -> str:
        tag, key = self._cite()
        year = f"<year>{1970 + int(self.random() * 56)}</year>" if self.random() < 0.5 else ""
        return (
            f'<{tag} key="{key}"><title>{self._text()}</title>{year}{detail()}'
            f"<remark>{self._texts(3)}</remark></{tag}>"
        )

    def _cite(self) -> Record:
        if self.random() < self.unknown:
            return record(self.corpus_seed, BEYOND + int(self.random() * BEYOND))
        # The popular ones are spread over the corpus, not the first ones in the file.
        return record(self.corpus_seed, (self.rank() * _STRIDE + _STRIDE // 3) % self.records)

    def _rating(self) -> str:
        return f"<rating>{1 + int(self.random() * 5)}</rating>"

    def _quantity(self) -> str:
        return f"<quantity>{1 + int(self.random() * 20)}</quantity>"

    def _passage(self) -> str:
        return f'<passage page="{1 + int(self.random() * 400)}">{self._text()}</passage>'

    # -- text

    def _text(self) -> str:
        return self.texts[int(self.random() * _PROSE)]

    def _texts(self, most: int) -> str:
        return " ".join(self._text() for _ in range(1 + int(self.random() * most)))

    def _date(self) -> str:
        random = self.random
        return f"20{20 + int(random() * 6)}-{1 + int(random() * 12):02}-{1 + int(random() * 28):02}"
