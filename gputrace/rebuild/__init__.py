"""Marks to calls and phases: ties anonymous lines to calls and puts every phase on the wall clock."""
