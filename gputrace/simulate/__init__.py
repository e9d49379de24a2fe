"""A model of the prover's pipeline: service times and limits in, waits and idle times out.

`pipeline` is the model and knows nothing of logs; `lines` prints a schedule as the prover would, `trace` samples it as
NVML would, `capture` writes both with the truth beside them, `scenarios` has runs worth having. `disturbance` is what
goes wrong from outside, `speed` how it slows a call's parts down, `costs` what each cause truly cost.
"""
