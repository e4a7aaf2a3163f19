"""What can go wrong in routing.

```
FMwareError
└── RoutingError
    ├── SchemaError (ValueError)         a DTD or a schema cannot be used
    ├── AdvertisementError (ValueError)  an advertisement is not in the notation
    └── UnknownSubscription (KeyError)   no statement has this key
```
"""

from __future__ import annotations

from fmware.errors import FMwareError

__all__ = ["AdvertisementError", "RoutingError", "SchemaError", "UnknownSubscription"]


class RoutingError(FMwareError):
    """Root of the tree."""


class SchemaError(RoutingError, ValueError):
    """A DTD or an XML Schema cannot be read, or no document can conform to it."""


class AdvertisementError(RoutingError, ValueError):
    """The text of an advertisement is not in the notation; the message says where."""


class UnknownSubscription(RoutingError, KeyError):
    """No statement is known under this key."""

    def __str__(self) -> str:
        return str(self.args[0])
