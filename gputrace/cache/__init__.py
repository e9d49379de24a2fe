"""What was read and concluded, kept by content, so that the same is not done twice."""
