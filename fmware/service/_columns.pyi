from fmware.matching.plan import Plan
from fmware.matching.results import LocalMatches
from fmware.matching.to_json import Encoder

class Writing:
    owner: str
    def __init__(self, name: str) -> None: ...

class HitWriter:
    full: bool
    cut: dict[str, None]
    def __init__(self, encoder: Encoder, writings: dict[str, Writing], hits: int) -> None: ...
    def begin(self, place: int, tenant: str, name: str, time: str, room: int) -> None: ...
    def add(
        self,
        plans: list[Plan],
        rows: list[tuple[int, ...]],
        local: LocalMatches | None = None,
        first: int = 0,
    ) -> None: ...
    def end(self) -> tuple[int, int, int]: ...
    def text(self) -> bytes: ...

def placed(body: bytes, cut: int, position: int) -> bytes: ...
