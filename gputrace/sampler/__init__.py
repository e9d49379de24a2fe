"""The GPU and the host read at a steady pace, by the standard library and the driver's own library alone.

Nothing here loads polars or numpy: a recorder must start at once and stay small beside a prover.
"""
