"""A fleet as Parquet tables, for whoever asks further questions of it."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from gputrace.errors import InputError, UsageError
from gputrace.fleet.frames import HostNames, to_frames
from gputrace.fleet.result import Fleet


@dataclass(frozen=True)
class FleetTables:
    """Frames by file name: gpus (with a column a cause), hosts, causes, gpu_causes, daily, days, losses, failures."""

    fleet: Fleet

    def frames(self) -> dict[str, pl.DataFrame]:
        """The tables."""
        fleet = self.fleet
        wide = fleet.gpu_causes.sort("cause").pivot("cause", index=["host", "gpu"], values="lost_s")
        names = {cause: f"{cause}_lost_s" for cause in wide.columns if cause not in ("host", "gpu")}
        gpus = fleet.gpus.join(wide.rename(names), on=["host", "gpu"], how="left", maintain_order="left")
        days, losses, _ = to_frames(fleet.captures, HostNames())
        hosts = pl.DataFrame(
            {"capture": list(fleet.host_of), "host": list(fleet.host_of.values())},
            schema={"capture": pl.String, "host": pl.String},
        )
        named = [frame.drop("host").join(hosts, on="capture", how="left") for frame in (days, losses)]
        return {
            "gpus": gpus.with_columns(pl.col(*names.values()).fill_null(0.0)) if names else gpus,
            "hosts": fleet.hosts,
            "causes": fleet.causes,
            "gpu_causes": fleet.gpu_causes,
            "daily": fleet.daily,
            "days": named[0],
            "losses": named[1],
            "failures": pl.DataFrame(
                [(f.capture, f.kind, f.reason) for f in fleet.failures],
                schema={"capture": pl.String, "kind": pl.String, "reason": pl.String},
                orient="row",
            ),
        }

    def write(self, folder: str, force: bool) -> None:
        """Writes NAME.parquet of each. Raises `UsageError` for a folder that is not empty, unless `force`."""
        target = Path(folder)
        if target.exists() and not force and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{folder} is there already; --force overwrites it")
        try:
            target.mkdir(parents=True, exist_ok=True)
            for name, frame in self.frames().items():
                frame.write_parquet(target / f"{name}.parquet")
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
