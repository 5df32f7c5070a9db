"""A user's questions: architecture and hardware joined over one case axis."""
