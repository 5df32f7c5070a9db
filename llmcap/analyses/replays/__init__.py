"""Request traces on prefix caches of every size."""
