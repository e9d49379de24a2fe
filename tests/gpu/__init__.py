"""What only a machine with an NVIDIA GPU can show; not part of `make test`. Run `python -m tests.gpu.measure FOLDER`.

Only the standard library, nvidia-ml-py and the driver itself are used, so that a bare machine will do.
"""
