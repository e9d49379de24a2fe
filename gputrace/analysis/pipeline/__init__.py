"""What a change to the pipeline would do: the run's own service times, replayed through the model that `simulate` has.

observe    what happened to each call and synthesis, in seconds       (from the trace's frames)
services   service times and limits                                   (what the model takes in; waits left out)
replay     the model on the run unchanged, and how far it is off
changes    scenarios: pinned-h2d, workers=3, prep_msm=0.5x, ...        (a new one is a row of a table)
predict    each scenario with its interval
bounds     the most that each resource could sustain
"""
