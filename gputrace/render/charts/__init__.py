"""Charts as Vega-Lite specifications, a module for each kind of figure. The only room that imports altair."""
