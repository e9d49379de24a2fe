"""Packs a capture into a sample: the merged log, the GPU trace and its metadata, gzipped, the same bytes every time.

python sample_logs/cut.py CAPTURE_FOLDER SAMPLE_FOLDER
"""

import gzip
import json
import sys
from pathlib import Path

FILES = ("prover.merged", "nvml.csv")
KEPT_METADATA = ("name", "what", "wall_start_utc", "stdio", "machine", "real", "simulated")


def pack(source: Path, target: Path) -> None:
    """One file, gzipped without a time or a name in its header."""
    target.write_bytes(gzip.compress(source.read_bytes(), compresslevel=9, mtime=0))


def cut(capture: Path, sample: Path) -> None:
    """Writes the sample of one capture."""
    sample.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        pack(capture / name, sample / f"{name}.gz")
    metadata = json.loads((capture / "meta.json").read_text())
    kept = {key: metadata[key] for key in KEPT_METADATA if key in metadata}
    kept["gpu_name"] = metadata.get("nvml_apis", {}).get("name", {}).get("value")
    (sample / "meta.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    cut(Path(sys.argv[1]), Path(sys.argv[2]))
