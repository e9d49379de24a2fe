"""Pages of the manual that are made from the code: `make docs-generated` writes them, a test compares them."""
