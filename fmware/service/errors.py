"""What can go wrong in the service.

::

    FMwareError
    └── ServiceError
        ├── EngineStopped      used before it was started, or after it was stopped
        ├── IndexDamaged       the files of the index are not what was written
        ├── WorkerFailed       a worker process cannot be started
        │   └── WorkerGone     ... or ended before it answered (process)
        ├── StatementRefused   a statement cannot be subscribed, or is not there
        ├── BrokerError        a source or sink cannot be made, opened or written to
        │   └── BrokerDown     ... because its broker cannot be reached
        ├── SettingsError      a configuration that cannot be used (settings)
        ├── AddressRefused     a webhook's address that must not be called (addresses)
        ├── StateInUse         another service has the same state (server)
        └── Problem            what an HTTP request is refused with (problems)
"""

from __future__ import annotations

from fmware.errors import FMwareError

__all__ = [
    "BrokerDown",
    "BrokerError",
    "EngineStopped",
    "IndexDamaged",
    "ServiceError",
    "StatementRefused",
    "WorkerFailed",
]


class ServiceError(FMwareError):
    """Anything that goes wrong in the service, not in a message or a statement."""


class EngineStopped(ServiceError):
    """The engine does not run."""


class IndexDamaged(ServiceError):
    """The files of the index are not what was written; no message is matched until they are."""


class WorkerFailed(ServiceError):
    """A worker process could not be started, or is gone."""


class StatementRefused(ServiceError):
    """A statement that cannot be subscribed, or that is not there."""


class BrokerError(ServiceError):
    """A source or a sink that cannot be made, opened or written to."""


class BrokerDown(BrokerError):
    """A broker that cannot be reached: it is tried again, whereas others must be mended."""
