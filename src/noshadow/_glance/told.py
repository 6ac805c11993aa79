"""What a glance reads of an audit."""

from typing import Protocol

from noshadow._known.audited import Audited
from noshadow.figures import Finding


class Told(Audited, Protocol):
    """The fields of `noshadow.results.Audit` that people are shown at one glance."""

    @property
    def findings(self) -> tuple[Finding, ...] | None: ...

    @property
    def notes(self) -> tuple[str, ...]: ...
