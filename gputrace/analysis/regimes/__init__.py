"""Stretches of a run in which the phases behave alike.

change_points   where a table of numbers per call changes     (numbers only)
stretches       where a run changes                           (frames to stretches)
cases           each stretch judged on its own, and its label (a new label is a row of a table)
"""
