def set_cases(lower: bytes, upper: bytes) -> None: ...

class Rules:
    count: int
    residuals: int

class Settler:
    asked: int
    held: int
    trees: int
