"""Dead letters: parking, failure groups, filters and the audit."""
