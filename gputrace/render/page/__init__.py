"""What the HTML report shows, as values: a module for each kind of thing that its templates ask for."""
