"""What can go wrong in the service.

::

    FMwareError
    └── ServiceError
        ├── EngineStopped      used before it was started, or after it was stopped
        ├── WorkerFailed       a worker process cannot be started, or dies again and again
        ├── StatementRefused   a statement cannot be subscribed, or is not there
        └── BrokerError        a source or sink cannot be made, opened or written to
"""

from __future__ import annotations

from fmware.errors import FMwareError

__all__ = ["BrokerError", "EngineStopped", "ServiceError", "StatementRefused", "WorkerFailed"]


class ServiceError(FMwareError):
    """Anything that goes wrong in the service, not in a message or a statement."""


class EngineStopped(ServiceError):
    """The engine does not run."""


class WorkerFailed(ServiceError):
    """A worker process could not be started, or died again and again."""


class StatementRefused(ServiceError):
    """A statement that cannot be subscribed, or that is not there."""


class BrokerError(ServiceError):
    """A source or a sink that cannot be made, opened or written to."""
