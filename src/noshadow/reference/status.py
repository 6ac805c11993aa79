"""How far a set of reference models is."""

from dataclasses import dataclass
from pathlib import Path

from noshadow.checks import named_in_errors
from noshadow.reference.opening import opened_manifest, whole_models


@dataclass(frozen=True)
class Status:
    """State of an experiment's folder.

    Attributes:
        folder: where it is.
        planned: number of models. done: number of those that are there.
        failed: (model, first line of what went wrong) of the last attempt at each model that is not
            there.
        missing: models that are not there, failed or not yet tried.
        seconds_per_model: mean over the models that are there, of one worker; None before the
            first.
        remaining_seconds: missing·seconds_per_model divided by the workers of the last run; None
            before the first model.
        bytes: size of the folder on disk.
    """

    folder: Path
    planned: int
    done: int
    failed: tuple[tuple[int, str], ...]
    missing: tuple[int, ...]
    seconds_per_model: float | None
    remaining_seconds: float | None
    bytes: int

    @property
    def complete(self) -> bool:
        """Whether `load_references` accepts it."""
        return not self.missing


@named_in_errors
def status(folder: str | Path) -> Status:
    """Planned, done, failed and missing models of a folder, also while another process trains them.

    Args:
        folder: as given to `train_references`.

    Raises:
        InputError: it holds no plan.

    Cost: the header of each model's file.
    """
    path = Path(folder)
    manifest = opened_manifest(path)
    done = whole_models(path, manifest)
    missing = tuple(number for number in range(manifest["plan"]["models"]) if number not in done)
    failed = []
    for number in missing:
        report = path / "failures" / f"{number:05d}.txt"
        if report.is_file():
            failed.append((number, report.read_text(encoding="utf-8", errors="replace").partition("\n")[0]))
    each = sum(float(there.metadata["seconds"]) for there in done.values()) / len(done) if done else None
    newest = max(done.values(), key=lambda there: there.path.stat().st_mtime_ns, default=None)
    workers = 1 if newest is None else int(newest.metadata["workers"])
    size = sum(map(_size, path.rglob("*")))
    left = None if each is None else len(missing) * each / max(min(workers, len(missing)), 1)
    return Status(path, manifest["plan"]["models"], len(done), tuple(failed), missing, each, left, size)


def _size(entry: Path) -> int:
    try:
        return entry.stat().st_size if entry.is_file() else 0
    except FileNotFoundError:  # renamed by the process that trains
        return 0
